//! Settings that follow from the properties of a device, and the origin of each.
//!
//! What counts, in this order: an option; a profile named by an option; a profile named in the
//! directory's `firn.toml`; the profile that was measured when the database was created
//! ([`crate::Tuning::measure_at_creation`], kept as `profile.toml`); for the log's width a few
//! timed writes; a default. What a profile fixed at creation is noted beside the superblock, in
//! `settings.toml`: for people only, nothing depends on it.
//!
//! ```text
//! # DIR/firn.toml; names are relative to DIR
//! [profiles]
//! log = "nvme.toml"
//! cache = "nvme.toml"
//! store = "volume.toml"
//! archive = "volume.toml"
//! ```

use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::options::limits::log_device_least;
use firndb_base::sync::Arc;
use firndb_log::{LogOptions, OutlierOptions};
use firndb_profile::{Choices, DeviceCosts, DeviceProfile, ProfileError};
use firndb_tier::CacheOptions;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SettingOrigin {
    /// An option of the caller's.
    Option,
    /// A device profile in this file.
    Profile(String),
    /// The profile measured when the database was created.
    Measured,
    /// A few writes, timed when the database was created.
    Timed,
    /// The default.
    Default,
    /// Named at this opening or an earlier one, and kept with the database.
    Kept,
    /// Unknown: it was chosen when the database was created.
    Creation,
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingOrigin::Option => f.write_str("option given"),
            SettingOrigin::Profile(path) => write!(f, "profile {path}"),
            SettingOrigin::Measured => f.write_str("measured at creation"),
            SettingOrigin::Timed => f.write_str("timed at creation"),
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::Kept => f.write_str("kept with the database"),
            SettingOrigin::Creation => f.write_str("fixed at creation"),
        }
    }
}

/// A setting that devices decide, as it is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its origin.
    pub origin: SettingOrigin,
    /// The reason, if the origin gives one.
    #[serde(default)]
    pub reason: String,
}

/// A profile in force, and its origin.
#[derive(Clone, Debug)]
struct Source {
    profile: Arc<DeviceProfile>,
    origin: SettingOrigin,
}

/// The profiles that were loaded, and what they decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceProfiles {
    log: Option<Source>,
    cache: Option<Source>,
    store: Option<Source>,
    archive: Option<Source>,
    /// The log's width with its origin; `None` if an option gives it, or nothing yet.
    width: Option<Setting>,
    /// This process created the database with these options.
    created: bool,
}

const FIRN_TOML: &str = "firn.toml";
const MEASURED: &str = "profile.toml";
const CREATED: &str = "settings.toml";
const WIDTH: &str = "log devices";
/// Pages of a flash cache's group by default.
const GROUP_PAGES: usize = 64;
/// The most of [`crate::CacheSettings::group_pages`].
const GROUP_PAGES_MAX: u64 = 1024;
/// With fewer groups the cache is no queue.
const GROUPS_LEAST: u64 = 16;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirnToml {
    #[serde(default)]
    profiles: Profiles,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    log: Option<PathBuf>,
    cache: Option<PathBuf>,
    store: Option<PathBuf>,
    archive: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Created {
    setting: Vec<Setting>,
}

fn bad(error: &ProfileError) -> Error {
    Error::new(ErrorKind::BadArgument, error.to_string())
}

/// The text of a file that may be absent.
fn text(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Error::new(ErrorKind::Unusable, format!("{}: {error}", path.display())).caused_by(error))
        }
    }
}

fn load(path: &Path, origin: Option<SettingOrigin>) -> Result<Source, Error> {
    let profile = DeviceProfile::load(path).map_err(|error| bad(&error))?;
    let origin = origin.unwrap_or_else(|| SettingOrigin::Profile(path.display().to_string()));
    Ok(Source { profile: Arc::new(profile), origin })
}

