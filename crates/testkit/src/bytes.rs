//! Bytes on devices, past what uses them.

use firndb_device::{Device, Durability};

/// The contents of a device.
#[must_use]
pub fn contents(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("readable");
    bytes
}

/// Writes `bytes`, whole blocks, at `offset`.
pub fn overwrite(device: &dyn Device, offset: u64, bytes: &[u8]) {
    device.write(offset, bytes, Durability::Durable).expect("writable");
}

/// Flips one bit for good.
pub fn flip(device: &dyn Device, byte: u64, bit: u32) {
    let mut block = [0; 512];
    let start = byte / 512 * 512;
    device.read(start, &mut block).expect("readable");
    block[(byte - start) as usize] ^= 1 << bit;
    overwrite(device, start, &block);
}

/// The blocks of 512 bytes that hold anything.
#[must_use]
pub fn used_blocks(device: &dyn Device) -> Vec<u64> {
    let bytes = contents(device);
    let used = bytes.chunks(512).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0));
    used.map(|(number, _)| number as u64 * 512).collect()
}
