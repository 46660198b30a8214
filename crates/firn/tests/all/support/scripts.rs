//! The scripts that both harnesses run: each shows one way in which a database is used, on devices
//! and budgets small enough that its I/O calls can be gone through one by one.

use super::bed::Bed;
use super::session::{Session, by_group, by_unique};
use firndb::device::{Calls, DeviceErrorKind, FaultPlan};
use firndb::{Direction, Error, Options};
use firndb_base::rng::Rng;

/// A script, and what it starts from.
pub struct Script {
    pub name: &'static str,
    pub options: fn() -> Options,
    /// Log devices.
    pub logs: usize,
    /// Bytes at which the store is full.
    pub store_limit: u64,
    /// Whether a run takes long.
    pub large: bool,
    /// Prepares the devices, without faults, from an open empty database.
    pub setup: fn(&mut Session),
    /// What a flash cache adds to the options.
    pub cache: Option<fn(Options) -> Options>,
    /// Whether the devices are left as a crash leaves them, not as closing does.
    pub crashed: bool,
    /// What is tested. Begins with a database that has just been opened.
    pub run: fn(&mut Session),
}

impl Script {
    const fn new(name: &'static str, setup: fn(&mut Session), run: fn(&mut Session)) -> Script {
        Script {
            name,
            options: tiny,
            logs: 1,
            store_limit: u64::MAX,
            large: false,
            setup,
            cache: None,
            crashed: false,
            run,
        }
    }
    const fn options(self, options: fn() -> Options) -> Script {
        Script { options, ..self }
    }
    const fn logs(self, logs: usize) -> Script {
        Script { logs, ..self }
    }
    const fn store_limit(self, store_limit: u64) -> Script {
        Script { store_limit, large: true, ..self }
    }
    /// The same over a flash cache.
    pub fn over_cache(self, cache: fn(Options) -> Options) -> Script {
        Script { cache: Some(cache), ..self }
    }
    const fn crashed(self) -> Script {
        Script { crashed: true, ..self }
    }

    /// The options for this script's log devices.
    pub fn options_for(&self) -> Options {
        let logs = self.logs;
        // A waiter in a test of one thread would wait for itself.
        let options = (self.options)().lock_deadline(std::time::Duration::from_millis(50));
        let options = options.log(|log| log.devices(logs).bytes(logs as u64 * LOG_BYTES));
        match self.cache {
            Some(cache) => cache(options),
            None => options,
        }
    }

    /// Prepares the devices: a session that has ended. What is on them is its bed.
    pub fn prepare(&self) -> Session {
        let bed = Bed::with_store_of(self.logs, self.store_limit);
        let mut session = Session::plain(bed, self.options_for());
        session.create();
        (self.setup)(&mut session);
        session.verify();
        match self.crashed {
            true => session.crash(),
            false => session.close(),
        }
        assert!(session.broken.is_empty(), "{}: the set-up: {:?}", self.name, session.broken);
        assert!(session.errors.is_empty(), "{}: the set-up: {:?}", self.name, session.errors);
        session
    }
}

/// Bytes of a store with pages of 1 KiB that has one group, of about 4000 pages.
const STORE_OF_ONE_GROUP: u64 = 4_700_000;
/// Bytes of one log device: the least there may be.
const LOG_BYTES: u64 = 256 << 10;

/// Pages of 1 KiB, so that few rows make deep trees, and as few of them in DRAM as can be.
fn tiny() -> Options {
    let options = Options::new().page_size(1024).buffer_bytes(64 << 10).background_threads(false);
    options.tuning(|tuning| tuning.version_bytes(4 << 10))
}
/// The same with space for all pages.
fn roomy() -> Options {
    tiny().buffer_bytes(512 << 10)
}
/// Pages of the usual size: a little log goes a long way around.
fn pages_of_4k() -> Options {
    tiny().page_size(4096).buffer_bytes(256 << 10).tuning(|tuning| tuning.version_bytes(64 << 10))
}

pub fn key(i: u32) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}
/// A value of `len` bytes at least 12: a group of four, a unique number, filling.
pub fn value(i: u32, version: u32, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len);
    value.extend_from_slice(&((i ^ version) % 4).to_be_bytes());
    value.extend_from_slice(&(u64::from(version) << 32 | u64::from(i)).to_be_bytes());
    value.resize(len.max(12), b'a' + (i + version) as u8 % 26);
    value
}

