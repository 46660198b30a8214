//! Seal blocks: the last block once more, which states that all log is durable. Without one, the
//! loss of the very last request could not be told from the log's end.

use crate::write::in_flight::Flight;
use crate::write::job::{Job, Task};
use crate::write::pipeline::{PanicGuard, Pipeline};

impl Pipeline {
    /// Writes a seal block if one is due. Returns whether it did.
    pub fn write_seal(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let job = self.compose_seal(&mut self.flight.lock());
        job.map(|job| self.run(job)).is_some()
    }

    /// Composes a seal if all log is durable, no seal records that yet, and a device is free; on
    /// another device than the last request's, if there is one.
    fn compose_seal(&self, flight: &mut Flight) -> Option<Job> {
        let durable = flight.seal_due(self.end())?;
        for device in flight.devices_after_last() {
            let Some(mut free) = flight.take_device(device) else { continue };
            let mut front = self.front.lock();
            // The end cannot move while `front` is held: the seal's statement is true when it is
            // composed.
            let still = front.end() == durable;
            let composed = if still { front.compose_seal(&mut free) } else { None };
            drop(front);
            match composed {
                Some(composed) => return Some(flight.begin_write(free, composed, Task::Seal(durable))),
                None => flight.return_device(free),
            }
        }
        None
    }

    /// Composes the seal that closes the log, if it is asked for. Returns `None` if none can be
    /// written; closing then proceeds without it.
    pub fn compose_final_seal(&self, flight: &mut Flight) -> Option<Job> {
        if !flight.take_final_seal() {
            return None;
        }
        let job = self.compose_seal(flight);
        self.ended.notify_all();
        job
    }
}
