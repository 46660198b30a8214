//! Golden bytes of member header, section header and log blocks, as docs/format/log.md describes
//! them. A change here is a change of the format: old databases would no longer open.

use crate::support::{device_with, scan};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, Durability};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogOptions, Record};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn headers_blocks_and_records_have_these_bytes() {
    let device = device_with("log", 512, 64 << 10) as Arc<dyn Device>;
    let devices = vec![device.clone()];
    let options = LogOptions { section_bytes: 2048, ..options() };
    let log = Log::create(devices.clone(), identity(1), Epoch(1), options.clone()).unwrap();
    let group = [Record { kind: Kind(0x20), body: b"first" }, Record { kind: Kind(0x21), body: b"second" }];
    let end = log.append_group(LogClass::Normal, &group).unwrap().end;
    log.flush(end).unwrap();
    log.close().unwrap();
    let found = scan(&devices, &[(Epoch(1), Lsn::FIRST)], Lsn::FIRST).unwrap();
    let log = found.open_log(Epoch(2), found.next_epoch_start(), options).unwrap();
    log.flush(log.end()).unwrap();
    let end = log.append(LogClass::Normal, group[0]).unwrap().end;
    log.flush(end).unwrap();
    let bytes = contents(&*device);
    let block = |i: usize| &bytes[i * 512..(i + 1) * 512];
    assert_eq!(hex(&block(0)[..80]), MEMBER_HEADER);
    assert_eq!(block(0), block(1));
    assert_eq!(hex(&block(2)[..56]), SECTION_HEADER);
    assert_eq!(hex(&block(3)[..40]), BLOCK_HEADER);
    // The first epoch starts at LSN 4096, 320 bytes into its first block.
    assert_eq!(hex(&block(3)[40..360]), "00".repeat(320));
    assert_eq!(hex(&block(3)[360..392]), RECORDS);
    assert_eq!(hex(&block(4)[..40]), SEAL_HEADER);
    assert_eq!(block(4)[40..], block(3)[40..]);
    assert_eq!(hex(&block(5)[..64]), EPOCH_START);
    assert_eq!(hex(&block(6)[..56]), SECOND_SECTION_HEADER);
    assert_eq!(hex(&block(7)[..75]), REWRITTEN_BLOCK);
}

const MEMBER_HEADER: &str = "d39a76fc464c03014a05ec1a000000000100000001000000000000000002000000080000000000001f0000000000000000000000000000006669726e206c6f672074657374696e670000000000000000";
const SECTION_HEADER: &str = "53a41e81464c02014a05ec1a000000000100000000003b00c00e000000000000010000000000000000000000000000000000000000000000";
const BLOCK_HEADER: &str = "ef506611464c01014a05ec1a000000000100000000005701c00e0000000000000010000000000000";
const RECORDS: &str = "0500008020f966697273740600000021b97365636f6e64000000000000000000";
const SEAL_HEADER: &str = "95ab7672464c01014a05ec1a000000000100000000015701c00e0000000000001710000000000000";
const EPOCH_START: &str = "cd6bff92464c01014a05ec1a000000000200000000001200981000000000000098100000000000000c00000001a0020000001710000000000000000000000000";
const SECOND_SECTION_HEADER: &str = "618a3e4f464c02014a05ec1a000000000200000000003b009810000000000000020000000000000000000000000000000000000000000000";
const REWRITTEN_BLOCK: &str = "956208f8464c01014a05ec1a000000000200000000001d009810000000000000aa100000000000000c00000001a00200000017100000000000000500000020d66669727374000000000000";

#[test]
fn a_device_with_an_area_has_a_version_2_header_and_a_second_ring() {
    let devices: Vec<_> =
        (0..2).map(|i| device_with(&format!("log {i}"), 512, 64 << 10) as Arc<dyn Device>).collect();
    let options = LogOptions { section_bytes: 2048, ..options() };
    drop(Log::create(devices.clone(), identity(2), Epoch(1), options).unwrap());
    let bytes = contents(&*devices[1]);
    // 31 sections of 2048 bytes fit behind the two headers: 29 for the main stream, 2 for the area.
    assert_eq!((bytes[6], bytes[7]), (3, 2));
    assert_eq!(bytes[40..56], [[29, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat());
    let section = |place: usize| &bytes[1024 + place * 2048..][..40];
    for place in 0..31 {
        let header = section(place);
        assert_eq!((header[6], header[7]), (2, 1), "section headers keep version 1");
        assert_eq!(header[20], u8::from(place >= 29), "the stream of section {place}");
        assert_eq!(header[32..40], [0; 8], "never used");
    }
    // A program that knows only version 1 must refuse the log: without the area's version it is no
    // member header.
    let mut first = bytes[..512].to_vec();
    first[7] = 1;
    let checksum = firndb_base::crc32c(&first[4..]).to_le_bytes();
    first[..4].copy_from_slice(&checksum);
    for copy in [0, 512] {
        devices[1].write(copy, &first, Durability::Durable).unwrap();
    }
    assert!(scan(&devices, &[(Epoch(1), Lsn::FIRST)], Lsn::FIRST).is_err());
}
