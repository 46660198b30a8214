//! The emulated devices below a TPC-C run, in virtual or in real time.

use super::{Tpcc, advice};
use crate::cost::cpu::Cpu;
use crate::nand::report::{counts, sentence};
use firndb::{Database, MemoryCosts, MemoryUse};
use firndb_base::clock::{self, Moment};
use firndb_base::sim;
use firndb_console::Failure;
use firndb_device::{Device, DeviceError, DeviceErrorKind};
use firndb_emulate::nand::NandReport;
use firndb_emulate::{Emulated, profiles};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_tpcc::{Machine, report};
use firndb_workloads::results::config_hash;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Emulated devices of one database, by the profiles that the arguments name.
pub struct EmulatedMachine {
    logs: Vec<Named>,
    data: Named,
    /// Of the flash cache, whether there is one or not.
    cache: Named,
    cached: bool,
    seed: u64,
    /// Whether time is virtual.
    simulated: bool,
    cores: u32,
    cpu: Cpu,
    /// Of a byte of DRAM in bytes of flash, if the report is to advise which to buy.
    dram_price: Option<f64>,
    /// Those made so far. Never held across a scheduling point: a simulated thread would keep its
    /// turn.
    devices: Mutex<Vec<Arc<Emulated>>>,
    /// When the devices last began to take time, and for how long they did in all.
    timed: Mutex<(Option<Moment>, Duration)>,
}

/// A profile, and what it was asked for by.
#[derive(Clone)]
struct Named {
    name: String,
    profile: DeviceProfile,
}

/// The profile of this name, or in this file.
pub fn profile(name: &str) -> Result<DeviceProfile, Failure> {
    profiles::find(name).map_err(|error| Failure::bad_argument(error.to_string()))
}

/// The profile of this name, or in this file; `@fast` or `@slow` behind it takes all that is not
/// known of the device at that end of its band.
fn named(text: &str) -> Result<Named, Failure> {
    let (name, end) = match text.rsplit_once('@') {
        Some((name, "fast")) => (name, Some(VariantName::Fast)),
        Some((name, "slow")) => (name, Some(VariantName::Slow)),
        _ => (text, None),
    };
    let mut profile = profile(name)?;
    if let Some(end) = end {
        let mut variants = profile.variants().into_iter();
        profile = match variants.find(|variant| variant.name == end) {
            Some(variant) => variant.profile,
            None => {
                return Err(Failure::bad_argument(format!(
                    "{name} has no bands: leave {text:?} without its end"
                )));
            }
        };
    }
    Ok(Named { name: text.to_owned(), profile })
}

impl EmulatedMachine {
    /// What the arguments describe; no device is made yet.
    pub fn of(args: &Tpcc) -> Result<EmulatedMachine, Failure> {
        let machine = &args.machine;
        let logs: Vec<Named> =
            machine.profile_log.iter().map(|name| named(name)).collect::<Result<_, _>>()?;
        Ok(EmulatedMachine {
            cache: machine.profile_cache.as_deref().map_or_else(|| Ok(logs[0].clone()), named)?,
            cached: args.run.cache.is_some(),
            logs,
            data: named(&machine.profile_data)?,
            seed: args.run.seed,
            simulated: machine.sim,
            cores: machine.sim_cores,
            cpu: machine.cpu,
            dram_price: machine.advise,
            devices: Mutex::default(),
            timed: Mutex::default(),
        })
    }

    /// The profile of the store's device.
    pub fn data_profile(&self) -> &DeviceProfile {
        &self.data.profile
    }

    /// What computing costs, in virtual time.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    fn devices(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Emulated>>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sum over all devices of the share of the time in which they took time that their channels or
    /// arms worked.
    fn device_busy(&self) -> f64 {
        let (since, mut timed) = *self.timed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = since {
            timed += clock::now().since(since);
        }
        let busy = self.devices().iter().map(|device| device.busy().as_secs_f64()).sum::<f64>();
        busy / timed.as_secs_f64().max(1e-9)
    }

    /// What the flash of those devices whose profiles name some did while they took time.
    fn flash(&self) -> Vec<(String, NandReport)> {
        let devices = self.devices().clone();
        let reports = devices.iter().filter_map(|it| Some((it.info().name.clone(), it.flash()?)));
        reports.collect()
    }

    /// What reads cost here, if a byte of DRAM costs as much as `dram_price` of flash.
    fn memory_costs(&self, db: &Database, dram_price: f64) -> MemoryCosts {
        let page_size = db.statistics().page_size;
        MemoryCosts::of_profiles(&self.data.profile, &self.cache.profile, page_size, dram_price)
    }

