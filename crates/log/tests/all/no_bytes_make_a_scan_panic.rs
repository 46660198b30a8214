//! Whatever a device holds, a scan ends with a result or an error: random bytes, damaged logs, and
//! logs whose fields are wrong under valid checksums.

use crate::support::{as_records, device_with, random_group, scan};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn, crc32c};
use firndb_device::{Device, Durability};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogOptions, Record};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

const BYTES: u64 = 48 << 10;

/// A log of two epochs on two devices; contents, epochs and a record's LSN to start at.
fn whole(rng: &mut Rng) -> (Vec<Vec<u8>>, Vec<(Epoch, Lsn)>, Lsn) {
    let devices: Vec<Arc<dyn Device>> =
        (0..2).map(|i| device_with(&format!("log {i}"), 512, BYTES) as Arc<dyn Device>).collect();
    let options = LogOptions { section_bytes: 2048, request_bytes: 2048, ..options() };
    let mut log = Log::create(devices.clone(), identity(2), Epoch(1), options.clone()).unwrap();
    let mut epochs = vec![(Epoch(1), Lsn::FIRST)];
    let mut from = Lsn::FIRST;
    for i in 0..60 {
        let appended = log.append_group(LogClass::Normal, &as_records(&random_group(rng, 400))).unwrap();
        log.flush(appended.end).unwrap();
        if i == 10 {
            from = appended.end;
            log.truncate(from);
        }
        if i == 40 {
            let found = scan(&devices, &epochs, from).unwrap();
            epochs.push((Epoch(2), found.next_epoch_start()));
            log = found.open_log(Epoch(2), found.next_epoch_start(), options.clone()).unwrap();
        }
    }
    (devices.iter().map(|d| contents(&**d)).collect(), epochs, from)
}

/// Scans, reads and, if that succeeded, opens the log, with any result.
fn try_all(images: &[Vec<u8>], epochs: &[(Epoch, Lsn)], from: Lsn) -> bool {
    let devices: Vec<Arc<dyn Device>> = images
        .iter()
        .enumerate()
        .map(|(i, image)| {
            let device = device_with(&format!("log {i}"), 512, BYTES);
            device.write(0, image, Durability::Later).unwrap();
            device as Arc<dyn Device>
        })
        .collect();
    let Ok(found) = scan(&devices, epochs, from) else { return false };
    let mut records = found.records(from);
    while let Ok(Some((_, record))) = records.next() {
        assert!(record.body.len() < BYTES as usize * 2);
    }
    let start = found.next_epoch_start();
    let Ok(log) = found.open_log(Epoch(100), start, options()) else { return true };
    if let Ok(appended) = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: b"goes on" }) {
        log.flush(appended.end).unwrap();
    }
    true
}

fn mend_checksum(block: &mut [u8]) {
    let crc = crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn random_bytes_are_no_log() {
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        let images: Vec<Vec<u8>> =
            (0..2).map(|_| (0..BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()).collect();
        assert!(!try_all(&images, &[(Epoch(1), Lsn::FIRST)], Lsn::FIRST));
    }
}

#[test]
fn damaged_logs_are_refused_or_end_early() {
    let mut rng = Rng::new(2);
    let (images, epochs, from) = whole(&mut rng);
    assert!(try_all(&images, &epochs, from));
    for round in 0..600 {
        let mut images = images.clone();
        for _ in 0..rng.between(1, 12) {
            let image = &mut images[rng.below(2) as usize];
            let block = rng.below(BYTES / 512) as usize * 512;
            match rng.below(4) {
                0 => image[block..block + 512].fill(0),
                1 => image[block + rng.below(512) as usize] ^= 1 << rng.below(8),
                2 => {
                    let other = rng.below(BYTES / 512) as usize * 512;
                    image.copy_within(other..other + 512, block);
                }
                _ => {
                    // A wrong field under a valid checksum.
                    let at = block + 4 + rng.below(70) as usize;
                    let value = [0, 1, 0xff, 0x80, rng.next_u64() as u8][rng.below(5) as usize];
                    let until = (at + rng.below(9) as usize + 1).min(block + 512);
                    image[at..until].fill(value);
                    mend_checksum(&mut image[block..block + 512]);
                }
            }
        }
        if round % 10 == 0 {
            images.swap(0, 1);
        }
        try_all(&images, &epochs, from);
    }
}

#[test]
fn wrong_fields_under_valid_checksums_do_no_harm() {
    let mut rng = Rng::new(3);
    let (images, epochs, from) = whole(&mut rng);
    for block in (0..BYTES as usize / 512).step_by(3) {
        for at in [6, 16, 20, 21, 22, 24, 28, 31, 32, 36, 39, 40, 44, 45, 46, 48, 51] {
            let mut images = images.clone();
            let image = &mut images[block % 2];
            image[block * 512 + at] ^= 0xff;
            mend_checksum(&mut image[block * 512..block * 512 + 512]);
            try_all(&images, &epochs, from);
        }
    }
}

#[test]
fn a_wrong_start_is_refused_not_read_as_records() {
    let mut rng = Rng::new(4);
    let (images, epochs, from) = whole(&mut rng);
    for offset in 0..3000 {
        try_all(&images, &epochs, Lsn(from.0 + offset));
    }
    try_all(&images, &epochs, Lsn(1));
    try_all(&images, &epochs, Lsn(u64::MAX));
    try_all(&images, &epochs, Lsn(u64::MAX >> 1));
    try_all(&images, &[], from);
    try_all(&images, &[(Epoch(2), Lsn(472)), (Epoch(1), Lsn(944))], from);
    try_all(&images, &[(Epoch(1), Lsn(u64::MAX))], Lsn::MAX);
}
