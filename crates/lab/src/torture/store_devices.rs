//! Databases whose store is over several devices: of which shape, and what is taken from them.
//!
//! After a kill the files of as many devices may go as the store survives at that moment. A child
//! may put new ones in their places and have a table's pages fragmented otherwise, beside its
//! clients, so that kills fall on devices that are half filled and on pages that are being moved.

use firndb::{Database, Layout, Options, StoreMemberState, store_status};
use firndb_console::Failure;
use firndb_workloads::Random;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a child looks at whether a device has been filled.
const LOOK: Duration = Duration::from_millis(2);
/// Tables whose pages a child has fragmented otherwise, one after the other.
const TABLES: [&str; 3] = ["ledger_lines", "ledger_accounts", "ledger_heads"];

/// A new store: its devices, and of how many fragments how many give a page back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    devices: usize,
    needed: usize,
    written: usize,
    /// What tables may have besides.
    widest: (usize, usize),
}

const SHAPES: [Shape; 5] = [
    Shape { devices: 2, needed: 1, written: 2, widest: (1, 2) },
    Shape { devices: 3, needed: 1, written: 2, widest: (1, 3) },
    Shape { devices: 3, needed: 1, written: 3, widest: (1, 3) },
    Shape { devices: 4, needed: 3, written: 4, widest: (2, 4) },
    Shape { devices: 4, needed: 2, written: 4, widest: (1, 4) },
];

impl Shape {
    pub fn draw(random: &mut Random) -> Shape {
        SHAPES[random.between(0, SHAPES.len() as u64 - 1) as usize]
    }

    /// Its number, as a child is given it.
    pub fn number(self) -> usize {
        SHAPES.iter().position(|it| *it == self).expect("it was drawn from these")
    }

    pub fn numbered(number: usize) -> Option<Shape> {
        SHAPES.get(number).copied()
    }

    /// For example `3 of 4 over 4`.
    pub fn name(self) -> String {
        format!("{} of {} over {}", self.needed, self.written, self.devices)
    }

    pub fn apply(self, options: Options) -> Options {
        let paths = (0..self.devices).map(|device| PathBuf::from(format!("store.{device}")));
        let options = options.store_paths(paths).store_code(self.needed, self.written);
        options.store_widest(self.widest.0, self.widest.1)
    }
}

/// Removes the files of some of the store's devices, of as many as it survives now: how many.
pub fn take_away(dir: &Path, random: &mut Random) -> Result<u64, Failure> {
    let status = store_status(dir)?.ok_or_else(|| Failure::new("the store is not over several devices"))?;
    if status.may_lose == 0 {
        return Ok(0);
    }
    let in_use = |state: StoreMemberState| state == StoreMemberState::InUse;
    let mut devices: Vec<_> = status.devices.iter().filter(|device| in_use(device.state)).collect();
    random.shuffle(&mut devices);
    let take = random.between(1, status.may_lose as u64);
    for device in devices.iter().take(take as usize) {
        std::fs::remove_file(dir.join(&device.path))?;
    }
    Ok(take)
}

/// Replaces what is lost, one after the other, each by a new file of the same name.
pub fn replace_lost(db: &Database) -> Result<(), Failure> {
    loop {
        let devices = db.store_array().map_or(Vec::new(), |array| array.devices);
        let find = |state: StoreMemberState| devices.iter().find(|device| device.state == state);
        if find(StoreMemberState::Filling).is_some() {
            std::thread::sleep(LOOK);
        } else if let Some(device) = find(StoreMemberState::Lost) {
            db.replace_store_device(device.member, &device.path)?;
        } else {
            return Ok(());
        }
    }
}

/// Has the pages of the ledger's tables fragmented in one way after the other, until it is killed.
pub fn change_layouts(db: &Database, mut random: Random) -> Result<(), Failure> {
    let layouts = db.layouts();
    for table in TABLES.iter().cycle() {
        let layout = match random.percent(20) {
            true => Layout::Auto,
            false => layouts[random.between(0, layouts.len() as u64 - 1) as usize],
        };
        db.set_layout(&db.open_table(table)?, layout)?;
        db.move_to_layouts(&mut |_, _| ControlFlow::Continue(()))?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_makes_the_shape_that_was_drawn() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            let shape = Shape::draw(&mut random);
            assert_eq!(Shape::numbered(shape.number()), Some(shape));
        }
        assert_eq!(Shape::numbered(SHAPES.len()), None);
    }

    #[test]
    fn no_more_is_taken_than_may_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        for (at, shape) in SHAPES.iter().enumerate() {
            let dir = dir.path().join(at.to_string());
            let db = shape.apply(Options::new()).open(&dir).unwrap();
            db.create_table("rows").unwrap();
            db.close().unwrap();
            let mut random = Random::new(at as u64);
            let mut taken = 0;
            for _ in 0..10 {
                taken += take_away(&dir, &mut random).unwrap();
            }
            assert_eq!(taken, (shape.written - shape.needed) as u64);
            let db = Options::new().open(&dir).unwrap();
            replace_lost(&db).unwrap();
            assert_eq!(db.store_array().unwrap().may_lose as u64, taken);
            assert!(db.check(&mut |_| ()).unwrap().is_clean());
            db.close().unwrap();
        }
    }
}
