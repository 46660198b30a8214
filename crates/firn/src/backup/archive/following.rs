//! One step of the archiver: follows the log from the archive's end, and appends what is due.

use crate::backup::archive::{Archive, PAUSE, Work, lacks, open_writer, refuse_the_future};
use crate::engine::Engine;
use crate::engine::archiver::Archiver;
use crate::error::{Error, ErrorKind};
use crate::options::archive::ArchiveSettings;
use crate::options::callbacks::LogEventKind;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, Progress};
use firndb_log::archive::{ArchiveWriter, CHUNK_MAX};
use firndb_log::{LogError, LogErrorKind, LogTail, Piece};
use firndb_tier::TierError;

/// How far the archive runs ahead of the log's devices, in bytes: no more than the next epoch can
/// begin with a copy of after a crash (16,384 blocks), however large the log buffer is.
const AHEAD_BYTES: u64 = 6 << 20;

/// A piece of log that was read, and is in no segment yet as far as is known. Its bytes are in
/// [`Work::bytes`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Unwritten {
    piece: Piece,
    /// The devices may lack some of it; the last whole group ends here.
    early: Option<Lsn>,
}

impl Archive {
    pub(super) fn advance(&self, engine: &Engine, work: &mut Work, all: bool) -> Result<Progress, LogError> {
        if work.writer.is_none() {
            let writer = open_writer(&self.directory, self.database, &self.options)?;
            refuse_the_future(&writer, &engine.superblock.lock(), engine.log.end())
                .map_err(|error| LogError::new(LogErrorKind::BadArgument, error.to_string()))?;
            self.accept(engine, &writer)?;
            (work.writer, work.unwritten) = (Some(writer), None);
            // There may be nothing to write for long.
            self.status.lock().failing = None;
            *self.failing_since.lock() = None;
        }
        self.give_up_unreadable(engine, work);
        if work.tail.is_none() || engine.retention.archive().is_none() {
            (work.unwritten, work.tail) = (None, None);
            let Some(tail) = self.follow(engine, work)? else { return Ok(Progress::Idle) };
            work.tail = Some(tail);
        }
        if !work.has_written && work.attempted > engine.log.on_devices() {
            // The write before failed, and may have left this log in the archive all the same. No
            // crash may cut it off then: what follows the cut would have its LSNs. Perhaps no
            // thread waits for it.
            engine.log.request_flush(work.attempted);
            return Ok(Progress::Idle);
        }
        if work.unwritten.is_none() {
            work.unwritten = self.read_piece(engine, work, all)?;
            if let Some(Unwritten { piece, .. }) = work.unwritten {
                let end = piece.first.advance(work.bytes.len() as u64);
                work.images.begin(engine, piece.first..end);
            }
        }
        let Some(unwritten) = work.unwritten else { return Ok(Progress::Idle) };
        if !work.images.are_copied() {
            self.copy_images(engine, work, unwritten.piece)?;
            return Ok(Progress::Worked);
        }
        self.write(engine, work, unwritten)?;
        Ok(Progress::Worked)
    }

    /// Checks that the archive can go on, or begin, and notes its end.
    ///
    /// Errors: `BadArgument` if it lacks log that was archived, and that is retained no more.
    fn accept(&self, engine: &Engine, writer: &ArchiveWriter) -> Result<(), LogError> {
        let (held, not_held) = (engine.retention.archive(), engine.store.newest_shadow_not_held());
        // Log that names images which are not held is as good as gone.
        let retained = held.map_or(Lsn::MAX, |held| held.max(not_held.map_or(held, |lsn| lsn.advance(1))));
        if let Some(sentence) = lacks(writer, &self.directory, engine.retention.archive_end(), retained) {
            return Err(LogError::new(LogErrorKind::BadArgument, sentence));
        }
        engine.retention.set_archive_end(writer.resume());
        if held.is_some() && not_held >= held.max(writer.resume()) {
            // It has lost its end, and begins anew behind that log.
            engine.retention.advance_archive(writer.resume().unwrap_or(Lsn::ZERO));
            engine.revoke_archive_hold();
        }
        Ok(())
    }

