//! Tests of sealing: what comes back, what is a forgery, and the very bytes on the wire.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::cipher::TESTED;
use crate::home::{Door, Home};
use crate::secret::{LaneKeys, NodeSecret, SessionSecret};

const PROTECTIONS: [Protection; 2] = [Protection::Authenticated, Protection::Encrypted];
const HOME: Home = Home::Thread(2);
const NUMBER: SessionNumber = SessionNumber::new(0x1234_5678, 24, 5);

fn ip(last: u8) -> Ipv6Addr {
    Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped()
}

fn keys_of(number: SessionNumber, ip: Ipv6Addr, cipher: Cipher, protection: Protection) -> LaneKeys {
    secret_of(number, ip, cipher, protection).lane(number.lane(), HOME)
}

fn secret_of(number: SessionNumber, ip: Ipv6Addr, cipher: Cipher, protection: Protection) -> SessionSecret {
    NodeSecret::new([42; 32]).session_secret(number, ip, cipher, protection)
}

fn keys(cipher: Cipher, protection: Protection) -> LaneKeys {
    keys_of(NUMBER.with_lane(1), ip(1), cipher, protection)
}

/// A message whose bytes are all different for some time, with room for a tag.
fn plain(payload_bytes: usize) -> Vec<u8> {
    let mut message: Vec<u8> = (0..HEADER_BYTES + payload_bytes).map(|at| (at % 251) as u8).collect();
    message[..4].copy_from_slice(b"Yo\x03\0");
    message.resize(message.len() + TAG_BYTES, 0);
    message
}

fn sealed(key: &Key, number: SessionNumber, counter: u64, payload_bytes: usize) -> Vec<u8> {
    let mut message = plain(payload_bytes);
    seal(key, number, counter, &mut message);
    message
}

fn cases() -> impl Iterator<Item = (Cipher, Protection)> {
    TESTED.iter().flat_map(|cipher| PROTECTIONS.map(|protection| (*cipher, protection)))
}

#[test]
fn every_flipped_bit_is_a_forgery() {
    let step = if cfg!(miri) { 101 } else { 1 };
    for (cipher, protection) in cases() {
        let key = keys(cipher, protection).requests;
        let message = sealed(&key, NUMBER.with_lane(1), 7, 5);
        assert!(open(&key, &mut message.clone()).is_ok());
        for bit in (0..8 * message.len()).step_by(step) {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&key, &mut flipped), Err(Forged), "{cipher:?} {protection:?} bit {bit}");
        }
    }
}

#[test]
fn what_is_cut_or_longer_is_a_forgery() {
    for (cipher, protection) in cases() {
        let key = keys(cipher, protection).requests;
        let mut message = sealed(&key, NUMBER.with_lane(1), 7, 5);
        for bytes in 0..message.len() {
            let mut cut = message[..bytes].to_vec();
            assert_eq!(open(&key, &mut cut), Err(Forged), "{cipher:?} {protection:?} {bytes} bytes");
            if let Some(length) = bytes.checked_sub(HEADER_BYTES + TAG_BYTES) {
                cut[1] = length as u8;
                assert_eq!(open(&key, &mut cut), Err(Forged));
            }
        }
        message.push(0);
        assert_eq!(open(&key, &mut message.clone()), Err(Forged));
        message[1] += 1;
        assert_eq!(open(&key, &mut message), Err(Forged));
    }
}

