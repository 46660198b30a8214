//! Hedged writes (the paper's "outlier hiding", 3.4 and 3.5): a write that is overdue is issued
//! again on another device.

mod adaptive;
pub(crate) mod hiding;
pub(crate) mod outliers;
mod overdue;
pub(crate) mod reissue;
