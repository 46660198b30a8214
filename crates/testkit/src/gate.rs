//! Devices whose writes are held, fail, or find no space while a test says so.

use crate::hooked::{Call, Hooked};
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, DeviceErrorKind};
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

    fn pass(&self, name: &str, grows: bool) -> Result<(), DeviceError> {
        let mode = self.0.mode.lock().expect("never poisoned");
        let mode = self.0.changed.wait_while(mode, |mode| *mode == Mode::Shut).expect("never poisoned");
        match *mode {
            Mode::Failing => Err(DeviceError::new(DeviceErrorKind::Failed, format!("{name}: it is gone"))),
            Mode::Full if grows => {
                Err(DeviceError::new(DeviceErrorKind::NoSpace, format!("{name}: it is full")))
            }
            _ => Ok(()),
        }
    }
}
