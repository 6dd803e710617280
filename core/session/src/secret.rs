//! [`NodeSecret`], [`SessionSecret`], [`LaneKeys`]: each derived from the one before.
//!
//! HKDF-Expand with SHA-256 (RFC 5869). The step that extracts is left out, as its section 3.3 allows, because every
//! secret here is uniformly random or the output of this very function. What is derived for one purpose is told from
//! all others by a label; labels are followed by fields of fixed length, and no label begins with another.
//!
//! Invariant: secrets are wiped when they are dropped, and never printed.

use core::net::Ipv6Addr;
use std::fmt;
use std::hash::Hasher as _;

use hkdf::Hkdf;
use sha2::Sha256;
use siphasher::sip::{SipHasher13, SipHasher24};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, Protection};
use crate::home::Home;
use crate::number::SessionNumber;
use crate::seal;

/// Bytes of every secret.
const SECRET_BYTES: usize = 32;

/// What is derived, in the words that tell it from all else.
const SESSION_LABEL: &[u8] = b"yonder session";
const LANE_LABEL: &[u8] = b"yonder lane";
const COOKIE_LABEL: &[u8] = b"yonder cookie";
const TABLE_LABEL: &[u8] = b"yonder table";

/// What a node draws at its start and never tells. All its sessions end with it.
pub struct NodeSecret {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    cookie_key: Zeroizing<[u8; 16]>,
}

impl NodeSecret {
    /// The secret made of bytes that nobody can guess.
    #[must_use]
    pub fn new(random: [u8; SECRET_BYTES]) -> Self {
        let secret = Zeroizing::new(random);
        let cookie_key = expand(&secret, &[COOKIE_LABEL]);
        Self { secret, cookie_key }
    }

    /// The secret of the session `number`, whatever its lane, for a client at `client_ip`. An address of IP version 4
    /// is mapped into version 6.
    #[must_use]
    pub fn session_secret(
        &self,
        number: SessionNumber,
        client_ip: Ipv6Addr,
        cipher: Cipher,
        protection: Protection,
    ) -> SessionSecret {
        let number = number.session().0.to_le_bytes();
        let kind = [cipher as u8, protection as u8];
        let secret = expand(&self.secret, &[SESSION_LABEL, &number, &client_ip.octets(), &kind]);
        SessionSecret { secret, cipher, protection }
    }

    /// What a plain message from `address` carries in `period` as a proof that its sender receives what is sent there:
    /// SipHash-2-4. Never 0, which stands for no cookie.
    #[must_use]
    pub fn cookie(&self, address: &[u8], period: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.cookie_key);
        hasher.write(&period.to_le_bytes());
        hasher.write(address);
        hasher.finish().max(1)
    }

    /// A hash for tables whose places a sender must not be able to choose.
    pub(crate) fn table_hash(&self) -> SipHasher13 {
        let key: Zeroizing<[u8; 16]> = expand(&self.secret, &[TABLE_LABEL]);
        SipHasher13::new_with_key(&key)
    }
}

/// What a client and a node share while a session lasts, for one cipher and one protection.
#[derive(Clone)]
pub struct SessionSecret {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    cipher: Cipher,
    protection: Protection,
}

impl SessionSecret {
    /// The secret that a node has told, with what it is for.
    #[must_use]
    pub fn from_bytes(secret: [u8; SECRET_BYTES], cipher: Cipher, protection: Protection) -> Self {
        Self { secret: Zeroizing::new(secret), cipher, protection }
    }

    /// The secret, to be told to the client over a channel that others cannot read.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// What the session's messages are protected with.
    #[must_use]
    pub const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// What is done to the session's messages.
    #[must_use]
    pub const fn protection(&self) -> Protection {
        self.protection
    }

    /// The keys of a lane at `home`.
    ///
    /// # Panics
    /// If `lane` is 0, which stands for the session, or larger than [`SessionNumber::LANE_MAX`].
    #[must_use]
    pub fn lane(&self, lane: u8, home: Home) -> LaneKeys {
        assert!((1..=SessionNumber::LANE_MAX).contains(&lane), "lane {lane} sends no messages");
        let keys: Zeroizing<[u8; 2 * SECRET_BYTES]> = expand(&self.secret, &[LANE_LABEL, &[lane], &home.to_bytes()]);
        let key = |half: usize| {
            let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
            bytes.copy_from_slice(&keys[half * SECRET_BYTES..][..SECRET_BYTES]);
            Key { bytes, cipher: self.cipher, protection: self.protection, home }
        };
        seal::prepare(self.cipher);
        LaneKeys { requests: key(0), answers: key(1) }
    }
}

/// The keys of a lane, one for each direction, so that nothing comes back to its sender as an answer.
#[derive(Clone)]
pub struct LaneKeys {
    /// Of what the client sends.
    pub requests: Key,
    /// Of what the node sends.
    pub answers: Key,
}

