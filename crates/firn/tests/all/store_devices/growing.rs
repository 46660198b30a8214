//! The store grows while one of its devices is replaced.

use super::*;
use firndb_testkit::hooked::{Call, Hooked};
use std::sync::Mutex;
use std::sync::mpsc;

type Work = Box<dyn FnOnce() + Send>;

/// Work that is done once, in the first sync of a device after its next growth, and whether that
/// has begun.
#[derive(Clone, Default)]
struct AfterGrowth(Arc<Mutex<(Option<Work>, bool)>>);

impl AfterGrowth {
    fn over(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let own = self.clone();
        Hooked::over(inner, move |call| {
            let work = {
                let (work, has_grown) = &mut *own.0.lock().unwrap();
                *has_grown |= work.is_some() && matches!(call, Call::Grow);
                if *has_grown && matches!(call, Call::Sync) { work.take() } else { None }
            };
            if let Some(work) = work {
                work();
            }
            Ok(())
        })
    }
}

/// Blocks of a device that begin a metadata page, by their offset.
fn metadata(device: &dyn Device) -> Vec<(u64, Vec<u8>)> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let blocks = bytes.chunks(512).enumerate().filter(|(_, block)| block.starts_with(b"FIRNMETA"));
    blocks.map(|(at, block)| (at as u64 * 512, block.to_vec())).collect()
}

/// Cause: the last step of filling did not wait for a growth that had begun before the replacement.
/// Effect: the new device counted as whole without the metadata of the new group, whose write had
/// gone to the others before, and none of these could be lost.
#[test]
fn a_device_that_is_filled_while_the_store_grows_has_the_new_group() {
    let mut bed = Bed::memory(2);
    let after_growth = AfterGrowth::default();
    bed.stores[0] = after_growth.over(bed.stores[0].clone());
    let db = made(&bed, (1, 2, 2));
    fill(&db, 0..100);
    db.close().unwrap();
    bed.lose(1);
    let db = small().open_on(bed.devices()).unwrap();
    bed.stores[1] = Arc::new(MemoryDevice::new("fresh"));
    let (other, fresh) = (db.clone(), bed.stores[1].clone());
    let (sender, ended) = mpsc::channel();
    let replacing = Arc::new(Mutex::new(None));
    let thread = replacing.clone();
    let replace = move || {
        other.replace_store_device_on(1, fresh).unwrap();
        while other.fill_store_device().unwrap() {}
        let _ = sender.send(());
    };
    after_growth.0.lock().unwrap().0 = Some(Box::new(move || {
        *thread.lock().unwrap() = Some(std::thread::spawn(replace));
        // It should not end before the growth does.
        let _ = ended.recv_timeout(Duration::from_secs(2));
    }));
    let mut rows = 100;
    while replacing.lock().unwrap().is_none() {
        fill(&db, rows..rows + 50);
        rows += 50;
    }
    replacing.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(state(&db, 1), StoreMemberState::InUse);
    let [old, new] = [0, 1].map(|member| metadata(&*bed.stores[member]));
    assert!(old == new, "{} of {} pages of metadata", new.len(), old.len());
    db.close().unwrap();
    bed.lose(0);
    verify(&small().open_on(bed.devices()).unwrap(), rows);
}
