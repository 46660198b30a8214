//! A `Counting` device counts each transfer once, alone or in a batch, with its bytes, done or
//! failed.

use firndb_device::{Count, Counting, Device, Durability, Fill, Io, IoOp, MemoryDevice};
use std::sync::Arc;

#[test]
fn by_kind_bytes_and_size() {
    let device = Counting::new(Arc::new(MemoryDevice::with("data", 512, 1 << 20)));
    device.grow(64 << 10, Fill::Written).expect("grown");
    device.grow(1, Fill::Written).expect("already longer");
    device.write(0, &[1; 512], Durability::Later).expect("written");
    device.write(0, &[1; 1536], Durability::Durable).expect("written");
    device.sync().expect("synced");
    let before = device.snapshot();
    assert_eq!(before.grows, Count { ops: 2, bytes: 64 << 10 });
    assert_eq!(before.writes, Count { ops: 2, bytes: 2048 });
    assert_eq!(before.durable_writes, Count { ops: 1, bytes: 1536 });
    assert_eq!((before.syncs, before.flushes(), before.batches, before.errors), (1, 2, 0, 0));
    assert_eq!(before.writes_by_size[..3], [1, 1, 0]);

    let (mut buf, data) = ([0; 1024], [2; 4096]);
    let mut batch = [
        Io { offset: 0, op: IoOp::Read(&mut buf), outcome: Ok(()) },
        Io { offset: 4096, op: IoOp::Write(&data, Durability::Durable), outcome: Ok(()) },
        Io { offset: 64 << 10, op: IoOp::Write(&data, Durability::Later), outcome: Ok(()) },
    ];
    device.submit(&mut batch);
    device.discard(0, 2048).expect("discarded");
    device.shrink(32 << 10).expect("shrunk");
    device.grow(2 << 20, Fill::Sparse).expect_err("over the limit");
    device.read(1 << 20, &mut [0; 512]).expect_err("beyond the end");
    let added = device.snapshot().since(&before);
    assert_eq!(added.reads, Count { ops: 2, bytes: 1536 });
    assert_eq!(added.writes, Count { ops: 2, bytes: 8192 });
    assert_eq!(added.durable_writes, Count { ops: 1, bytes: 4096 });
    assert_eq!((added.batches, added.syncs, added.shrinks, added.errors), (1, 0, 1, 3));
    assert_eq!(added.discards, Count { ops: 1, bytes: 2048 });
    assert_eq!(added.grows, Count::default());
    assert_eq!(added.writes_by_size.iter().sum::<u64>(), 2);
    assert_eq!(added.writes_by_size[3], 2);
    assert_eq!(device.snapshot().since(&device.snapshot()), Default::default());
}

#[test]
fn writes_larger_than_all_classes_are_in_the_last() {
    let device = Counting::new(Arc::new(MemoryDevice::new("data")));
    device.grow(64 << 20, Fill::Sparse).expect("grown");
    device.write(0, &vec![0; 64 << 20], Durability::Later).expect("written");
    assert_eq!(device.snapshot().writes_by_size[15], 1);
}