/// A key for one direction of a lane, with what it is for.
#[derive(Clone)]
pub struct Key {
    pub(crate) bytes: Zeroizing<[u8; SECRET_BYTES]>,
    pub(crate) cipher: Cipher,
    pub(crate) protection: Protection,
    /// For whom it is.
    pub(crate) home: Home,
}

/// HKDF-Expand of `secret` for what `info` says.
fn expand<const BYTES: usize>(secret: &[u8; SECRET_BYTES], info: &[&[u8]]) -> Zeroizing<[u8; BYTES]> {
    let mut output = Zeroizing::new([0; BYTES]);
    let hkdf = Hkdf::<Sha256>::from_prk(secret).expect("a secret is as long as a hash");
    hkdf.expand_multi_info(info, &mut *output).expect("a key is shorter than 255 hashes");
    output
}

/// Without the secret.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(stringify!($name))
            }
        }
    )* };
}

opaque!(NodeSecret, SessionSecret, LaneKeys, Key);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use core::net::Ipv4Addr;

    use super::*;
    use crate::home::Door;

    fn node() -> NodeSecret {
        NodeSecret::new([7; SECRET_BYTES])
    }

    #[test]
    fn a_session_secret_depends_on_everything_but_the_lane() {
        let number = SessionNumber::new(1, 2, 3);
        let ip = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        let (cipher, protection) = (Cipher::ChaCha20Poly1305, Protection::Encrypted);
        let one = node().session_secret(number, ip, cipher, protection);
        let same = node().session_secret(number.with_lane(9), ip, cipher, protection);
        assert_eq!(one.as_bytes(), same.as_bytes());
        let elsewhere = Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped();
        let others = [
            NodeSecret::new([8; SECRET_BYTES]).session_secret(number, ip, cipher, protection),
            node().session_secret(SessionNumber::new(2, 2, 3), ip, cipher, protection),
            node().session_secret(SessionNumber::new(1, 3, 3), ip, cipher, protection),
            node().session_secret(SessionNumber::new(1, 2, 4), ip, cipher, protection),
            node().session_secret(number, elsewhere, cipher, protection),
            node().session_secret(number, ip, Cipher::Aegis128L, protection),
            node().session_secret(number, ip, cipher, Protection::Authenticated),
            one,
        ];
        let distinct: HashSet<[u8; SECRET_BYTES]> = others.iter().map(|secret| *secret.as_bytes()).collect();
        assert_eq!(distinct.len(), others.len());
    }

    #[test]
    fn every_lane_has_two_keys_of_its_own_at_each_home() {
        let secret = SessionSecret::from_bytes([1; SECRET_BYTES], Cipher::ChaCha20Poly1305, Protection::Encrypted);
        let doors = [Door::Datagrams, Door::Streams].map(Home::Door);
        let homes = [doors[0], doors[1], Home::Thread(0), Home::Thread(1), Home::Thread(256)];
        let numbers = (1..=SessionNumber::LANE_MAX).flat_map(|lane| homes.map(|home| (lane, home)));
        let lanes: Vec<LaneKeys> = numbers.map(|(lane, home)| secret.lane(lane, home)).collect();
        let keys: HashSet<[u8; SECRET_BYTES]> =
            lanes.iter().flat_map(|keys| [*keys.requests.bytes, *keys.answers.bytes]).collect();
        assert_eq!(keys.len(), 2 * lanes.len());
    }

    #[test]
    #[should_panic(expected = "lane 0 sends no messages")]
    fn the_session_itself_has_no_keys() {
        let secret = SessionSecret::from_bytes([1; SECRET_BYTES], Cipher::ChaCha20Poly1305, Protection::Encrypted);
        let _ = secret.lane(0, Home::Thread(0));
    }

    #[test]
    fn a_cookie_depends_on_node_address_and_period() {
        let cookies = [
            node().cookie(b"address", 1),
            node().cookie(b"address", 2),
            node().cookie(b"addresses", 1),
            node().cookie(b"", 1),
            NodeSecret::new([8; SECRET_BYTES]).cookie(b"address", 1),
        ];
        assert_eq!(cookies.iter().collect::<HashSet<_>>().len(), cookies.len());
        assert_eq!(node().cookie(b"address", 1), cookies[0]);
        assert!(!cookies.contains(&0));
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = node().session_secret(
            SessionNumber(0),
            Ipv6Addr::LOCALHOST,
            Cipher::ChaCha20Poly1305,
            Protection::Encrypted,
        );
        let keys = secret.lane(1, Home::Thread(0));
        let printed = format!("{:?} {secret:?} {keys:?} {:?}", node(), keys.requests);
        assert_eq!(printed, "NodeSecret SessionSecret LaneKeys Key");
    }
}
