//! What can be wrong with a profile.

use std::fmt;

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read or written.
    File {
        /// The file's path.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// It is not TOML, a key is unknown or missing, or a value has the wrong type.
    Syntax(String),
    /// It was written for another version of the format.
    Version {
        /// The version it states.
        found: u32,
    },
    /// A value is not possible.
    Invalid {
        /// The key, as it stands in the file.
        key: String,
        /// What was found, and what is expected.
        problem: String,
    },
}

impl ProfileError {
    pub(crate) fn invalid(key: impl Into<String>, problem: impl Into<String>) -> ProfileError {
        ProfileError::Invalid { key: key.into(), problem: problem.into() }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::File { path, cause } => write!(f, "{path}: {cause}"),
            ProfileError::Syntax(message) => write!(f, "not a device profile: {message}"),
            ProfileError::Version { found } => write!(
                f,
                "the profile has version {found}, this program reads version {}; write it anew with `firn characterize`",
                crate::VERSION
            ),
            ProfileError::Invalid { key, problem } => write!(f, "{key}: {problem}"),
        }
    }
}

impl std::error::Error for ProfileError {}
