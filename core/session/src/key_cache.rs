//! [`KeyCache`]: the keys of lanes that a data thread of a node has used last, and how it opens requests.
//!
//! Keys are derived from the node's secret whenever they are missing, so the cache is no state: a node that forgets all
//! of it is only slower for a while.
//!
//! Invariant: only keys of lanes that have sent a message are kept.

use core::net::Ipv6Addr;
use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use yonder_units::Narrow;

use crate::cipher::{Cipher, Protection};
use crate::frame::Frame;
use crate::home::{Door, Home};
use crate::number::SessionNumber;
use crate::seal::open;
use crate::secret::{LaneKeys, NodeSecret};

/// Lanes whose keys are kept.
const ENTRIES: usize = 256;

/// A request that was opened in place. It may be a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The lane that sent it.
    pub number: SessionNumber,
    /// What it was protected by, and its answer is to be.
    pub protection: Protection,
    /// For whom its keys are.
    pub home: Home,
    /// Its nonce, which tells replays.
    pub counter: u64,
    /// Bytes of header and payload.
    pub bytes: usize,
}

/// Why a request was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// It was not sealed by a session of its address.
    #[error("the message is forged or damaged")]
    Forged,
    /// Its session is over, or is none that could have begun.
    #[error("the session has expired")]
    Expired,
}

/// Keys of lanes. A thread has its own.
pub struct KeyCache {
    cipher: Cipher,
    /// The thread.
    thread: u16,
    hash: SipHasher13,
    /// A lane has one place for each home. They are part of the cache, so that its owner says in what memory they are.
    entries: [Option<Entry>; ENTRIES],
}

struct Entry {
    owner: Owner,
    keys: LaneKeys,
}

/// What keys are derived from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    number: SessionNumber,
    ip: Ipv6Addr,
    protection: Protection,
    home: Home,
}

impl KeyCache {
    /// An empty cache of the thread with a number, in a node that uses `cipher`. All calls are to be made with this
    /// `secret`.
    #[must_use]
    pub fn new(secret: &NodeSecret, cipher: Cipher, thread: u16) -> Self {
        Self { cipher, thread, hash: secret.table_hash(), entries: [const { None }; ENTRIES] }
    }

    /// Opens the request in `message`, which came from `ip`, `now_hours` after the start of the node, and is for this
    /// thread or a greeting. It is to be executed only if [`crate::ReplayWindows::accept`] agrees.
    ///
    /// A forgery under a number that is not in the cache costs two derivations, some ten hashes of a block or one to
    /// two microseconds, before it is found out. That is what is left to an attacker who makes numbers up: about what
    /// it costs to receive a datagram. It displaces no key, and the place of a lane depends on the node's secret.
    ///
    /// # Errors
    /// [`Refused::Expired`] if the session is over, which is seen before anything is derived; [`Refused::Forged`] for
    /// all else that is not a request of a lane. What is then in `message` is of no use, as after [`open`].
    #[inline]
    pub fn open_request(
        &mut self,
        secret: &NodeSecret,
        now_hours: u32,
        ip: Ipv6Addr,
        message: &mut [u8],
    ) -> Result<Opened, Refused> {
        // Keys are derived for nothing that cannot be a message.
        let whole = Frame::parse(message).filter(|frame| frame.message_bytes() == message.len());
        let Frame { protection, is_greeting, number, counter, .. } = whole.ok_or(Refused::Forged)?;
        if number.lane() == 0 {
            return Err(Refused::Forged);
        }
        if !number.is_current(now_hours) {
            return Err(Refused::Expired);
        }
        let home = if is_greeting { Home::Door(Door::Datagrams) } else { Home::Thread(self.thread) };
        let owner = Owner { number, ip, protection, home };
        let at = self.place_of(owner);
        let bytes = match &self.entries[at] {
            Some(entry) if entry.owner == owner => open(&entry.keys.requests, message),
            _ => {
                let keys = self.derive(secret, owner);
                let opened = open(&keys.requests, message);
                if opened.is_ok() {
                    self.entries[at] = Some(Entry { owner, keys });
                }
                opened
            }
        };
        let bytes = bytes.map_err(|_| Refused::Forged)?;
        Ok(Opened { number, protection, home, counter, bytes })
    }

