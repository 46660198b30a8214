//! A device that stores its bytes in another one and takes the time that a profile says.

use crate::model::Model;
use crate::nand::{NandConfig, NandDevice, NandReport};
use crate::pacer::Pacer;
use crate::request::Request;
use crate::statistics::Statistics;
use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_device::{
    Device, DeviceError, DeviceInfo, Durability, Fill, InFlight, Io, IoOp, OwnedRead, ReadDone,
};
use firndb_profile::{DeviceProfile, ProfileError};
use std::time::Duration;

/// Passes everything on to another device and returns when a device of the profile would.
///
/// The bytes are read and written at once; then the caller waits for what is left of the modelled
/// time. In real time a call takes the longer of the two devices' times, so the device below should
/// be fast: memory, or a file on something faster than the profile. A batch is submitted to the
/// model at one moment and returns with the latest. Calls that fail take their time as well.
///
/// Growing, shrinking and discarding take no modelled time: experiments begin when their devices
/// are ready.
///
/// If the profile names simulated flash (`[nand]`), the device below is a [`NandDevice`] of it: a
/// call returns when the model and the flash are both done. Growth by written zeros is a write
/// there.
///
/// This wrapper has no power cuts: put it over a `CrashDevice`, which keeps what is durable apart
/// from what is only written. A profile's volatile write cache then loses what the `CrashDevice`
/// may lose; a cache that survives makes syncs fast, and loses nothing that was synced. `Faulty`
/// goes above it for faults that take no time, below it for faults that take as long as a success,
/// and `Counting` anywhere.
#[derive(Debug)]
pub struct Emulated {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    pacer: Pacer,
    /// The device below, if it is simulated flash.
    flash: Option<Arc<NandDevice>>,
    /// Channels or spindles, which work side by side.
    servers: u32,
    /// Calls take no modelled time.
    free: AtomicBool,
}

impl Emulated {
    /// A device of this profile over `inner`, idle now; equal seeds give equal outliers. Its
    /// logical block is the larger of the two. Fails if the profile contradicts itself.
    pub fn new(inner: Arc<dyn Device>, profile: &DeviceProfile, seed: u64) -> Result<Emulated, ProfileError> {
        let model = Model::new(profile, seed)?;
        let invalid = |problem: String| ProfileError::Invalid { key: "nand".to_owned(), problem };
        let config = NandConfig::of_profile(profile, seed).map_err(|error| invalid(error.to_string()))?;
        let (Some(config), Some(nand)) = (config, &profile.nand) else {
            return Ok(Emulated::over(inner, profile, model));
        };
        let written = (profile.capacity_bytes as f64 * nand.filled) as u64;
        let flash = NandDevice::used(inner, config, written).map_err(|error| invalid(error.to_string()))?;
        let flash = Arc::new(flash);
        Ok(Emulated { flash: Some(flash.clone()), ..Emulated::over(flash, profile, model) })
    }

    /// As [`Emulated::new`], with a model that was changed, by [`Model::spikes`] for example, and
    /// without simulated flash.
    #[must_use]
    pub fn over(inner: Arc<dyn Device>, profile: &DeviceProfile, model: Model) -> Emulated {
        let below = inner.info();
        let info = DeviceInfo {
            name: format!("{} as {}", below.name, profile.name),
            logical_block: below.logical_block.max(profile.logical_block as usize),
            direct: below.direct,
        };
        let mechanics = profile.model.mechanics.as_ref();
        let servers = mechanics.map_or(profile.model.channels, |mechanics| mechanics.spindles);
        Emulated { inner, info, pacer: Pacer::new(model), flash: None, servers, free: AtomicBool::new(false) }
    }

