//! Attaches and detaches the flash cache while transactions run.
//!
//! *Attach*, each step durable before the next: the superblock says that there is no cache → with
//! nothing else in flight below DRAM: what the store has of pages is on its device, with records →
//! the device is formatted, with an id of its own → the superblock lists it → pages are written to
//! it. A page may enter clean, and a restart would find it there: from then on the log that makes
//! it anew in the store is needed no more.
//! *Detach*: the cache accepts no more pages, and what leaves DRAM by-passes it → group by group,
//! its dirty pages are written to the store → with nothing else in flight below DRAM: the rest of
//! them, and the store's records are durable → the superblock does not list it → it is not read any
//! more.
//!
//! | a crash while … | finds |
//! |---|---|
//! | attaching, before the superblock lists it | no cache, and a device that may be attached again |
//! | after that | an empty cache |
//! | detaching, before the superblock forgets it | the cache, in use; pages that by-passed it are redone upon it (`leave.rs`); detach it again |
//! | after that | no cache, and everything in the store or the log |
//!
//! A write of the superblock that fails leaves open which state its device has: until one succeeds,
//! an attached cache has not been used, and a detached one accepts no pages, so that both outcomes
//! are right.
//!
//! Locks: `cache_changing` (held for a whole change) → the checkpointer's `running` → the switch's
//! latch → `superblock`.

use crate::engine::devices::Candidate;
use crate::engine::{Engine, cache};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use firndb_base::Progress;
use firndb_base::sync::Arc;
use firndb_device::{Counting, Device};
use firndb_tier::PageTier;

impl Engine {
    /// Creates a cache on a device and puts it into use. `options` decide its kind.
    pub fn attach_cache(&self, candidate: Candidate, options: &Options) -> Result<(), Error> {
        self.check_writable()?;
        let _changing = self.cache_changing.lock();
        self.refuse_second_cache()?;
        let before = self.devices.cache_counted();
        self.devices.set_cache(Some(Arc::new(Counting::new(candidate.device))));
        // No checkpoint reads cache and superblock meanwhile.
        let running = self.checkpointer.running.lock();
        // An attempt that failed may have left a cache in the superblock on its device.
        let restated = self.restate_superblock();
        // Most of it before other calls have to wait.
        let made = restated.and_then(|()| Ok(self.store.sync()?)).and_then(|()| {
            self.tier.change(|_| {
                self.store.sync()?;
                self.amend(|superblock| {
                    let made = cache::make(superblock, &self.devices, &self.store, options)?;
                    let member = superblock.extensions.cache.as_mut().expect("made and noted");
                    member.path.clone_from(&candidate.path);
                    Ok(made)
                })
            })
        });
        drop(running);
        made.inspect_err(|_| self.devices.set_cache(before))
    }

    /// Fails if there is a cache.
    pub fn refuse_second_cache(&self) -> Result<(), Error> {
        match &self.superblock.lock().extensions.cache {
            Some(member) => Err(Error::new(
                ErrorKind::BadArgument,
                format!("the database has a flash cache already, {}: detach it first", member.path),
            )),
            None => Ok(()),
        }
    }

    /// Writes the cache's dirty pages to the store and forgets it; calls `progress` with the number
    /// of pages left, repeatedly. Returns the device, which is free then.
    pub fn detach_cache(&self, progress: &mut dyn FnMut(u64)) -> Result<Arc<dyn Device>, Error> {
        self.check_writable()?;
        let _changing = self.cache_changing.lock();
        let listed = self.superblock.lock().extensions.cache.is_some();
        let (Some(cache), true) = (self.tier.cache(), listed) else {
            return Err(Error::new(ErrorKind::NotFound, "the database has no flash cache"));
        };
        cache.set_leaving(true);
        let emptied = loop {
            match self.tier.leave_step() {
                Ok(Progress::Idle) => break self.check_open(),
                Ok(Progress::Worked) => progress(cache.cache_statistics().pages_dirty),
                Err(error) => break Err(error.into()),
            }
            if let Err(error) = self.check_open() {
                break Err(error);
            }
        };
        if let Err(error) = emptied {
            cache.set_leaving(false);
            return Err(error.within("the flash cache cannot leave, and is in use as before"));
        }
        let _running = self.checkpointer.running.lock();
        self.tier.change(|cache| {
            let cache = cache.expect("only changed under `cache_changing`");
            // A thread that found the cache before it began to leave may have written to it since.
            while cache.leave_step().inspect_err(|_| cache.set_leaving(false))? == Progress::Worked {}
            self.amend(|superblock| {
                superblock.extensions.cache = None;
                superblock.extensions.cache_from = None;
                Ok(())
            })?;
            Ok::<_, Error>(None)
        })?;
        let device = self.devices.cache().expect("a cache has a device");
        self.devices.set_cache(None);
        Ok(device)
    }
}
