//! The log's devices as a database keeps them: the superblock lists the members, the log decides
//! which are written to.
//!
//! Every change is one write of the superblock, in this order with what the log does:
//! * *add*: the id is taken durably → the device is formatted → the superblock lists it → the log
//!   uses it;
//! * *remove*: the log stops using it → checkpoints, until no log on it is needed → the superblock
//!   does not list it → its header says so;
//! * *a device fails*: if copies cover all log that recovery needs, the superblock drops it before
//!   anything more is acknowledged; else it stays a member, and is dropped once a checkpoint has
//!   made the log on it needless;
//! * copies become *fewer* in the superblock before the first request that has fewer, *more* after
//!   it. Their number is read from the log under the superblock's lock (`log_device_failure.rs`).
//!
//! So a crash at any point finds in the superblock all devices that hold log that is needed, and no
//! promise of copies that is not kept. No id is used twice.
//!
//! Locks: `changing` (held for a whole change) → the checkpointer's → `superblock` → `known`.

use crate::engine::Engine;
use crate::engine::devices::Candidate;
use crate::engine::superblock::{Member, Superblock};
use crate::error::Error;
use crate::options::callbacks::LogEventKind;
use firndb_base::Lsn;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_device::{Counting, Device, Fill};
use firndb_log::{LogIdentity, MemberId, MemberState};
use std::time::Duration;

