//! The handler of failed log devices: it works from the first write on, so that an opening, too,
//! survives a device that can be read and not written.
//!
//! The handler runs in the thread whose write failed, before any log with fewer copies is
//! acknowledged. It needs the superblock and no other layer, so that it works before there is an
//! engine. Several devices may fail at once, and their handlers run in any order. So the promise in
//! the superblock is computed from the log *under the superblock's lock*: each failure is followed
//! by a change of the superblock, hence the last of these sees all of them.

use crate::engine::checkpointer::Checkpointer;
use crate::engine::devices::Counted;
use crate::engine::log_array_state::LogArray;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::{LogEventFn, LogEventKind};
use crate::ranks;
use firndb_base::sync::{Arc, Mutex, OnceLock, Weak};
use firndb_log::{LogError, LogErrorKind, Loss, LossHandler, LostMember, MemberId};

/// The durable state of the log's members, and the listener for losses. Shared by the engine and
/// the log's handler.
pub(crate) struct Losses {
    pub superblock: Arc<Mutex<Superblock>>,
    pub devices: Arc<Counted>,
    pub array: Arc<LogArray>,
    listener: Option<LogEventFn>,
    /// The engine's, once there is one.
    checkpointer: OnceLock<Weak<Checkpointer>>,
}

fn superblock_failed(error: &Error) -> LogError {
    LogError::new(
        LogErrorKind::Failed,
        format!("the log failed: a log device failed, and that could not be written down: {error}"),
    )
}

impl Losses {
    /// For a database with this superblock, as its device has it.
    pub fn new(superblock: Superblock, devices: Arc<Counted>, options: &Options) -> Arc<Losses> {
        let losses = Arc::new(Losses {
            superblock: Arc::new(ranks::SUPERBLOCK.mutex(superblock)),
            devices,
            array: Arc::default(),
            listener: options.log.listener.clone(),
            checkpointer: OnceLock::new(),
        });
        if let Some(it) = &losses.devices.store_array {
            let weak = Arc::downgrade(&losses);
            it.keeper.serve(Arc::new(move |change| {
                let closed = || Error::failed("the database has been closed");
                weak.upgrade().ok_or_else(closed)?.amend(|superblock| {
                    change(superblock);
                    Ok(())
                })
            }));
        }
        losses
    }

    /// The callback for the log. It does not keep the database's devices: a thread of the log's may
    /// outlive the database.
    pub fn handler(self: &Arc<Losses>) -> LossHandler {
        let losses = Arc::downgrade(self);
        LossHandler::new(move |lost| match losses.upgrade() {
            Some(losses) => losses.lost(lost),
            None => Err(LogError::new(LogErrorKind::Closed, "the database has been closed")),
        })
    }

    /// Called once there is an engine: its checkpointer takes the checkpoints that a failed device
    /// needs, also of devices that failed before.
    pub fn serve(&self, checkpointer: &Arc<Checkpointer>) {
        let first = self.checkpointer.set(Arc::downgrade(checkpointer)).is_ok();
        assert!(first, "a database has one engine");
        if self.array.is_checkpoint_wanted() {
            checkpointer.want();
        }
    }

    /// Changes the superblock in memory and on its device, or not in memory. After a write that
    /// failed the device may show either state; each is one that a crash may leave, and the next
    /// call writes what is in memory with a higher sequence, whether or not it changes anything.
    pub fn amend<T>(&self, change: impl FnOnce(&mut Superblock) -> Result<T, Error>) -> Result<T, Error> {
        self.amend_then(change, |outcome| outcome)
    }

    /// As `amend`; `then` runs before any other thread can change the superblock.
    pub fn amend_then<T, U>(
        &self,
        change: impl FnOnce(&mut Superblock) -> Result<T, Error>,
        then: impl FnOnce(T) -> U,
    ) -> Result<U, Error> {
        let mut superblock = self.superblock.lock();
        let mut changed = superblock.clone();
        let outcome = change(&mut changed)?;
        if changed != *superblock || superblock.in_doubt {
            let written = changed.write(&self.devices.superblock());
            (superblock.sequence, superblock.in_doubt) = (changed.sequence, changed.in_doubt);
            written?;
            *superblock = changed;
        }
        Ok(then(outcome))
    }

    /// Records an event and calls the listener.
    pub fn report(&self, kind: LogEventKind, member: Option<MemberId>, message: String) {
        let event = self.array.note(kind, member, message);
        if let Some(listener) = &self.listener {
            listener(&event);
        }
    }

    /// Decides what becomes of a log device that failed. Called by the thread whose write failed.
    fn lost(&self, lost: &LostMember<'_>) -> Result<Loss, LogError> {
        let outcome = self.amend(|superblock| {
            let covered = superblock.redundancy().least_from(superblock.redo_start) > 1;
            let left = (lost.left)();
            if superblock.copies() > 1 {
                let redundancy = &mut superblock.array_mut().redundancy;
                redundancy.lose_member();
                redundancy.set_from(lost.requested, u8::try_from(left.copies).unwrap_or(u8::MAX).max(1));
            }
            if covered {
                superblock.members.retain(|member| member.id != lost.member);
            }
            Ok((covered, superblock.copies(), left))
        });
        let (covered, wanted, left) = outcome.map_err(|error| superblock_failed(&error))?;
        self.array.lost(wanted > 1);
        let now = left.copies;
        let copies = match usize::from(wanted) {
            1 => String::new(),
            wanted if now < wanted => format!("; with {now} instead of {wanted} copies from now on"),
            wanted => format!("; with {wanted} copies, after the next checkpoint of all log again"),
        };
        let fate = match covered {
            true => "it has been dropped, others have what it had",
            false => "what is on it is needed until the next checkpoint",
        };
        self.report(
            LogEventKind::Lost,
            Some(lost.member),
            format!(
                "log device {} ({}) failed: {}; {fate}. Commits go on with {} log devices{copies}",
                lost.member.0, lost.device, lost.error, left.devices
            ),
        );
        if covered {
            self.devices.logs.remove(lost.member);
        }
        if let Some(checkpointer) = self.checkpointer.get().and_then(Weak::upgrade) {
            checkpointer.want();
        }
        Ok(if covered { Loss::Dropped } else { Loss::Kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{memory_devices, small};
    use firndb_base::sync::atomic::{AtomicBool, Ordering};
    use firndb_log::Left;

    /// Cause: what is left was counted before the superblock's lock was taken. Effect: another
    /// device failed in between, and its handler's lower count was replaced by this one's.
    #[test]
    fn what_is_left_is_counted_with_the_superblock_locked() {
        let db = small(3).log(|log| log.copies(3)).create_on(memory_devices(3)).expect("created");
        let engine = db.engine();
        let counted = AtomicBool::new(false);
        let left = || {
            let is_free = || engine.superblock.try_lock().is_some();
            let is_free = std::thread::scope(|scope| scope.spawn(is_free).join().expect("no panic"));
            assert!(!is_free, "another handler could change the superblock before this one does");
            counted.store(true, Ordering::Relaxed);
            Left { devices: 2, copies: 2 }
        };
        let lost = LostMember {
            member: MemberId(2),
            device: "log.1".to_owned(),
            error: "of a test".to_owned(),
            requested: engine.log.end(),
            left: &left,
        };
        assert_eq!(engine.losses.lost(&lost), Ok(Loss::Dropped));
        assert!(counted.load(Ordering::Relaxed));
        assert_eq!(engine.superblock.lock().redundancy().least_from(engine.log.end()), 2);
    }
}
