//! Devices that run a test's code before each call.

use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Device, DeviceError, Durability, Fill};

/// A call that is about to be passed on.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Call<'a> {
    Read { offset: u64, len: usize },
    Write { offset: u64, data: &'a [u8], durability: Durability },
    Sync,
    Grow,
    Shrink,
    Discard,
}

type Before = dyn Fn(Call<'_>) -> Result<(), DeviceError> + Send + Sync;

/// Passes each call on after running the test's code, which may delay it, or fail it in its place.
/// Batches are passed on transfer by transfer.
pub struct Hooked {
    inner: Arc<dyn Device>,
    before: Box<Before>,
}

impl Hooked {
    /// Runs `before` before each call to `inner`.
    pub fn over(
        inner: Arc<dyn Device>,
        before: impl Fn(Call<'_>) -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        Arc::new(Hooked { inner, before: Box::new(before) })
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for Hooked {
    firndb_device::forward!(inner: info, len);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        (self.before)(Call::Read { offset, len: buf.len() })?;
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        (self.before)(Call::Write { offset, data, durability })?;
        self.inner.write(offset, data, durability)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        (self.before)(Call::Sync)?;
        self.inner.sync()
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        (self.before)(Call::Grow)?;
        self.inner.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        (self.before)(Call::Shrink)?;
        self.inner.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        (self.before)(Call::Discard)?;
        self.inner.discard(offset, len)
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Work that is done once, in the midst of the next read or write of a device.
#[derive(Clone, Default)]
pub struct Trap(Arc<Mutex<Option<Work>>>);

impl Trap {
    /// The device with the trap before its reads.
    pub fn over_reads(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        self.over(inner, |call| matches!(call, Call::Read { .. }))
    }

    /// The device with the trap before its writes.
    pub fn over_writes(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        self.over(inner, |call| matches!(call, Call::Write { .. }))
    }

    fn over(&self, inner: Arc<dyn Device>, springs: fn(Call<'_>) -> bool) -> Arc<dyn Device> {
        let trap = self.clone();
        Hooked::over(inner, move |call| {
            let work = if springs(call) { trap.0.lock().take() } else { None };
            if let Some(work) = work {
                work();
            }
            Ok(())
        })
    }

    /// Sets it: the next call does the work.
    pub fn set(&self, work: impl FnOnce() + Send + 'static) {
        *self.0.lock() = Some(Box::new(work));
    }

    /// Whether the work is still to be done.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }
}
