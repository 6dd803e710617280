//! Who may ask: [`KvAccess`], the passwords and certificates that a server has read from its files.

use std::sync::Arc;

use super::certificates::Certificates;
use super::passwords::Passwords;
use super::{KvConfig, KvError};

/// What clients must prove, if anything. Clones are the same; any thread may read the files again.
#[derive(Clone, Default, Debug)]
pub struct KvAccess {
    pub(super) passwords: Option<Arc<Passwords>>,
    pub(super) certificates: Option<Arc<Certificates>>,
}

impl KvAccess {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn open(config: &KvConfig) -> Result<Self, KvError> {
        let passwords = config.auth_file.clone().map(Passwords::open).transpose()?.map(Arc::new);
        let certificates = config.tls.clone().map(Certificates::open).transpose()?.map(Arc::new);
        Ok(Self { passwords, certificates })
    }

    /// Reads the files again: for those who connect from here on, and passwords for those who have not said theirs.
    ///
    /// # Errors
    /// If one of them cannot be used, which then stays as it was.
    pub fn reload(&self) -> Result<(), KvError> {
        let passwords = self.passwords.as_ref().map_or(Ok(()), |passwords| passwords.reload());
        let certificates = self.certificates.as_ref().map_or(Ok(()), |certificates| certificates.reload());
        passwords.and(certificates)
    }

    /// Whether clients need prove nothing and no file is read.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.passwords.is_none() && self.certificates.is_none()
    }
}
