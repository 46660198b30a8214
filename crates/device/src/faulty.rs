//! Faults on purpose: what a [`FaultPlan`] says, its [`Faulty`] devices do.
//!
//! The plan counts every call to all its devices, so a test can let the i-th call fail for every i:
//!
//! ```
//! use firndb_base::sync::Arc;
//! use firndb_device::{Calls, Device, DeviceErrorKind, Durability, FaultPlan, Faulty, Fill, MemoryDevice};
//!
//! for failing in 0.. {
//!     let plan = FaultPlan::new(0);
//!     let device = Faulty::new(Arc::new(MemoryDevice::new("data")), &plan);
//!     plan.fail_from(failing, Calls::Any, DeviceErrorKind::Failed);
//!     let outcome = device
//!         .grow(4096, Fill::Written)
//!         .and_then(|()| device.write(0, &[1; 512], Durability::Later))
//!         .and_then(|()| device.sync());
//!     if plan.fired() == 0 {
//!         assert_eq!((outcome, failing), (Ok(()), 3));
//!         break;
//!     }
//!     assert!(outcome.is_err());
//! }
//! ```
//!
//! Locks: the plan's state and a device's history are leaves; neither is held during I/O on the
//! device beneath, so that stalled calls stall alone.

mod device;
mod plan;

pub use device::Faulty;
pub use plan::{Calls, Fault, FaultPlan, FaultRule, When};
