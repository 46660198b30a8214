//! Device profiles: what a storage device does, and how fast, as a TOML file.
//!
//! Place in the stack: beside `base`; it depends on nothing of Firn. `firn characterize` writes
//! profiles, the emulator builds devices from them, and the engine takes its settings for a device
//! (log width, batches, thresholds) from them.
//!
//! A profile holds four kinds of facts apart: `[model]` and `[nand]`, what the emulator needs;
//! `[[figure]]`, published or measured figures that the emulation is compared with; `[[measured]]`,
//! raw rows of a measurement; `[choices]`, what the engine concludes. An uncertain parameter is not
//! hidden in one number: a `[[model.band]]` names it and its range, and [`DeviceProfile::variants`]
//! gives the ends for a sweep.
//!
//! Invariants: a profile that was read, or that [`DeviceProfile::check`] accepted, has positive
//! finite times, tables in order of size, shares between 0 and 1; the emulator relies on it. Units
//! are the last word of every name: `_us` microseconds, `_ms` milliseconds, `_mb_s` 10^6 bytes a
//! second, `_bytes` bytes.
//!
//! How it fails: [`ProfileError`] names the file, the key and what was expected.
//! `docs/lab/tools/profiles.md` describes every key for users.
#![forbid(unsafe_code)]

mod arms;
mod band;
mod check;
mod choices;
mod costs;
mod error;
mod figure;
mod mechanics;
mod model;
mod nand;
mod profile;
mod striping;
mod table;

pub use arms::{Arms, DiskRequest, DiskService};
pub use band::{Band, Parameter, Variant, VariantName};
pub use choices::{Choice, Choices};
pub use costs::{Access, DeviceCosts, LearnedFactor, Order, Submission, Work};
pub use error::ProfileError;
pub use figure::{Figure, Input, MeasuredRow, Op, Pattern, Unit};
pub use model::{Area, Blocks, Mechanics, ModelSection, Outliers, Reordering, WriteCache};
pub use nand::{NandSection, TranslationLayer, Victim};
pub use profile::{DeviceProfile, Origin, VERSION};
pub use striping::{Cost, Costs};
pub use table::ServiceTable;
