use super::*;

const FLASH: MemberCosts = MemberCosts {
    read: Cost { fixed_us: 20.0, us_per_byte: 0.0 },
    write: Cost { fixed_us: 0.0, us_per_byte: 466.875 / 2048.0 },
};
const DISK: MemberCosts = MemberCosts {
    read: Cost { fixed_us: 6034.0, us_per_byte: 0.0 },
    write: Cost { fixed_us: 6000.0, us_per_byte: 1.0 / 60.0 },
};
const ANY: Demands = Demands { survive: 0, space: 16.0, page_bytes: 2048, block_bytes: 1 };

fn load(readers: f64, read_think_us: f64, writers: f64, write_think_us: f64) -> Load {
    let clients = |count, think_us| Clients { count, think_us };
    Load { readers: clients(readers, read_think_us), writers: clients(writers, write_think_us) }
}

fn chosen(load: Load, member: MemberCosts, demands: Demands) -> String {
    choose(load, &[member; 4], demands).expect("a code satisfies them").code.to_string()
}

#[test]
fn loads_have_the_codes_that_suit_them() {
    let cases = [
        ("writes prevail", load(5.0, 3375.0, 5.0, 225.0), FLASH, "4 of 4"),
        ("reads prevail", load(50.0, 225.0, 5.0, 225.0), FLASH, "1 of 1"),
        ("disks, writes prevail", load(5.0, 3375.0, 5.0, 225.0), DISK, "1 of 1"),
        ("disks, reads prevail", load(50.0, 225.0, 5.0, 3375.0), DISK, "1 of 1"),
        ("nothing", load(0.0, 0.0, 0.0, 0.0), FLASH, "1 of 1"),
    ];
    for (name, load, member, code) in cases {
        assert_eq!(chosen(load, member, ANY), code, "{name}");
    }
    let reads = choose(load(50.0, 225.0, 0.0, 0.0), &[FLASH; 4], ANY).unwrap();
    assert!(reads.code.needed() == 1 && reads.code.written() >= 3, "{reads:?}");
}

#[test]
fn demands_are_satisfied_or_nothing_is_chosen() {
    let writes = load(5.0, 3375.0, 5.0, 225.0);
    let surviving = |survive| Demands { survive, ..ANY };
    assert_eq!(chosen(writes, FLASH, surviving(1)), "3 of 4");
    assert_eq!(chosen(writes, FLASH, surviving(2)), "2 of 4");
    assert_eq!(chosen(writes, FLASH, surviving(3)), "1 of 4");
    assert!(choose(writes, &[FLASH; 4], surviving(4)).is_none());
    let narrow = Demands { space: 1.4, ..surviving(1) };
    assert_eq!(chosen(load(50.0, 225.0, 1.0, 3375.0), FLASH, narrow), "3 of 4");
    assert!(choose(writes, &[FLASH; 4], Demands { space: 1.3, ..surviving(1) }).is_none());
    assert!(choose(writes, &[], ANY).is_none());
}

#[test]
fn pages_no_larger_than_blocks_are_not_fragmented() {
    let demands = Demands { block_bytes: 2048, ..ANY };
    assert_eq!(chosen(load(5.0, 3375.0, 5.0, 225.0), FLASH, demands), "1 of 1");
    let members = [FLASH; 4];
    let writes = load(0.0, 0.0, 2.0, 225.0);
    let fragmented = estimate(Code::new(4, 4).unwrap(), writes, &members, demands);
    assert!(fragmented.writes < estimate(Code::ONE_COPY, writes, &members, demands).writes);
}

#[test]
fn a_client_alone_waits_for_nothing() {
    for (code, written_us) in [((1, 1), 466.875), ((4, 4), 116.71875), ((2, 4), 233.4375)] {
        let code = Code::new(code.0, code.1).unwrap();
        let alone = estimate(code, load(0.0, 0.0, 1.0, 300.0), &[FLASH; 4], ANY);
        assert!((alone.writes / (1e6 / (300.0 + written_us)) - 1.0).abs() < 1e-6, "{code}: {alone:?}");
        let alone = estimate(code, load(1.0, 300.0, 0.0, 0.0), &[FLASH; 4], ANY);
        assert!((alone.reads / (1e6 / 320.0) - 1.0).abs() < 1e-6, "{code}: {alone:?}");
    }
}

#[test]
fn many_clients_keep_every_member_busy_and_no_more() {
    for code in Code::all(4) {
        for member in [FLASH, DISK] {
            let full = estimate(code, load(500.0, 100.0, 50.0, 100.0), &[member; 4], ANY);
            assert!((0.93..=1.03).contains(&full.utilisation), "{code}: {full:?}");
        }
    }
}

#[test]
fn clients_are_found_from_what_they_do() {
    let found = Clients::measured(5000.0, 600.0, 4);
    assert_eq!(found, Clients { count: 4.0, think_us: 200.0 });
    assert!((found.rate(600.0) * 1e6 - 5000.0).abs() < 1e-9);
    assert_eq!(Clients::measured(0.0, 0.0, 0), Clients::NONE);
    assert_eq!(Clients::measured(10_000.0, 600.0, 4).think_us, 0.0, "never less than no time");
}

#[test]
fn a_slow_member_slows_all() {
    let slow = MemberCosts { write: Cost { us_per_byte: 1.0, ..FLASH.write }, ..FLASH };
    let writes = load(0.0, 0.0, 20.0, 225.0);
    let all = |members: [MemberCosts; 4]| estimate(Code::ONE_COPY, writes, &members, ANY);
    let (same, one_slow) = (all([FLASH; 4]), all([FLASH, FLASH, FLASH, slow]));
    assert!(one_slow.writes < 0.9 * same.writes);
    assert!(one_slow.utilisation > one_slow.writes / 1e6 * 466.875 / 4.0);
}

#[test]
fn a_write_takes_longer_if_it_returns_with_more_fragments() {
    let two_copies = Code::new(1, 2).unwrap();
    let returning = |survive| {
        let demands = Demands { survive, ..ANY };
        estimate(two_copies, load(25.0, 1687.5, 5.0, 1687.5), &[FLASH; 4], demands).write_us
    };
    // With both copies instead of the first; there is no third.
    assert!(returning(1) > 1.02 * returning(0), "{} {}", returning(1), returning(0));
    assert_eq!(returning(2), returning(1));
}
