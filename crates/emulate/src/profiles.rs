//! The profiles that ship with Firn.

use firndb_profile::{DeviceProfile, ProfileError};

/// Name and text of each profile, in the order in which they are listed.
const SHIPPED: &[(&str, &str)] = &[
    ("flash-a", include_str!("../profiles/flash-a.toml")),
    ("flash-b", include_str!("../profiles/flash-b.toml")),
    ("flash-c", include_str!("../profiles/flash-c.toml")),
    ("ssd-2008", include_str!("../profiles/ssd-2008.toml")),
    ("disk-10k", include_str!("../profiles/disk-10k.toml")),
    ("disk-10k-wce", include_str!("../profiles/disk-10k-wce.toml")),
    ("samsung-470", include_str!("../profiles/samsung-470.toml")),
    ("x25-m", include_str!("../profiles/x25-m.toml")),
    ("x25-e", include_str!("../profiles/x25-e.toml")),
    ("cheetah-15k", include_str!("../profiles/cheetah-15k.toml")),
    ("cheetah-15k-raid4", include_str!("../profiles/cheetah-15k-raid4.toml")),
    ("cheetah-15k-raid8", include_str!("../profiles/cheetah-15k-raid8.toml")),
    ("cheetah-15k-raid16", include_str!("../profiles/cheetah-15k-raid16.toml")),
    ("myers-a", include_str!("../profiles/myers-a.toml")),
    ("myers-b", include_str!("../profiles/myers-b.toml")),
    ("myers-disk", include_str!("../profiles/myers-disk.toml")),
    ("myers-disk-arm", include_str!("../profiles/myers-disk-arm.toml")),
    ("myers-nand", include_str!("../profiles/myers-nand.toml")),
    ("ocz-core", include_str!("../profiles/ocz-core.toml")),
    ("barracuda-7200-7", include_str!("../profiles/barracuda-7200-7.toml")),
    ("nvme", include_str!("../profiles/nvme.toml")),
    ("sata-ssd", include_str!("../profiles/sata-ssd.toml")),
    ("microsd", include_str!("../profiles/microsd.toml")),
    ("network-volume", include_str!("../profiles/network-volume.toml")),
    ("network-volume-spiky", include_str!("../profiles/network-volume-spiky.toml")),
    ("disk-7200", include_str!("../profiles/disk-7200.toml")),
];

/// The names of all shipped profiles, the papers' devices first.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|&(name, _)| name)
}

/// The shipped profile of this name.
#[must_use]
pub fn get(name: &str) -> Option<DeviceProfile> {
    text(name).map(|text| DeviceProfile::from_toml(text).expect("every shipped profile is read by a test"))
}

/// The text of the shipped profile of this name, with its comments.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|shipped| shipped.0 == name).map(|&(_, text)| text)
}

/// All shipped profiles.
#[must_use]
pub fn all() -> Vec<DeviceProfile> {
    names().filter_map(get).collect()
}

/// The shipped profile of this name, or else the profile in the file of this name.
pub fn find(name_or_path: &str) -> Result<DeviceProfile, ProfileError> {
    if let Some(profile) = get(name_or_path) {
        return Ok(profile);
    }
    DeviceProfile::load(name_or_path).map_err(|error| match error {
        ProfileError::File { path, cause } if !name_or_path.contains(['/', '.']) => ProfileError::File {
            path,
            cause: format!("{cause}; shipped profiles are {}", names().collect::<Vec<_>>().join(", ")),
        },
        other => other,
    })
}
