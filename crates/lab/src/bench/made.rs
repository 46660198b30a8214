//! Values that several cells begin with: each is made once, when the first of them asks for it.

use firndb_console::Failure;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Values by what they are made of.
pub struct Made<K, V> {
    /// The inner lock is held while its value is made, and others wait for it.
    slots: Mutex<BTreeMap<K, Slot<V>>>,
}

type Slot<V> = Arc<Mutex<Option<Arc<V>>>>;

impl<K, V> Default for Made<K, V> {
    fn default() -> Made<K, V> {
        Made { slots: Mutex::default() }
    }
}

impl<K: Ord, V> Made<K, V> {
    /// The value of `key`, made by `make` if it is the first time.
    pub fn get(&self, key: K, make: impl FnOnce() -> Result<V, Failure>) -> Result<Arc<V>, Failure> {
        let mut slots = self.slots.lock().expect("nothing is done under it that could panic");
        let slot = slots.entry(key).or_default().clone();
        drop(slots);
        let mut slot =
            slot.lock().map_err(|_| Failure::new("what the measurement begins with is missing"))?;
        match &*slot {
            Some(made) => Ok(made.clone()),
            None => Ok(slot.insert(Arc::new(make()?)).clone()),
        }
    }
}
