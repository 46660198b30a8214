//! What queries share: the times of devices, kept from one planning to the next, and the device to
//! which they spill, which is no part of the database and is opened after it.

use crate::options::Options;
use firndb_base::sync::{Arc, OnceLock};
use firndb_query::planner::DeviceTimes;
use firndb_spill::SpillSpace;

pub(crate) struct Queries {
    /// Of the store and of the flash cache.
    pub times: [Arc<DeviceTimes>; 2],
    /// Where rows are kept that do not fit in memory; set once, while the database is being opened.
    pub spill: OnceLock<Arc<SpillSpace>>,
}

impl Queries {
    pub fn new(options: &Options) -> Queries {
        Queries { times: options.device_costs().map(DeviceTimes::new), spill: OnceLock::new() }
    }
}
