//! Tells the binary which commit it was built from, for the result files.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Ok(output) = commit
        && output.status.success()
    {
        println!("cargo:rustc-env=FIRN_COMMIT={}", String::from_utf8_lossy(&output.stdout).trim());
    }
}
