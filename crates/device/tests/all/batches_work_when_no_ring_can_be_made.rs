//! A system that refuses io_uring, now or later, costs speed and nothing else. Alone in its
//! process, whose limit of open files it lowers so that no ring can be made.

use firndb_device::{AlignedBuf, Device, Durability, FileDevice, FileOptions, Fill, Io, IoOp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn write_and_read_back(device: &FileDevice, stamp: u8) {
    let mut data = AlignedBuf::zeroed(16 * 4096);
    data.fill(stamp);
    let mut batch: Vec<Io<'_>> = data
        .chunks(4096)
        .enumerate()
        .map(|(i, part)| Io {
            offset: i as u64 * 4096,
            op: IoOp::Write(part, if i % 2 == 0 { Durability::Durable } else { Durability::Later }),
            outcome: Ok(()),
        })
        .collect();
    device.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()));
    let mut back = AlignedBuf::zeroed(16 * 4096);
    device.read(0, &mut back).expect("read");
    assert!(back[..] == data[..]);
}

#[test]
fn batches_work_when_no_ring_can_be_made() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let device = FileDevice::create(&directory.path().join("f"), &FileOptions::default()).expect("created");
    device.grow(16 * 4096, Fill::Written).expect("grown");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("a limit can be lowered");
    assert!(std::fs::File::open("/dev/null").is_err(), "no file can be opened, nor a ring");
    write_and_read_back(&device, 1);
    setrlimit(Resource::Nofile, limit).expect("and raised again");
    write_and_read_back(&device, 2);
}
