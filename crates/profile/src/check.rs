//! What must hold of a profile, so that the emulator never divides by zero and never waits for
//! ever.

use crate::error::ProfileError;
use crate::model::{Mechanics, ModelSection, Outliers};
use crate::nand::NandSection;
use crate::profile::{DeviceProfile, VERSION};
use crate::table::ServiceTable;

type Checked = Result<(), ProfileError>;

/// No single time is longer than a day: a longer one is a mistake of units.
const LONGEST_US: f64 = 86_400.0 * 1e6;
/// More requests side by side than any device serves.
const MOST_CHANNELS: u32 = 4096;

fn expect(holds: bool, key: &str, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(ProfileError::invalid(key, problem())) }
}

/// A finite number above zero (or from zero on), at most `most`.
fn number(key: &str, value: f64, from_zero: bool, most: f64) -> Checked {
    let in_range = value.is_finite() && value <= most && (value > 0.0 || (from_zero && value == 0.0));
    expect(in_range, key, || {
        format!(
            "{value} is not a number {} and at most {most}",
            if from_zero { "from 0 on" } else { "above 0" }
        )
    })
}

fn positive(key: &str, value: f64) -> Checked {
    number(key, value, false, LONGEST_US)
}

fn not_negative(key: &str, value: f64) -> Checked {
    number(key, value, true, LONGEST_US)
}

fn count(key: &str, value: u32) -> Checked {
    expect((1..=MOST_CHANNELS).contains(&value), key, || {
        format!("{value} is not between 1 and {MOST_CHANNELS}")
    })
}

fn table(key: &str, table: &ServiceTable) -> Checked {
    for &(bytes, us) in &table.points {
        expect(bytes > 0, key, || "a request of 0 bytes has no time".into())?;
        positive(key, us)?;
    }
    for pair in table.points.windows(2) {
        let [(bytes, us), (next_bytes, next_us)] = [pair[0], pair[1]];
        expect(bytes < next_bytes, key, || format!("sizes must rise: {bytes} stands before {next_bytes}"))?;
        expect(us <= next_us, key, || {
            format!("times must not fall with size: {us} µs for {bytes} bytes, {next_us} µs for {next_bytes}")
        })?;
    }
    Ok(())
}

impl DeviceProfile {
    /// Checks what the emulator and the engine rely on; the error names the key.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.version != VERSION {
            return Err(ProfileError::Version { found: self.version });
        }
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        expect(!self.name.is_empty() && self.name.chars().all(letters), "name", || {
            format!("{:?} must consist of lower-case letters, digits, dots and hyphens", self.name)
        })?;
        expect(!self.title.trim().is_empty(), "title", || "is empty".into())?;
        expect(!self.source.trim().is_empty(), "source", || {
            "is empty: state where the numbers come from".into()
        })?;
        expect(
            self.logical_block.is_power_of_two() && (512..=65_536).contains(&self.logical_block),
            "logical_block",
            || format!("{} is not a power of two from 512 to 65536", self.logical_block),
        )?;
        expect(
            self.capacity_bytes >= u64::from(self.logical_block) && self.capacity_bytes <= 1 << 60,
            "capacity_bytes",
            || format!("{} is not between one logical block and 2^60", self.capacity_bytes),
        )?;
        self.model.check()?;
        if let Some(nand) = &self.nand {
            nand.check(self.capacity_bytes)?;
        }
        for input in &self.inputs {
            let stated = !input.result.trim().is_empty() && !input.why.trim().is_empty();
            expect(stated, "input", || "result or why is empty".into())?;
        }
        for figure in &self.figures {
            positive("figure.value", figure.value)?;
            count("figure.depth", figure.depth)?;
            expect(figure.bytes > 0, "figure.bytes", || "is 0".into())?;
            expect(!figure.source.trim().is_empty(), "figure.source", || "is empty".into())?;
        }
        self.check_rows()?;
        self.check_choices()
    }

    fn check_rows(&self) -> Checked {
        for row in &self.measured {
            for (key, value) in [
                ("measured.iops", row.iops),
                ("measured.mb_s", row.mb_s),
                ("measured.mean_us", row.mean_us),
                ("measured.p50_us", row.p50_us),
                ("measured.p95_us", row.p95_us),
                ("measured.p99_us", row.p99_us),
                ("measured.p999_us", row.p999_us),
                ("measured.max_us", row.max_us),
            ] {
                not_negative(key, value)?;
            }
            for (key, share) in
                [("measured.read_share", row.read_share), ("measured.outlier_share", row.outlier_share)]
            {
                if let Some(share) = share {
                    number(key, share, true, 1.0)?;
                }
            }
        }
        Ok(())
    }

    fn check_choices(&self) -> Checked {
        let Some(choices) = &self.choices else { return Ok(()) };
        if let Some(width) = &choices.log_width {
            expect((1..=64).contains(&width.value), "choices.log_width", || {
                format!("{} is not between 1 and 64", width.value)
            })?;
        }
        if let Some(batch) = &choices.cache_batch_bytes {
            expect(batch.value > 0 && batch.value <= 1 << 30, "choices.cache_batch_bytes", || {
                format!("{} is not between 1 byte and 1 GiB", batch.value)
            })?;
        }
        if let Some(batch) = &choices.read_batch {
            count("choices.read_batch", batch.value)?;
        }
        if let Some(threshold) = &choices.outlier_threshold {
            expect(
                threshold.value.is_finite() && threshold.value > 1.0,
                "choices.outlier_threshold",
                || format!("{} is not above 1: every request would be an outlier", threshold.value),
            )?;
        }
        for (key, ratio) in [
            ("choices.random_to_sequential_read", &choices.random_to_sequential_read),
            ("choices.random_to_sequential_write", &choices.random_to_sequential_write),
        ] {
            if let Some(ratio) = ratio {
                positive(key, ratio.value)?;
            }
        }
        Ok(())
    }
}

