//! Random values as the specification draws them (clauses 2.1.5, 2.1.6 and 4.3.2).

use crate::random::Random;

/// NURand(A, x, y) of clause 2.1.6: non-uniform over `low..=high`, its hot values placed by `c`.
pub fn nurand(random: &mut Random, a: u32, low: u32, high: u32, c: u32) -> u32 {
    let mixed = u64::from(random.number(0, a) | random.number(low, high)) + u64::from(c);
    (mixed % u64::from(high - low + 1)) as u32 + low
}

/// A of NURand for C_LAST.
pub const LAST_NAME_A: u32 = 255;
/// A of NURand for C_ID.
pub const CUSTOMER_A: u32 = 1023;
/// A of NURand for OL_I_ID.
pub const ITEM_A: u32 = 8191;

/// The constants C of NURand in force during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunConstants {
    /// For C_LAST.
    pub last_name: u32,
    /// For C_ID.
    pub customer: u32,
    /// For OL_I_ID.
    pub item: u32,
}

impl RunConstants {
    /// Draws the constants of a run against a population loaded with `loaded` for C_LAST. Their
    /// difference lies in 65..=119 and is neither 96 nor 112 (clause 2.1.6.1).
    pub fn draw(random: &mut Random, loaded: u32) -> RunConstants {
        let last_name = loop {
            let drawn = random.number(0, LAST_NAME_A);
            let delta = drawn.abs_diff(loaded);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                break drawn;
            }
        };
        RunConstants { last_name, customer: random.number(0, CUSTOMER_A), item: random.number(0, ITEM_A) }
    }
}

/// C_LAST of a number in 0..=999: three syllables (clause 4.3.2.3). Writes into `name` and returns
/// the text.
pub fn last_name(number: u32, name: &mut [u8; 16]) -> &[u8] {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    assert!(number < 1000, "last names are made of three digits");
    let mut len = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        name[len..len + syllable.len()].copy_from_slice(syllable);
        len += syllable.len();
    }
    &name[..len]
}

/// Text made while loading, in a buffer of its own.
#[derive(Clone, Debug)]
pub struct TextBuffer {
    bytes: [u8; 500],
}

impl Default for TextBuffer {
    fn default() -> TextBuffer {
        TextBuffer { bytes: [0; 500] }
    }
}

/// What S_DATA and I_DATA of one row in ten hold somewhere (clause 4.3.3.1).
pub const ORIGINAL: &[u8] = b"ORIGINAL";

/// Whether a row's data makes an order line "brand" (clause 2.4.2.2).
#[must_use]
pub fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

impl TextBuffer {
    fn filled(&mut self, random: &mut Random, alphabet: &[u8], low: u32, high: u32) -> &mut [u8] {
        let len = random.number(low, high) as usize;
        // Ten characters of a 64-bit draw: six bits each, scaled to the alphabet.
        for chunk in self.bytes[..len].chunks_mut(10) {
            let mut bits = random.next_u64();
            for byte in chunk {
                *byte = alphabet[(bits & 63) as usize * alphabet.len() / 64];
                bits >>= 6;
            }
        }
        &mut self.bytes[..len]
    }

    /// A random a-string of `low..=high` characters (clause 4.3.2.2): 64 different ones.
    pub fn letters(&mut self, random: &mut Random, low: u32, high: u32) -> &[u8] {
        const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
        self.filled(random, ALPHABET, low, high)
    }

    /// A random n-string of `low..=high` digits.
    pub fn digits(&mut self, random: &mut Random, low: u32, high: u32) -> &[u8] {
        let len = random.number(low, high) as usize;
        for byte in &mut self.bytes[..len] {
            *byte = b'0' + random.number(0, 9) as u8;
        }
        &self.bytes[..len]
    }

    /// I_DATA or S_DATA: 26 to 50 characters, with "ORIGINAL" at a random place if `original`.
    pub fn data(&mut self, random: &mut Random, original: bool) -> &[u8] {
        let len = self.letters(random, 26, 50).len();
        if original {
            let at = random.number(0, (len - ORIGINAL.len()) as u32) as usize;
            self.bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
        &self.bytes[..len]
    }

    /// W_ZIP, D_ZIP, C_ZIP: four random digits and "11111" (clause 4.3.2.7).
    pub fn zip(&mut self, random: &mut Random) -> &[u8] {
        self.digits(random, 4, 4);
        self.bytes[4..9].copy_from_slice(b"11111");
        &self.bytes[..9]
    }
}

/// Marks exactly one row in ten of a run of rows, each row as likely as the others (selection
/// sampling).
#[derive(Clone, Debug)]
pub struct OneInTen {
    rows_left: u32,
    marks_left: u32,
}

impl OneInTen {
    /// For a run of `rows` rows.
    #[must_use]
    pub fn of(rows: u32) -> OneInTen {
        OneInTen { rows_left: rows, marks_left: rows / 10 }
    }
    /// Whether the next row is marked. Must be called once for each row.
    pub fn next(&mut self, random: &mut Random) -> bool {
        assert!(self.rows_left > 0, "every row was asked for");
        let marked = random.number(1, self.rows_left) <= self.marks_left;
        self.rows_left -= 1;
        self.marks_left -= u32::from(marked);
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_those_of_the_specification() {
        let mut name = [0; 16];
        assert_eq!(last_name(371, &mut name), b"PRICALLYOUGHT");
        assert_eq!(last_name(0, &mut name), b"BARBARBAR");
        for number in 0..1000 {
            assert!(last_name(number, &mut name).len() <= 16);
        }
    }

    #[test]
    fn run_constants_keep_the_distance_to_the_load() {
        for loaded in 0..=LAST_NAME_A {
            let mut random = Random::new(u64::from(loaded));
            for _ in 0..20 {
                let delta = RunConstants::draw(&mut random, loaded).last_name.abs_diff(loaded);
                assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
            }
        }
    }

    #[test]
    fn nurand_stays_in_range_and_is_not_uniform() {
        let mut random = Random::new(3);
        let mut counts = vec![0u32; 3001];
        for _ in 0..100_000 {
            counts[nurand(&mut random, CUSTOMER_A, 1, 3000, 77) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        // Uniform draws would give 33 to each; the hottest value of NURand(1023) gets many times
        // that.
        assert!(*counts.iter().max().unwrap() > 200);
    }

    #[test]
    fn exactly_one_row_in_ten_is_original() {
        let mut random = Random::new(5);
        let mut text = TextBuffer::default();
        let mut tenth = OneInTen::of(1000);
        let originals = (0..1000)
            .filter(|_| {
                let marked = tenth.next(&mut random);
                is_original(text.data(&mut random, marked))
            })
            .count();
        assert_eq!(originals, 100);
    }
}
