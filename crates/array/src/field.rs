//! GF(2^8): bytes as polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1.

/// The modulus without its leading term: what doubling a byte adds if a bit falls out.
pub const REDUCTION: u8 = 0x1d;

/// The product.
pub const fn multiply(a: u8, b: u8) -> u8 {
    let (mut shifted, mut left, mut product) = (a, b, 0);
    while left != 0 {
        if left & 1 != 0 {
            product ^= shifted;
        }
        let falls_out = shifted & 0x80 != 0;
        shifted <<= 1;
        if falls_out {
            shifted ^= REDUCTION;
        }
        left >>= 1;
    }
    product
}

/// The inverse. Panics on zero, which has none.
pub const fn invert(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    // The multiplicative group has 255 elements: a^254 is the inverse.
    let (mut power, mut result, mut exponent) = (a, 1, 254);
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = multiply(result, power);
        }
        power = multiply(power, power);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        let mut seen = [false; 256];
        let mut power = 1;
        for _ in 0..255 {
            assert!(!std::mem::replace(&mut seen[usize::from(power)], true), "2 generates the group");
            power = multiply(power, 2);
        }
        assert_eq!(power, 1);
        for a in 0..=255u8 {
            assert!(a == 0 || multiply(a, invert(a)) == 1, "{a}");
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 0x53), multiply(a, b) ^ multiply(a, 0x53), "{a} {b}");
            }
        }
    }
}
