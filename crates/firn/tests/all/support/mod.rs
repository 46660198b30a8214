//! What the tests of failing devices and of crashes share: devices to open on, a model of what a
//! database must hold, sessions that run scripts on both side by side, and walks over crash images.
//!
//! Every script is deterministic: databases are opened without background threads, and random
//! choices come from seeds. A failure names the script, the fault or the event, and the seed, which
//! replay it.

pub mod bed;
pub mod caches;
pub mod examine;
pub mod images;
pub mod model;
pub mod sample;
pub mod scripts;
pub mod session;
pub mod small;
pub mod walks;
