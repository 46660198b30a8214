//! Fields of fixed-layout rows: typed views of byte ranges, read and written in place.
//!
//! Numbers are big-endian, so that an index over unsigned ones sorts by value. Texts are padded
//! with blanks to their full length, as `CHAR` columns are.

use std::marker::PhantomData;
use std::ops::Range;

/// An integer that a [`Number`] field can hold.
pub trait Integer: Copy {
    /// Length in bytes.
    const LEN: usize;
    /// Reads exactly `LEN` bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Writes exactly `LEN` bytes.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Integer for $integer {
            const LEN: usize = size_of::<$integer>();
            fn read(bytes: &[u8]) -> Self {
                <$integer>::from_be_bytes(bytes.try_into().expect("the field is as long as its type"))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
integers!(u8, u32, u64, i32, i64);

/// A number at a fixed place of a row.
#[derive(Clone, Copy, Debug)]
pub struct Number<T> {
    at: usize,
    integer: PhantomData<T>,
}

impl<T: Integer> Number<T> {
    /// A field that starts `at` bytes into the row.
    #[must_use]
    pub const fn at(at: usize) -> Number<T> {
        Number { at, integer: PhantomData }
    }
    /// First byte past the field.
    #[must_use]
    pub const fn end(self) -> usize {
        self.at + T::LEN
    }
    /// The field's bytes.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.at..self.end()
    }
    /// The value in `row`, which must be a whole row.
    #[must_use]
    pub fn get(self, row: &[u8]) -> T {
        T::read(&row[self.range()])
    }
    /// Overwrites the value in `row`.
    pub fn set(self, row: &mut [u8], value: T) {
        value.write(&mut row[self.range()]);
    }
    /// Replaces the value in `row` by what `change` makes of it.
    pub fn change(self, row: &mut [u8], change: impl FnOnce(T) -> T) {
        self.set(row, change(self.get(row)));
    }
}

/// A text of at most `N` bytes at a fixed place of a row.
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    at: usize,
}

impl<const N: usize> Text<N> {
    /// A field that starts `at` bytes into the row.
    #[must_use]
    pub const fn at(at: usize) -> Text<N> {
        Text { at }
    }
    /// First byte past the field.
    #[must_use]
    pub const fn end(self) -> usize {
        self.at + N
    }
    /// The field's bytes.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.at..self.end()
    }
    /// The whole field with its padding.
    #[must_use]
    pub fn padded(self, row: &[u8]) -> &[u8] {
        &row[self.range()]
    }
    /// The text without its padding.
    #[must_use]
    pub fn get(self, row: &[u8]) -> &[u8] {
        self.padded(row).trim_ascii_end()
    }
    /// Overwrites the text; one longer than the field is cut.
    pub fn set(self, row: &mut [u8], text: &[u8]) {
        let field = &mut row[self.range()];
        let len = text.len().min(N);
        field[..len].copy_from_slice(&text[..len]);
        field[len..].fill(b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_side_by_side_and_keep_what_is_set() {
        const A: Number<i64> = Number::at(0);
        const B: Text<5> = Text::at(A.end());
        const C: Number<u8> = Number::at(B.end());
        let mut row = vec![0; C.end()];
        A.set(&mut row, -12);
        B.set(&mut row, b"firn");
        C.set(&mut row, 200);
        assert_eq!((A.get(&row), B.get(&row), C.get(&row)), (-12, b"firn".as_slice(), 200));
        assert_eq!(B.padded(&row), b"firn ");
        B.set(&mut row, b"too long");
        assert_eq!(B.get(&row), b"too l");
        assert_eq!(C.get(&row), 200);
    }
}