    /// Reads the next piece, if one is due.
    fn read_piece(&self, engine: &Engine, work: &mut Work, all: bool) -> Result<Option<Unwritten>, LogError> {
        let (Some(writer), Some(tail)) = (&work.writer, &mut work.tail) else {
            unreachable!("the caller has made both")
        };
        let (pos, end) = (tail.pos(), engine.log.end());
        let (behind, ahead) = (tail.behind(), end.0.saturating_sub(pos.0));
        self.wanted
            .store(pos.0.saturating_add(self.options.eager_bytes.get()).max(end.0 + 1), Ordering::Relaxed);
        if behind == 0 {
            work.waiting_since = None;
        }
        let until = end.min(pos.advance(CHUNK_MAX as u64)).min(engine.log.on_devices().advance(AHEAD_BYTES));
        // At the start of an epoch `pos` may be past the end of the archive: a crash before the
        // next write finds the archive ending there.
        let reached = writer.end().unwrap_or(Lsn::ZERO).min(pos);
        let early = !all
            && self.options.completes.get()
            && work.has_written
            && until > pos
            && ahead > behind.max(self.options.eager_bytes.get().saturating_sub(1))
            && engine.log.is_awaited()
            && engine.need_archive(reached.min(engine.log.on_devices()), until).is_ok();
        let now = all || engine.store.holds_many_shadows();
        if !early && !Self::is_due(&self.options, behind, now, &mut work.waiting_since) {
            return Ok(None);
        }
        let piece = match early {
            true => tail.next_appended(CHUNK_MAX, until, &mut work.bytes),
            false => tail.next(CHUNK_MAX, Lsn::MAX, &mut work.bytes),
        };
        work.unreadable_since = match piece {
            Ok(_) => None,
            Err(_) => work.unreadable_since.or_else(|| Some(clock::now())),
        };
        let early = early.then(|| tail.boundary());
        Ok(piece?.map(|piece| Unwritten { piece, early }))
    }

    /// Copies some images of shadows that records of the piece name, which is written after them.
    /// What cannot be read may come back, with a device of an array for instance; it is left out
    /// when the archive's patience has ended, or no log would be archived any more. Restores that
    /// need it are refused.
    fn copy_images(&self, engine: &Engine, work: &mut Work, piece: Piece) -> Result<(), LogError> {
        let writer = work.writer.as_mut().expect("the caller has opened it");
        let unread = work.unread_image_since;
        let is_given_up = unread.is_some_and(|since| since.elapsed() >= self.options.patience.get());
        let leaves_out = |error: TierError| match is_given_up {
            true => {
                let what = "archiving the content of a page that no log has";
                engine.background_failed(what, &error.into());
                Ok(())
            }
            false => Err(Error::from(error)),
        };
        let copied = work.images.copy_some(engine, writer, piece, &leaves_out);
        work.unread_image_since = match &copied {
            Err(error) if error.concerns_a_page() => unread.or_else(|| Some(clock::now())),
            _ => None,
        };
        copied.map_err(|error| match error.kind() {
            ErrorKind::Full => LogError::new(LogErrorKind::Full, error.to_string()),
            _ => LogError::new(LogErrorKind::Failed, error.to_string()),
        })
    }

    /// Appends a piece to the archive, what is not there of it, and acknowledges the commits in it.
    fn write(&self, engine: &Engine, work: &mut Work, unwritten: Unwritten) -> Result<(), LogError> {
        let Unwritten { mut piece, early } = unwritten;
        let writer = work.writer.as_mut().expect("the caller has opened it");
        // A write that failed may have been the second of two, in the next segment.
        let there = writer.end().map_or(0, |end| end.0.saturating_sub(piece.first.0) as usize);
        let there = there.min(work.bytes.len());
        piece.first = piece.first.advance(there as u64);
        let end = piece.first.advance((work.bytes.len() - there) as u64);
        work.attempted = work.attempted.max(end);
        writer.append(piece, &work.bytes[there..], clock::unix_time_us())?;
        work.unwritten = None;
        if !std::mem::replace(&mut work.has_written, true) {
            self.expect(engine, true);
        }
        if let Some(boundary) = early {
            engine.log.archived(boundary);
            work.early_at = Some(clock::now());
        }
        work.waiting_since = None;
        (work.not_before, work.pause, work.is_reported) = (None, PAUSE.0, false);
        engine.retention.archived(piece.resume);
        engine.settle_shadow_holds();
        let mut status = self.status.lock();
        status.archived = writer.end();
        status.writes += 1;
        status.early_writes += u64::from(early.is_some());
        status.bytes += work.bytes.len() as u64;
        status.failing = None;
        *self.failing_since.lock() = None;
        drop(status);
        self.moved.notify_all();
        Ok(())
    }

