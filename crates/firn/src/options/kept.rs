//! Settings that a database keeps: what was named at one opening holds at every later one, until it
//! is named anew.
//!
//! A promise of the database's owner rests on each of them, so that no program may drop them by not
//! knowing of them: whether a lost flash cache can be rebuilt, how many log devices commits need,
//! what may become of the archive. All other options hold for one opening (`docs/guide/options.md`
//! has the list).
//!
//! On the device they are one extension of the superblock: (number varint, value varint) each,
//! ascending by number; settings that were never named are left out. They become durable with the
//! epoch of the opening that names them.

use crate::options::archive::ArchiveFull;
use firndb_base::codec::{Malformed, Reader, Writer};
use std::time::Duration;

const CACHE_REBUILDABLE: u64 = 1;
const LOG_COPIES_REQUIRED: u64 = 2;
const ARCHIVE_COMPLETES: u64 = 3;
const ARCHIVE_WHEN_FULL: u64 = 4;
const ARCHIVE_PATIENCE: u64 = 5;
const ARCHIVE_DELAY: u64 = 6;
const ARCHIVE_EAGER_BYTES: u64 = 7;
const ARCHIVE_SEGMENT_BYTES: u64 = 8;

/// A setting that the database keeps: what this opening names, else what an earlier one named, else
/// the default.
#[derive(Clone, Copy)]
pub(crate) struct Kept<T> {
    named: Option<T>,
    default: T,
}

impl<T: Copy> Kept<T> {
    pub fn new(default: T) -> Kept<T> {
        Kept { named: None, default }
    }

    pub fn name(&mut self, value: T) {
        self.named = Some(value);
    }

    /// The value in force.
    pub fn get(self) -> T {
        self.named.unwrap_or(self.default)
    }

    /// The value that was named, now or earlier.
    pub fn named(self) -> Option<T> {
        self.named
    }

    /// Takes the value that the database keeps, if this opening names none.
    pub fn complete(&mut self, kept: Option<T>) {
        self.named = self.named.or(kept);
    }
}

impl<T: Copy + std::fmt::Debug> std::fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// Settings that were named; `None`: the default, or as the database has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptSettings {
    pub cache_rebuildable: Option<bool>,
    pub log_copies_required: Option<u64>,
    pub archive_completes: Option<bool>,
    pub archive_when_full: Option<ArchiveFull>,
    pub archive_patience: Option<Duration>,
    pub archive_delay: Option<Duration>,
    pub archive_eager_bytes: Option<u64>,
    pub archive_segment_bytes: Option<u64>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl KeptSettings {
    /// Those that were named, by number.
    fn values(&self) -> [(u64, Option<u64>); 8] {
        [
            (CACHE_REBUILDABLE, self.cache_rebuildable.map(u64::from)),
            (LOG_COPIES_REQUIRED, self.log_copies_required),
            (ARCHIVE_COMPLETES, self.archive_completes.map(u64::from)),
            (ARCHIVE_WHEN_FULL, self.archive_when_full.map(|then| u64::from(then == ArchiveFull::Refuse))),
            (ARCHIVE_PATIENCE, self.archive_patience.map(micros)),
            (ARCHIVE_DELAY, self.archive_delay.map(micros)),
            (ARCHIVE_EAGER_BYTES, self.archive_eager_bytes),
            (ARCHIVE_SEGMENT_BYTES, self.archive_segment_bytes),
        ]
    }

    /// The names of the settings that were named, with their values, for people.
    pub fn named(&self) -> Vec<(&'static str, String)> {
        let text = |number, value: u64| match number {
            CACHE_REBUILDABLE => ("cache.rebuildable", (value != 0).to_string()),
            LOG_COPIES_REQUIRED => ("log.copies_required", value.to_string()),
            ARCHIVE_COMPLETES => ("archive.completes", (value != 0).to_string()),
            ARCHIVE_WHEN_FULL => ("archive.when_full", format!("{:?}", when_full(value))),
            ARCHIVE_PATIENCE => ("archive.patience", format!("{:?}", Duration::from_micros(value))),
            ARCHIVE_DELAY => ("archive.delay", format!("{:?}", Duration::from_micros(value))),
            ARCHIVE_EAGER_BYTES => ("archive.eager_bytes", value.to_string()),
            _ => ("archive.segment_bytes", value.to_string()),
        };
        self.values().into_iter().filter_map(|(number, value)| Some(text(number, value?))).collect()
    }

    /// The extension's field; `None` if nothing was named.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut field = Vec::new();
        for (number, value) in self.values() {
            if let Some(value) = value {
                field.put_varint(number);
                field.put_varint(value);
            }
        }
        (!field.is_empty()).then_some(field)
    }

    pub fn decode(field: &[u8]) -> Result<KeptSettings, Malformed> {
        let reader = &mut Reader::new(field);
        let (mut kept, mut last) = (KeptSettings::default(), 0);
        while !reader.is_empty() {
            let (number, value) = (reader.varint()?, reader.varint()?);
            if number <= last {
                return Err(Malformed { what: "settings out of order" });
            }
            last = number;
            let flag = match value {
                0 | 1 => Ok(value != 0),
                _ => Err(Malformed { what: "a setting with an impossible value" }),
            };
            match number {
                CACHE_REBUILDABLE => kept.cache_rebuildable = Some(flag?),
                LOG_COPIES_REQUIRED => kept.log_copies_required = Some(value),
                ARCHIVE_COMPLETES => kept.archive_completes = Some(flag?),
                ARCHIVE_WHEN_FULL => {
                    flag?;
                    kept.archive_when_full = Some(when_full(value));
                }
                ARCHIVE_PATIENCE => kept.archive_patience = Some(Duration::from_micros(value)),
                ARCHIVE_DELAY => kept.archive_delay = Some(Duration::from_micros(value)),
                ARCHIVE_EAGER_BYTES => kept.archive_eager_bytes = Some(value),
                ARCHIVE_SEGMENT_BYTES => kept.archive_segment_bytes = Some(value),
                _ => {
                    return Err(Malformed {
                        what: "a setting that this program does not know; use a newer one",
                    });
                }
            }
        }
        Ok(kept)
    }
}

