use super::*;
use crate::MEMBERS_MAX;
use firndb_base::rng::Rng;

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn code(needed: usize, written: usize) -> Code {
    Code::new(needed, written).unwrap()
}

fn encoded(coder: &Coder, page: &[u8], fragment_bytes: usize) -> Vec<Vec<u8>> {
    let mut fragments = vec![vec![0xee; fragment_bytes]; coder.code().written()];
    let mut slices: Vec<&mut [u8]> = fragments.iter_mut().map(|fragment| &mut **fragment).collect();
    coder.encode(page, &mut slices);
    fragments
}

fn chosen(fragments: &[Vec<u8>], set: u32) -> Vec<(usize, &[u8])> {
    let numbered = fragments.iter().enumerate().filter(|(number, _)| set >> number & 1 != 0);
    numbered.map(|(number, fragment)| (number, &**fragment)).collect()
}

#[test]
fn any_fragments_that_suffice_give_the_page_back() {
    let mut rng = Rng::new(1);
    for needed in 1..=MEMBERS_MAX {
        let coder = Coder::new(code(needed, MEMBERS_MAX));
        let page = bytes(&mut rng, needed * CHUNK);
        let fragments = encoded(&coder, &page, CHUNK);
        let mut decoded = vec![0; page.len()];
        for set in (0..1u32 << MEMBERS_MAX).filter(|set| set.count_ones() as usize == needed) {
            decoded.fill(0xee);
            coder.decode(&chosen(&fragments, set), &mut decoded);
            assert_eq!(decoded, page, "{needed} of 16, fragments {set:016b}");
        }
        assert!(coder.inverses.read().len() <= INVERSES_MAX);
    }
}

#[test]
fn a_code_has_the_fragments_of_every_shorter_one() {
    let mut rng = Rng::new(2);
    for needed in 1..=MEMBERS_MAX {
        let page = bytes(&mut rng, needed * CHUNK);
        let longest = encoded(&Coder::new(code(needed, MEMBERS_MAX)), &page, CHUNK);
        for written in needed..MEMBERS_MAX {
            assert_eq!(encoded(&Coder::new(code(needed, written)), &page, CHUNK), longest[..written]);
        }
    }
}

#[test]
fn every_fragment_can_be_made_of_others() {
    let mut rng = Rng::new(3);
    for code in Code::all(8) {
        let coder = Coder::new(code);
        let page = bytes(&mut rng, code.needed() * CHUNK);
        let fragments = encoded(&coder, &page, CHUNK);
        let sets = (0..1u32 << code.written()).filter(|set| set.count_ones() as usize == code.needed());
        for set in sets {
            for number in 0..code.written() {
                let mut fragment = vec![0xee; CHUNK];
                coder.rebuild(&chosen(&fragments, set), number, &mut fragment);
                assert_eq!(fragment, fragments[number], "{code}, fragments {set:08b}, {number}");
            }
        }
    }
}

#[test]
fn pages_that_do_not_fill_their_fragments_come_back() {
    let mut rng = Rng::new(4);
    for (page_bytes, block) in [(1024, 512), (4096, 512), (4096, 4096), (65536, 4096)] {
        for code in Code::all(16).filter(|code| code.spare() <= 2) {
            let coder = Coder::new(code);
            let page = bytes(&mut rng, page_bytes);
            let fragments = encoded(&coder, &page, code.fragment_bytes(page_bytes, block));
            let data = fragments[..code.needed()].concat();
            let (own, filling) = data.split_at(page_bytes);
            assert!(own == page && filling.iter().all(|&byte| byte == 0), "{code}: bytes, then zeros");
            let mut decoded = vec![0xee; page_bytes];
            // The last ones, so that the first are lost.
            let set = ((1 << code.written()) - 1) & !((1 << code.spare()) - 1);
            coder.decode(&chosen(&fragments, set), &mut decoded);
            assert_eq!(decoded, page, "{code}, pages of {page_bytes}, blocks of {block}");
        }
    }
}

#[test]
fn first_parity_is_xor_and_copies_are_copies() {
    let mut rng = Rng::new(5);
    let page = bytes(&mut rng, 4096);
    for fragment in encoded(&Coder::new(code(1, 16)), &page, 4096) {
        assert_eq!(fragment, page);
    }
    let fragments = encoded(&Coder::new(code(4, 6)), &page, 1024);
    let xor = (0..1024).map(|at| fragments[..4].iter().fold(0, |sum, fragment| sum ^ fragment[at]));
    assert_eq!(fragments[4], xor.collect::<Vec<u8>>());
    assert_ne!(fragments[5], fragments[4]);
}

/// The code as a textbook has it: matrices written down whole, fields by long multiplication,
/// decoding by eliminating in the whole system, byte by byte.
mod textbook {
    use crate::MEMBERS_MAX;

    pub fn multiply(a: u8, b: u8) -> u8 {
        let product = (0..8).filter(|bit| b >> bit & 1 != 0).fold(0u16, |sum, bit| sum ^ u16::from(a) << bit);
        let reduced = (8..15)
            .rev()
            .fold(product, |left, bit| if left >> bit & 1 != 0 { left ^ 0x11d << (bit - 8) } else { left });
        reduced as u8
    }

