//! Linear combinations of fragments over GF(2^8).

use crate::code::MEMBERS_MAX;
use crate::field::REDUCTION;

/// Bytes combined at once: eight vector registers of x86-64's and AArch64's least common width. A
/// fragment is a multiple of it. Of 16, 32, 64 and 128 bytes, 128 is fastest.
pub const CHUNK: usize = 128;

type Chunk = [u8; CHUNK];

/// The inputs whose coefficient has a bit set, bit by bit.
struct Plan {
    inputs: [[u8; MEMBERS_MAX]; 8],
    counts: [usize; 8],
}

impl Plan {
    fn new(coefficients: &[u8]) -> Plan {
        let mut plan = Plan { inputs: [[0; MEMBERS_MAX]; 8], counts: [0; 8] };
        for (at, coefficient) in coefficients.iter().enumerate() {
            for bit in (0..8).filter(|bit| coefficient >> bit & 1 != 0) {
                plan.inputs[bit][plan.counts[bit]] = at as u8;
                plan.counts[bit] += 1;
            }
        }
        plan
    }

    fn of_bit(&self, bit: usize) -> impl Iterator<Item = usize> {
        self.inputs[bit][..self.counts[bit]].iter().map(|&at| usize::from(at))
    }
}

/// Sets `out` to the sum of the inputs, each times its coefficient. Inputs are at least as long as
/// `out`, whose length is a multiple of [`CHUNK`].
///
/// By Horner's rule over the bits of all coefficients together: the sum of the inputs with the
/// highest bit, doubled, plus the sum of those with the next, and so on. So doubling costs the same
/// for one input as for sixteen, and coefficients of one are a plain XOR. The compiler makes vector
/// instructions of the loops over a chunk, of whatever width it may use; look-ups in tables of 256
/// bytes or of nibbles, which need unsafe code to be vectors, are two to five times slower.
pub fn combine(out: &mut [u8], coefficients: &[u8], inputs: &[&[u8]]) {
    assert!(out.len().is_multiple_of(CHUNK), "{} bytes are no whole chunks", out.len());
    assert_eq!(coefficients.len(), inputs.len(), "a coefficient for each input");
    assert!(inputs.iter().all(|input| input.len() >= out.len()), "an input is shorter than the output");
    let plan = Plan::new(coefficients);
    let highest = (0..8).rev().find(|&bit| plan.counts[bit] > 0).unwrap_or(0);
    for (number, out) in out.chunks_exact_mut(CHUNK).enumerate() {
        let place = number * CHUNK..(number + 1) * CHUNK;
        let mut sum: Chunk = [0; CHUNK];
        for bit in (0..=highest).rev() {
            if bit < highest {
                double(&mut sum);
            }
            for input in plan.of_bit(bit) {
                add(&mut sum, inputs[input][place.clone()].try_into().expect("a chunk"));
            }
        }
        out.copy_from_slice(&sum);
    }
}

#[inline(always)]
fn double(sum: &mut Chunk) {
    for byte in sum {
        let reduced = if *byte & 0x80 != 0 { REDUCTION } else { 0 };
        *byte = (*byte << 1) ^ reduced;
    }
}

#[inline(always)]
fn add(sum: &mut Chunk, input: &Chunk) {
    sum.iter_mut().zip(input).for_each(|(sum, byte)| *sum ^= byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;
    use firndb_base::rng::Rng;

    #[test]
    fn sums_are_those_of_the_field() {
        let mut rng = Rng::new(1);
        for count in 0..=MEMBERS_MAX {
            for len in [0, CHUNK, 3 * CHUNK] {
                let mut bytes = || (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
                let inputs: Vec<Vec<u8>> = (0..count).map(|_| bytes()).collect();
                let mut out = bytes();
                let coefficients: Vec<u8> = (0..count).map(|_| rng.next_u64() as u8).collect();
                let slices: Vec<&[u8]> = inputs.iter().map(|input| &**input).collect();
                combine(&mut out, &coefficients, &slices);
                for at in 0..len {
                    let products = coefficients.iter().zip(&inputs).map(|(&c, input)| multiply(c, input[at]));
                    assert_eq!(out[at], products.fold(0, |sum, product| sum ^ product));
                }
            }
        }
    }
}
