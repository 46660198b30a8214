//! The power switch of a run.

use super::Story;
use crate::machine::Machine;
use crate::medium::Survival;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex, thread};
use std::time::Duration;

impl Story {
    /// Switches the power off after a while, from a thread of its own. The returned flag says that
    /// it is off.
    pub(super) fn switch(&mut self, machine: &Machine, after: Duration, survival: Survival) -> Switch {
        let left = Arc::new(Mutex::new(None));
        let off = Arc::new(AtomicBool::new(false));
        let (machine, for_thread, flag) = (machine.clone(), left.clone(), off.clone());
        let mut rng = Rng::new(self.rng.next_u64());
        let handle = thread::spawn("power", move || {
            clock::sleep(after);
            flag.store(true, Ordering::SeqCst);
            *for_thread.lock() = Some(machine.cut(survival, &mut rng));
        });
        Switch { left, off, handle: handle.expect("a thread") }
    }
}

/// A power switch that goes off by itself.
pub(super) struct Switch {
    left: Arc<Mutex<Option<Vec<Vec<u8>>>>>,
    off: Arc<AtomicBool>,
    handle: thread::JoinHandle<()>,
}

impl Switch {
    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Waits for it; what is left on the devices.
    pub(super) fn wait(self) -> Vec<Vec<u8>> {
        self.handle.join().expect("the switch does not panic");
        self.left.lock().take().expect("the power is off")
    }
}
