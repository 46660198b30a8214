//! A page file that was dropped is freed, at whatever step of it the database is closed.

use crate::common::*;
use firndb_base::Progress;

const PAGE: usize = 1024;
/// Rows of one tree with an inner root.
const ROWS: u64 = 300;

fn with_dropped_file() -> (World, u64) {
    let world = World::new(PAGE);
    let file = world.catalog.create_page_file("f").unwrap();
    let empty = world.pages();
    let mut txn = world.begin();
    // Most are zeros, which need a row and no page.
    (0..ROWS).for_each(|page| file.put(&mut txn, page, &[u8::from(page % 50 == 0); PAGE]).unwrap());
    txn.commit().unwrap();
    assert!(world.pages() > empty + 8, "the tree has more than one leaf");
    drop(file);
    world.catalog.drop_page_file("f").unwrap();
    (world, empty - 1)
}

#[test]
fn it_ends_after_a_reopening_between_any_two_steps() {
    let (mut steps, mut roots_left) = (0, 0);
    loop {
        let (world, without) = with_dropped_file();
        let taken = (0..steps).take_while(|_| world.catalog.drop_step().unwrap() == Progress::Worked);
        let taken = taken.count();
        if world.catalog.pending_drops() == 0 {
            // It ended in this life.
            assert!(taken > 5, "{taken} steps");
            assert_eq!(roots_left, 1);
            return;
        }
        let world = world.reopened();
        for owner in world.catalog.page_owners() {
            owner.pages(&mut |_| ()).unwrap();
        }
        world.drop_all();
        let set_aside = world.manager.work_set_aside();
        assert_eq!(world.catalog.pending_drops(), 0, "after {taken} steps: {set_aside:?}");
        // The root is freed after the row that names it was erased: between the two it is left
        // over, as that of any dropped tree.
        roots_left += world.pages() - without;
        steps += 1;
    }
}