    /// The keys to answer a request with, which has been opened, perhaps by another thread.
    #[inline]
    pub fn keys(
        &mut self,
        secret: &NodeSecret,
        number: SessionNumber,
        ip: Ipv6Addr,
        protection: Protection,
        home: Home,
    ) -> &LaneKeys {
        let owner = Owner { number, ip, protection, home };
        let at = self.place_of(owner);
        if self.entries[at].as_ref().is_none_or(|entry| entry.owner != owner) {
            self.entries[at] = Some(Entry { owner, keys: self.derive(secret, owner) });
        }
        &self.entries[at].as_ref().expect("it was put there").keys
    }

    #[cold]
    fn derive(&self, secret: &NodeSecret, Owner { number, ip, protection, home }: Owner) -> LaneKeys {
        secret.session_secret(number, ip, self.cipher, protection).lane(number.lane(), home)
    }

    fn place_of(&self, Owner { number, ip, protection, home }: Owner) -> usize {
        let mut hasher = self.hash;
        hasher.write_u64(number.0);
        hasher.write(&ip.octets());
        hasher.write_u8(protection as u8);
        hasher.write(&home.to_bytes());
        (hasher.finish() % ENTRIES as u64).narrow_usize()
    }
}

impl fmt::Debug for KeyCache {
    /// Without the key of the hash.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyCache").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::cipher::TESTED;
    use crate::frame::{HEADER_BYTES, TAG_BYTES};
    use crate::seal::seal;

    const IP: Ipv6Addr = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
    const ELSEWHERE: Ipv6Addr = Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped();
    const BYTES: usize = HEADER_BYTES + 10;
    const HOME: u16 = 3;
    const DOOR: Home = Home::Door(Door::Datagrams);

    fn node() -> NodeSecret {
        NodeSecret::new([5; 32])
    }

    fn cache() -> KeyCache {
        KeyCache::new(&node(), TESTED[0], HOME)
    }

    /// A request as the client of the session seals it.
    fn request(number: SessionNumber, protection: Protection, counter: u64) -> Vec<u8> {
        request_for(Home::Thread(HOME), number, protection, counter)
    }

    fn request_for(home: Home, number: SessionNumber, protection: Protection, counter: u64) -> Vec<u8> {
        let keys = node().session_secret(number, IP, TESTED[0], protection).lane(number.lane(), home);
        let mut message = vec![3; BYTES + TAG_BYTES];
        seal(&keys.requests, number, counter, &mut message);
        message
    }

    fn kept(cache: &KeyCache) -> usize {
        cache.entries.iter().flatten().count()
    }

    #[test]
    fn requests_of_both_protections_are_opened() {
        let (mut cache, number) = (cache(), SessionNumber::new(1, 20, 1).with_lane(4));
        for counter in 0..3 {
            for protection in [Protection::Authenticated, Protection::Encrypted] {
                let mut message = request(number, protection, counter);
                let opened = cache.open_request(&node(), 3, IP, &mut message);
                assert_eq!(opened, Ok(Opened { number, protection, home: Home::Thread(HOME), counter, bytes: BYTES }));
                assert!(message[..4] == *b"Yo\x03\0" && message[HEADER_BYTES..BYTES] == [3; 10]);
            }
        }
        assert_eq!(kept(&cache), 2);
    }

    #[test]
    fn an_expired_session_is_refused_though_its_keys_are_kept() {
        let (mut cache, number) = (cache(), SessionNumber::new(1, 20, 1).with_lane(4));
        let message = request(number, Protection::Encrypted, 1);
        assert!(cache.open_request(&node(), 19, IP, &mut message.clone()).is_ok());
        for hours in [20, 21, 500] {
            assert_eq!(cache.open_request(&node(), hours, IP, &mut message.clone()), Err(Refused::Expired));
        }
        let endless = SessionNumber::new(1, 500, 1).with_lane(4);
        let mut message = request(endless, Protection::Encrypted, 1);
        assert_eq!(cache.open_request(&node(), 19, IP, &mut message), Err(Refused::Expired));
    }

