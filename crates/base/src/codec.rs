//! Reading and writing little-endian bytes with every length checked.
//!
//! [`Reader`] never panics and never allocates by a length it has not checked: bytes come from
//! devices that may lie. [`Writer`] appends to a `Vec<u8>`.

use std::fmt;

/// Bytes ended, or a value was outside its range, while decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
}
impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed bytes: {}", self.what)
    }
}
impl std::error::Error for Malformed {}

/// A cursor over bytes that may be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    /// What has not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Whether all bytes were read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.rest.len() {
            return Err(Malformed { what: "bytes end early" });
        }
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }
    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.bytes(N)?.try_into().expect("bytes() answers exactly what was asked"))
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A LEB128 number of at most ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match self.rest {
            // Most numbers are small.
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }
    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed { what: "a number of more than 64 bits" })
    }
    /// A LEB128 number that must fit a `usize` and not pass `max`.
    #[inline]
    pub fn varint_max(&mut self, max: usize) -> Result<usize, Malformed> {
        match usize::try_from(self.varint()?) {
            Ok(value) if value <= max => Ok(value),
            _ => Err(Malformed { what: "a number over its limit" }),
        }
    }
    /// A LEB128 length and as many bytes.
    #[inline]
    pub fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint_max(self.rest.len())?;
        self.bytes(len)
    }
}

/// Appends little-endian values to a `Vec<u8>`.
pub trait Writer {
    /// Raw bytes.
    fn put(&mut self, bytes: &[u8]);
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    /// Two bytes, little-endian.
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    /// Four bytes, little-endian.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    /// Eight bytes, little-endian.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    /// LEB128.
    #[inline]
    fn put_varint(&mut self, value: u64) {
        let group = |at: u32| (value >> (7 * at)) as u8;
        // The lengths that records mostly have are known where they are written: a store each, and
        // no call.
        match value {
            0..0x80 => self.put_u8(group(0)),
            0x80..0x4000 => self.put(&[group(0) | 0x80, group(1)]),
            0x4000..0x20_0000 => self.put(&[group(0) | 0x80, group(1) | 0x80, group(2)]),
            _ => self.put_long_varint(value),
        }
    }
    /// LEB128 of four bytes or more.
    fn put_long_varint(&mut self, mut value: u64) {
        // Put together first, so that the bytes are appended in one go.
        let (mut bytes, mut len) = ([0; 10], 0);
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        self.put(&bytes[..=len]);
    }
    /// A LEB128 length and the bytes.
    fn put_blob(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> (63 - shift)] {
                let mut bytes = Vec::new();
                bytes.put_varint(value);
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn lengths_over_the_rest_are_refused_before_they_are_used() {
        let mut bytes = Vec::new();
        bytes.put_varint(u64::MAX);
        assert!(Reader::new(&bytes).blob().is_err());
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        assert!(Reader::new(&[3, 1, 2]).blob().is_err());
        assert!(Reader::new(&[1]).u16().is_err());
    }
}
