//! How an authority signs: [`Signer`], which makes certificates of members and the list of revoked ones.
//!
//! Keys are Ed25519 everywhere: they are made of any 32 bytes, so that an authority can be derived from a shared key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData,
    RevocationReason, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::PrivatePkcs8KeyDer;
use time::OffsetDateTime;
use zeroize::{Zeroize, Zeroizing};

use crate::IdentityError;
use crate::key::SharedKey;
use crate::peer::{KEY_HOLDER, LIMITS_SCHEME};
use crate::role::Role;

/// PKCS #8 of an Ed25519 key (RFC 8410), up to the 32 bytes of the key itself.
const ED25519_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Bytes of such a key.
const ED25519_BYTES: usize = 32;
/// Bytes of a serial number, the first bit of which is 0 (RFC 5280, section 4.1.2.2).
const SERIAL_BYTES: usize = 16;
/// A certificate is good from a little before it was made: clocks differ.
const BACKDATED_SECS: u64 = 3600;
/// Seconds of a day.
pub(crate) const DAY_SECS: u64 = 24 * 3600;

/// When a certificate is good, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Validity {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Validity {
    /// From now on for so long.
    pub(crate) fn from_now(lifetime: Duration) -> Self {
        let now = now_secs();
        Self { from: now.saturating_sub(BACKDATED_SECS), until: now.saturating_add(lifetime.as_secs()) }
    }

    /// What is derived from a shared key is as good as the key, which has no time.
    const ALWAYS: Self = Self { from: 0, until: 65_744 * DAY_SECS };
}

/// Seconds since 1970.
pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A member's certificate and its key.
pub(crate) struct Member {
    pub(crate) certificate: Certificate,
    pub(crate) key: SecretKeyPair,
}

/// A key pair whose text is wiped when it is dropped.
pub(crate) struct SecretKeyPair(pub(crate) KeyPair);

impl Drop for SecretKeyPair {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A certificate that was revoked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Revoked {
    pub(crate) serial: Vec<u8>,
    /// When, in seconds since 1970.
    pub(crate) at: u64,
}

/// An authority's key, with which it signs.
pub(crate) struct Signer {
    params: CertificateParams,
    key: SecretKeyPair,
}

impl Signer {
    /// A new authority.
    pub(crate) fn generate() -> Result<Self, IdentityError> {
        Ok(Self::of(new_key()?))
    }

    /// The authority that all who have the key derive.
    pub(crate) fn derive(key: &SharedKey) -> Result<Self, IdentityError> {
        Ok(Self::of(key_of(&*key.authority_seed()?)?))
    }

    /// The authority whose key is this text.
    pub(crate) fn from_pem(text: &str) -> Result<Self, IdentityError> {
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(text, &PKCS_ED25519);
        Ok(Self::of(key.map_err(|error| IdentityError::crypto(&error))?))
    }

    /// The authority's name is made of its key, so that members of two authorities see that they are two.
    fn of(key: KeyPair) -> Self {
        let hash = digest::digest(&digest::SHA256, key.der_bytes());
        let short: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("yonder authority {short}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, Validity::ALWAYS);
        Self { params, key: SecretKeyPair(key) }
    }

    /// The text of its key.
    pub(crate) fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.0.serialize_pem())
    }

    /// Its own certificate, by which others know what it has signed.
    pub(crate) fn certificate(&self) -> Result<Certificate, IdentityError> {
        self.params.self_signed(&self.key.0).map_err(|error| IdentityError::crypto(&error))
    }

    /// A new key and certificate for a member, with limits if there are any.
    pub(crate) fn member(
        &self,
        role: Role,
        name: &str,
        limits: &str,
        serial: &[u8],
        validity: Validity,
    ) -> Result<Member, IdentityError> {
        let limits = (role == Role::Tenant).then_some(limits);
        self.sign(&[role.domain(), role.member(name)], name, limits, role.serves(), serial, validity)
    }

    /// A new key and certificate for one who has the shared key: it is of every role.
    pub(crate) fn key_holder(&self) -> Result<Member, IdentityError> {
        let domains = Role::ALL.map(Role::domain);
        self.sign(&domains, KEY_HOLDER, None, true, &new_serial()?, Validity::ALWAYS)
    }

    fn sign(
        &self,
        domains: &[String],
        name: &str,
        limits: Option<&str>,
        serves: bool,
        serial: &[u8],
        validity: Validity,
    ) -> Result<Member, IdentityError> {
        let key = SecretKeyPair(new_key()?);
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        for domain in domains {
            let domain = domain.as_str().try_into().map_err(|error| IdentityError::crypto(&error))?;
            params.subject_alt_names.push(SanType::DnsName(domain));
        }
        if let Some(limits) = limits {
            // With a date: the newest that a node has seen are the ones that hold.
            let limits = format!("{LIMITS_SCHEME}{limits}@{}", now_secs());
            let limits = limits.as_str().try_into().map_err(|error| IdentityError::crypto(&error))?;
            params.subject_alt_names.push(SanType::URI(limits));
        }
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if serves {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, validity);
        let issuer = Issuer::from_params(&self.params, &self.key.0);
        let certificate = params.signed_by(&key.0, &issuer).map_err(|error| IdentityError::crypto(&error))?;
        Ok(Member { certificate, key })
    }

    /// The list of what was revoked. It names all of it, so a longer list is a newer one.
    pub(crate) fn revocations(&self, revoked: &[Revoked]) -> Result<String, IdentityError> {
        let entry = |revoked: &Revoked| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&revoked.serial),
            revocation_time: date(revoked.at),
            reason_code: Some(RevocationReason::Unspecified),
            invalidity_date: None,
        };
        let number = (revoked.len() as u64).to_be_bytes();
        let params = CertificateRevocationListParams {
            this_update: date(now_secs()),
            // Lists are copied by hand, so an old one must go on counting.
            next_update: date(Validity::ALWAYS.until),
            crl_number: SerialNumber::from_slice(&number),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::from_params(&self.params, &self.key.0);
        let signed = params.signed_by(&issuer).and_then(|list| list.pem());
        signed.map_err(|error| IdentityError::crypto(&error))
    }
}

/// A new key. It is written as all programs read it (PKCS #8, version 1): OpenSSL reads no keys of version 2, which the
/// library makes.
fn new_key() -> Result<KeyPair, IdentityError> {
    let mut seed = Zeroizing::new([0; ED25519_BYTES]);
    SystemRandom::new().fill(seed.as_mut()).map_err(|error| IdentityError::crypto(&error))?;
    key_of(&seed)
}

/// The key that is made of these bytes.
fn key_of(seed: &[u8; ED25519_BYTES]) -> Result<KeyPair, IdentityError> {
    let mut pkcs8 = Zeroizing::new([0; ED25519_PREFIX.len() + ED25519_BYTES]);
    let (head, rest) = pkcs8.split_at_mut(ED25519_PREFIX.len());
    head.copy_from_slice(&ED25519_PREFIX);
    rest.copy_from_slice(seed);
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()), &PKCS_ED25519);
    key.map_err(|error| IdentityError::crypto(&error))
}

/// A random serial number.
pub(crate) fn new_serial() -> Result<[u8; SERIAL_BYTES], IdentityError> {
    let mut serial = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut serial).map_err(|error| IdentityError::crypto(&error))?;
    // Positive, and never shorter than it is written.
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

fn set_validity(params: &mut CertificateParams, validity: Validity) {
    (params.not_before, params.not_after) = (date(validity.from), date(validity.until));
}

fn date(secs: u64) -> OffsetDateTime {
    date_time_ymd(1970, 1, 1) + Duration::from_secs(secs)
}
