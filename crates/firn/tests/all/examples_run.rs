//! The examples of use run, and find what they assert.

#[path = "../../examples/backup_while_working.rs"]
mod backup_while_working;
#[path = "../../examples/job_queue.rs"]
mod job_queue;
#[path = "../../examples/key_value_service.rs"]
mod key_value_service;
#[path = "../../examples/ledger.rs"]
mod ledger;
#[path = "../../examples/log_devices.rs"]
mod log_devices;

#[test]
fn a_job_queue_with_several_workers() {
    job_queue::main().expect("the example runs");
}

#[test]
fn a_key_value_service() {
    key_value_service::main().expect("the example runs");
}

#[test]
fn a_ledger_with_secondary_indexes() {
    ledger::main().expect("the example runs");
}

#[test]
fn a_backup_while_working() {
    backup_while_working::main().expect("the example runs");
}

#[test]
fn several_log_devices() {
    log_devices::main().expect("the example runs");
}
