//! The cost model: what the engine's work takes of a simulated machine's processors.

pub mod charged;
pub mod cpu;
pub mod model;