impl Options {
    /// Loads the profiles that count for a database in `dir` (or one without a directory), and
    /// takes the log's width from them.
    pub(crate) fn with_profiles(&self, dir: Option<&Path>) -> Result<Options, Error> {
        let mut options = self.clone();
        let mut named = Profiles {
            log: self.log.profile.clone(),
            cache: self.cache.profile.clone(),
            store: self.tuning.store_profile.clone(),
            archive: self.archive.profile.clone(),
        };
        let mut measured = None;
        if let Some(dir) = dir {
            let path = dir.join(FIRN_TOML);
            if let Some(text) = text(&path)? {
                let found: FirnToml = toml::from_str(&text).map_err(|error| {
                    Error::new(
                        ErrorKind::BadArgument,
                        format!("{}: {}", path.display(), error.to_string().trim_end()),
                    )
                })?;
                let within = |name: Option<PathBuf>| name.map(|name| dir.join(name));
                named.log = named.log.or(within(found.profiles.log));
                named.cache = named.cache.or(within(found.profiles.cache));
                named.store = named.store.or(within(found.profiles.store));
                named.archive = named.archive.or(within(found.profiles.archive));
            }
            let path = dir.join(MEASURED);
            measured = text(&path)?.is_some().then_some(path);
        }
        let source = |named: Option<PathBuf>| match (&named, &measured) {
            (Some(path), _) => load(path, None).map(Some),
            (None, Some(path)) => load(path, Some(SettingOrigin::Measured)).map(Some),
            (None, None) => Ok(None),
        };
        options.profiles.log = source(named.log)?;
        options.profiles.cache = match named.cache {
            Some(path) => source(Some(path))?,
            None => options.profiles.log.clone(),
        };
        options.profiles.store = source(named.store)?;
        // The measured profile is that of the database's directory.
        options.profiles.archive = named.archive.map(|path| load(&path, None)).transpose()?;
        Ok(options.with_profiled_width())
    }

    /// Runs the quick measurement in `dir`, which a database is being created in, if the options
    /// ask for it and no profile counts; keeps the profile there.
    pub(crate) fn with_measured_profile(self, dir: &Path) -> Result<Options, Error> {
        if !self.tuning.measure_at_creation || self.profiles.log.is_some() {
            return Ok(self);
        }
        let profile = firndb_characterize::quick(dir).map_err(measuring_failed)?;
        profile.save(dir.join(MEASURED)).map_err(|error| bad(&error))?;
        self.with_profiles(Some(dir))
    }

    /// Takes the log's width from the log's profile, unless an option gives it. A small log gets
    /// fewer devices than the profile says.
    fn with_profiled_width(mut self) -> Options {
        if !self.log.probe_devices {
            return self;
        }
        let Some(source) = &self.profiles.log else { return self };
        let Some(width) = source.profile.choices.as_ref().and_then(|choices| choices.log_width.clone())
        else {
            return self;
        };
        let most = (self.log.bytes / log_device_least(self.page_size)).clamp(1, 64);
        let value = (u64::from(width.value).min(most) as usize).max(self.log.copies.unwrap_or(1));
        self.profiles.width = Some(setting(WIDTH, value, &source.origin, &width.reason));
        self.log(|log| log.devices(value))
    }

    /// Notes that the log's width was timed.
    pub(crate) fn with_timed_width(mut self, width: usize) -> Options {
        self.profiles.width = Some(setting(WIDTH, width, &SettingOrigin::Timed, "latency of durable writes"));
        self.log(|log| log.devices(width))
    }

    /// Notes that the database in `dir` is created with these options, durably where a profile
    /// decided something that is fixed from now on.
    pub(crate) fn noted_as_created(mut self, dir: &Path) -> Result<Options, Error> {
        self.profiles.created = true;
        let Some(width) = self.profiles.width.clone().filter(|width| width.origin != SettingOrigin::Timed)
        else {
            return Ok(self);
        };
        let path = dir.join(CREATED);
        let failed = |cause: String| Error::new(ErrorKind::Unusable, format!("{}: {cause}", path.display()));
        let text =
            toml::to_string(&Created { setting: vec![width] }).map_err(|error| failed(error.to_string()))?;
        std::fs::write(&path, text).map_err(|error| failed(error.to_string()))?;
        Ok(self)
    }

    /// The log's width with its origin: known if this process created the database, or if a profile
    /// decided and that was noted then. A note that does not fit is ignored.
    fn width_of(&self, dir: Option<&Path>, width: usize) -> Setting {
        if self.profiles.created {
            let given = || setting(WIDTH, width, &SettingOrigin::Option, "");
            return self.profiles.width.clone().unwrap_or_else(given);
        }
        let noted = dir.and_then(|dir| text(&dir.join(CREATED)).ok().flatten());
        let noted = noted.and_then(|text| toml::from_str::<Created>(&text).ok());
        let noted =
            noted.and_then(|created| created.setting.into_iter().find(|setting| setting.name == WIDTH));
        let fits = noted.filter(|setting| setting.value == width.to_string());
        fits.unwrap_or_else(|| setting(WIDTH, width, &SettingOrigin::Creation, "an option, or timed then"))
    }

    /// The profile of the store's device, if there is one, and its origin.
    pub(super) fn store_profile(&self) -> Option<(&DeviceProfile, &SettingOrigin)> {
        self.profiles.store.as_ref().map(|source| (&*source.profile, &source.origin))
    }

    /// The profile of the flash cache's device, if there is one.
    pub(super) fn cache_profile(&self) -> Option<&DeviceProfile> {
        self.profiles.cache.as_ref().map(|source| &*source.profile)
    }

