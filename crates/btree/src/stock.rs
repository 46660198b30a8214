//! What a structure change acquires before it latches pages.
//!
//! No thread waits for a device while it holds a page latched exclusively: all threads that visit
//! that page would wait with it, near the root every thread. So a structure change is an *attempt*
//! that latches, inspects and performs, or stops and says what it lacks. Then all latches are
//! released, what is lacking is acquired, and the attempt starts again with its descent, since the
//! tree may have changed. What was acquired stays in the stock: new pages, reserved and each in a
//! latched frame that no other thread can fix; pages that had to be read, pinned; parts of the page
//! map, pinned. Whatever is not used is released when the stock is dropped; a crash forgets
//! reservations, so no page is lost by them.
//!
//! Every attempt ends with more in the stock or with an error, so attempts are repeated only as
//! often as other threads change the tree in between, or use up the space in the log's buffer that
//! this thread waited for.

use crate::error::TreeError;
use crate::group::Reserved;
use firndb_base::PageId;
use firndb_base::sync::DevicePermit;
use firndb_buffer::{BufferError, BufferPool, ExclusiveGuard, InMemory, PagePin, SharedGuard};
use firndb_log::LogClass;
use firndb_tier::Prepared;

/// Why an attempt came to nothing.
pub(crate) enum Stop {
    Failed(TreeError),
    /// It would have had to wait for a device.
    Lacks(Lack),
}

/// What an attempt lacks.
pub(crate) enum Lack {
    /// This many new pages in all.
    NewPages(usize),
    /// A page in DRAM.
    Page(PageId),
    /// What the page map must have in memory for a change of these pages.
    Map(Vec<PageId>),
    /// Space for this many bytes in the log's buffer.
    LogBuffer(u64),
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Stop {
        Stop::Failed(error)
    }
}
impl From<BufferError> for Stop {
    fn from(error: BufferError) -> Stop {
        Stop::Failed(error.into())
    }
}

/// What one structure change has acquired.
pub(crate) struct Stock<'p> {
    pool: &'p BufferPool,
    class: LogClass,
    new: Vec<Reserved<'p>>,
    pins: Vec<PagePin<'p>>,
    maps: Vec<Prepared<'p>>,
    /// A page that could not be read while no latch was held.
    unreadable: Option<PageId>,
}

impl<'p> Stock<'p> {
    /// Empty. The caller holds no latch.
    pub(crate) fn new(pool: &'p BufferPool, class: LogClass) -> Stock<'p> {
        Stock { pool, class, new: Vec::new(), pins: Vec::new(), maps: Vec::new(), unreadable: None }
    }

    pub(crate) fn pool(&self) -> &'p BufferPool {
        self.pool
    }
    pub(crate) fn class(&self) -> LogClass {
        self.class
    }

    /// Acquires what an attempt will probably need. A failure is no error yet: it may not be needed
    /// after all.
    pub(crate) fn expecting(mut self, lack: Lack) -> Stock<'p> {
        let _ = self.fetch(lack);
        self
    }

    /// Makes attempts until one succeeds or fails, and acquires what each of them lacked. An
    /// attempt that stops has released every latch.
    pub(crate) fn run<R>(
        mut self,
        mut attempt: impl FnMut(&mut Stock<'p>) -> Result<R, Stop>,
    ) -> Result<R, TreeError> {
        loop {
            match attempt(&mut self) {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Lacks(lack)) => self.fetch(lack)?,
            }
        }
    }

    fn fetch(&mut self, lack: Lack) -> Result<(), TreeError> {
        match lack {
            Lack::NewPages(count) => {
                debug_assert!(self.new.len() < count, "an attempt that stops lacks something");
                while self.new.len() < count {
                    self.reserve()?;
                }
            }
            Lack::Page(page) => match self.pool.shared(page) {
                Ok(guard) => self.pins.push(guard.pin()),
                // The page may have left the tree since. The next attempt decides that, if it still
                // meets it.
                Err(_) => self.unreadable = Some(page),
            },
            Lack::Map(pages) => self.maps.push(self.pool.tier().prepare(&pages)?),
            Lack::LogBuffer(bytes) => self.pool.log().wait_for_buffer(bytes)?,
        }
        Ok(())
    }

    /// Reserves a page and a frame for it.
    fn reserve(&mut self) -> Result<(), TreeError> {
        let page = self.pool.tier().reserve(self.class)?;
        let created = self.pool.tier().prepare(&[page]).map_err(TreeError::from).and_then(|map| {
            self.maps.push(map);
            Ok(self.pool.create(page)?)
        });
        match created {
            Ok(guard) => {
                self.new.push(Reserved::new(self.pool, guard));
                Ok(())
            }
            Err(error) => {
                self.pool.tier().unreserve(page);
                Err(error)
            }
        }
    }

    pub(crate) fn take(&mut self) -> Result<Reserved<'p>, Stop> {
        self.new.pop().ok_or(Stop::Lacks(Lack::NewPages(1)))
    }
    /// Returns to the stock a new page that an attempt took and did not use.
    pub(crate) fn put_back(&mut self, page: Reserved<'p>) {
        self.new.push(page);
    }
    pub(crate) fn take_two(&mut self) -> Result<(Reserved<'p>, Reserved<'p>), Stop> {
        if self.new.len() < 2 {
            return Err(Stop::Lacks(Lack::NewPages(2)));
        }
        Ok((self.take()?, self.take()?))
    }

    /// Latches a page exclusively, below another such page: only if it need not be read.
    pub(crate) fn latch(&self, page: PageId) -> Result<ExclusiveGuard<'p>, Stop> {
        match self.pool.exclusive_in_memory(page) {
            InMemory::Latched(guard) => Ok(guard),
            InMemory::Absent(_) | InMemory::BeingRead if self.unreadable == Some(page) => {
                // Now that the page cannot leave the tree, an error concerns the tree. This is so
                // rare that other threads may wait.
                let _permit = DevicePermit::granted();
                Ok(self.pool.exclusive(page)?)
            }
            InMemory::Absent(_) | InMemory::BeingRead => Err(Stop::Lacks(Lack::Page(page))),
        }
    }

    /// As [`Stock::latch`], shared, below a page that is latched shared.
    pub(crate) fn latch_shared(&self, page: PageId) -> Result<SharedGuard<'p>, Stop> {
        match self.pool.shared_in_memory(page) {
            Some(guard) => Ok(guard),
            None => Ok(self.latch(page)?.downgrade()),
        }
    }
}
