//! Processor time of encoding and decoding a page of 4 KiB.
//!
//! `cargo run --release -p firndb-array --example code_cost`. Each line is the least of 50 rounds
//! of 2,000 pages in memory that the processor's caches hold, on one thread: read the values beside
//! those of a plain copy.

use firndb_array::{Code, Coder};
use std::hint::black_box;
use std::time::Instant;

const PAGE: usize = 4096;
const BLOCK: usize = 512;
const ROUNDS: usize = 50;
const PAGES: u32 = 2000;

/// The least microseconds of a call.
fn least_us(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let began = Instant::now();
        (0..PAGES).for_each(|_| work());
        began.elapsed().as_secs_f64() * 1e6 / f64::from(PAGES)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Microseconds of encoding, and of decoding with none, the first, and all spare fragments lost,
/// data before parity.
fn times(code: Code) -> (f64, [f64; 3]) {
    let coder = Coder::new(code);
    let page: Vec<u8> = (0..PAGE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bytes = code.fragment_bytes(PAGE, BLOCK);
    let mut fragments = vec![vec![0; bytes]; code.written()];
    let mut slices: Vec<&mut [u8]> = fragments.iter_mut().map(|fragment| &mut **fragment).collect();
    let encoding = least_us(|| coder.encode(black_box(&page), black_box(&mut slices)));
    let decoding = [0, 1, code.spare()].map(|lost| {
        let numbered = fragments.iter().map(|fragment| &**fragment).enumerate();
        let present: Vec<(usize, &[u8])> = numbered.skip(lost).take(code.needed()).collect();
        let mut decoded = vec![0; PAGE];
        let least = least_us(|| coder.decode(black_box(&present), black_box(&mut decoded)));
        assert_eq!(decoded, page, "what is timed is right");
        least
    });
    (encoding, decoding)
}

fn main() {
    let page = [7; PAGE];
    let mut copy = [0; PAGE];
    let copying = least_us(|| black_box(&mut copy).copy_from_slice(black_box(&page)));
    println!("microseconds for a page of 4 KiB; a copy of it takes {copying:.2}\n");
    println!("fragments   encoding   decoding: none lost   the first   all spare");
    for (needed, written) in [(1, 2), (2, 3), (3, 4), (2, 4), (4, 6), (6, 8), (8, 12), (12, 16), (8, 16)] {
        let code = Code::new(needed, written).expect("a code");
        let (encoding, [none, first, spare]) = times(code);
        println!("{:<11} {encoding:>8.2} {none:>21.2} {first:>11.2} {spare:>11.2}", code.to_string());
    }
}
