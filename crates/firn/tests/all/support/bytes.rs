//! Bytes on devices in memory, past the database.

use firndb::device::{Device, Durability, MemoryDevice};

/// The contents of a device.
pub fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("memory is readable");
    bytes
}

/// Writes `bytes`, whole blocks, at `offset`.
pub fn overwrite(device: &MemoryDevice, offset: u64, bytes: &[u8]) {
    device.write(offset, bytes, Durability::Durable).expect("memory is writable");
}

/// Flips one bit for good.
pub fn flip(device: &MemoryDevice, byte: u64, bit: u32) {
    let mut block = [0; 512];
    let start = byte / 512 * 512;
    device.read(start, &mut block).expect("memory is readable");
    block[(byte - start) as usize] ^= 1 << bit;
    overwrite(device, start, &block);
}

/// The blocks of 512 bytes that hold anything.
pub fn used_blocks(device: &MemoryDevice) -> Vec<u64> {
    let bytes = contents(device);
    let used = bytes.chunks(512).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0));
    used.map(|(number, _)| number as u64 * 512).collect()
}
