//! Which isolation level lets which anomaly happen: each is provoked by a scripted interleaving, at
//! each level, and must happen, or not, as the table says. That weak levels do show the weaker
//! anomalies proves that the scripts see them.
//!
//! After Adya's thesis (2000) and the Hermitage tests of Kleppmann.

use crate::isolation::script::{End, Outcome, run};
use firndb::Isolation;

struct Anomaly {
    name: &'static str,
    what: &'static str,
    script: &'static str,
    happened: fn(&Outcome) -> bool,
    /// Whether it happens under read committed, snapshot, and serializable isolation.
    happens: [bool; 3],
}

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
const NEVER: [bool; 3] = [false; 3];
const READ_COMMITTED: [bool; 3] = [true, false, false];
const NOT_SERIALIZABLE: [bool; 3] = [true, true, false];

const TABLE: &[Anomaly] = &[
    Anomaly {
        name: "G0",
        what: "dirty write: two transactions' writes of two rows are interleaved",
        script: "1 put x 11; 2 put x 12; 1 put y 21; 1 commit; 2 put y 22; 2 commit",
        happened: |o| !["x=11 y=21", "x=12 y=22"].contains(&o.rows.as_str()),
        happens: NEVER,
    },
    Anomaly {
        name: "G0 crossing",
        what: "dirty write, the rows in opposite order: a deadlock, and one of the two is refused",
        script: "1 put x 11; 2 put y 22; 1 put y 21; 2 put x 12; 1 commit; 2 commit",
        happened: |o| !["x=11 y=21", "x=12 y=22"].contains(&o.rows.as_str()),
        happens: NEVER,
    },
    Anomaly {
        name: "G1a",
        what: "aborted read: what is rolled back was seen",
        script: "1 put x 99; 2 all; 2 get x; 2 where 99; 1 rollback; 2 all; 2 where 99; 2 commit",
        happened: |o| o.answers.iter().any(|(who, _, answer)| *who == 2 && answer.contains("99")),
        happens: NEVER,
    },
    Anomaly {
        name: "G1b",
        what: "intermediate read: what was overwritten before the commit was seen",
        script: "1 put x 99; 2 all; 2 where 99; 1 put x 11; 1 commit; 2 all; 2 where 99; 2 commit",
        happened: |o| o.answers.iter().any(|(who, _, answer)| *who == 2 && answer.contains("99")),
        happens: NEVER,
    },
    Anomaly {
        name: "G1c",
        what: "circular information flow: each sees the other's write",
        script: "1 put x 11; 2 put y 22; 1 get y; 2 get x; 1 commit; 2 commit",
        happened: |o| o.of(1, "get") == ["22"] && o.of(2, "get") == ["11"],
        happens: NEVER,
    },
    Anomaly {
        name: "OTV",
        what: "observed transaction vanishes: of two writers' rows, the later is seen in one and the earlier in the other afterwards",
        script: "1 put x 11; 1 put y 19; 2 put x 12; 1 commit; 3 get x; 2 put y 18; 3 get y; 2 commit; \
                 3 get y; 3 get x; 3 commit",
        happened: |o| match o.of(3, "get")[..] {
            [x, y, y2, x2] => {
                (x == "11" && y == "20") || (x == "12" && y == "19") || (y2 == "18" && x2 == "11")
            }
            _ => false,
        },
        happens: NEVER,
    },
    Anomaly {
        name: "PMP",
        what: "predicate many preceders: a row appears that fits what was searched for",
        script: "1 where 30; 2 insert z 30; 2 commit; 1 where 30; 1 commit",
        happened: |o| o.of(1, "where") == ["", "z=30"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "PMP of ranges",
        what: "the same by scans, forward and then backward",
        script: "1 range a zz; 2 insert z 30; 2 commit; 1 rangeback a zz; 1 commit",
        happened: |o| o.of(1, "rangeback") == ["z=30 y=20 x=10"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "PMP write",
        what: "a deletion by predicate passes over a row that fits when it ends",
        script: "1 put x 20; 1 put y 30; 2 purge 20; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.rows.contains("x=20"),
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "P4",
        what: "lost update: both read, both write what they computed",
        script: "1 get x; 2 get x; 1 put x 11; 2 put x 11; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.of(1, "get") == o.of(2, "get"),
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "P4 for update",
        what: "lost update, the reads being for update",
        script: "1 lock x; 2 lock x; 1 put x 11; 1 commit; 2 put x 12; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.of(1, "lock") == o.of(2, "lock"),
        happens: NEVER,
    },
    Anomaly {
        name: "P4 of absent rows",
        what: "lost update where there was no row yet, the reads being for update",
        script: "1 lock z; 2 lock z; 1 put z 11; 1 commit; 2 put z 12; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.of(1, "lock") == o.of(2, "lock"),
        happens: NEVER,
    },
    Anomaly {
        name: "G-single",
        what: "read skew: one row before, another after a transaction",
        script: "1 get x; 2 get x; 2 get y; 2 put x 12; 2 put y 18; 2 commit; 1 get y; 1 commit",
        happened: |o| o.of(1, "get") == ["10", "18"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single of predicates",
        what: "read skew, by two searches",
        script: "1 where 10; 2 put x 12; 2 commit; 1 where 12; 1 commit",
        happened: |o| o.of(1, "where") == ["x=10", "x=12"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single write",
        what: "read skew, the second read being that of a deletion by predicate",
        script: "1 get x; 2 all; 2 put x 12; 2 put y 18; 2 commit; 1 purge 20; 1 commit",
        happened: |o| {
            o.committed(&[1, 2])
                && o.of(1, "get") == ["10"]
                && o.of(1, "purge") == [""]
                && o.rows.contains("y=18")
        },
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single of nothing done",
        what: "a deletion that found no row is followed by a read that finds one",
        script: "1 delete z; 2 insert z 30; 2 commit; 1 get z; 1 commit",
        happened: |o| o.of(1, "delete") == ["false"] && o.of(1, "get") == ["30"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single of nothing updated",
        what: "an update that found no row is followed by a read that finds one",
        script: "1 update z 40; 2 insert z 30; 2 commit; 1 get z; 1 commit",
        happened: |o| o.of(1, "update") == ["false"] && o.of(1, "get") == ["30"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single of a duplicate",
        what: "an insert that met a row is followed by a read that finds none",
        script: "1 insert x 11; 2 delete x; 2 commit; 1 get x; 1 commit",
        happened: |o| o.of(1, "insert") == ["duplicate"] && o.of(1, "get") == ["none"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G-single across a savepoint",
        what: "what a write reported of its row is not true any more after the write is undone",
        script: "1 save; 1 put z 30; 1 undo; 2 insert z 40; 2 commit; 1 get z; 1 commit",
        happened: |o| o.of(1, "put") == ["false"] && o.of(1, "get") == ["40"],
        happens: READ_COMMITTED,
    },
    Anomaly {
        name: "G2-item",
        what: "write skew: each reads what the other writes",
        script: "1 get x; 1 get y; 2 get x; 2 get y; 1 put x 11; 2 put y 21; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]),
        happens: NOT_SERIALIZABLE,
    },
    Anomaly {
        name: "G2-item of absent rows",
        what: "write skew: each finds missing what the other inserts",
        script: "1 get a; 2 get b; 1 insert b 11; 2 insert a 21; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]),
        happens: NOT_SERIALIZABLE,
    },
    Anomaly {
        name: "G2",
        what: "anti-dependency cycle of predicates: each inserts what the other searched for",
        script: "1 where 30; 2 where 30; 1 insert z 30; 2 insert w 30; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.of(1, "where") == [""] && o.of(2, "where") == [""],
        happens: NOT_SERIALIZABLE,
    },
    Anomaly {
        name: "G2 of empty ranges",
        what: "the same with ranges in which there is nothing, scanned in both directions",
        script: "1 rangeback a c; 2 range d f; 1 insert e 30; 2 insert b 30; 1 commit; 2 commit",
        happened: |o| o.committed(&[1, 2]) && o.of(1, "rangeback") == [""] && o.of(2, "range") == [""],
        happens: NOT_SERIALIZABLE,
    },
    Anomaly {
        name: "G2 of Fekete",
        what: "a transaction that only reads sees a state that no serial order explains",
        script: "1 all; 2 put y 25; 2 commit; 3 all; 3 commit; 1 put x 11; 1 commit",
        happened: |o| {
            o.committed(&[1, 2, 3]) && o.of(1, "all") == ["x=10 y=20"] && o.of(3, "all") == ["x=10 y=25"]
        },
        happens: NOT_SERIALIZABLE,
    },
];

#[test]
fn every_level_forbids_what_the_table_says() {
    let mut wrong = Vec::new();
    for anomaly in TABLE {
        for (level, happens) in LEVELS.into_iter().zip(anomaly.happens) {
            let outcome = run(level, anomaly.script);
            if (anomaly.happened)(&outcome) != happens {
                let expected = if happens { "should happen" } else { "must not happen" };
                wrong.push(format!(
                    "{} ({}) {expected} under {level:?}:\n{outcome:#?}",
                    anomaly.name, anomaly.what
                ));
            }
            for (who, end) in &outcome.ends {
                let fair = matches!(
                    end,
                    End::Committed
                        | End::RolledBack
                        | End::Refused(firndb::ErrorKind::Conflict | firndb::ErrorKind::Deadlock)
                );
                assert!(fair, "transaction {who} ended with {end:?} in {}", anomaly.name);
            }
            let survivors = outcome.ends.values().filter(|end| **end == End::Committed).count();
            assert!(
                survivors > 0,
                "{} under {level:?}: some transaction gets through: {outcome:?}",
                anomaly.name
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
