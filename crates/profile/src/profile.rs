//! The profile as a whole, and its file.

use crate::choices::Choices;
use crate::error::ProfileError;
use crate::figure::{Figure, Input, MeasuredRow};
use crate::model::ModelSection;
use crate::nand::NandSection;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Where a profile's numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Published in a paper or by the vendor.
    Published,
    /// Measured by `firn characterize` on the device itself.
    Measured,
    /// Derived from published bounds, or typical of the kind of device; the notes say which.
    Estimated,
}

/// A device: what it is, how it behaves, and what the engine concludes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// The version of the format, [`VERSION`].
    pub version: u32,
    /// A short name for command lines: lower-case letters, digits, dots and hyphens.
    pub name: String,
    /// The title for readers: vendor, model, size.
    pub title: String,
    /// Where the numbers come from.
    pub origin: Origin,
    /// Paper and section, data sheet, or machine and date of the measurement.
    pub source: String,
    /// What was derived and how, what is unknown, conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Size of the device.
    pub capacity_bytes: u64,
    /// Smallest transfer; a power of two from 512 to 65536.
    pub logical_block: u32,
    /// The model that the emulator uses.
    pub model: ModelSection,
    /// The flash behind the model's interface, if it is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nand: Option<NandSection>,
    /// Published results that the model was computed from, so that it cannot confirm them.
    #[serde(default, rename = "input", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// Figures that the emulation is compared with.
    #[serde(default, rename = "figure", skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Rows of a measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredRow>,
    /// Settings that the engine takes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
}

/// The version, read before the other keys, so that a newer file is refused for its version and not
/// for its unknown keys.
#[derive(Deserialize)]
struct Stated {
    version: u32,
}

impl DeviceProfile {
    /// Reads a profile's text and checks it.
    pub fn from_toml(text: &str) -> Result<DeviceProfile, ProfileError> {
        let syntax = |error: toml::de::Error| ProfileError::Syntax(error.to_string().trim_end().to_owned());
        let stated: Stated = toml::from_str(text).map_err(syntax)?;
        if stated.version != VERSION {
            return Err(ProfileError::Version { found: stated.version });
        }
        let profile: DeviceProfile = toml::from_str(text).map_err(syntax)?;
        profile.check()?;
        Ok(profile)
    }

    /// The profile's text, which [`DeviceProfile::from_toml`] reads back to the same.
    /// Refuses what [`DeviceProfile::check`] refuses.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        self.check()?;
        toml::to_string(self).map_err(|error| ProfileError::Syntax(error.to_string()))
    }

    /// The input that this result would merely repeat, as in "FlashLogging, figure 5".
    #[must_use]
    pub fn input(&self, result: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.result == result)
    }

    /// Reads the file at `path`.
    pub fn load(path: impl AsRef<Path>) -> Result<DeviceProfile, ProfileError> {
        let path = path.as_ref();
        let in_file = |cause: String| ProfileError::File { path: path.display().to_string(), cause };
        let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
        DeviceProfile::from_toml(&text).map_err(|error| in_file(error.to_string()))
    }

    /// Writes the file at `path`, replacing one that is there.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ProfileError> {
        let path = path.as_ref();
        let text = self.to_toml()?;
        std::fs::write(path, text).map_err(|error| ProfileError::File {
            path: path.display().to_string(),
            cause: error.to_string(),
        })
    }
}