/// Checkpoints requested to drop a failed device; later ones come in the ordinary course.
const CHECKPOINTS_MAX: u32 = 4;
/// Longest wait for a device that is to be removed.
const LEAVE_MAX: Duration = Duration::from_secs(30);
const LEAVE_NAP: Duration = Duration::from_millis(10);
/// Interval after which a checkpoint is taken again although there is nothing new in the log.
const LEAVE_AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// The log's identity and devices at one moment.
    pub fn log_view(&self) -> (LogIdentity, Vec<Arc<dyn Device>>) {
        let superblock = self.superblock.lock();
        let (identity, known) = (superblock.log_identity(), self.devices.logs.list());
        let device = |id: &MemberId| {
            let found = known.iter().find(|(member, _)| member == id);
            found.expect("each member has a device").1.clone() as Arc<dyn Device>
        };
        let devices = identity.members.iter().map(device).collect();
        (identity, devices)
    }

    /// Records an event and calls the listener.
    pub fn report_log_event(&self, kind: LogEventKind, member: Option<MemberId>, message: String) {
        self.losses.report(kind, member, message);
    }

    /// Changes the superblock in memory and on its device, or not in memory
    /// ([`crate::engine::log_device_failure::Losses::amend`]). All changes of an open database's
    /// superblock go through here.
    pub fn amend<T>(&self, change: impl FnOnce(&mut Superblock) -> Result<T, Error>) -> Result<T, Error> {
        self.losses.amend(change)
    }

    /// Writes the superblock as it is in memory.
    pub fn restate_superblock(&self) -> Result<(), Error> {
        self.superblock.lock().write(&self.devices.superblock())
    }

    /// Reports a member that could not be read when the database was opened.
    pub fn report_lost_at_opening(&self, id: MemberId, message: String) {
        self.array.known.lock().thin = true;
        self.report_log_event(LogEventKind::Lost, Some(id), message);
    }

    /// After a checkpoint: drops devices that failed and hold nothing that is needed, and reports
    /// when the log is redundant again. Log that only the archive or the flash cache still needs is
    /// retained while it can be read; else it is given up.
    pub fn settle_log_array(&self) -> Result<(), Error> {
        let (redo_start, log_start) = {
            let superblock = self.superblock.lock();
            (superblock.redo_start, superblock.log_start())
        };
        let mut needed = false;
        for status in self.log.member_statuses() {
            if status.state != MemberState::Failed {
                continue;
            }
            if self.log.is_drained(status.member, log_start) {
                self.drop_failed(status.member, &status.device)?;
            } else if !self.log.is_drained(status.member, redo_start) {
                needed = true;
            } else if !self.log.is_readable(status.member) {
                self.write_back_from_cache(self.log.end())?;
                let held = self.retention.archive();
                if held.is_some_and(|held| !self.log.is_drained(status.member, held)) {
                    self.give_up_archiving(&format!("log device {} cannot be read", status.device));
                }
                self.drop_failed(status.member, &status.device)?;
            }
        }
        let (copies, least, from) = {
            let superblock = self.superblock.lock();
            let from = superblock.log_start();
            (superblock.copies(), superblock.redundancy().least_from(from), from)
        };
        let mut known = self.array.known.lock();
        if known.thin && least >= copies {
            known.thin = false;
            drop(known);
            self.report_log_event(
                LogEventKind::Redundant,
                None,
                format!("all log from LSN {from} on is on {copies} devices again"),
            );
            return Ok(());
        }
        // A checkpoint writes what was dirty at the one before it, so that one alone seldom makes
        // enough log needless.
        let thin_for_a_while = known.thin && usize::from(copies) <= self.log.devices();
        if (needed || thin_for_a_while) && known.checkpoints_wanted < CHECKPOINTS_MAX {
            known.checkpoints_wanted += 1;
            drop(known);
            self.checkpointer.want();
        }
        Ok(())
    }

    /// Gives up, for the archive, the log that it lacks: the archive continues behind that.
    pub fn give_up_archiving(&self, why: &str) {
        self.revoke_archive_hold();
        self.report_log_event(
            LogEventKind::Unarchived,
            None,
            format!(
                "{why}, and the archive lacks log on it that nothing else needs: the archive goes on behind that. Take a \
                 backup, to restore from beyond the gap"
            ),
        );
    }

    /// Removes a device that is not needed from the members, durably, and closes it.
    fn strike(&self, id: MemberId) -> Result<(), Error> {
        self.amend(|superblock| {
            // Noted from now on, so that the id is never used again.
            superblock.array_mut();
            superblock.members.retain(|member| member.id != id);
            Ok(())
        })?;
        self.log.forget_member(id);
        self.devices.logs.remove(id);
        Ok(())
    }

    fn drop_failed(&self, id: MemberId, device: &str) -> Result<(), Error> {
        self.strike(id)?;
        self.report_log_event(
            LogEventKind::Dropped,
            Some(id),
            format!(
                "log device {} ({device}), which had failed, is not needed any more and has been dropped",
                id.0
            ),
        );
        Ok(())
    }

    /// Adds a device to the log; returns its id.
    pub fn add_log_device(&self, candidate: Candidate) -> Result<MemberId, Error> {
        self.check_writable()?;
        let _changing = self.array.changing.lock();
        let Candidate { device, path } = candidate;
        let bytes = self.superblock.lock().members.iter().map(|member| member.bytes).min().unwrap_or(0);
        device.grow(bytes, Fill::Written)?;
        // Taken before anything on the device bears it: no id is used twice, whatever happens now.
        let id = self.amend(|superblock| {
            let array = superblock.array_mut();
            let id = MemberId(array.next_member);
            array.next_member =
                id.0.checked_add(1)
                    .ok_or_else(|| Error::bad_argument("the database has had too many log devices"))?;
            Ok(id)
        })?;
        let counting = Arc::new(Counting::new(device));
        let new = self.log.prepare_member(counting.clone(), id)?;
        let name = counting.info().name.clone();
        self.devices.logs.push(id, counting);
        let listed = self.amend(|superblock| {
            superblock.members.push(Member { id, path, bytes });
            Ok(())
        });
        if let Err(error) = listed {
            self.devices.logs.remove(id);
            return Err(error);
        }
        self.log.use_member(new)?;
        self.restate_copies()?;
        let devices = self.log.devices();
        self.report_log_event(
            LogEventKind::Added,
            Some(id),
            format!("log device {} ({name}) has been added; the log has {devices} devices now", id.0),
        );
        Ok(id)
    }

    /// Writes to the superblock how many copies log gets from now on. A device that fails meanwhile
    /// lowers that again before any log has fewer.
    fn restate_copies(&self) -> Result<(), Error> {
        self.amend(|superblock| {
            if superblock.copies() > 1 {
                let (from, now) = self.log.copies_from_here();
                superblock.array_mut().redundancy.set_from(from, u8::try_from(now).unwrap_or(u8::MAX));
            }
            Ok(())
        })
    }

    /// Removes a device from the log: once nothing on it is needed.
    pub fn remove_log_device(&self, id: MemberId) -> Result<(), Error> {
        self.check_writable()?;
        let _changing = self.array.changing.lock();
        let statuses = self.log.member_statuses();
        let Some(status) = statuses.iter().find(|status| status.member == id) else {
            return Err(Error::not_found(format!("the log has no device {}", id.0)));
        };
        if status.state == MemberState::InUse {
            // A device that fails between the two waits for the lock with its own change, and no
            // log is requested meanwhile.
            let stopped = self.losses.amend_then(
                |superblock| {
                    let statuses = self.log.member_statuses();
                    let others = statuses.iter().filter(|s| s.state == MemberState::InUse && s.member != id);
                    let fewer = self.log.copies().0.min(others.count()).max(1);
                    let durable = self.log.on_devices();
                    if fewer < usize::from(superblock.redundancy().least_from(durable)) {
                        superblock.array_mut().redundancy.set_from(durable, fewer as u8);
                    }
                    Ok(())
                },
                |()| self.log.stop_using(id),
            )?;
            if let Err(error) = stopped {
                self.restate_copies()?;
                return Err(error.into());
            }
        }
        self.drain(id).inspect_err(|_| {
            // It stays a member, with as many copies as before from now on.
            self.log.use_again(id);
            let _ = self.restate_copies();
        })?;
        self.strike(id)?;
        self.report_log_event(
            LogEventKind::Removed,
            Some(id),
            format!(
                "log device {} ({}) has been removed; it may be used for anything else",
                id.0, status.device
            ),
        );
        Ok(())
    }

    /// Takes checkpoints until the device holds no log that is needed.
    fn drain(&self, id: MemberId) -> Result<(), Error> {
        let deadline = clock::now().after(LEAVE_MAX);
        let mut seen = None;
        let mut checkpoint: Option<(Lsn, Moment)> = None;
        // Pages that are not redone yet retain log of an earlier epoch.
        self.redo_all()?;
        loop {
            let held = self.retention.oldest();
            let redo_start = self.superblock.lock().redo_start;
            // A checkpoint needs log space itself: repeated, it would use up the reserve for the
            // next one. It frees no log that the archive or a backup holds, and hardly any if
            // nothing was appended since the last.
            let is_news =
                checkpoint.is_none_or(|(end, taken)| end != self.log.end() || taken.elapsed() >= LEAVE_AGAIN);
            let may_free = held.is_none_or(|held| held >= redo_start) && is_news;
            if held != seen || may_free {
                self.write_back_from_cache(self.log.end())?;
                self.checkpoint_all()?;
                (seen, checkpoint) = (held, Some((self.log.end(), clock::now())));
            }
            let from = self.superblock.lock().log_start();
            if self.log.is_drained(id, from) {
                return Ok(());
            }
            if self.log.member_statuses().iter().all(|status| status.member != id) {
                // It failed meanwhile, and was dropped for that.
                return Ok(());
            }
            if deadline.is_none_or(|deadline| clock::now() >= deadline) {
                return Err(Error::full(format!(
                    "log device {} cannot leave yet: log from LSN {from} on is still needed, by the archive, a \
                         backup or open transactions. It stays in use; try again later",
                    id.0
                )));
            }
            if !self.threads_run() {
                self.archive_step();
            }
            clock::sleep(LEAVE_NAP);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::testing::{memory_devices, small};
    use firndb_log::MemberId;
    use std::time::Duration;

    /// Cause: how many copies log gets was counted before the superblock's lock was taken. Effect:
    /// a device failed in between, and the superblock promised a copy more than there was.
    #[test]
    fn copies_are_counted_with_the_superblock_locked() {
        let db = small(3).log(|log| log.copies(3)).create_on(memory_devices(3)).expect("created");
        let engine = db.engine();
        std::thread::scope(|scope| {
            let superblock = engine.superblock.lock();
            let restating = scope.spawn(|| engine.restate_copies());
            // Meanwhile it comes to wait for the lock.
            std::thread::sleep(Duration::from_millis(100));
            engine.log.stop_using(MemberId(3)).expect("the others are enough");
            drop(superblock);
            restating.join().expect("no panic").expect("written");
        });
        let (from, copies) = engine.log.copies_from_here();
        assert_eq!(copies, 2);
        assert_eq!(engine.superblock.lock().redundancy().least_from(from), 2);
    }
}
