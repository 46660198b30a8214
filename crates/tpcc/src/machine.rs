//! The machine that a run takes place on, where it is not this one as it is.

use firndb::device::{Device, DeviceError};
use firndb::{Database, MemoryUse};
use serde_json::Value;
use std::sync::Arc;

/// Emulated devices below a database, in real or in virtual time.
pub trait Machine: Send + Sync {
    /// Whether time is virtual.
    fn is_simulated(&self) -> bool;
    /// How many log devices a new database gets.
    fn log_devices(&self) -> usize;
    /// The emulated device in front of the database's file of this name; idle, and free until
    /// [`Machine::measure`].
    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError>;
    /// Whether devices take their time: they do while clients run, and not before or afterwards.
    fn measure(&self, measured: bool);
    /// The device profiles, in few words, for result files.
    fn profiles(&self) -> String;
    /// For the configuration in result files: all that decides the figures.
    fn config(&self) -> Value;
    /// Virtual time, steps and trace of the simulation around the caller; `None` outside of one.
    fn simulation(&self, real_seconds: f64) -> Option<Value>;
    /// What the report's reader has to know of the machine, and what its costs say of the memory
    /// use.
    fn paragraphs(&self, db: &Database, memory: &MemoryUse) -> Vec<String>;
}