impl ModelSection {
    fn check(&self) -> Checked {
        count("model.channels", self.channels)?;
        count("model.append_streams", self.append_streams)?;
        count("model.read_streams", self.read_streams)?;
        self.check_tables()?;
        not_negative("model.sync_us", self.sync_us)?;
        for (key, limit) in [
            ("model.read_mb_s", self.read_mb_s),
            ("model.write_mb_s", self.write_mb_s),
            ("model.total_mb_s", self.total_mb_s),
            ("model.max_iops", self.max_iops),
        ] {
            if let Some(limit) = limit {
                positive(key, limit)?;
            }
        }
        number("model.jitter", self.jitter, true, 0.9)?;
        self.check_striping()?;
        if let Some(mechanics) = &self.mechanics {
            mechanics.check()?;
        }
        if let Some(cache) = &self.write_cache {
            expect(cache.bytes > 0, "model.write_cache.bytes", || "is 0; leave the section out".into())?;
            not_negative("model.write_cache.accept_us", cache.accept_us)?;
            positive("model.write_cache.drain_mb_s", cache.drain_mb_s)?;
            not_negative("model.write_cache.drain_random_us", cache.drain_random_us)?;
        }
        self.outliers.iter().try_for_each(Outliers::check)?;
        for pair in self.area.windows(2) {
            expect(pair[0].bytes < pair[1].bytes, "model.area.bytes", || "sizes must rise".into())?;
        }
        for point in &self.area {
            positive("model.area.factor", point.factor)?;
        }
        self.check_bands()
    }

    fn check_striping(&self) -> Checked {
        expect(
            self.stripe_bytes.is_power_of_two() && self.stripe_bytes >= 512,
            "model.stripe_bytes",
            || format!("{} is not a power of two from 512 on", self.stripe_bytes),
        )?;
        for (key, occupancy, limit) in [
            ("model.read_occupancy", self.read_occupancy, self.read_mb_s),
            ("model.write_occupancy", self.write_occupancy, self.write_mb_s),
        ] {
            number(key, occupancy, false, 1.0)?;
            let limited = limit.or(self.total_mb_s).is_some();
            expect(occupancy == 1.0 || limited, key, || {
                format!("is {occupancy}, and no bandwidth of this direction limits a stream")
            })?;
        }
        Ok(())
    }

    fn check_tables(&self) -> Checked {
        let needed = [
            ("model.read_sequential", &self.read_sequential),
            ("model.read_random", &self.read_random),
            ("model.write_sequential", &self.write_sequential),
            ("model.write_random", &self.write_random),
        ];
        let disk = self.mechanics.is_some();
        for (key, points) in needed {
            expect(disk == points.is_empty(), key, || match disk {
                true => {
                    "stands beside [model.mechanics], which gives these times; leave one of them out".into()
                }
                false => "is missing: at least one [bytes, microseconds] is needed".into(),
            })?;
            table(key, points)?;
        }
        expect(!disk || self.channels == 1, "model.channels", || {
            "a disk has 1; an array of disks has mechanics.spindles".into()
        })?;
        expect(!disk || self.write_overlapping.is_empty(), "model.write_overlapping", || {
            "stands beside [model.mechanics]: a disk waits for a rotation by itself".into()
        })?;
        table("model.write_overlapping", &self.write_overlapping)
    }