/// What moves between sessions, lanes, directions, addresses, ciphers and protections is a forgery there.
#[test]
fn a_message_is_good_in_one_place_alone() {
    let number = NUMBER.with_lane(1);
    for (cipher, protection) in cases() {
        let here = keys(cipher, protection);
        let message = sealed(&here.requests, number, 7, 33);
        let other_session = SessionNumber::new(0x1234_5679, 24, 5).with_lane(1);
        let mut others = vec![
            here.answers,
            keys_of(other_session, ip(1), cipher, protection).requests,
            keys_of(NUMBER.with_lane(2), ip(1), cipher, protection).requests,
            keys_of(number, ip(2), cipher, protection).requests,
            secret_of(number, ip(1), cipher, protection).lane(1, Home::Thread(3)).requests,
            secret_of(number, ip(1), cipher, protection).lane(1, Home::Door(Door::Datagrams)).requests,
            NodeSecret::new([43; 32]).session_secret(number, ip(1), cipher, protection).lane(1, HOME).requests,
        ];
        let others_of_kind = cases().filter(|kind| *kind != (cipher, protection));
        others.extend(others_of_kind.map(|(cipher, protection)| keys(cipher, protection).requests));
        for other in others {
            assert_eq!(open(&other, &mut message.clone()), Err(Forged), "{cipher:?} {protection:?}");
        }
        // The number and the lead are covered too, whatever key is taken.
        for (at, bytes) in [(4, number.with_lane(2).0.to_le_bytes()), (12, 8u64.to_le_bytes())] {
            let mut moved = message.clone();
            moved[at..at + 8].copy_from_slice(&bytes);
            assert_eq!(open(&here.requests, &mut moved), Err(Forged));
        }
        let mut spliced = sealed(&here.requests, number, 8, 33);
        spliced[HEADER_BYTES..].copy_from_slice(&message[HEADER_BYTES..]);
        assert_eq!(open(&here.requests, &mut spliced), Err(Forged));
    }
}

/// An attacker who changes the first byte makes the node take the key of the other protection.
#[test]
fn a_message_cannot_be_downgraded() {
    for cipher in TESTED {
        for (from, to, lead) in [(PROTECTIONS[0], PROTECTIONS[1], 0xe3), (PROTECTIONS[1], PROTECTIONS[0], 0xa3)] {
            let mut message = sealed(&keys(*cipher, from).requests, NUMBER.with_lane(1), 7, 16);
            message[0] = lead;
            assert_eq!(Frame::parse(&message).unwrap().protection, to);
            assert_eq!(open(&keys(*cipher, to).requests, &mut message), Err(Forged));
        }
    }
}

#[test]
fn a_forgery_leaves_no_plaintext() {
    for cipher in TESTED {
        let key = keys(*cipher, Protection::Encrypted).requests;
        let mut message = sealed(&key, NUMBER.with_lane(1), 7, 200);
        *message.last_mut().unwrap() ^= 1;
        let ciphertext = message.clone();
        assert_eq!(open(&key, &mut message), Err(Forged));
        let body = PREFIX_BYTES..HEADER_BYTES + 200;
        assert!(message[body.clone()] == ciphertext[body.clone()] || message[body].iter().all(|byte| *byte == 0));
        assert_eq!(message[0], 0xe3);
    }
}

#[test]
fn what_is_authenticated_can_be_read_and_what_is_encrypted_cannot() {
    for (cipher, protection) in cases() {
        let message = sealed(&keys(cipher, protection).requests, NUMBER.with_lane(1), 7, 64);
        let body = PREFIX_BYTES..HEADER_BYTES + 64;
        let is_same = message[body.clone()] == plain(64)[body];
        assert_eq!(is_same, protection == Protection::Authenticated);
    }
}

