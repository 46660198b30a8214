//! What tests of an array, and of what lies over one, share.

use crate::members::Keeper;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_device::DeviceError;

/// Keeps in memory what a superblock would keep.
#[derive(Debug, Default)]
pub struct Notes {
    /// Members that were struck, in order.
    pub struck: Mutex<Vec<usize>>,
    /// What was written anew.
    pub repaired: Mutex<Vec<String>>,
    /// Nothing is written anew.
    pub only_looks: AtomicBool,
}

impl Keeper for Notes {
    fn strike(&self, member: usize, _: &DeviceError) -> Result<(), DeviceError> {
        self.struck.lock().push(member);
        Ok(())
    }
    fn mends(&self) -> bool {
        !self.only_looks.load(Ordering::Relaxed)
    }
    fn repaired(&self, _: usize, what: &str) {
        self.repaired.lock().push(what.to_owned());
    }
}
