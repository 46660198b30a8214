//! Guards: the latch mode is in the type, and only a logged change compiles. SKELETON.

use crate::BufferError;
use firn_base::{Lsn, PageId};
use std::marker::PhantomData;
use std::ops::{Deref, Range};

/// Which bytes of a page a change touched, for the delta layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These, a few.
    Ranges(Vec<Range<u16>>),
    /// Most of the page.
    Most,
}

/// A page latched for reading; dereferences to its bytes.
pub struct SharedGuard<'a>(PhantomData<&'a ()>);

impl SharedGuard<'_> {
    /// Which page.
    pub fn page(&self) -> PageId {
        todo!()
    }
    /// LSN of its last change.
    pub fn version(&self) -> Lsn {
        todo!()
    }
    /// A note of frame and latch version, with which the page can be latched again cheaply if nobody
    /// changed it meanwhile.
    pub fn optimistic(&self) -> OptimisticRef {
        todo!()
    }
}
impl Deref for SharedGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

/// A page latched for changing; dereferences to its bytes for reading.
pub struct ExclusiveGuard<'a>(PhantomData<&'a ()>);

impl<'a> ExclusiveGuard<'a> {
    /// Which page.
    pub fn page(&self) -> PageId {
        todo!()
    }
    /// LSN of its last change.
    pub fn version(&self) -> Lsn {
        todo!()
    }
    /// Announces a change before its record is appended, so that a checkpoint that starts in between
    /// knows from where redo is needed.
    pub fn intend(self) -> IntentGuard<'a> {
        todo!()
    }
    /// Applies a record during recovery, if the page does not have it yet; answers whether it was applied.
    pub fn redo(&mut self, _lsn: Lsn, _change: impl FnOnce(&mut [u8]) -> Changed) -> bool {
        todo!()
    }
    /// Forgets a page that was just freed, or created and never allocated: it is not written.
    pub fn discard(self) {
        todo!()
    }
    /// Goes on reading.
    pub fn downgrade(self) -> SharedGuard<'a> {
        todo!()
    }
}
impl Deref for ExclusiveGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

/// A page whose change is announced and not yet logged; dereferences to its (unchanged) bytes. Dropping
/// it leaves the page as it was.
pub struct IntentGuard<'a>(PhantomData<&'a ()>);

impl<'a> IntentGuard<'a> {
    /// Which page.
    pub fn page(&self) -> PageId {
        todo!()
    }
    /// LSN of its last change: the new record's "previous LSN of that page".
    pub fn version(&self) -> Lsn {
        todo!()
    }
    /// Changes the page as the record at `lsn` says.
    pub fn apply(self, _lsn: Lsn, _change: impl FnOnce(&mut [u8]) -> Changed) -> ExclusiveGuard<'a> {
        todo!()
    }
    /// Withdraws the announcement.
    pub fn withdraw(self) -> ExclusiveGuard<'a> {
        todo!()
    }
}
impl Deref for IntentGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

/// A page seen before, not latched. Holds nothing.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticRef {
    _private: (),
}

impl OptimisticRef {
    /// Which page.
    pub fn page(&self) -> PageId {
        todo!()
    }
}

/// What a fix answers.
pub type Fixed<T> = Result<T, BufferError>;