/// Table "t" with `count` rows of `len` bytes, written `batch` a transaction.
fn filled(session: &mut Session, count: u32, batch: u32, len: usize) {
    session.create_table("t", &[]);
    fill(session, "t", 0..count, batch, len);
}
fn fill(session: &mut Session, table: &str, range: std::ops::Range<u32>, batch: u32, len: usize) {
    let mut from = range.start;
    while from < range.end {
        let to = (from + batch).min(range.end);
        session.transact(|work| {
            for i in from..to {
                work.put(table, &key(i), &value(i, 0, len))?;
            }
            Ok(())
        });
        from = to;
    }
}
fn nothing(_: &mut Session) {}
fn empty_table(session: &mut Session) {
    session.create_table("t", &[]);
}
fn hundred_rows(session: &mut Session) {
    filled(session, 100, 25, 30);
}
/// Many more pages than fit into the buffer.
fn many_pages(session: &mut Session) {
    filled(session, 700, 50, 140);
}
fn indexed(session: &mut Session) {
    session.create_table("t", &[by_group(), by_unique()]);
    fill(session, "t", 0..80, 20, 30);
}

/// All scripts.
pub fn all() -> Vec<Script> {
    let mut scripts = rows();
    scripts.extend(shapes());
    scripts.extend(transactions());
    scripts.extend(definitions());
    scripts.extend(lives());
    scripts.extend(limits());
    scripts
}

pub fn named(name: &str) -> Script {
    all().into_iter().find(|script| script.name == name).unwrap_or_else(|| panic!("no script {name:?}"))
}

fn rows() -> Vec<Script> {
    vec![
        Script::new("inserts", empty_table, |session| {
            for t in 0..8u32 {
                session.transact(|work| {
                    (0..4).try_for_each(|i| work.insert("t", &key(t * 4 + i), &value(i, t, 30)))
                });
            }
            session.verify();
        }),
        Script::new("inserts over two log devices", empty_table, |session| {
            for t in 0..10u32 {
                session.transact(|work| work.insert("t", &key(t), &value(t, 0, 130)));
            }
            session.verify();
        })
        .logs(2),
        Script::new("inserts over four log devices", empty_table, |session| {
            for t in 0..12u32 {
                session.transact(|work| work.insert("t", &key(t), &value(t, 0, 40)));
                session.steps(1);
            }
        })
        .logs(4),
        Script::new("updates", hundred_rows, |session| {
            for t in 1..7u32 {
                session.transact(|work| {
                    for i in (0..100).step_by(9) {
                        work.put("t", &key(i), &value(i, t, 20 + (t * i) as usize % 60))?;
                    }
                    Ok(())
                });
                session.steps(2);
            }
            session.verify();
        }),
        Script::new("deletes", hundred_rows, |session| {
            for t in 0..5u32 {
                session.transact(|work| (0..15).try_for_each(|i| work.delete("t", &key(t * 15 + i))));
                session.steps(6);
            }
            session.verify();
        }),
        Script::new("scans of more than fits into DRAM", many_pages, |session| {
            session.transact(|work| {
                work.scan("t", Direction::Forward)?;
                work.scan("t", Direction::Backward)?;
                (0..700).step_by(37).try_for_each(|i| work.get("t", &key(i)))
            });
        }),
        Script::new("updates of more than fits into DRAM", many_pages, |session| {
            for t in 1..4u32 {
                session.transact(|work| {
                    (0..700).step_by(11).try_for_each(|i| work.put("t", &key(i), &value(i, t, 140)))
                });
                session.steps(3);
            }
            session.verify();
        }),
        Script::new("secondary indexes", indexed, |session| {
            for t in 1..5u32 {
                session.transact(|work| {
                    for i in (0..80).step_by(7) {
                        work.put("t", &key(i), &value(i, t, 30))?;
                    }
                    work.delete("t", &key(t * 3))
                });
                session.steps(4);
            }
            session.verify();
        }),
        Script::new("rows refused by a unique index", indexed, |session| {
            session.transact(|work| {
                work.insert("t", &key(200), &value(200, 1, 30))?;
                work.insert_in_vain("t", &key(201), &value(5, 0, 30))?;
                work.insert_in_vain("t", &key(7), &value(7, 9, 30))?;
                work.insert("t", &key(202), &value(202, 1, 30))
            });
            session.verify();
        }),
    ]
}