    fn check_bands(&self) -> Checked {
        for band in &self.band {
            // Bytes exceed any time; what a parameter cannot be is found below.
            number("model.band.low", band.low, true, f64::MAX)?;
            number("model.band.high", band.high, false, f64::MAX)?;
            expect(band.low <= band.high, "model.band.low", || {
                format!("{} lies above high, {}", band.low, band.high)
            })?;
            expect(!band.why.trim().is_empty(), "model.band.why", || "is empty".into())?;
            for value in [band.low, band.high] {
                let mut swept = ModelSection { band: Vec::new(), ..self.clone() };
                swept.set(band.parameter, value);
                swept.check().map_err(|error| {
                    ProfileError::invalid("model.band", format!("{:?} at {value}: {error}", band.parameter))
                })?;
            }
        }
        Ok(())
    }
}

impl Outliers {
    fn check(&self) -> Checked {
        number("model.outliers.share", self.share, false, 1.0)?;
        positive("model.outliers.from_us", self.from_us)?;
        positive("model.outliers.to_us", self.to_us)?;
        expect(self.from_us <= self.to_us, "model.outliers.from_us", || {
            format!("{} lies above to_us, {}", self.from_us, self.to_us)
        })?;
        if let Some(most) = self.max_bytes {
            expect(self.min_bytes <= most, "model.outliers.min_bytes", || {
                format!("lies above max_bytes, {most}")
            })?;
        }
        if let Some((least, most)) = self.spacing {
            expect(0 < least && least <= most, "model.outliers.spacing", || {
                format!("[{least}, {most}] is not a least and a most number of requests")
            })?;
            let mean = f64::from(least) / 2.0 + f64::from(most) / 2.0;
            expect((self.share * mean - 1.0).abs() < 0.1, "model.outliers.spacing", || {
                format!("one in {mean} requests is not a share of {}", self.share)
            })?;
        }
        Ok(())
    }
}

impl Mechanics {
    fn check(&self) -> Checked {
        for (key, value) in [
            ("model.mechanics.rpm", self.rpm),
            ("model.mechanics.seek_track_ms", self.seek_track_ms),
            ("model.mechanics.seek_average_ms", self.seek_average_ms),
            ("model.mechanics.seek_full_ms", self.seek_full_ms),
            ("model.mechanics.transfer_mb_s", self.transfer_mb_s),
        ] {
            positive(key, value)?;
        }
        not_negative("model.mechanics.write_settle_ms", self.write_settle_ms)?;
        not_negative("model.mechanics.overhead_us", self.overhead_us)?;
        not_negative("model.mechanics.buffered_us", self.buffered_us)?;
        count("model.mechanics.spindles", self.spindles)?;
        expect(
            self.stripe_bytes.is_power_of_two() && self.stripe_bytes >= 512,
            "model.mechanics.stripe_bytes",
            || format!("{} is not a power of two from 512 on", self.stripe_bytes),
        )?;
        let (root, linear) = self.seek_curve();
        expect(root >= 0.0 && linear >= 0.0, "model.mechanics.seek_average_ms", || {
            format!(
                "{} ms is not a mean that seeks rising from {} ms to {} ms can have",
                self.seek_average_ms, self.seek_track_ms, self.seek_full_ms
            )
        })?;
        for pair in self.reordering.windows(2) {
            expect(pair[0].depth < pair[1].depth, "model.mechanics.reordering", || {
                "depths must rise".into()
            })?;
        }
        for point in &self.reordering {
            count("model.mechanics.reordering", point.depth)?;
            number("model.mechanics.reordering", point.factor, false, 1.0)?;
        }
        Ok(())
    }
}

/// Pages of flash that the simulation can hold, in memory (about 20 bytes each).
const MOST_PAGES: u64 = 1 << 27;

impl NandSection {
    /// Checks the flash of a device of `capacity_bytes`.
    fn check(&self, capacity_bytes: u64) -> Checked {
        let pages = u64::from(self.page_bytes);
        let sound = self.page_bytes.is_power_of_two() && (512..=65_536).contains(&self.page_bytes);
        expect(sound, "nand.page_bytes", || format!("{pages} is not a power of two from 512 to 65536"))?;
        count("nand.pages_per_block", self.pages_per_block)?;
        count("nand.chips", self.chips)?;
        count("nand.chips_per_channel", self.chips_per_channel)?;
        not_negative("nand.read_us", self.read_us)?;
        positive("nand.program_us", self.program_us)?;
        not_negative("nand.erase_us", self.erase_us)?;
        not_negative("nand.transfer_us", self.transfer_us)?;
        expect(self.erase_limit > 0, "nand.erase_limit", || "is 0".into())?;
        expect(self.wear_spread != Some(0), "nand.wear_spread", || "is 0".into())?;
        number("nand.over_provisioning", self.over_provisioning, true, 100.0)?;
        number("nand.filled", self.filled, true, 1.0)?;
        let flash = capacity_bytes as f64 / pages as f64 * (1.0 + self.over_provisioning);
        expect(flash <= MOST_PAGES as f64 / 2.0, "nand", || {
            format!("has about {flash:.0} pages; the simulation holds {}", MOST_PAGES / 2)
        })
    }
}
