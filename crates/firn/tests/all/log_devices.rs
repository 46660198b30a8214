//! Log devices join, leave, fail and are missing.

mod exchanged;
mod failing;
mod missing;
mod support;
