//! Devices that behave like others, in real and in virtual time.
#![forbid(unsafe_code)]

pub mod nand;