fn when_full(value: u64) -> ArchiveFull {
    if value == 0 { ArchiveFull::Gap } else { ArchiveFull::Refuse }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn they_round_trip_and_have_golden_bytes() {
        assert_eq!(KeptSettings::default().encode(), None);
        let some = KeptSettings {
            cache_rebuildable: Some(true),
            archive_when_full: Some(ArchiveFull::Refuse),
            archive_delay: Some(Duration::from_micros(300)),
            ..KeptSettings::default()
        };
        let field = some.encode().expect("three were named");
        assert_eq!(field, b"\x01\x01\x04\x01\x06\xac\x02");
        assert_eq!(KeptSettings::decode(&field), Ok(some));
        let all = KeptSettings {
            cache_rebuildable: Some(false),
            log_copies_required: Some(3),
            archive_completes: Some(false),
            archive_when_full: Some(ArchiveFull::Gap),
            archive_patience: Some(Duration::MAX),
            archive_delay: Some(Duration::ZERO),
            archive_eager_bytes: Some(u64::MAX),
            archive_segment_bytes: Some(1 << 20),
        };
        let most = Duration::from_micros(u64::MAX);
        let read = KeptSettings::decode(&all.encode().expect("all were named"));
        assert_eq!(read, Ok(KeptSettings { archive_patience: Some(most), ..all }));
        for senseless in [&b"\x01\x02"[..], b"\x01\x01\x01\x01", b"\x09\x00", b"\x00\x00", b"\x05"] {
            assert!(KeptSettings::decode(senseless).is_err(), "{senseless:?}");
        }
    }

    #[test]
    fn what_is_named_goes_before_what_is_kept() {
        let options = Options::new().cache(|cache| cache.rebuildable(true));
        let kept = options.archive(|archive| archive.completes(false)).kept();
        let options = Options::new().cache(|cache| cache.rebuildable(false)).with_kept(kept);
        assert!(!options.cache.rebuildable.get() && !options.archive.completes.get());
        assert_eq!(options.kept().cache_rebuildable, Some(false));
        assert_eq!(options.archive.when_full.get(), ArchiveFull::Gap, "no option names another");
        assert_eq!(
            options.kept().named(),
            [("cache.rebuildable", "false".to_owned()), ("archive.completes", "false".to_owned())]
        );
    }
}