fn shapes() -> Vec<Script> {
    vec![
        Script::new("splits at the end", empty_table, |session| {
            for t in 0..4u32 {
                session.transact(|work| {
                    (0..30).try_for_each(|i| work.insert("t", &key(t * 30 + i), &value(i, t, 140)))
                });
            }
            session.verify();
        }),
        Script::new("splits in the middle", hundred_rows, |session| {
            let mut rng = Rng::new(3);
            for t in 1..5u32 {
                session.transact(|work| {
                    (0..30).try_for_each(|_| {
                        let i = rng.below(400) as u32;
                        work.put("t", &key(i), &value(i, t, 140))
                    })
                });
            }
            session.verify();
        }),
        Script::new("merges", many_pages, |session| {
            for t in 0..5u32 {
                session.transact(|work| {
                    (0..700)
                        .filter(|i| i % 5 == t || i % 40 > 0)
                        .try_for_each(|i| if i % 5 == t { work.delete("t", &key(i)) } else { Ok(()) })
                });
                session.steps(30);
            }
            session.verify();
        }),
        Script::new("growth by groups", empty_table, |session| {
            fill(session, "t", 0..400, 50, 140);
            session.checkpoint();
            fill(session, "t", 400..700, 50, 140);
            session.verify();
        }),
        Script::new(
            "space given back",
            |session| {
                session.create_table("u", &[]);
                fill(session, "u", 0..800, 100, 140);
                empty_table(session);
                session.checkpoint();
            },
            |session| {
                session.drop_table("u");
                session.steps(10);
                session.checkpoint();
                session.steps(60);
                session.checkpoint();
                session.steps(60);
                fill(session, "t", 0..40, 20, 110);
                session.verify();
            },
        ),
    ]
}

