//! [`Frame`]: the prefix of a protected message, which is all of it that can be read without the key.
//!
//! ```text
//! prefix  20  lead 4: 0xE3 (encrypted) or 0xA3 (authenticated), 0xE5 or 0xA5 under the keys for greetings; then in
//!             3 bytes the payload's length (17 bits) and the thread that it is for (7 bits, 0 for greetings)
//!             number 8: session and lane
//!             counter 8: the nonce
//! body    60
//! payload  0 to 65536
//! tag     16
//! ```
//!
//! All numbers are little-endian. A plain message begins with `Yo`, so the first byte tells which of the two it is.

use yonder_units::Narrow;

use crate::cipher::Protection;
use crate::number::SessionNumber;

/// Bytes of the prefix of a header.
pub const PREFIX_BYTES: usize = 20;
/// Bytes of a header, with its prefix.
pub const HEADER_BYTES: usize = 80;
/// Bytes of a tag: a forgery passes once in 2^128 attempts.
pub const TAG_BYTES: usize = 16;
/// Most bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// The first byte of a message that is encrypted, and of one that is only authenticated.
const ENCRYPTED: u8 = 0xe3;
const AUTHENTICATED: u8 = 0xa3;
/// The same of greetings and welcomes.
const ENCRYPTED_GREETING: u8 = 0xe5;
const AUTHENTICATED_GREETING: u8 = 0xa5;
/// The first bytes of a plain message: magic, version, and nothing.
const PLAIN: [u8; 4] = [b'Y', b'o', 3, 0];

/// What the prefix of a protected message says. It is as true as the message, which [`crate::open`] finds out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What was done to the message.
    pub protection: Protection,
    /// Whether it is under the keys for greetings.
    pub is_greeting: bool,
    /// The number of the thread that it is for, as far as there is room for it.
    pub thread: u8,
    /// Bytes of payload behind the header.
    pub payload_bytes: usize,
    /// The lane that sent it, or that it answers.
    pub number: SessionNumber,
    /// The nonce.
    pub counter: u64,
}

impl Frame {
    /// The prefix at the start of `bytes`; `None` if there is none that this version sends.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let ([lead, length @ ..], rest) = bytes.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (counter, _) = rest.split_first_chunk()?;
        let (protection, is_greeting) = match *lead {
            ENCRYPTED => (Protection::Encrypted, false),
            AUTHENTICATED => (Protection::Authenticated, false),
            ENCRYPTED_GREETING => (Protection::Encrypted, true),
            AUTHENTICATED_GREETING => (Protection::Authenticated, true),
            _ => return None,
        };
        let [low, middle, high] = *length;
        let payload_bytes = u32::from_le_bytes([low, middle, high & 1, 0]) as usize;
        let thread = high >> THREAD_FIELD.shift;
        let (number, counter) = (SessionNumber(u64::from_le_bytes(*number)), u64::from_le_bytes(*counter));
        (payload_bytes <= PAYLOAD_BYTES_MAX).then_some(Self {
            protection,
            is_greeting,
            thread,
            payload_bytes,
            number,
            counter,
        })
    }

    /// Bytes of the whole message.
    #[must_use]
    pub const fn message_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes + TAG_BYTES
    }

    /// Writes the prefix.
    pub(crate) fn write(&self, prefix: &mut [u8; PREFIX_BYTES]) {
        let lead = match (self.protection, self.is_greeting) {
            (Protection::Encrypted, false) => ENCRYPTED,
            (Protection::Authenticated, false) => AUTHENTICATED,
            (Protection::Encrypted, true) => ENCRYPTED_GREETING,
            (Protection::Authenticated, true) => AUTHENTICATED_GREETING,
        };
        let [low, middle, high, _] = self.payload_bytes.narrow_u32().to_le_bytes();
        prefix[..4].copy_from_slice(&[lead, low, middle, high | self.thread << THREAD_FIELD.shift]);
        prefix[4..12].copy_from_slice(&self.number.0.to_le_bytes());
        prefix[12..].copy_from_slice(&self.counter.to_le_bytes());
    }
}

