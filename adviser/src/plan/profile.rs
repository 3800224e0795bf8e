//! The profiles of the template.

use super::options::ProfileName;

/// The settings of a template profile that cause costs.
pub(super) struct Profile {
    pub(super) name: &'static str,
    pub(super) canary: bool,
    pub(super) dashboard: bool,
    pub(super) log_days: u32,
    /// `XRayTracing` is Active. At rest the runs are so few that X-Ray samples all of them.
    pub(super) traced: bool,
    /// `EncryptionKey` is not the key that DynamoDB owns.
    pub(super) encrypted_by_kms: bool,
}

/// The columns of `Settings` in template.yaml, in the order of [`ProfileName`].
pub(super) static PROFILES: [Profile; 3] = [
    profile("development", false, false, 7),
    profile("standard", false, true, 30),
    Profile { traced: true, encrypted_by_kms: true, ..profile("production", true, true, 365) },
];

const fn profile(name: &'static str, canary: bool, dashboard: bool, log_days: u32) -> Profile {
    Profile { name, canary, dashboard, log_days, traced: false, encrypted_by_kms: false }
}

impl Profile {
    pub(super) fn of(name: ProfileName) -> &'static Self {
        &PROFILES[name as usize]
    }
}
