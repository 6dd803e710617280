//! Finding whole messages in a stream of received bytes.
//!
//! Key types: [`Message`], a view of one message in the receiver's buffer, and [`WireError`]. A message is acted upon
//! only after [`Message::verify`]; the header's `request_id` may be used before, to fail that one request.

use crate::header::{HEADER_BYTES, Header, checksum_matches};
use crate::{PAYLOAD_BYTES_MAX, VERSION};

/// What is wrong with received bytes. All but [`WireError::Checksum`] mean that the stream cannot be followed further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not ours.
    #[error("not a Yonder message: it starts with {0:#06x}")]
    Magic(u16),
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {0} of the protocol, this program version {VERSION}: use the same release on both"
    )]
    Version(u8),
    /// No such kind.
    #[error("unknown message kind {0}")]
    Kind(u8),
    /// No such error code.
    #[error("unknown error code {0}")]
    Code(u16),
    /// A request without a name, or a retry of one.
    #[error("{0} is not a valid request id here")]
    RequestId(u64),
    /// The payload has values that this version does not send.
    #[error("the payload cannot be read")]
    Body,
    /// A flag that this version does not define.
    #[error("unknown flags {0:#06x}")]
    Flags(u16),
    /// The payload would not fit a receiver's buffer, or has not the size of its type.
    #[error("a payload of {0} bytes is not valid")]
    Length(usize),
    /// Header or payload changed on the way.
    #[error("the checksum does not match")]
    Checksum,
}

/// One whole message at the start of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The decoded header.
    pub header: Header,
    /// The payload; empty where the kind has none.
    pub payload: &'a [u8],
    /// Header and payload.
    bytes: &'a [u8],
    raw: &'a [u8; HEADER_BYTES],
    /// Whether it came in a protected message: then it is what was sent, and has no checksum.
    is_proven: bool,
}

impl Message<'_> {
    /// Checks that header and payload are what was sent.
    #[inline]
    pub fn verify(&self) -> Result<(), WireError> {
        if self.is_proven || checksum_matches(self.raw, self.payload) { Ok(()) } else { Err(WireError::Checksum) }
    }

    /// Whether its sender is known by the key that it came under.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The whole message as it was received.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Bytes that the message takes in the stream.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The first message of `received`, or `None` until it has arrived as a whole. An error means that the stream is lost.
#[inline]
pub fn split(received: &[u8]) -> Result<Option<Message<'_>>, WireError> {
    let Some((raw, rest)) = received.split_first_chunk::<HEADER_BYTES>() else {
        return Header::may_begin(received).map(|()| None);
    };
    let header = Header::open(raw)?;
    let length = header.payload_bytes();
    if length > PAYLOAD_BYTES_MAX {
        return Err(WireError::Length(length));
    }
    let payload = rest.get(..length);
    let bytes = &received[..received.len().min(HEADER_BYTES + length)];
    Ok(payload.map(|payload| Message { header, payload, bytes, raw, is_proven: false }))
}