/// Where a prefix has the thread that it is for: what is not under the keys for greetings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadField {
    /// The first bytes of such messages.
    pub leads: [u8; 2],
    /// The byte ...
    pub at: usize,
    /// ... and by how much its bits are to be moved to the right.
    pub shift: u32,
    /// Threads whose numbers differ by this are not told apart.
    pub modulus: usize,
}

/// The thread's field in a prefix.
pub const THREAD_FIELD: ThreadField = ThreadField { leads: [ENCRYPTED, AUTHENTICATED], at: 3, shift: 1, modulus: 128 };

/// Bytes of the whole message that begins with `prefix`, of which [`PREFIX_BYTES`] are needed; `None` if it is not a
/// protected one.
#[must_use]
#[inline]
pub fn protected_bytes(prefix: &[u8]) -> Option<usize> {
    Frame::parse(prefix).map(|frame| frame.message_bytes())
}

/// Writes the prefix of a plain message: no cookie and no checksum, because the tag has said more.
pub(crate) fn write_plain(prefix: &mut [u8; PREFIX_BYTES]) {
    *prefix = [0; PREFIX_BYTES];
    prefix[..PLAIN.len()].copy_from_slice(&PLAIN);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEADS: [u8; 4] = [ENCRYPTED, AUTHENTICATED, ENCRYPTED_GREETING, AUTHENTICATED_GREETING];

    #[test]
    fn the_layout_is_the_one_of_the_wire() {
        let frame = Frame {
            protection: Protection::Encrypted,
            is_greeting: false,
            thread: 0,
            payload_bytes: 0x01_0000,
            number: SessionNumber(0x0807_0605_0403_0201),
            counter: 0x1817_1615_1413_1211,
        };
        let mut prefix = [0; PREFIX_BYTES];
        frame.write(&mut prefix);
        let expected = [0xe3, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_eq!(prefix, expected);
        Frame { protection: Protection::Authenticated, payload_bytes: 0xabcd, ..frame }.write(&mut prefix);
        assert_eq!(prefix[..4], [0xa3, 0xcd, 0xab, 0]);
        for (protection, lead) in [(Protection::Encrypted, 0xe5), (Protection::Authenticated, 0xa5)] {
            Frame { protection, is_greeting: true, ..frame }.write(&mut prefix);
            assert_eq!(prefix[0], lead);
            assert_eq!(Frame::parse(&prefix), Some(Frame { protection, is_greeting: true, ..frame }));
        }
        Frame { thread: 127, ..frame }.write(&mut prefix);
        assert_eq!(
            (prefix[1..4].to_vec(), Frame::parse(&prefix)),
            (vec![0, 0, 0xff], Some(Frame { thread: 127, ..frame }))
        );
        assert_eq!(prefix[THREAD_FIELD.at] >> THREAD_FIELD.shift, 127);
        write_plain(&mut prefix);
        assert_eq!(prefix, *b"Yo\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn other_messages_have_no_frame() {
        let mut prefix = [0; PREFIX_BYTES];
        let longest = Frame {
            protection: Protection::Encrypted,
            is_greeting: false,
            thread: 0,
            payload_bytes: PAYLOAD_BYTES_MAX,
            number: SessionNumber(1),
            counter: 1,
        };
        longest.write(&mut prefix);
        assert_eq!(Frame::parse(&prefix), Some(longest));
        assert_eq!(protected_bytes(&prefix), Some(96 + PAYLOAD_BYTES_MAX));
        assert_eq!(protected_bytes(&prefix[..PREFIX_BYTES - 1]), None);
        Frame { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..longest }.write(&mut prefix);
        assert_eq!(Frame::parse(&prefix), None);
        for lead in (0..=u8::MAX).filter(|lead| !LEADS.contains(lead)) {
            prefix = [0; PREFIX_BYTES];
            prefix[0] = lead;
            assert_eq!(Frame::parse(&prefix), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            lead in prop::sample::select(&LEADS[..]),
        ) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = lead;
            }
            let Some(frame) = Frame::parse(&bytes) else { return Ok(()) };
            let mut prefix = [0; PREFIX_BYTES];
            frame.write(&mut prefix);
            prop_assert_eq!(&prefix[..], &bytes[..PREFIX_BYTES]);
        }
    }
}
