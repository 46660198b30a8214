//! Whether a log device takes requests.

/// Whether a log device takes requests at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It takes requests.
    InUse,
    /// It is to leave and takes no requests; the log on it is read if necessary.
    Leaving,
    /// A write to it failed. It takes no requests; the log on it may still be needed.
    Failed,
    /// It is no member any more.
    Gone,
}