fn transactions() -> Vec<Script> {
    vec![
        Script::new("savepoints", hundred_rows, |session| {
            session.transact(|work| {
                work.put("t", &key(1), &value(1, 1, 30))?;
                let first = work.savepoint();
                (10..40).try_for_each(|i| work.put("t", &key(i), &value(i, 2, 60)))?;
                let second = work.savepoint();
                (30..60).try_for_each(|i| work.delete("t", &key(i)))?;
                work.roll_back_to(&second)?;
                (60..70).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 10)))?;
                work.roll_back_to(&first)?;
                work.put("t", &key(2), &value(2, 4, 30))
            });
            session.verify();
        }),
        Script::new("rollbacks", hundred_rows, |session| {
            for t in 1..5u32 {
                session.transact_and_roll_back(|work| {
                    (0..20).try_for_each(|i| work.put("t", &key(i * t), &value(i, t, 80)))?;
                    (90..95).try_for_each(|i| work.delete("t", &key(i)))
                });
                session.transact(|work| work.put("t", &key(t), &value(t, 50 + t, 30)));
            }
            session.verify();
        }),
        Script::new("before-images spill, commit", many_pages, |session| {
            session.transact(|work| (0..300).try_for_each(|i| work.put("t", &key(i), &value(i, 7, 100))));
            session.steps(10);
            session.verify();
        }),
        Script::new("before-images spill, rollback", many_pages, |session| {
            session.transact_and_roll_back(|work| {
                (0..300).try_for_each(|i| work.put("t", &key(i), &value(i, 8, 80)))
            });
            session.steps(10);
            session.verify();
        }),
        Script::new("checkpoints within transactions", hundred_rows, |session| {
            session.transact(|work| {
                (0..40).try_for_each(|i| work.put("t", &key(i), &value(i, 1, 60)))?;
                work.checkpoint()?;
                (20..60).try_for_each(|i| work.put("t", &key(i), &value(i, 2, 50)))?;
                work.checkpoint()?;
                work.put("t", &key(99), &value(99, 1, 30))
            });
            session.transact_and_roll_back(|work| {
                (0..40).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 40)))?;
                work.checkpoint()?;
                (30..70).try_for_each(|i| work.delete("t", &key(i)))?;
                work.checkpoint()
            });
            session.verify();
        }),
        Script::new("a transaction open while others commit", hundred_rows, |session| {
            for commit in [true, false] {
                session.transact_around(
                    |work| (0..30).try_for_each(|i| work.put("t", &key(i), &value(i, 21, 40))),
                    |session| {
                        for t in 0..3u32 {
                            session.transact(|work| work.put("t", &key(50 + t), &value(50 + t, 22, 40)));
                            session.checkpoint();
                            session.steps(2);
                        }
                    },
                    commit,
                );
            }
            session.verify();
        }),
        Script::new("checkpoints", hundred_rows, |session| {
            for t in 1..6u32 {
                session.transact(|work| {
                    (0..10).try_for_each(|i| work.put("t", &key(i * t), &value(i * t, t, 30)))
                });
                session.checkpoint();
            }
            session.verify();
        }),
        Script::new("commits that are waited for later", empty_table, |session| {
            for t in 0..4u32 {
                let scripts = (0..4u32).map(|i| {
                    let script: super::session::Script =
                        Box::new(move |work| work.put("t", &key(t * 4 + i), &value(i, t, 120)));
                    script
                });
                session.transact_async(scripts.collect());
            }
            session.verify();
        })
        .logs(2),
        Script::new("prepare and commit", hundred_rows, |session| {
            for gid in [b"one", b"two"] {
                session.prepare(gid, |work| {
                    let from = if gid == b"one" { 0 } else { 20 };
                    (from..from + 15).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50)))
                });
            }
            session.transact(|work| work.put("t", &key(60), &value(60, 31, 30)));
            session.checkpoint();
            session.verify();
            session.finish_prepared(b"two", true);
            session.finish_prepared(b"one", true);
            session.verify();
        }),
        Script::new("prepare and roll back in the next life", hundred_rows, |session| {
            session.prepare(b"gid", |work| {
                (0..15).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50)))?;
                (40..50).try_for_each(|i| work.delete("t", &key(i)))
            });
            session.reopen();
            session.verify();
            session.finish_prepared(b"gid", false);
            session.verify();
            session.transact(|work| work.put("t", &key(3), &value(3, 33, 30)));
        }),
    ]
}

fn definitions() -> Vec<Script> {
    vec![
        Script::new("tables are created", nothing, |session| {
            for name in ["a", "b", "c"] {
                session.create_table(name, &[by_group()]);
                session.transact(|work| work.insert(name, &key(1), &value(1, 1, 30)));
            }
            session.verify();
        }),
        Script::new("tables are dropped", indexed, |session| {
            session.create_table("u", &[]);
            session.transact(|work| work.insert("u", &key(1), &value(1, 1, 30)));
            session.drop_table("t");
            session.steps(20);
            session.create_table("t", &[]);
            session.transact(|work| work.insert("t", &key(1), &value(1, 2, 30)));
            session.drop_table("u");
            session.steps(20);
            session.verify();
        }),
        Script::new("tables are renamed", indexed, |session| {
            session.rename_table("t", "v");
            session.transact(|work| work.put("v", &key(1), &value(1, 9, 30)));
            session.create_table("t", &[]);
            session.rename_table("v", "w");
            session.verify();
        }),
        Script::new("an index is built", hundred_rows, |session| {
            session.create_index("t", by_group());
            session.transact(|work| work.put("t", &key(1), &value(1, 2, 30)));
            session.create_index("t", by_unique());
            session.transact(|work| work.delete("t", &key(2)));
            session.drop_index("t", "by group");
            session.steps(20);
            session.verify();
        }),
        Script::new(
            "an index is refused by the rows",
            |session| {
                session.create_table("t", &[]);
                session.transact(|work| {
                    (0..60).try_for_each(|i| work.insert("t", &key(i), &value(i % 50, 1, 30)))
                });
            },
            |session| {
                session.create_index_in_vain("t", by_unique());
                session.steps(20);
                session.transact(|work| work.put("t", &key(1), &value(1, 2, 30)));
                session.verify();
            },
        ),
    ]
}