    /// The model's counts: requests by kind, waiting, outliers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.pacer.statistics()
    }

    /// How long the device as a whole was occupied: the mean over its channels, spindles or chips.
    #[must_use]
    pub fn busy(&self) -> Duration {
        let model = self.statistics().busy / self.servers.max(1);
        let chips =
            |report: NandReport| Duration::from_nanos(report.flash.work_ns / u64::from(report.chips.max(1)));
        self.flash().map_or(model, |report| model.max(chips(report)))
    }

    /// What the simulated flash did while calls took time, and its wear; if the profile names any.
    #[must_use]
    pub fn flash(&self) -> Option<NandReport> {
        self.flash.as_ref().map(|flash| flash.report())
    }

    /// The device does nothing from `from` to `to`, both counted from now. Calls in flight end as
    /// they would have.
    pub fn freeze(&self, from: Duration, to: Duration) {
        self.pacer.freeze(from, to);
    }

    /// From now on, `share` of the reads and writes take `time`, while others go on beside them.
    pub fn spikes(&self, share: f64, time: Duration) {
        self.pacer.spikes(share, time);
    }

    /// Whether calls that begin from now on take no modelled time and leave no trace in the model:
    /// for the preparation of what is to be measured. A call in flight keeps its completion.
    /// Simulated flash keeps what such calls write, and its wear; what it counts begins anew when
    /// calls take time again.
    pub fn run_free(&self, free: bool) {
        if let Some(flash) = &self.flash {
            flash.run_free(free);
        }
        self.free.store(free, Ordering::Release);
    }

    fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    fn timed<T>(&self, request: &Request, call: impl FnOnce() -> T) -> T {
        if self.is_free() {
            return call();
        }
        let completion = self.pacer.submit(request);
        let outcome = call();
        self.pacer.wait_until(completion);
        outcome
    }

    fn request(&self, io: &Io<'_>) -> Request {
        match &io.op {
            IoOp::Read(buf) => self.checked(Request::read(io.offset, buf.len() as u64)),
            IoOp::Write(data, durability) => self.write_request(io.offset, data.len(), *durability),
        }
    }

    fn write_request(&self, offset: u64, len: usize, durability: Durability) -> Request {
        self.checked(match durability {
            Durability::Later => Request::write(offset, len as u64),
            Durability::Durable => Request::durable_write(offset, len as u64),
        })
    }

    fn checked(&self, request: Request) -> Request {
        let block = self.info.logical_block as u64;
        assert!(
            request.offset.is_multiple_of(block) && request.bytes.is_multiple_of(block),
            "transfers are whole blocks: {}+{} on {}",
            request.offset,
            request.bytes,
            self.info.name
        );
        request
    }
}

impl Device for Emulated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        let block = self.info.logical_block as u64;
        self.inner.len() / block * block
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let request = self.checked(Request::read(offset, buf.len() as u64));
        self.timed(&request, || self.inner.read(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let request = self.write_request(offset, data.len(), durability);
        self.timed(&request, || self.inner.write(offset, data, durability))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.timed(&Request::sync(), || self.inner.sync())
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let requests: Vec<Request> = batch.iter().map(|io| self.request(io)).collect();
        if self.is_free() {
            return self.inner.submit(batch);
        }
        let completion = self.pacer.submit_batch(&requests);
        self.inner.submit(batch);
        self.pacer.wait_until(completion);
    }

    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        self.begin_reads(in_flight, &mut std::iter::once(read));
    }

    /// The bytes are read now. Each read is complete at the model's moment, or when simulated flash
    /// has completed it, if that is later.
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        if self.is_free() {
            return self.inner.begin_reads(in_flight, reads);
        }
        let request = |read: &OwnedRead| self.checked(Request::read(read.offset, read.len as u64));
        let Some(flash) = &self.flash else {
            return self.pacer.begin_reads(in_flight, reads, request, &*self.inner);
        };
        for read in reads {
            let completion = self.pacer.submit(&request(&read));
            let mut below = InFlight::default();
            flash.begin_read(&mut below, read);
            let completion = below.next_moment().map_or(completion, |moment| moment.max(completion));
            let done = below.take(completion).expect("flash completes a read at a moment, or at once");
            in_flight.complete_at(completion, done.read, done.outcome);
        }
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        match in_flight.next_moment() {
            Some(_) => in_flight.next(until, |moment| self.pacer.wait_until(moment)),
            // Those that were begun while calls took no time.
            None => self.inner.next_read(in_flight, until),
        }
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        // Whole blocks of this device are whole blocks of the one below; too large a length fails
        // there.
        self.inner.grow(len.checked_next_multiple_of(self.info.logical_block as u64).unwrap_or(len), fill)
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.shrink(len.checked_next_multiple_of(self.info.logical_block as u64).unwrap_or(len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}
