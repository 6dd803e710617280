//! [`Authority`]: the folder by which a cluster's members are made: a key, its certificate, and lists.
//!
//! ```text
//! authority.pem   its certificate, by which members know each other
//! authority.key   its key, 0600: whoever reads it can make members
//! issued.json     what it has signed, one line each
//! revoked.pem     the list of what it has revoked, signed
//! ```
//!
//! Invariant: a certificate is in `issued.json` before it leaves the folder, so that it can be revoked.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::IdentityError;
use crate::certificate::{DAY_SECS, Revoked, Signer, Validity, new_serial, now_secs};
use crate::private_file::{check_private, create_folder, create_secret, read_public, read_secret, replace};
use crate::role::{Role, check_name};

/// How many days a certificate lives if nothing else is said.
pub const DAYS_DEFAULT: u32 = 90;
/// How many it may live.
pub const DAYS_MAX: u32 = 3650;
/// The list of revoked certificates, in the authority's folder and beside each identity that heeds it.
pub const REVOKED_FILE: &str = "revoked.pem";

const CERTIFICATE_FILE: &str = "authority.pem";
const KEY_FILE: &str = "authority.key";
const ISSUED_FILE: &str = "issued.json";

/// The authority of one cluster, which one process at a time has open.
pub struct Authority {
    folder: PathBuf,
    signer: Signer,
    issued: Vec<Issued>,
    /// Locked for as long as this is open.
    _key_file: File,
}

/// A certificate that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Issued {
    /// The member's role, as it is typed.
    pub role: String,
    /// Its name.
    pub name: String,
    /// From when it is good, in seconds since 1970.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// Since when it is revoked.
    pub revoked: Option<u64>,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// How much the member may have and do, as it was typed; nothing if that is not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limits: String,
}

impl Issued {
    /// Whether it is good at a time, in seconds since 1970.
    #[must_use]
    pub const fn is_good_at(&self, secs: u64) -> bool {
        self.revoked.is_none() && secs < self.until
    }
}

/// A new member's identity.
pub struct Added {
    /// What was signed.
    pub issued: Issued,
    text: Zeroizing<String>,
}

impl Added {
    /// Writes it to a new file that only its user may read: [`Credential::load`](crate::Credential::load) reads it.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        create_secret(path, &self.text)
    }
}

impl Authority {
    /// Makes an authority in a folder, which is made too.
    pub fn init(folder: &Path) -> Result<Self, IdentityError> {
        create_folder(folder)?;
        let signer = Signer::generate()?;
        let created = create_secret(&folder.join(KEY_FILE), &signer.key_pem());
        created.map_err(|error| match error {
            IdentityError::FileExists { .. } => IdentityError::AuthorityExists { folder: folder.to_owned() },
            other => other,
        })?;
        replace(&folder.join(CERTIFICATE_FILE), &signer.certificate()?.pem(), 0o644)?;
        replace(&folder.join(ISSUED_FILE), "", 0o600)?;
        replace(&folder.join(REVOKED_FILE), &signer.revocations(&[])?, 0o644)?;
        Self::open(folder)
    }

    /// Opens the authority of a folder, and waits while another process has it open.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        let path = folder.join(KEY_FILE);
        if !path.exists() {
            return Err(IdentityError::NoAuthority { folder: folder.to_owned() });
        }
        let failed = |path: &Path, cause| IdentityError::File { path: path.to_owned(), cause };
        check_private(folder, &std::fs::metadata(folder).map_err(|error| failed(folder, error))?, 0o700)?;
        let key_file = File::open(&path).map_err(|error| failed(&path, error))?;
        key_file.lock().map_err(|error| failed(&path, error))?;
        let damaged = |file: &str, cause: String| IdentityError::Damaged { path: folder.join(file), cause };
        let signer = Signer::from_pem(&read_secret(&path)?).map_err(|error| damaged(KEY_FILE, error.to_string()))?;
        let lines = read_public(&folder.join(ISSUED_FILE))?
            .ok_or_else(|| damaged(ISSUED_FILE, "it is not there".to_owned()))?;
        let issued: Result<Vec<Issued>, _> = lines.lines().map(serde_json::from_str).collect();
        let issued = issued.map_err(|error| damaged(ISSUED_FILE, error.to_string()))?;
        Ok(Self { folder: folder.to_owned(), signer, issued, _key_file: key_file })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that it has signed, oldest first.
    #[must_use]
    pub fn issued(&self) -> &[Issued] {
        &self.issued
    }

    /// Makes a member's identity, good for so long. Its name must be of no other member.
    pub fn add(&mut self, role: Role, name: &str, lifetime: Duration) -> Result<Added, IdentityError> {
        self.add_limited(role, name, lifetime, "")
    }