fn lives() -> Vec<Script> {
    vec![
        Script::new("closing and opening", hundred_rows, |session| {
            for t in 1..4u32 {
                session.transact(|work| work.put("t", &key(t), &value(t, t, 30)));
                session.reopen();
                session.verify();
            }
        }),
        Script::new(
            "recovery",
            |session| {
                indexed(session);
                session.checkpoint();
                for t in 1..4u32 {
                    session.transact(|work| {
                        (0..80).step_by(6).try_for_each(|i| work.put("t", &key(i), &value(i, t, 60)))
                    });
                }
                leave_open(session);
            },
            |session| {
                session.verify();
                session.transact(|work| work.put("t", &key(1), &value(1, 77, 30)));
            },
        )
        .crashed(),
        Script::new(
            "recovery of more than fits into DRAM",
            |session| {
                many_pages(session);
                session.checkpoint();
                session.transact(|work| {
                    (0..700).step_by(3).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 100)))
                });
                leave_open(session);
            },
            |session| session.verify(),
        )
        .crashed(),
        Script::new(
            "work while recovery goes on",
            |session| {
                many_pages(session);
                session.checkpoint();
                session.transact(|work| {
                    (0..700).step_by(2).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 150)))
                });
                session.transact(|work| (300..400).try_for_each(|i| work.delete("t", &key(i))));
                leave_open(session);
            },
            |session| {
                // Nothing has been done in the background yet; a row of the loser is among those
                // written.
                session.transact(|work| work.put("t", &key(20), &value(20, 7, 60)));
                for t in 0..8u32 {
                    session.transact(|work| {
                        work.get("t", &key(t * 83 % 700))?;
                        work.put("t", &key(t * 97 % 700), &value(t, 8, 120))
                    });
                    match t {
                        3 => session.checkpoint(),
                        _ => session.steps(1),
                    }
                }
                session.transact(|work| (400..440).try_for_each(|i| work.delete("t", &key(i))));
                session.verify();
            },
        )
        .crashed(),
        Script::new(
            "recovery of a recovery that was cut short",
            |session| {
                many_pages(session);
                session.checkpoint();
                session.transact(|work| {
                    (0..700).step_by(5).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 90)))
                });
                leave_open(session);
                for calls in [40, 90] {
                    session.crash_during_opening(calls);
                }
            },
            |session| session.verify(),
        )
        .crashed(),
        Script::new(
            "recovery with prepared transactions",
            |session| {
                hundred_rows(session);
                session.prepare(b"gid", |work| {
                    (0..30).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50)))
                });
                session.transact(|work| work.put("t", &key(70), &value(70, 1, 30)));
            },
            |session| {
                session.verify();
                session.finish_prepared(b"gid", true);
                session.verify();
            },
        )
        .crashed(),
        Script::new("a crash between, twice", hundred_rows, |session| {
            for t in 1..3u32 {
                session.transact(|work| {
                    (0..100).step_by(4).try_for_each(|i| work.put("t", &key(i), &value(i, t, 70)))
                });
                session.create_table(if t == 1 { "x" } else { "y" }, &[by_group()]);
                session.crash_and_open();
                session.verify();
            }
        }),
        Script::new("a bit of everything", indexed, |session| mixture(session, 11, 40)).options(roomy),
        Script::new("a bit of everything, in little DRAM", many_pages, |session| mixture(session, 12, 40)),
    ]
}

/// Leaves an open transaction behind for recovery to undo.
fn leave_open(session: &mut Session) {
    session.transact_around(
        |work| (10..50).try_for_each(|i| work.put("t", &key(i), &value(i, 99, 50))),
        |session| {
            session.transact(|work| work.put("t", &key(60), &value(60, 98, 50)));
            session.crash();
        },
        false,
    );
    // The rollback met devices that were switched off, or a bed of its own; recovery does it again.
    session.errors.clear();
}

/// Random work of all kinds, from a seed.
fn mixture(session: &mut Session, seed: u64, count: u32) {
    let mut rng = Rng::new(seed);
    for t in 1..=count {
        let seed = rng.next_u64();
        let script = move |work: &mut super::session::Work| -> Result<(), Error> {
            let mut rng = Rng::new(seed);
            for _ in 0..1 + rng.below(12) {
                let i = rng.below(700) as u32;
                match rng.below(4) {
                    0 => work.delete("t", &key(i))?,
                    1 => work.get("t", &key(i))?,
                    _ => work.put("t", &key(i), &value(i, t, 12 + rng.below(90) as usize))?,
                }
            }
            Ok(())
        };
        match rng.below(12) {
            0 => session.checkpoint(),
            1 => session.transact_and_roll_back(script),
            2 => session.create_table("u", &[by_group()]),
            3 => session.drop_table("u"),
            4 => session.crash_and_open(),
            5 => session.steps(8),
            _ => session.transact(script),
        }
    }
    session.verify();
}

