//! [`MessageBuffer`]: the bytes between a stream socket and the messages on it, in either direction.
//!
//! The memory is reserved once. Bytes `start..end` are pending: received and not yet consumed, or composed and not yet
//! sent. Messages are composed in place, so a page is copied once on its way to the socket.

use crate::MESSAGE_BYTES_MAX;
use crate::message::{Message, WireError, split};

/// A bounded buffer of stream bytes.
#[derive(Debug)]
pub struct MessageBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl MessageBuffer {
    /// An empty buffer of `bytes`. The kernel backs it as it is first used.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Bytes received and not yet consumed, or composed and not yet sent.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The same, to be opened in place.
    #[must_use]
    pub fn pending_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// The first pending message, as [`split`].
    #[inline]
    pub fn message(&self) -> Result<Option<Message<'_>>, WireError> {
        split(self.pending())
    }

    /// Takes the first `bytes` pending bytes off: they were handled, or sent.
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "{bytes} bytes consumed of {}", self.end - self.start);
        self.start += bytes;
        if self.start == self.end {
            self.clear();
        }
    }

    /// Room to receive into, as long as it can be made; [`MessageBuffer::received`] makes bytes of it pending.
    pub fn room(&mut self) -> &mut [u8] {
        self.compact();
        &mut self.bytes[self.end..]
    }

    /// Makes the first `bytes` of [`MessageBuffer::room`] pending.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes.len() - self.end, "{bytes} bytes received into {}", self.bytes.len() - self.end);
        self.end += bytes;
    }

    /// Room for any one message behind what is pending; [`MessageBuffer::composed`] makes bytes of it pending. `None`
    /// where some of that must be sent before.
    #[inline]
    pub fn room_for_message(&mut self) -> Option<&mut [u8]> {
        if self.bytes.len() - (self.end - self.start) < MESSAGE_BYTES_MAX {
            return None;
        }
        if self.bytes.len() - self.end < MESSAGE_BYTES_MAX {
            self.compact();
        }
        Some(&mut self.bytes[self.end..self.end + MESSAGE_BYTES_MAX])
    }

    /// Makes the first `bytes` of [`MessageBuffer::room_for_message`] pending.
    #[inline]
    pub fn composed(&mut self, bytes: usize) {
        self.received(bytes);
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};

    fn write(id: u64, length: usize) -> Header {
        Header::request(Kind::Write, id + 1, 0, length as u32)
    }

    /// Composes a message in place. False if there is no room for every message.
    fn compose(into: &mut MessageBuffer, header: &Header, byte: u8) -> bool {
        let Some(room) = into.room_for_message() else { return false };
        let (head, rest) = room.split_at_mut(HEADER_BYTES);
        let payload = &mut rest[..header.payload_bytes()];
        payload.fill(byte);
        head.copy_from_slice(&header.seal(payload));
        into.composed(HEADER_BYTES + header.payload_bytes());
        true
    }

    proptest! {
        /// Messages composed on one side and carried over in pieces of any size arrive in order and whole.
        #[test]
        fn messages_survive_any_cut(
            lengths in prop::collection::vec(0usize..600, 1..60),
            cuts in prop::collection::vec(1usize..700, 1..40),
        ) {
            let (mut out, mut into) = (MessageBuffer::new(MESSAGE_BYTES_MAX + 1000), MessageBuffer::new(1024));
            let (mut composed, mut seen, mut cut) = (0, 0, cuts.iter().cycle());
            while seen < lengths.len() {
                while composed < lengths.len() {
                    if !compose(&mut out, &write(composed as u64, lengths[composed]), composed as u8) {
                        break;
                    }
                    composed += 1;
                }
                let room = into.room();
                let bytes = out.pending().len().min(room.len()).min(*cut.next().unwrap());
                room[..bytes].copy_from_slice(&out.pending()[..bytes]);
                into.received(bytes);
                out.consume(bytes);
                while let Some(message) = into.message().unwrap() {
                    prop_assert_eq!(message.verify(), Ok(()));
                    prop_assert_eq!(message.header, write(seen as u64, lengths[seen]));
                    prop_assert!(message.payload.iter().all(|byte| *byte == seen as u8));
                    let bytes = message.bytes();
                    into.consume(bytes);
                    seen += 1;
                }
            }
            prop_assert!(out.is_empty() && into.is_empty());
        }
    }

    #[test]
    fn there_is_room_only_where_any_message_fits() {
        let mut buffer = MessageBuffer::new(MESSAGE_BYTES_MAX + HEADER_BYTES + 8);
        assert!(compose(&mut buffer, &write(1, 8), 1));
        assert_eq!(buffer.room_for_message().map(|room| room.len()), Some(MESSAGE_BYTES_MAX));
        assert!(compose(&mut buffer, &write(2, 0), 2));
        let before = buffer.pending().to_vec();
        assert!(buffer.room_for_message().is_none());
        assert_eq!(buffer.pending(), before);
        // What is left moves to the front, where it is behind what was sent.
        buffer.consume(HEADER_BYTES + 8);
        assert!(compose(&mut buffer, &write(3, PAYLOAD_BYTES_MAX), 3));
        assert_eq!(buffer.message().unwrap().unwrap().header, write(2, 0));
        buffer.consume(HEADER_BYTES);
        assert_eq!(buffer.message().unwrap().unwrap().verify(), Ok(()));
    }
}
