//! [`OwnedMessage`]: a copy of a message that was let in, for when its turn comes.

use yonder_wire::{Message, WireError, split, split_proven};

/// A whole message, with what the thread that let it in has found of it.
#[derive(Debug)]
pub(crate) struct OwnedMessage {
    bytes: Box<[u8]>,
    is_proven: bool,
    /// The cookie that its answer brings, which is not the one that it came with.
    cookie: u64,
}

impl OwnedMessage {
    pub(crate) fn new(message: &Message<'_>) -> Self {
        Self { bytes: message.as_bytes().into(), is_proven: message.is_proven(), cookie: message.header.cookie }
    }

    /// The message, as it was let in.
    pub(crate) fn get(&self) -> Message<'_> {
        let split: fn(&[u8]) -> Result<Option<Message<'_>>, WireError> =
            if self.is_proven { split_proven } else { split };
        let mut message = split(&self.bytes).ok().flatten().expect("a whole message was put here");
        message.header.cookie = self.cookie;
        message
    }

    /// Bytes of the message.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use yonder_wire::{Header, Kind};

    use super::*;

    /// A greeting comes without a cookie, and takes one back.
    #[test]
    fn a_message_keeps_the_cookie_that_it_was_let_in_with() {
        let bytes = Header::request(Kind::Hello, 1, 0, 0).seal(&[]);
        let mut message = split(&bytes).unwrap().unwrap();
        message.header.cookie = 77;
        let owned = OwnedMessage::new(&message);
        assert_eq!(owned.get().header, message.header);
        owned.get().verify().unwrap();
    }
}