/// The bytes of the wire, and all keys behind them, as another implementation has made them: HKDF and AEGIS-128L in 60
/// lines of Python, ChaCha20-Poly1305 of OpenSSL. To change them is to make another version of the protocol.
#[test]
fn the_wire_stays_what_it_is() {
    let secret = NodeSecret::new(std::array::from_fn(|at| at as u8));
    let number = NUMBER.with_lane(3);
    let mut message: Vec<u8> = (0..HEADER_BYTES as u8).chain(*b"abc").collect();
    message.resize(message.len() + TAG_BYTES, 0);
    let known = KNOWN.iter().filter(|known| TESTED.contains(&known.cipher));
    for &Known { cipher, protection, home, prefix, body, tag, answers } in known {
        let keys = secret.session_secret(number, ip(1), cipher, protection).lane(3, home);
        seal(&keys.requests, number, 77 << 36 | 9, &mut message);
        let expected = [prefix, body, tag].concat();
        assert_eq!(hex(&message), expected, "{cipher:?} {protection:?}");
        assert_eq!(hex(&*keys.answers.bytes), answers);
        assert_eq!(open(&keys.requests, &mut message), Ok(HEADER_BYTES + 3));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Known {
    cipher: Cipher,
    protection: Protection,
    home: Home,
    prefix: &'static str,
    body: &'static str,
    tag: &'static str,
    answers: &'static str,
}

const KNOWN: [Known; 4] = [
    Known {
        cipher: Cipher::Aegis128L,
        protection: Protection::Authenticated,
        home: Home::Thread(0x01c2),
        prefix: "a303008403056000c0b3a29109000000d0040000",
        body: "1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041\
               42434445464748494a4b4c4d4e4f616263",
        tag: "c7fdc322abf3abab19dbe97e91cb42e5",
        answers: "4d4eb4627803ba481d1121f3a2842d47e358dafb385ece3774faa6266fa7ef80",
    },
    Known {
        cipher: Cipher::Aegis128L,
        protection: Protection::Encrypted,
        home: Home::Door(Door::Datagrams),
        prefix: "e503000003056000c0b3a29109000000d0040000",
        body: "d49f4b54554648db7af8da1055c558fe8bfcabf25c570d3645b51e6bfb93581f99fc4bce5482d553bd32b47a5c86\
               3f4eb952ae624d15871699a27413338cc4",
        tag: "fefd47e3eaca63d74d228995d51e78ef",
        answers: "0a5ce4ae50fca046feaf8aa36d18fd588e8d30d9d0cc4bbd79ebeb8e49910fe8",
    },
    Known {
        cipher: Cipher::ChaCha20Poly1305,
        protection: Protection::Authenticated,
        home: Home::Door(Door::Streams),
        prefix: "a503000003056000c0b3a29109000000d0040000",
        body: "1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041\
               42434445464748494a4b4c4d4e4f616263",
        tag: "7f9913ace136f3b78847bd7a1967a00f",
        answers: "f37b50aad777b505254707c95d2e76a41e0ec2a14cc52bb64ca94fbfbb3e430c",
    },
    Known {
        cipher: Cipher::ChaCha20Poly1305,
        protection: Protection::Encrypted,
        home: Home::Thread(0x01c2),
        prefix: "e303008403056000c0b3a29109000000d0040000",
        body: "b207a27bfc36443678ebaed219a6b8775fabcd8f5e6e8c3809f64b4a3463a091e398463547802aeea7d696289139\
               015207155b3c5f79c078c825dff56a0b0c",
        tag: "d34b534bc29732509dced8f80f442c1f",
        answers: "ddfb3967e573cd4454b2376b1bce4d11d00900ff12bcb49177a0fd5ca6008feb",
    },
];

#[test]
#[should_panic(expected = "a message has a header and a tag")]
fn a_message_without_room_is_our_bug() {
    let key = keys(Cipher::ChaCha20Poly1305, Protection::Encrypted).requests;
    seal(&key, NUMBER.with_lane(1), 1, &mut [0; HEADER_BYTES + TAG_BYTES - 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn what_was_sealed_comes_back(
        payload in prop_oneof![9 => prop::collection::vec(any::<u8>(), 0..300), 1 => Just(vec![9; PAYLOAD_BYTES_MAX])],
        header in any::<[[u8; 16]; 5]>(),
        counter in any::<u64>(),
        lane in 1..=SessionNumber::LANE_MAX,
    ) {
        for (cipher, protection) in cases() {
            let number = NUMBER.with_lane(lane);
            let keys = keys_of(number, ip(1), cipher, protection);
            for key in [&keys.requests, &keys.answers] {
                let mut message = [header.as_flattened(), &payload, &[0; TAG_BYTES]].concat();
                let bytes = message.len() - TAG_BYTES;
                let expected = [b"Yo\x03\0".as_slice(), &[0; 16], &message[PREFIX_BYTES..bytes]].concat();
                seal(key, number, counter, &mut message);
                let payload_bytes = payload.len();
                let frame = Frame { protection, is_greeting: false, thread: 2, payload_bytes, number, counter };
                prop_assert_eq!(Frame::parse(&message), Some(frame));
                prop_assert_eq!(open(key, &mut message), Ok(bytes));
                prop_assert!(message[..bytes] == expected);
            }
        }
    }
}
