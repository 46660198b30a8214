//! A recording passes everything on, and its trace tells all of it.

use firndb_base::clock;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::trace::{TraceOp, TraceReader};
use firndb_device::{Device, DeviceError, Durability, Fill, Io, IoOp, MemoryDevice, Recording};
use std::io::{self, Write};

/// Memory that the test can read while the recording writes to it; full after this many bytes.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>, usize);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock();
        if self.1 > 0 && all.len() + bytes.len() > self.1 {
            return Err(io::Error::other("no space for the trace"));
        }
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exercise(device: &dyn Device) -> Result<(), DeviceError> {
    let block = [7u8; 512];
    let mut buf = [0u8; 1024];
    device.grow(4096, Fill::Written)?;
    device.grow(8192, Fill::Sparse)?;
    device.write(512, &block, Durability::Later)?;
    device.write(1024, &block, Durability::Durable)?;
    device.read(512, &mut buf)?;
    assert_eq!(buf, [7; 1024]);
    let mut other = [0u8; 512];
    let mut batch = [
        Io { offset: 0, op: IoOp::Read(&mut other), outcome: Ok(()) },
        Io { offset: 1536, op: IoOp::Write(&block, Durability::Later), outcome: Ok(()) },
    ];
    device.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()));
    device.sync()?;
    device.discard(512, 512)?;
    device.shrink(4096)
}

#[test]
fn every_call_is_a_line_and_its_effect_is_there() {
    let out = Shared::default();
    let inner = Arc::new(MemoryDevice::new("a\nname"));
    let device = Recording::new(inner.clone(), Box::new(out.clone()), clock::now()).expect("writable");
    exercise(&device).expect("memory works");
    assert_eq!(device.finish(), Ok(10));
    assert_eq!(inner.len(), 4096);
    let text = out.0.lock().clone();
    let events: Vec<_> = TraceReader::new(&text[..]).collect::<Result<_, _>>().expect("a sound trace");
    let told: Vec<_> = events.iter().map(|event| (event.op, event.offset, event.bytes)).collect();
    use TraceOp::{Discard, DurableWrite, Grow, GrowWritten, Read, Shrink, Sync, Write};
    let expected = [
        (GrowWritten, 0, 4096),
        (Grow, 4096, 4096),
        (Write, 512, 512),
        (DurableWrite, 1024, 512),
        (Read, 512, 1024),
        (Read, 0, 512),
        (Write, 1536, 512),
        (Sync, 0, 0),
        (Discard, 512, 512),
        (Shrink, 4096, 4096),
    ];
    assert_eq!(told, expected);
    assert!(events.iter().all(|event| !event.failed));
    assert!(events.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns), "one thread asks in order");
}

#[test]
fn failures_are_recorded_as_failures() {
    let out = Shared::default();
    let inner = Arc::new(MemoryDevice::new("m"));
    let device = Recording::new(inner, Box::new(out.clone()), clock::now()).expect("writable");
    device.grow(4096, Fill::Written).expect("memory grows");
    assert!(device.read(4096, &mut [0; 512]).is_err(), "beyond the end");
    assert_eq!(device.finish(), Ok(2));
    let text = out.0.lock().clone();
    let events: Vec<_> = TraceReader::new(&text[..]).collect::<Result<_, _>>().expect("a sound trace");
    assert_eq!(events.iter().map(|event| event.failed).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_trace_that_cannot_be_written_does_not_stop_the_device() {
    let inner = Arc::new(MemoryDevice::new("m"));
    let out = Shared(Arc::default(), 100);
    let device = Recording::new(inner.clone(), Box::new(out), clock::now()).expect("buffered");
    device.grow(512, Fill::Written).expect("memory grows");
    for _ in 0..10_000 {
        device.write(0, &[1; 512], Durability::Later).expect("the device is whole");
    }
    let error = device.finish().expect_err("the trace is not");
    assert!(error.message.contains("no space for the trace"), "{error}");
}