    /// The profile of the log's devices, if there is one.
    pub(crate) fn log_profile(&self) -> Option<&DeviceProfile> {
        self.profiles.log.as_ref().map(|source| &*source.profile)
    }

    /// The times of the store's device and of the flash cache's, each assumed without a profile.
    pub(crate) fn device_costs(&self) -> [DeviceCosts; 2] {
        let of = |source: &Option<Source>| source.as_ref().map(|source| DeviceCosts::of(&source.profile));
        [of(&self.profiles.store), of(&self.profiles.cache)]
            .map(|found| found.unwrap_or_else(DeviceCosts::assumed))
    }

    /// The profile of the archive's device, if there is one.
    pub(crate) fn archive_profile(&self) -> Option<&DeviceProfile> {
        self.profiles.archive.as_ref().map(|source| &*source.profile)
    }

    /// Page reads worth having in flight at the store, and why: as measured, or the channels of the
    /// profile's model. `None` without a profile, or for disks: they sort whatever waits.
    pub(crate) fn read_depth(&self) -> Option<(usize, &str)> {
        let model = &self.profiles.store.as_ref()?.profile.model;
        let chosen =
            Options::choices(self.profiles.store.as_ref()).and_then(|choices| choices.read_batch.as_ref());
        match chosen {
            Some(chosen) => Some((chosen.value as usize, &chosen.reason)),
            None if model.mechanics.is_some() => None,
            None => Some((model.channels as usize, "the channels of its model")),
        }
    }

    /// Whether the store's drive has one arm, or one channel.
    pub(crate) fn reads_in_one_stream(&self) -> bool {
        let model = self.profiles.store.as_ref().map(|source| &source.profile.model);
        model.is_some_and(|model| match &model.mechanics {
            Some(mechanics) => mechanics.spindles == 1,
            None => model.channels == 1,
        })
    }

    fn choices(source: Option<&Source>) -> Option<&Choices> {
        source.and_then(|source| source.profile.choices.as_ref())
    }

    /// What counts as an outlier: the threshold and the usual times from the log's profile.
    pub(crate) fn outlier_options(&self) -> OutlierOptions {
        let default = LogOptions::default().outliers;
        let Some(source) = &self.profiles.log else { return default };
        let threshold = Options::choices(Some(source)).and_then(|choices| choices.outlier_threshold.as_ref());
        let times = source.profile.model.write_sequential.points.iter();
        let expected = times.filter_map(|&(bytes, us)| {
            Some((usize::try_from(bytes).ok()?, Duration::from_nanos((us * 1000.0) as u64)))
        });
        let expected: Vec<(usize, Duration)> = expected.collect();
        OutlierOptions {
            expected: if expected.is_empty() { Vec::new() } else { vec![expected] },
            factor_percent: threshold.map_or(default.factor_percent, |threshold| {
                (threshold.value * 100.0).clamp(101.0, 1e6) as u32
            }),
            ..default
        }
    }

    /// The options of a flash cache of `bytes` bytes.
    pub(crate) fn cache_options(&self, bytes: u64, page_size: usize) -> CacheOptions {
        CacheOptions {
            bytes,
            policy: self.cache.policy,
            group_pages: self.group_pages(page_size),
            write_through: self.cache.write_through,
        }
    }

    /// Refuses a flash cache that could not be created, before anything is. `block` is that of its
    /// device.
    pub(crate) fn check_cache(&self, bytes: u64, page_size: usize, block: usize) -> Result<(), Error> {
        let kind = self.cache.new_kind();
        Ok(kind.check(&self.cache_options(bytes, page_size), page_size, block)?)
    }

    /// Pages of a group of a new flash cache: given, or as many as the flash writes best at once
    /// (but sixteen groups at least), or the default.
    pub(crate) fn group_pages(&self, page_size: usize) -> usize {
        let batch = Options::choices(self.profiles.cache.as_ref())
            .and_then(|choices| choices.cache_batch_bytes.as_ref());
        match (self.cache.group_pages, batch) {
            (Some(pages), _) => pages,
            (None, None) => GROUP_PAGES,
            (None, Some(batch)) => {
                let most = self.cache.bytes.unwrap_or(0) / GROUPS_LEAST / page_size as u64;
                (batch.value / page_size as u64).min(most).clamp(1, GROUP_PAGES_MAX) as usize
            }
        }
    }

