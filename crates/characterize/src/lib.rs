//! Measures a device, and derives its profile.
//!
//! A [`Plan`] is a list of [`Cell`]s, each a description of one measurement with a time budget;
//! [`measure`] runs a plan on a [`Target`], round by round, and returns [`Measurements`]; pure
//! functions derive from these what an engine needs to know. Nothing here draws or prints: the
//! command does.
//!
//! Place in the stack: beside the engine's layers, above `device`, below `firn` (which runs the
//! quick plan when it creates a database and is asked to). Threads, clock and randomness are those
//! of `base`, so that all of it runs in virtual time on an emulated device, too.
//!
//! Invariants: writes go only to files made here, unless the caller consented twice; a file made
//! here is unlinked before the first byte is written, so that nothing is left however the process
//! ends; a round is never longer than its budget by more than one request a thread.
//!
//! How it fails: [`Error`], a sentence that says what to do. Sources: FlashLogging sections 2.1,
//! 3.4, figures 3, 6 and 7; Myers chapter 3, tables 3.1 and 3.2.
#![forbid(unsafe_code)]

mod cell;
mod choices;
mod distribution;
mod drive;
mod error;
mod fit;
mod head;
mod measure;
mod outliers;
mod plan;
mod quick;
mod streaming;
mod target;
mod walk;

pub use cell::{Cell, Ground, Op, Pattern, Purpose, STREAM_BYTES};
pub use choices::choices;
pub use distribution::Distribution;
pub use drive::{STALL, Stop, TIMELINE_STEP, Tally, round};
pub use error::Error;
pub use fit::{profile, sustained};
pub use head::Head;
pub use measure::{Measured, Measurements, Step, measure};
pub use outliers::{OutlierClass, Outliers, outliers, outliers_of_runs, threshold};
pub use plan::{Effort, PAGE, Plan};
pub use quick::quick;
pub use target::{Consent, Target, TargetKind, TargetOptions};