    fn divide(a: u8, b: u8) -> u8 {
        (0..=255).find(|&quotient| multiply(quotient, b) == a).expect("b is not zero")
    }

    /// Which combination of the data fragments a fragment is.
    pub fn row(needed: usize, fragment: usize) -> Vec<u8> {
        let cauchy = |r: usize, j: usize| divide(1, (MEMBERS_MAX + r) as u8 ^ j as u8);
        let by_columns = |r: usize, j: usize| divide(cauchy(r, j), cauchy(0, j));
        let entry = |j: usize| match fragment.checked_sub(needed) {
            Some(parity) => divide(by_columns(parity, j), by_columns(parity, 0)),
            None => u8::from(fragment == j),
        };
        (0..needed).map(entry).collect()
    }

    /// The data bytes that these fragments' bytes are combinations of.
    pub fn decode(needed: usize, present: &[(usize, u8)]) -> Vec<u8> {
        let mut system: Vec<Vec<u8>> =
            present.iter().map(|&(number, byte)| [row(needed, number), vec![byte]].concat()).collect();
        for column in 0..needed {
            let pivot = (column..needed).find(|&row| system[row][column] != 0).expect("decodable");
            system.swap(column, pivot);
            let first = system[column][column];
            let pivot: Vec<u8> = system[column].iter().map(|&entry| divide(entry, first)).collect();
            for row in &mut system {
                let times = row[column];
                row.iter_mut().zip(&pivot).for_each(|(entry, above)| *entry ^= multiply(times, *above));
            }
            system[column] = pivot;
        }
        system.iter().map(|row| row[needed]).collect()
    }
}

#[test]
fn fragments_and_pages_are_those_of_the_textbook() {
    let mut rng = Rng::new(6);
    for _ in 0..60 {
        let written = rng.between(1, 16) as usize;
        let code = code(rng.between(1, written as u64) as usize, written);
        let coder = Coder::new(code);
        let page = bytes(&mut rng, code.needed() * CHUNK);
        let fragments = encoded(&coder, &page, CHUNK);
        let at = rng.below(CHUNK as u64) as usize;
        let data: Vec<u8> = (0..code.needed()).map(|number| page[number * CHUNK + at]).collect();
        for (number, fragment) in fragments.iter().enumerate() {
            let row = textbook::row(code.needed(), number);
            let sum = row.iter().zip(&data).fold(0, |sum, (&c, &byte)| sum ^ textbook::multiply(c, byte));
            assert_eq!(fragment[at], sum, "{code}, fragment {number}");
        }
        let mut numbers: Vec<usize> = (0..written).collect();
        while numbers.len() > code.needed() {
            numbers.remove(rng.below(numbers.len() as u64) as usize);
        }
        let present: Vec<(usize, u8)> =
            numbers.iter().map(|&number| (number, fragments[number][at])).collect();
        assert_eq!(textbook::decode(code.needed(), &present), data, "{code}, fragments {numbers:?}");
        let set = numbers.iter().fold(0, |set, number| set | 1 << number);
        let mut decoded = vec![0xee; page.len()];
        coder.decode(&chosen(&fragments, set), &mut decoded);
        assert_eq!(decoded, page);
    }
}

#[test]
fn a_wrong_fragment_is_noticed_by_its_caller_only() {
    let coder = Coder::new(code(2, 4));
    let page = bytes(&mut Rng::new(7), 4096);
    let mut fragments = encoded(&coder, &page, 2048);
    fragments[3][100] ^= 1;
    let decode = |set| {
        let mut decoded = vec![0; 4096];
        coder.decode(&chosen(&fragments, set), &mut decoded);
        decoded
    };
    assert_ne!(decode(0b1001), page);
    assert_eq!(decode(0b0101), page);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |work: &dyn Fn(&Coder)| {
        let coder = Coder::new(code(2, 3));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&coder))).is_err()
    };
    let half = [0u8; 2048];
    let page = || [0u8; 4096];
    assert!(!refused(&|coder| coder.decode(&[(0, &half), (2, &half)], &mut page())));
    assert!(refused(&|coder| coder.decode(&[(0, &half)], &mut page())), "too few");
    assert!(refused(&|coder| coder.decode(&[(0, &half), (0, &half)], &mut page())), "one twice");
    assert!(refused(&|coder| coder.decode(&[(2, &half), (0, &half)], &mut page())), "out of order");
    assert!(refused(&|coder| coder.decode(&[(0, &half), (3, &half)], &mut page())), "no such fragment");
    assert!(refused(&|coder| coder.decode(&[(0, &half), (1, &half[..1024])], &mut page())), "lengths");
    assert!(refused(&|coder| coder.decode(&[(0, &half[..1024]), (1, &half[..1024])], &mut page())), "short");
    assert!(refused(&|coder| coder.encode(&page(), &mut [&mut [0; 2048], &mut [0; 2048]])), "fragments");
    assert!(refused(&|coder| coder.rebuild(&[(0, &half), (1, &half)], 3, &mut [0; 2048])), "which");
}