/// The message that was in a protected one, all of `opened`; `None` if that is not as long as its header says. It has
/// no checksum: the tag has proven it.
#[inline]
pub fn split_proven(opened: &[u8]) -> Result<Option<Message<'_>>, WireError> {
    let message = split(opened)?.filter(|message| message.bytes() == opened.len());
    Ok(message.map(|message| Message { is_proven: true, ..message }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ErrorCode, Kind};

    const CHECKSUM: u64 = u64::from_le_bytes([6, 106, 230, 90, 124, 166, 146, 153]);

    fn kind() -> impl Strategy<Value = Kind> {
        (1u8..=17).prop_map(|byte| Kind::from_wire(byte).unwrap())
    }

    fn message() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let ids = (1..=u64::MAX, any::<u64>(), any::<u32>(), any::<u32>());
        let rest = (any::<u32>(), any::<u32>(), any::<u128>(), any::<u64>(), 0u8..3);
        let payload = prop::collection::vec(any::<u8>(), 0..5000);
        (kind(), ids, rest, any::<u64>(), payload).prop_map(|(kind, ids, rest, cookie, mut payload)| {
            let mut header = Header::request(kind, ids.0, ids.1, ids.2);
            header.first_id = ids.0.saturating_sub(u64::from(ids.3)).max(1);
            (header.pid, header.fragment_offset, header.capability, header.time) = (rest.0, rest.1, rest.2, rest.3);
            header.cookie = cookie;
            header = match rest.4 {
                0 => header,
                1 => header.answer(rest.3, ids.2),
                _ => header.refusal(rest.3, ErrorCode::BadAddress),
            };
            if header.kind.carries_payload(header.direction) && !header.is_refusal() {
                header.length = payload.len() as u32;
            } else {
                payload.clear();
            }
            (header, payload)
        })
    }

    fn encoded(header: &Header, payload: &[u8]) -> Vec<u8> {
        [&header.seal(payload)[..], payload].concat()
    }

    proptest! {
        #[test]
        fn messages_come_back((header, payload) in message(), tail in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = encoded(&header, &payload);
            let whole = bytes.len();
            bytes.extend(&tail);
            let message = split(&bytes).unwrap().unwrap();
            prop_assert_eq!(message.header, header);
            prop_assert_eq!(message.payload, &payload[..]);
            prop_assert_eq!((message.bytes(), message.as_bytes()), (whole, &bytes[..whole]));
            prop_assert_eq!(message.verify(), Ok(()));
        }

        #[test]
        fn a_cut_message_is_not_a_message((header, payload) in message(), cut in any::<prop::sample::Index>()) {
            let bytes = encoded(&header, &payload);
            prop_assert_eq!(split(&bytes[..cut.index(bytes.len())]), Ok(None));
        }

        #[test]
        fn a_flipped_bit_is_noticed((header, payload) in message(), bit in any::<prop::sample::Index>()) {
            let mut bytes = encoded(&header, &payload);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(Some(message)) = split(&bytes) {
                prop_assert_eq!(message.verify(), Err(WireError::Checksum));
            }
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), prefix in 0usize..5) {
            let ours = Header::request(Kind::Write, 1, 2, 0).seal(&[]);
            let prefix = prefix.min(bytes.len());
            bytes[..prefix].copy_from_slice(&ours[..prefix]);
            if let Ok(Some(message)) = split(&bytes) {
                prop_assert_eq!(message.verify(), Err(WireError::Checksum));
            }
        }
    }

    #[test]
    fn what_is_foreign_is_told_from_its_first_bytes() {
        assert_eq!(split(b"HT"), Err(WireError::Magic(u16::from_le_bytes(*b"HT"))));
        assert_eq!((split(b"Y"), split(b"")), (Ok(None), Ok(None)));
    }

    #[test]
    fn layout_is_fixed() {
        let mut header = Header::request(Kind::Read, 0x0102, 0x1000, 4096);
        (header.pid, header.first_id, header.time) = (7, 0x0100, 5);
        (header.capability, header.cookie) = (9 << 100, 0x0a0b);
        let bytes = header.seal(&[]);
        assert_eq!(bytes[..4], [b'Y', b'o', 3, 0]);
        assert_eq!(bytes[4..12], 0x0a0bu64.to_le_bytes());
        assert_eq!(bytes[12..20], CHECKSUM.to_le_bytes());
        assert_eq!(bytes[20..32], [3, 0, 0, 0, 7, 0, 0, 0, 0, 16, 0, 0]);
        assert_eq!(bytes[36..40], 2u32.to_le_bytes());
        assert_eq!(bytes[40..48], 0x0102u64.to_le_bytes());
        assert_eq!(bytes[48..56], 0x1000u64.to_le_bytes());
        assert_eq!(bytes[56..72], (9u128 << 100).to_le_bytes());
        assert_eq!(bytes[72..], 5u64.to_le_bytes());
    }

    #[test]
    fn foreign_and_oversized_messages_are_errors() {
        let good = Header::request(Kind::Write, 1, 0, 0).seal(&[]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            split(&bytes).err()
        };
        assert_eq!(with(0, b'G'), Some(WireError::Magic(u16::from_le_bytes(*b"Go"))));
        assert_eq!(with(2, 9), Some(WireError::Version(9)));
        assert_eq!(with(20, 0), Some(WireError::Kind(0)));
        assert_eq!(with(20, 18), Some(WireError::Kind(18)));
        assert_eq!(with(21, 2), Some(WireError::Flags(2)));
        assert_eq!(with(3, 1), Some(WireError::Flags(0x100)));
        assert_eq!(with(22, 1), Some(WireError::Code(1)), "a request is not a refusal");
        assert_eq!(with(22, 17), Some(WireError::Code(17)));
        assert_eq!(with(40, 0), Some(WireError::RequestId(0)));
        assert_eq!(with(36, 1), Some(WireError::RequestId(1)), "a retry of nothing");
        assert_eq!(with(31, 1), Some(WireError::Length(1 << 24)));
    }
}
