//! Which device takes the next request: any that is free and has free space, in turn.
//!
//! Where the log has copies, `copies.rs` chooses several.

use crate::write::in_flight::Flight;
use crate::write::job::Job;
use crate::write::pipeline::Pipeline;

impl Pipeline {
    /// Composes all log that waits as the next request, for a free device with free space.
    pub fn compose_request(&self, flight: &mut Flight) -> Option<Job> {
        if self.options.copies > 1 {
            return self.compose_request_copies(flight);
        }
        let mut tried = 0;
        while let Some(mut free) = flight.take_free_device(&mut tried) {
            let composed = self.front.lock().compose(self.durable(), &mut free);
            match composed {
                Some((composed, requested)) => return Some(flight.begin(free, composed, requested)),
                None => flight.return_device(free),
            }
        }
        None
    }
}
