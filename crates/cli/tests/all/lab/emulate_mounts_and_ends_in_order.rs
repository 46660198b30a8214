//! `firn lab emulate` as its users run it: mounted, used, and ended in each of its ways.

use crate::support::{Ran, firn, run};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A running `firn lab emulate`.
struct Emulation {
    child: Child,
    out: BufReader<ChildStdout>,
    said: String,
}

/// A mount point and a backing directory.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        std::fs::create_dir(place.mount_point()).expect("made");
        place
    }
    fn mount_point(&self) -> PathBuf {
        self.0.path().join("mount")
    }
    fn backing(&self) -> PathBuf {
        self.0.path().join("backing")
    }

    /// Starts it and waits until it is mounted; `None`, with the reason printed, where mounting
    /// doesn't work.
    fn emulate(&self, arguments: &[&str]) -> Option<Emulation> {
        let mut command = firn();
        command
            .args(["lab", "emulate"])
            .args(arguments)
            .arg("--backing")
            .arg(self.backing())
            .arg(self.mount_point());
        // Of a group of its own, so that signals reach no other process.
        let mut child = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("firn is there");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("mounted on") {
            if out.read_line(&mut said).expect("readable") == 0 {
                let error = Emulation { child, out, said }.ended().err;
                assert!(error.contains("FUSE is not available") || error.contains("was refused"), "{error}");
                eprintln!("skipped: {error}");
                return None;
            }
        }
        Some(Emulation { child, out, said })
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("readable");
        mounts.contains(&*self.mount_point().to_string_lossy())
    }
}

impl Emulation {
    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("it runs");
    }
    /// Waits for its end.
    fn ended(mut self) -> Ran {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(30) {
                self.child.kill().expect("ours");
                panic!("it does not end; it said\n{}", self.said);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut said = std::mem::take(&mut self.said);
        self.out.read_to_string(&mut said).expect("UTF-8");
        let mut stderr = Vec::new();
        self.child.stderr.take().expect("piped").read_to_end(&mut stderr).expect("readable");
        Ran::of(std::process::Output { status, stdout: said.into_bytes(), stderr }, "lab emulate".to_owned())
    }
}

impl Drop for Emulation {
    /// A test that fails leaves no mount behind: twice asked, it ends however busy it is.
    fn drop(&mut self) {
        while matches!(self.child.try_wait(), Ok(None)) {
            let id = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

#[test]
fn ctrl_c_unmounts_and_keeps_the_backing_directory() {
    let place = Place::new();
    let json = place.0.path().join("result.json");
    let arguments = ["--profile", "network-volume", "--size", "64M", "--json", json.to_str().expect("UTF-8")];
    let Some(emulation) = place.emulate(&arguments) else { return };
    std::fs::write(place.mount_point().join("file"), "kept").expect("written");
    std::fs::File::open(place.mount_point().join("file")).and_then(|file| file.sync_all()).expect("synced");
    emulation.signal(rustix::process::Signal::INT);
    emulation.ended().ended(0).says("network-volume").says("busy");
    assert!(!place.is_mounted());
    assert_eq!(std::fs::read_to_string(place.backing().join("file")).expect("kept"), "kept");
    let result: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("written")).expect("JSON");
    assert_eq!(result["schema"], "firn-emulate/1");
    assert_eq!(result["device_profile"], "network-volume");
    assert_eq!(result["requests"][1]["bytes"], 4);
}

#[test]
fn open_files_are_waited_for_unless_asked_twice() {
    for twice in [false, true] {
        let place = Place::new();
        let Some(emulation) = place.emulate(&["--profile", "nvme", "--size", "64M"]) else { return };
        let file = std::fs::File::create(place.mount_point().join("file")).expect("made");
        emulation.signal(rustix::process::Signal::INT);
        std::thread::sleep(Duration::from_millis(500));
        assert!(place.is_mounted(), "a program still has a file open");
        if twice {
            emulation.signal(rustix::process::Signal::INT);
            emulation.ended().ended(0).says("files were still open").warns("files are still open");
            drop(file);
        } else {
            drop(file);
            emulation.ended().ended(0).warns("files are still open");
        }
        assert!(!place.is_mounted());
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_mounted() {
    let place = Place::new();
    let mount_point = place.mount_point();
    let refused = |arguments: &str, part: &str| {
        run(&mount_point, &format!("lab emulate {arguments} {{db}}")).ended(2).warns(part);
    };
    refused("--profile no-such-device", "shipped profiles are");
    refused("--profile nvme --size 900T", "is more than");
    refused("--profile nvme --fault stall", "line 1, column 6");
    refused("--profile nvme --fault power-cut", "needs --backing");
    refused("--profile nvme --fault-file /no/such/script", "/no/such/script");
    run(Path::new("/no/such/mount"), "lab emulate --profile nvme {db}").ended(2).warns("does not exist");
}

#[test]
fn firn_itself_survives_a_power_cut_on_it() {
    let place = Place::new();
    let arguments = ["--profile", "nvme", "--size", "4G", "--direct", "--seed", "5"];
    let Some(emulation) = place.emulate(&arguments) else { return };
    let database = place.mount_point().join("db");
    run(&database, "tpcc --scale tiny --warehouses 1 --buffer 16M --load-only --dir {db}").ended(0);
    let tpcc = firn()
        .args(["tpcc", "--no-load", "--scale", "tiny", "--clients", "2", "--warmup", "0", "--seconds", "60"])
        .args(["--warehouses", "1", "--buffer", "16M", "--dir"])
        .arg(&database)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("firn is there");
    // In the midst of transactions, however long opening takes: the log is written for a second
    // first.
    let writes = || std::fs::metadata(place.backing().join("db/log.0")).and_then(|log| log.modified()).ok();
    let (begun, before) = (Instant::now(), writes());
    while writes() == before && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    emulation.signal(rustix::process::Signal::USR1);
    let output = tpcc.wait_with_output().expect("it ends");
    assert!(!output.status.success(), "no transaction can go on without power");
    emulation.ended().ended(0).says("power was cut");

    let Some(emulation) = place.emulate(&arguments) else { return };
    run(&database, "check {db}").ended(0);
    run(&database, "tpcc --scale tiny --warehouses 1 --check-only --dir {db}").ended(0);
    emulation.signal(rustix::process::Signal::INT);
    emulation.ended().ended(0);
}