    /// Gives up log that could not be read for long. Retried for ever, it would never be archived,
    /// and all log behind it would be retained.
    fn give_up_unreadable(&self, engine: &Engine, work: &mut Work) {
        if work.unreadable_since.is_some_and(|since| since.elapsed() >= self.options.patience.get()) {
            work.unreadable_since = None;
            engine.give_up_archiving("the log's devices cannot be read where the archive is to go on");
        }
    }

    /// Whether log that is on the devices is due for archiving: there is enough of it, or it has
    /// waited long enough.
    fn is_due(options: &ArchiveSettings, behind: u64, all: bool, waiting: &mut Option<Moment>) -> bool {
        if behind == 0 {
            return false;
        }
        let since = *waiting.get_or_insert_with(clock::now);
        behind >= options.eager_bytes.get() || all || since.elapsed() >= options.delay.get()
    }

    /// Clears `archive_needed` in the superblock once nothing was archived early for a while.
    pub(super) fn take_word_back(&self, engine: &Engine, work: &mut Work) {
        if work.early_at.is_some_and(|at| at.elapsed() >= self.options.delay.get())
            && let Ok(true) = engine.settle_archive()
        {
            work.early_at = None;
        }
    }

    /// Begins to follow the log at the archive's end, or, if that log is gone, where the log
    /// begins. `None` while the devices lack log that names images which are not held.
    fn follow(&self, engine: &Engine, work: &mut Work) -> Result<Option<LogTail>, LogError> {
        let writer = work.writer.as_mut().expect("the caller has opened it");
        work.has_written = false;
        self.expect(engine, true);
        if engine.retention.archive().is_none() {
            // The hold was revoked. It begins anew, and the log where all shadows behind are held.
            let from = {
                let _superblock = engine.superblock.lock();
                let from = engine.log.on_devices();
                engine.retention.hold_archive(from);
                from
            };
            let held = engine.settle_shadow_holds();
            work.not_held_before = (engine.store.newest_shadow_not_held() >= Some(from)).then_some(held);
        }
        if let Some(held) = work.not_held_before {
            if engine.log.on_devices() < held {
                engine.log.request_flush(held);
                return Ok(None);
            }
            engine.retention.advance_archive(engine.log.on_devices());
            work.not_held_before = None;
        }
        // Neither the hold nor the log that it retains changes under the superblock's lock.
        let (identity, from) = {
            let superblock = engine.superblock.lock();
            // If it was revoked meanwhile, the next step begins it anew.
            let Some(held) = engine.retention.archive() else { return Ok(None) };
            (superblock.log_identity(), held)
        };
        let archived = writer.resume();
        writer.rewind();
        let from = match archived {
            Some(archived) if archived >= from => {
                engine.retention.advance_archive(archived);
                archived
            }
            Some(archived) if !self.is_only_a_jump(engine, archived, from) => {
                self.note_gap(archived, from);
                writer.skip_to(from);
                from
            }
            Some(archived) => archived,
            None => from,
        };
        let tail = LogTail::new(engine.log.clone(), identity, from);
        Ok(Some(tail.with_read(work.read.take().unwrap_or_default())))
    }

    /// Sets whether the log may expect the archive to acknowledge commits.
    fn expect(&self, engine: &Engine, works: bool) {
        engine.log.expect_archived(works && self.options.completes.get());
    }

    fn note_gap(&self, from: Lsn, to: Lsn) {
        let mut status = self.status.lock();
        match status.gaps.last_mut() {
            // Nothing was archived between the two gaps.
            Some(last) if from <= last.1 => *last = (last.0.min(from), last.1.max(to)),
            _ => status.gaps.push((from, to)),
        }
        status.archived = Some(to);
    }

    /// Whether nothing was ever written between the archive's end and `from`: the log before this
    /// epoch ended there.
    fn is_only_a_jump(&self, engine: &Engine, archived: Lsn, from: Lsn) -> bool {
        let mark = engine.log.epoch_mark();
        archived >= mark.previous_end && from <= mark.start
    }