    /// All settings that devices decide, of an open database with `width` log devices, whose
    /// transactions write more than `shadows_above` images as shadows.
    pub(crate) fn settings(
        &self,
        dir: Option<&Path>,
        width: usize,
        shadows_above: Option<u64>,
    ) -> Vec<Setting> {
        let mut all = vec![self.width_of(dir, width)];
        let outliers = self.outlier_options();
        let log = self.profiles.log.as_ref();
        let origin =
            |source: Option<&Source>| source.map_or(SettingOrigin::Default, |source| source.origin.clone());
        let threshold = Options::choices(log).and_then(|choices| choices.outlier_threshold.as_ref());
        let times = format!("{:.1} times normal", f64::from(outliers.factor_percent) / 100.0);
        all.push(match threshold {
            Some(threshold) => setting("outlier write", times, &origin(log), &threshold.reason),
            None => setting("outlier write", times, &SettingOrigin::Default, ""),
        });
        let known = match outliers.expected.first() {
            Some(points) => format!("of {} sizes", points.len()),
            None => "learned while it runs".to_owned(),
        };
        all.push(setting("normal write times", known, &origin(log), ""));
        let (cache, store) = (self.profiles.cache.as_ref(), self.profiles.store.as_ref());
        if let Some(batch) = Options::choices(cache).and_then(|choices| choices.cache_batch_bytes.as_ref()) {
            all.push(setting(
                "new flash cache's batch",
                format!("{} B", batch.value),
                &origin(cache),
                &batch.reason,
            ));
        }
        if let Some((depth, reason)) = self.read_depth() {
            all.push(setting("store reads at once", depth, &origin(store), reason));
        }
        all.extend(self.page_writes().settings);
        all.push(self.page_recovery_setting(shadows_above));
        let kept = self.kept().named().into_iter();
        all.extend(kept.map(|(name, value)| setting(name, value, &SettingOrigin::Kept, "")));
        all
    }
}

pub(super) fn setting(name: &str, value: impl ToString, origin: &SettingOrigin, reason: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.to_string(),
        origin: origin.clone(),
        reason: reason.to_owned(),
    }
}

fn measuring_failed(error: firndb_characterize::Error) -> Error {
    use firndb_characterize::Error as Cause;
    let kind = match &error {
        Cause::BadArgument(_) => ErrorKind::BadArgument,
        Cause::Full(_) => ErrorKind::Full,
        Cause::Failed(_) => ErrorKind::Failed,
        _ => ErrorKind::Unusable,
    };
    Error::new(kind, format!("measuring the device, as tuning.measure_at_creation asks: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_profile::Choice;

    const TEXT: &str = "version = 1\nname = \"a\"\ntitle = \"a\"\norigin = \"measured\"\nsource = \"a\"\n\
         capacity_bytes = 4096\nlogical_block = 512\n[model]\nread_sequential = [[512, 1.0]]\n\
         read_random = [[512, 1.0]]\nwrite_sequential = [[512, 1.0]]\nwrite_random = [[512, 1.0]]\n";

    #[test]
    fn reads_at_once_are_measured_or_the_channels_of_the_model() {
        let depth = |change: fn(&mut DeviceProfile)| {
            let mut profile = DeviceProfile::from_toml(TEXT).unwrap();
            profile.model.channels = 29;
            change(&mut profile);
            let mut options = Options::new();
            options.profiles.store =
                Some(Source { profile: Arc::new(profile), origin: SettingOrigin::Measured });
            options.read_depth().map(|(reads, _)| reads)
        };
        assert_eq!(Options::new().read_depth(), None);
        assert_eq!(depth(|_| {}), Some(29));
        let chosen = |profile: &mut DeviceProfile| {
            let batch = Some(Choice::new(48, ""));
            profile.choices = Some(Choices { read_batch: batch, ..Choices::default() });
        };
        assert_eq!(depth(chosen), Some(48));
    }

    #[test]
    fn a_new_caches_groups_are_given_or_the_flashs_or_a_default() {
        let profiled = |bytes: u64| {
            let mut profile = DeviceProfile::from_toml(TEXT).unwrap();
            let batch = Some(Choice::new(bytes, ""));
            profile.choices = Some(Choices { cache_batch_bytes: batch, ..Choices::default() });
            let mut options = Options::new().cache(|cache| cache.bytes(64 << 20));
            options.profiles.cache =
                Some(Source { profile: Arc::new(profile), origin: SettingOrigin::Measured });
            options
        };
        assert_eq!(Options::new().group_pages(4096), 64);
        assert_eq!(profiled(1 << 20).group_pages(4096), 256);
        assert_eq!(profiled(512).group_pages(4096), 1);
        assert_eq!(profiled(1 << 30).group_pages(4096), 1024);
        assert_eq!(profiled(1 << 20).cache(|cache| cache.bytes(1 << 20)).group_pages(4096), 16);
        assert_eq!(profiled(1 << 20).cache(|cache| cache.group_pages(7)).group_pages(4096), 7);
    }
}
