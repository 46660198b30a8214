//! What `firn bench log` and `firn bench cache` have in common: figures and tables beside a paper's, their pictures, and
//! simulations that measure.

pub mod figure;
pub mod picture;
pub mod simulation;
