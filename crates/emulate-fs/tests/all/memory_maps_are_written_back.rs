//! Shared memory maps, which SQLite's WAL index is, reach other programs at once and the backing
//! file in the end.

use crate::support::{Place, end};
use rusqlite::Connection;

#[test]
fn two_connections_share_a_wal_index() {
    for direct in [false, true] {
        let place = Place::new();
        let Some(mounted) = place.mount(|options| options.direct = direct) else { return };
        let path = mounted.mount_point().join("db");
        let (one, two) = (Connection::open(&path).expect("open"), Connection::open(&path).expect("open"));
        let mode: String =
            one.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0)).expect("a journal mode");
        assert_eq!(mode, "wal", "direct {direct}");
        one.execute_batch("CREATE TABLE t (n)").expect("made");
        for number in 0..50i64 {
            one.execute("INSERT INTO t VALUES (?1)", [number]).expect("inserted");
            let seen: i64 = two.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("counted");
            assert_eq!(seen, number + 1, "direct {direct}: the other connection sees each commit");
        }
        assert!(place.backing().join("db-shm").exists());
        drop((one, two));
        end(mounted);
        let kept = Connection::open(place.backing().join("db")).expect("open");
        let count: i64 = kept.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("counted");
        assert_eq!(count, 50);
    }
}
