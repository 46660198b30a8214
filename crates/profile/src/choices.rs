//! The settings that the engine takes from a profile.

use serde::{Deserialize, Serialize};

/// A value and the reason for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice<T> {
    /// The value.
    pub value: T,
    /// The reason, as a sentence.
    pub reason: String,
}

impl<T> Choice<T> {
    /// `value`, chosen for `reason`.
    pub fn new(value: T, reason: impl Into<String>) -> Choice<T> {
        Choice { value, reason: reason.into() }
    }
}

/// `[choices]`: settings that follow from the device. The engine uses its default for a setting
/// that is not given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// Log files on this device that are written in parallel (the width K).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_width: Option<Choice<u32>>,
    /// Bytes of a batch that the flash cache writes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_batch_bytes: Option<Choice<u64>>,
    /// Reads submitted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_batch: Option<Choice<u32>>,
    /// A write that takes longer than its expected time times this factor is an outlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier_threshold: Option<Choice<f64>>,
    /// How many times longer a random read of a page takes than a sequential one (Myers, table
    /// 3.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_to_sequential_read: Option<Choice<f64>>,
    /// How many times longer a random durable write of a page takes than a sequential one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_to_sequential_write: Option<Choice<f64>>,
}