    /// The same, with limits of what the member may have and do: a text that nodes read.
    pub fn add_limited(
        &mut self,
        role: Role,
        name: &str,
        lifetime: Duration,
        limits: &str,
    ) -> Result<Added, IdentityError> {
        check_name(name)?;
        if let Some(other) = self.good(name) {
            let has = other.role.parse::<Role>().map_or("another member", Role::with_article);
            return Err(IdentityError::NameTaken { has, name: name.to_owned() });
        }
        self.sign(role, name, lifetime, limits)
    }

    /// Makes another certificate for a member that was not revoked, with these limits, or with those that it has. The
    /// earlier one is good until its end.
    pub fn renew(
        &mut self,
        role: Role,
        name: &str,
        lifetime: Duration,
        limits: Option<&str>,
    ) -> Result<Added, IdentityError> {
        match self.issued.iter().rev().find(|issued| issued.name == name) {
            Some(known) if known.role == role.as_str() && known.revoked.is_none() => {
                let limits = limits.unwrap_or(&known.limits).to_owned();
                self.sign(role, name, lifetime, &limits)
            }
            _ => Err(IdentityError::NoMember { name: format!("{role} {name}") }),
        }
    }

    /// Revokes all certificates of a member that are good, and says how many they were.
    pub fn revoke(&mut self, name: &str) -> Result<usize, IdentityError> {
        let now = now_secs();
        let mut count = 0;
        for issued in self.issued.iter_mut().filter(|issued| issued.name == name && issued.is_good_at(now)) {
            issued.revoked = Some(now);
            count += 1;
        }
        if count == 0 {
            return Err(IdentityError::NoMember { name: name.to_owned() });
        }
        self.keep()?;
        replace(&self.folder.join(REVOKED_FILE), &self.revocations()?, 0o644)?;
        Ok(count)
    }

    /// Where the list of revoked certificates is: a copy of it lies beside each identity that heeds it.
    #[must_use]
    pub fn revoked_file(&self) -> PathBuf {
        self.folder.join(REVOKED_FILE)
    }

    /// The member of this name that has a good certificate.
    fn good(&self, name: &str) -> Option<&Issued> {
        let now = now_secs();
        self.issued.iter().find(|issued| issued.name == name && issued.is_good_at(now))
    }

    fn sign(&mut self, role: Role, name: &str, lifetime: Duration, limits: &str) -> Result<Added, IdentityError> {
        let most = Duration::from_secs(u64::from(DAYS_MAX) * DAY_SECS);
        if !(Duration::from_secs(1)..=most).contains(&lifetime) {
            return Err(IdentityError::Lifetime { days_max: DAYS_MAX });
        }
        let (serial, validity) = (new_serial()?, Validity::from_now(lifetime));
        let member = self.signer.member(role, name, limits, &serial, validity)?;
        let issued = Issued {
            role: role.to_string(),
            name: name.to_owned(),
            from: validity.from,
            until: validity.until,
            revoked: None,
            serial: serial.iter().map(|byte| format!("{byte:02x}")).collect(),
            limits: limits.to_owned(),
        };
        self.issued.push(issued.clone());
        self.keep()?;
        let key = Zeroizing::new(member.key.0.serialize_pem());
        let parts = [&member.certificate.pem(), key.as_str(), &self.signer.certificate()?.pem(), &self.revocations()?];
        // No copy of the key is left behind by a text that grows.
        let mut text = Zeroizing::new(String::with_capacity(parts.iter().map(|part| part.len()).sum()));
        for part in parts {
            text.push_str(part);
        }
        Ok(Added { issued, text })
    }

    fn keep(&self) -> Result<(), IdentityError> {
        let mut text = String::new();
        for issued in &self.issued {
            text.push_str(&serde_json::to_string(issued).expect("it has only texts and numbers"));
            text.push('\n');
        }
        replace(&self.folder.join(ISSUED_FILE), &text, 0o600)
    }

    fn revocations(&self) -> Result<String, IdentityError> {
        let revoked = self.issued.iter().filter_map(|issued| {
            let bytes = issued
                .serial
                .as_bytes()
                .chunks(2)
                .map(|pair| std::str::from_utf8(pair).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok()));
            Some((issued.revoked?, bytes.collect::<Option<Vec<u8>>>()))
        });
        let wrong = || IdentityError::Damaged {
            path: self.folder.join(ISSUED_FILE),
            cause: "a serial number is not one".to_owned(),
        };
        let revoked: Result<Vec<Revoked>, _> =
            revoked.map(|(at, serial)| Ok(Revoked { serial: serial.ok_or_else(wrong)?, at })).collect();
        self.signer.revocations(&revoked?)
    }
}