    pub(super) fn failed(&self, engine: &Engine, work: &mut Work, error: &LogError) {
        work.has_written = false;
        if work.unwritten.is_none() {
            // What follows could not be read: the log is followed again, from a record.
            if let Some(writer) = &mut work.writer {
                writer.rewind();
            }
            work.tail = None;
        }
        self.expect(engine, false);
        self.wanted.store(u64::MAX, Ordering::Relaxed);
        if error.kind == LogErrorKind::BadArgument {
            // The directory holds another database's archive by now: open it afresh each time.
            (work.writer, work.tail, work.unwritten) = (None, None, None);
        }
        work.not_before = clock::now().after(work.pause);
        work.pause = (work.pause * 2).min(PAUSE.1);
        let mut status = self.status.lock();
        status.failing = Some(error.message.clone());
        self.failing_since.lock().get_or_insert_with(clock::now);
        drop(status);
        self.moved.notify_all();
        if !std::mem::replace(&mut work.is_reported, true) {
            engine.report_log_event(LogEventKind::ArchiveFails, None, self.trouble());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::devices::Devices;
    use crate::options::Options;
    use firndb_base::sync::Arc;
    use firndb_device::{Device, MemoryDevice};
    use firndb_testkit::gate::{Gate, Mode};
    use std::time::Duration;

    /// Cause: only the piece of the failed write waited for the devices; once the archive's hold
    /// was revoked, a shorter one was written. Effect: it hid the failed write, which may be in the
    /// archive, from the scan that places the next epoch; that could begin below its end.
    ///
    /// Cause: no thread had the devices write what only the archiver waited for. Effect: nothing
    /// was archived before the next commit.
    #[test]
    fn after_a_failed_write_the_archive_waits_for_the_devices_whatever_it_writes_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, files) = (Gate::default(), Gate::default());
        let memory = |name| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
        let devices = Devices {
            superblock: memory("superblock"),
            logs: vec![log.over(memory("log"))],
            store: memory("store"),
            store_others: Vec::new(),
            cache: None,
        };
        let behind = files.clone();
        let options = Options::new()
            .page_size(1024)
            .buffer_bytes(256 << 10)
            .log(|log| log.bytes(1 << 20))
            .background_threads(false)
            .wrap_archive(std::sync::Arc::new(move |inner| behind.over(inner)))
            .archive(|archive| archive.directory(dir.path().join("archive")).completes(true).eager_bytes(1));
        let db = options.create_on(devices).expect("created");
        let table = db.create_table("rows").expect("created");
        let engine = db.engine();
        let archive = engine.archive.as_ref().expect("it has one");
        while archive.step(engine, true) == Progress::Worked {}
        let _opening = log.opening();
        log.set(Mode::Shut);
        files.set(Mode::Failing);
        let mut open = db.begin();
        let commits = [1u8, 2].map(|row| {
            let mut tx = db.begin();
            tx.put(&table, &[row], &[row; 100]).expect("put");
            tx.commit_async().expect("appended")
        });
        std::thread::scope(|scope| {
            let waiting = commits.map(|commit| scope.spawn(move || commit.wait()));
            // One of them writes both commits; the other waits.
            while log.held() == 0 || !engine.log.is_awaited() {
                std::thread::sleep(Duration::from_millis(1));
            }
            open.put(&table, &[3], &[3; 100]).expect("put");
            assert_eq!(archive.step(engine, false), Progress::Idle);
            assert!(archive.statistics(engine).failing.is_some(), "{:?}", archive.statistics(engine));
            engine.retention.revoke_archive();
            assert_eq!(archive.step(engine, true), Progress::Idle, "it follows the log again");
            files.set(Mode::Open);
            log.set(Mode::Open);
            for thread in waiting {
                thread.join().expect("no panic").expect("durable");
            }
        });
        let (failed, before) = (engine.log.end(), archive.statistics(engine).archived);
        assert!(engine.log.on_devices() < failed);
        assert_eq!(archive.step(engine, true), Progress::Idle, "the devices lack some of it");
        assert_eq!(archive.statistics(engine).archived, before);
        while engine.log.step() == Progress::Worked {}
        while archive.step(engine, true) == Progress::Worked {}
        assert_eq!(archive.statistics(engine).archived, Some(failed));
        assert_eq!(archive.statistics(engine).gaps, []);
        open.commit().expect("committed");
    }
}
