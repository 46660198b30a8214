//! Devices whose writes are held, fail, or find no space while a test says so.

use crate::hooked::{Call, Hooked};
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, DeviceErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// What becomes of writes and growths that come to a gate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They pass.
    #[default]
    Open,
    /// They wait.
    Shut,
    /// They fail.
    Failing,
    /// Growths find no space; writes pass.
    Full,
}

#[derive(Default)]
struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
    /// Threads that wait.
    held: AtomicUsize,
}

/// A gate, open at first. For threads of the operating system: the simulator would not see them
/// wait.
#[derive(Clone, Default)]
pub struct Gate(Arc<State>);

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate")
    }
}

impl Gate {
    /// From here on it is in this mode; threads that wait see it.
    pub fn set(&self, mode: Mode) {
        *self.0.mode.lock().expect("never poisoned") = mode;
        self.0.changed.notify_all();
    }

    /// The device behind this gate.
    pub fn over(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let (gate, name) = (self.clone(), inner.info().name.clone());
        Hooked::over(inner, move |call| match call {
            Call::Write { .. } => gate.pass(&name, false),
            Call::Grow => gate.pass(&name, true),
            _ => Ok(()),
        })
    }

    /// Blocks while it is shut; returns the mode then. For devices of which only some writes come
    /// to the gate.
    pub fn wait(&self) -> Mode {
        let mut mode = self.0.mode.lock().expect("never poisoned");
        self.0.held.fetch_add(1, Ordering::SeqCst);
        while *mode == Mode::Shut {
            mode = self.0.changed.wait(mode).expect("never poisoned");
        }
        self.0.held.fetch_sub(1, Ordering::SeqCst);
        *mode
    }

    /// Threads blocked at present.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::SeqCst)
    }

    /// Opens it when dropped: at the end of a test, failed or not, or what waits could not end.
    pub fn opening(&self) -> Opening {
        Opening(self.clone())
    }

    fn pass(&self, name: &str, grows: bool) -> Result<(), DeviceError> {
        match self.wait() {
            Mode::Failing => Err(DeviceError::new(DeviceErrorKind::Failed, format!("{name}: it is gone"))),
            Mode::Full if grows => {
                Err(DeviceError::new(DeviceErrorKind::NoSpace, format!("{name}: it is full")))
            }
            _ => Ok(()),
        }
    }
}

/// See [`Gate::opening`].
#[must_use = "the gate opens when this is dropped"]
pub struct Opening(Gate);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.set(Mode::Open);
    }
}
