//! The device that a workload writes to.

use super::plan::Base;
use super::{Content, CrashPlan, Event, WriteId};
use crate::bytes::SharedBytes;
use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp, check_transfer, whole_blocks};
use crate::error::DeviceError;
use crate::memory::over_limit;
use firndb_base::sync::{Arc, Mutex, RwLock, before_device};

/// A device in memory whose every change is recorded in its [`CrashPlan`], which makes it.
///
/// While it is in use it shows all that was written, as a running system does.
#[derive(Debug)]
pub struct CrashDevice {
    plan: CrashPlan,
    /// Index in the plan.
    index: usize,
    info: DeviceInfo,
    limit: u64,
    /// Protects contents and length as a running system sees them.
    live: Arc<RwLock<SharedBytes>>,
    /// Keeps beginning and end of a change of length together in the record.
    resizing: Mutex<()>,
}

impl CrashDevice {
    pub(super) fn new(
        plan: CrashPlan,
        index: usize,
        base: &Base,
        live: Arc<RwLock<SharedBytes>>,
    ) -> CrashDevice {
        CrashDevice {
            plan,
            index,
            info: base.info.clone(),
            limit: base.limit,
            live,
            resizing: Mutex::new(()),
        }
    }

    /// Place of this device in its plan's events and images.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    fn begin_write(
        &self,
        offset: u64,
        content: Content,
        durability: Durability,
    ) -> Result<WriteId, DeviceError> {
        let mut state = self.plan.recording(&self.info.name)?;
        let mut live = self.live.write();
        check_transfer(&self.info, live.len(), offset, content.len())?;
        match content.bytes() {
            Some(bytes) => live.write(offset, bytes),
            None => live.zero(offset, content.len() as u64),
        }
        let write = state.next_write();
        if !content.is_empty() {
            state.events.push(Event::WriteBegins { device: self.index, write, offset, content, durability });
        }
        Ok(write)
    }

    fn end_write(&self, write: WriteId) -> Result<(), DeviceError> {
        self.plan.recording(&self.info.name)?.events.push(Event::WriteEnds { device: self.index, write });
        Ok(())
    }

    fn resize(&self, len: u64) -> Result<(), DeviceError> {
        self.plan.recording(&self.info.name)?.events.push(Event::ResizeBegins { device: self.index, len });
        self.plan.pass_latency();
        let mut state = self.plan.recording(&self.info.name)?;
        self.live.write().resize(len);
        state.events.push(Event::ResizeEnds { device: self.index, len });
        Ok(())
    }
}

impl Device for CrashDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        self.live.read().len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        drop(self.plan.recording(&self.info.name)?);
        let live = self.live.read();
        check_transfer(&self.info, live.len(), offset, buf.len())?;
        live.read(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let write = self.begin_write(offset, Content::of(data), durability)?;
        self.plan.pass_latency();
        self.end_write(write)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        before_device();
        let sync = {
            let mut state = self.plan.recording(&self.info.name)?;
            let sync = state.next_sync();
            state.events.push(Event::SyncBegins { device: self.index, sync });
            sync
        };
        self.plan.pass_latency();
        self.plan.recording(&self.info.name)?.events.push(Event::SyncEnds { device: self.index, sync });
        Ok(())
    }

    /// All writes of the batch are in flight at a time.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut begun = Vec::with_capacity(batch.len());
        for (place, io) in batch.iter_mut().enumerate() {
            io.outcome = match &mut io.op {
                IoOp::Read(buf) => self.read(io.offset, buf),
                IoOp::Write(data, durability) => self
                    .begin_write(io.offset, Content::of(data), *durability)
                    .map(|write| begun.push((place, write))),
            };
        }
        if begun.is_empty() {
            return;
        }
        self.plan.pass_latency();
        for (place, write) in begun {
            batch[place].outcome = self.end_write(write);
        }
    }

    fn grow(&self, len: u64, _: Fill) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        if len > self.limit {
            return Err(over_limit(&self.info, len, self.limit));
        }
        let _one_at_a_time = self.resizing.lock();
        if len > self.len() { self.resize(len) } else { Ok(()) }
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        let _one_at_a_time = self.resizing.lock();
        if len < self.len() { self.resize(len) } else { Ok(()) }
    }

    /// Contents become zeros, durably only after a sync.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let write = self.begin_write(offset, Content::zeros(len), Durability::Later)?;
        self.end_write(write)
    }
}