    #[test]
    fn a_forgery_displaces_nothing() {
        let (mut cache, number) = (cache(), SessionNumber::new(1, 20, 1).with_lane(4));
        let message = request(number, Protection::Encrypted, 1);
        let forgeries = [
            (IP, {
                let mut it = message.clone();
                it[90] ^= 1;
                it
            }),
            (IP, {
                let mut it = message.clone();
                it[4] ^= 1;
                it
            }),
            (IP, {
                let mut it = message.clone();
                it[0] = 0xa3;
                it
            }),
            (IP, message[..message.len() - 1].to_vec()),
            (IP, b"Yo\x03\0".to_vec()),
            (ELSEWHERE, message.clone()),
        ];
        for (ip, mut forgery) in forgeries {
            assert_eq!(cache.open_request(&node(), 3, ip, &mut forgery), Err(Refused::Forged));
            assert_eq!(kept(&cache), 0);
        }
        let mut of_session = message.clone();
        of_session[4..12].copy_from_slice(&number.session().0.to_le_bytes());
        assert_eq!(cache.open_request(&node(), 3, IP, &mut of_session), Err(Refused::Forged));
    }

    #[test]
    fn what_is_kept_stays_when_it_is_forged() {
        let mut cache = cache();
        let lanes = (1..=SessionNumber::LANE_MAX).map(|lane| SessionNumber::new(1, 20, 1).with_lane(lane));
        for number in lanes.clone() {
            assert!(cache.open_request(&node(), 3, IP, &mut request(number, Protection::Encrypted, 1)).is_ok());
        }
        let owners = |cache: &KeyCache| -> Vec<Option<Owner>> {
            cache.entries.iter().map(|entry| entry.as_ref().map(|entry| entry.owner)).collect()
        };
        let before = owners(&cache);
        for number in lanes {
            let mut forged = request(number, Protection::Authenticated, 1);
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(cache.open_request(&node(), 3, IP, &mut forged), Err(Refused::Forged));
        }
        assert_eq!(owners(&cache), before);
    }

    #[test]
    fn an_answer_is_opened_by_the_client_and_is_no_request() {
        let (mut cache, number) = (cache(), SessionNumber::new(1, 20, 1).with_lane(4));
        let mut answer = vec![8; BYTES + TAG_BYTES];
        let home = Home::Thread(HOME);
        let keys = cache.keys(&node(), number, IP, Protection::Encrypted, home);
        seal(&keys.answers, number, 77, &mut answer);
        assert_eq!(cache.open_request(&node(), 3, IP, &mut answer.clone()), Err(Refused::Forged));
        let client = node().session_secret(number.session(), IP, TESTED[0], Protection::Encrypted);
        assert_eq!(open(&client.lane(4, home).answers, &mut answer), Ok(BYTES));
    }

    #[test]
    fn a_request_for_another_thread_is_a_forgery_and_a_greeting_is_for_all() {
        let number = SessionNumber::new(1, 20, 1).with_lane(4);
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            let mut elsewhere = request_for(Home::Thread(HOME + 1), number, protection, 1);
            assert_eq!(cache().open_request(&node(), 3, IP, &mut elsewhere), Err(Refused::Forged));
            let mut greeting = request_for(DOOR, number, protection, 1);
            let mut relabelled = greeting.clone();
            relabelled[0] ^= 0x06;
            assert_eq!(cache().open_request(&node(), 3, IP, &mut relabelled), Err(Refused::Forged));
            let mut of_stream = request_for(Home::Door(Door::Streams), number, protection, 1);
            assert_eq!(cache().open_request(&node(), 3, IP, &mut of_stream), Err(Refused::Forged));
            let opened = cache().open_request(&node(), 3, IP, &mut greeting);
            assert_eq!(opened, Ok(Opened { number, protection, home: DOOR, counter: 1, bytes: BYTES }));
        }
    }

    #[test]
    fn more_lanes_than_places_are_all_opened() {
        let mut cache = cache();
        let lanes = if cfg!(miri) { 4 } else { 2 * ENTRIES as u32 };
        for round in 0..2 {
            for serial in 0..lanes {
                let number = SessionNumber::new(serial, 20, 1).with_lane(1);
                let mut message = request(number, Protection::Encrypted, round);
                assert!(cache.open_request(&node(), 3, IP, &mut message).is_ok());
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            is_encrypted in any::<bool>(),
            is_greeting in any::<bool>(),
        ) {
            let mut message = bytes;
            if let Some(first) = message.first_mut() {
                *first = if is_encrypted { 0xe3 } else { 0xa3 } ^ if is_greeting { 6 } else { 0 };
            }
            if let Some(length) = message.len().checked_sub(HEADER_BYTES + TAG_BYTES) {
                message[1..4].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
                message[4..12].copy_from_slice(&SessionNumber::new(1, 20, 1).with_lane(1).0.to_le_bytes());
            }
            prop_assert!(cache().open_request(&node(), 3, IP, &mut message).is_err());
        }
    }
}