/// Inserts and updates of some 700 bytes each, all in one transaction.
fn large(work: &mut super::session::Work, count: u32) -> Result<(), Error> {
    (0..count).try_for_each(|i| work.put("t", &key(i % 300), &value(i, 40 + i / 300, 600)))
}

fn limits() -> Vec<Script> {
    vec![
        Script::new("the log goes around", hundred_rows, |session| {
            for t in 1..34u32 {
                session.transact(|work| (0..20).try_for_each(|i| work.put("t", &key(i), &value(i, t, 600))));
                session.steps(2);
            }
            session.verify();
        })
        .options(pages_of_4k),
        Script::new("the log goes around on two devices", hundred_rows, |session| {
            for t in 1..34u32 {
                session.transact(|work| (0..24).try_for_each(|i| work.put("t", &key(i), &value(i, t, 600))));
                session.steps(2);
            }
            session.verify();
        })
        .options(pages_of_4k)
        .logs(2),
        Script::new("a rollback larger than the log", hundred_rows, |session| {
            session.transact_and_roll_back(|work| large(work, 450));
            session.transact(|work| work.put("t", &key(5), &value(5, 2, 30)));
            session.verify();
        })
        .options(pages_of_4k),
        Script::new(
            "recovery of a transaction larger than the log",
            |session| {
                hundred_rows(session);
                session.transact_around(|work| large(work, 450), Session::crash, false);
                session.errors.clear();
            },
            |session| session.verify(),
        )
        .options(pages_of_4k)
        .crashed(),
        Script::new("a transaction larger than the log", hundred_rows, |session| {
            session.transact(|work| (0..700).try_for_each(|i| work.put("t", &key(i), &value(i, 1, 600))));
            session.transact(|work| work.put("t", &key(5), &value(5, 2, 30)));
            session.verify();
        })
        .options(pages_of_4k),
        Script::new(
            "a store that is nearly full",
            |session| {
                session.create_table("t", &[]);
                session.create_table("u", &[]);
                fill(session, "t", 0..200, 40, 100);
                // To the brim, then a little out again.
                let mut full = false;
                for t in 0..100u32 {
                    session.transact(|work| {
                        for i in 0..400 {
                            if !full
                                && !work.put_if_room("u", &key(t * 400 + i), &value(t * 400 + i, 0, 140))?
                            {
                                full = true;
                            }
                        }
                        Ok(())
                    });
                }
                assert!(full, "the store is larger than this script takes it for");
                session.transact(|work| (0..60).try_for_each(|i| work.delete("u", &key(i))));
                session.checkpoint();
                session.steps(50);
            },
            |session| {
                for t in 0..10u32 {
                    session.transact(|work| {
                        for i in 0..100 {
                            if !work.put_if_room("u", &key(50_000 + t * 100 + i), &value(i, t, 140))? {
                                break;
                            }
                        }
                        Ok(())
                    });
                    session.steps(1);
                }
                session.verify();
                session.drop_table("u");
                session.checkpoint();
                session.steps(40);
                session.checkpoint();
                session.transact(|work| {
                    (0..200).step_by(3).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 60)))
                });
                session.verify();
            },
        )
        .store_limit(STORE_OF_ONE_GROUP),
    ]
}

/// Opens the database while every call from the `calls`-th on fails, and leaves it so.
impl Session {
    pub fn crash_during_opening(&mut self, calls: u64) {
        let plan = FaultPlan::new(1);
        plan.fail_from(calls, Calls::Any, DeviceErrorKind::Failed);
        let bed = self.bed().expect("a set-up runs on plain devices").duplicate();
        let devices = bed.faulty(&plan, &Default::default());
        drop(self.options().open_on(devices));
        self.replace_bed(bed);
    }
}