    /// The devices and what computing costs.
    fn sentences(&self) -> String {
        let logs: Vec<&str> = self.logs.iter().map(|named| named.name.as_str()).collect();
        let cache = if self.cached { format!(", flash cache on {}", self.cache.name) } else { String::new() };
        let devices = format!("log on {}, data on {}{cache}", logs.join(" and "), self.data.name);
        if !self.simulated {
            return format!(
                "Emulated devices in real time: {devices}. Loading and checking took none of their time."
            );
        }
        format!(
            "Simulated, in virtual time: {devices}; {}.\n{}. Loading and checking are free.",
            report::count(self.cores.into(), "core"),
            first_upper(&self.cpu.sentence(self.cores)),
        )
    }
}

impl Machine for EmulatedMachine {
    fn is_simulated(&self) -> bool {
        self.simulated
    }

    fn log_devices(&self) -> usize {
        self.logs.len()
    }

    fn wrap(&self, name: &str, inner: Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> {
        let log = name.strip_prefix("log.").and_then(|index| index.parse::<usize>().ok());
        let (profile, seed) = match log {
            Some(index) => match self.logs.get(index) {
                Some(named) => (&named.profile, self.seed + index as u64),
                None => {
                    let count = self.logs.len();
                    let sentence = format!(
                        "the database's log has more devices than the {count} that --profile-log names; name one for each"
                    );
                    return Err(DeviceError::new(DeviceErrorKind::Unusable, sentence));
                }
            },
            None if name == "store" => (&self.data.profile, self.seed + 1000),
            None if name == "cache" => (&self.cache.profile, self.seed + 2000),
            // It is written at checkpoints only.
            None if name == "superblock" => return Ok(inner),
            None => {
                let sentence =
                    format!("there is no profile for the database's {name}: it cannot be emulated");
                return Err(DeviceError::new(DeviceErrorKind::Unusable, sentence));
            }
        };
        let device = Emulated::new(inner, profile, seed);
        let device =
            device.map_err(|error| DeviceError::new(DeviceErrorKind::Unusable, error.to_string()))?;
        let device = Arc::new(device);
        device.run_free(true);
        self.devices().push(device.clone());
        Ok(device)
    }

    fn measure(&self, measured: bool) {
        let devices = self.devices().clone();
        devices.iter().for_each(|device| device.run_free(!measured));
        let now = clock::now();
        let mut timed = self.timed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = timed.0.take() {
            timed.1 += now.since(since);
        }
        timed.0 = measured.then_some(now);
    }

    fn profiles(&self) -> String {
        let logs: Vec<&str> = self.logs.iter().map(|named| named.name.as_str()).collect();
        let cache = if self.cached { format!("; cache {}", self.cache.name) } else { String::new() };
        format!("log {}; data {}{cache}", logs.join(", "), self.data.name)
    }

    fn config(&self) -> Value {
        let of = |named: &Named| {
            let text = serde_json::to_value(&named.profile).unwrap_or_default();
            json!({ "profile": named.name, "hash": config_hash(&text) })
        };
        let mut config = json!({
            "logs": self.logs.iter().map(of).collect::<Vec<_>>(), "data": of(&self.data), "cache": self.cached.then(|| of(&self.cache)),
            "time": if self.simulated { "virtual" } else { "real" },
        });
        if self.simulated {
            config["cores"] = json!(self.cores);
            config["cpu"] = self.cpu.json(self.cores);
        }
        config
    }

    fn simulation(&self, real_seconds: f64) -> Option<Value> {
        let of = |(name, report): (String, NandReport)| (name, counts(&report));
        sim::is_active().then(|| {
            let flash: serde_json::Map<String, Value> = self.flash().into_iter().map(of).collect();
            let virtual_seconds =
                clock::now().since(Moment::ZERO).as_secs_f64();
            json!({
                "device_busy": self.device_busy(), "flash": flash, "virtual_seconds": virtual_seconds, "real_seconds": real_seconds, "steps": sim::steps(),
                "trace_hash": format!("{:016x}", sim::trace_hash()),
            })
        })
    }

    fn paragraphs(&self, db: &Database, memory: &MemoryUse) -> Vec<String> {
        let advice = self.dram_price.map(|price| advice::of(memory, &self.memory_costs(db, price)));
        let flash = self.flash();
        let flash = flash.iter().map(|(name, report)| sentence(name, report));
        std::iter::once(self.sentences()).chain(flash).chain(advice).collect()
    }
}

fn first_upper(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
