//! Tests of sealing: what comes back, what is a forgery, and the very bytes on the wire.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::cipher::TESTED;
use crate::secret::{LaneKeys, NodeSecret};

const PROTECTIONS: [Protection; 2] = [Protection::Authenticated, Protection::Encrypted];
const NUMBER: SessionNumber = SessionNumber::new(0x1234_5678, 24, 5);

fn ip(last: u8) -> Ipv6Addr {
    Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped()
}

fn keys_of(number: SessionNumber, ip: Ipv6Addr, cipher: Cipher, protection: Protection) -> LaneKeys {
    NodeSecret::new([42; 32]).session_secret(number, ip, cipher, protection).lane(number.lane())
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
            NodeSecret::new([43; 32]).session_secret(number, ip(1), cipher, protection).lane(1).requests,
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
    for &Known { cipher, protection, prefix, body, tag, answers } in known {
        let keys = secret.session_secret(number, ip(1), cipher, protection).lane(3);
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
    prefix: &'static str,
    body: &'static str,
    tag: &'static str,
    answers: &'static str,
}

const KNOWN: [Known; 4] = [
    Known {
        cipher: Cipher::Aegis128L,
        protection: Protection::Authenticated,
        prefix: "a303000003056000c0b3a29109000000d0040000",
        body: "1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041\
               42434445464748494a4b4c4d4e4f616263",
        tag: "db36e634aee2b0808725d25dba438fac",
        answers: "ee87f1eb03b984f43292e9c9bea27375ba40a0b0992dbec6ab290649f0e6e4fa",
    },
    Known {
        cipher: Cipher::Aegis128L,
        protection: Protection::Encrypted,
        prefix: "e303000003056000c0b3a29109000000d0040000",
        body: "e39b640194ecca0d3dcea1b8e1951a754303da7315c87413f809af9767c93f487477fbb973284d6dcc701e220ad9\
               7626504b32b99e24f7378b604dbd03d7a7",
        tag: "845d4c8445c70354ee2db551e2fce38e",
        answers: "da3ee2338273fefe6d1e98e38ec6f08800d1ae60bf1f41bd4e9da30806f9a082",
    },
    Known {
        cipher: Cipher::ChaCha20Poly1305,
        protection: Protection::Authenticated,
        prefix: "a303000003056000c0b3a29109000000d0040000",
        body: "1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041\
               42434445464748494a4b4c4d4e4f616263",
        tag: "b351a3d23494afb72a1e40add45cc97f",
        answers: "6a45f1f86eb371e4ab49abea11079ebca65c35192e10c40b942a5c8f9a106830",
    },
    Known {
        cipher: Cipher::ChaCha20Poly1305,
        protection: Protection::Encrypted,
        prefix: "e303000003056000c0b3a29109000000d0040000",
        body: "19602d0c9c9d9d5bfb468a6c6a42366aa17455bb0efce6cc838555ad5c98a292452fa10187ce626dd021a30cdfa6\
               ee177dcf3ed00692f8fa0a647e421bd57f",
        tag: "5292514c84e355ddb63ca003a9612dbe",
        answers: "aff9e0426fe6e8ce42b948b5c35f9902ac9bdba734aa792e2319329d8c02c2a3",
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
                let frame = Frame { protection, payload_bytes: payload.len(), number, counter };
                prop_assert_eq!(Frame::parse(&message), Some(frame));
                prop_assert_eq!(open(key, &mut message), Ok(bytes));
                prop_assert!(message[..bytes] == expected);
            }
        }
    }
}
