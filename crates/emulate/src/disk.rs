//! An emulated array of disks: what arms and platters do, with syncs and outliers.

use crate::channels::Service;
use crate::outliers::Met;
use crate::request::{Request, RequestKind};
use crate::time::ns;
use firndb_profile::{Arms, DiskRequest, Mechanics};

/// An array of disks; a single disk is an array of one.
#[derive(Clone, Debug)]
pub(crate) struct Disks {
    arms: Arms,
    sync_ns: u64,
}

impl Disks {
    /// Idle, with the arms at the beginning.
    pub fn new(mechanics: &Mechanics, capacity_bytes: u64, sync_us: f64) -> Disks {
        Disks { arms: Arms::new(mechanics, capacity_bytes), sync_ns: ns(sync_us) }
    }

    /// The order in which a batch is served.
    pub fn elevator(&self, requests: &[Request]) -> Vec<usize> {
        let offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
        self.arms.elevator(&offsets)
    }

    /// Serves a request that may begin at `from`. `swept` says that it is part of a batch in the
    /// order of [`Disks::elevator`].
    pub fn serve(&mut self, from: u64, request: &Request, swept: bool, outlier: Option<Met>) -> Service {
        if request.kind == RequestKind::Sync {
            let start = self.arms.idle_at().max(from);
            return Service { start, end: start + self.sync_ns, busy: self.sync_ns };
        }
        let reads = request.kind == RequestKind::Read;
        let disk_request = DiskRequest { offset: request.offset, bytes: request.bytes, reads };
        let served = self.arms.serve(from, &disk_request, swept);
        let mut service = Service { start: served.start, end: served.end, busy: served.busy };
        if let Some(met) = outlier.filter(|_| request.bytes > 0) {
            let late = service.start.saturating_add(ns(met.us)).max(service.end);
            service.busy += late - service.end;
            service.end = late;
            self.arms.hold(request.offset, late);
        }
        service
    }
}
