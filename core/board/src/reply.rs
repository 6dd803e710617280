//! Composing answers: [`Reply`], the room for one; and what becomes of a message: [`Handled`].

use yonder_units::Narrow;
use yonder_wire::{Body, ErrorCode, HEADER_BYTES, Header};

use crate::recent::NodeTime;

/// What became of a message.
#[must_use = "an answer is to be sent, or the message to be given to who handles it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// The answer is in the first bytes of the reply, as many as this.
    Reply(usize),
    /// Not from the fast path: give it to the path that [`path_of`](crate::path_of) says. From the extend path: run the
    /// offload now, and compose the answer with [`ExtendPath::answer`](crate::ExtendPath::answer).
    Slow,
    /// Not a request, or a greeting, which the shell answers. Nothing was done.
    Dropped,
}

/// Room for the answer to one request.
pub(crate) struct Reply<'a> {
    request: Header,
    now: NodeTime,
    header: &'a mut [u8; HEADER_BYTES],
    /// Room for the payload.
    pub(crate) payload: &'a mut [u8],
}

impl<'a> Reply<'a> {
    /// # Panics
    /// If there is no room for a header.
    #[inline]
    pub(crate) fn new(request: &Header, now: NodeTime, room: &'a mut [u8]) -> Self {
        let (header, payload) = room.split_first_chunk_mut().expect("a reply has room for a header");
        Self { request: *request, now, header, payload }
    }

    /// Answers without payload. `length` is what the kind says it is.
    #[inline]
    pub(crate) fn answer(self, length: u32) -> Handled {
        self.answer_with(length, |_| ())
    }

    /// Answers without payload, with a header that `change` completes.
    #[inline]
    pub(crate) fn answer_with(self, length: u32, change: impl FnOnce(&mut Header)) -> Handled {
        let mut header = self.request.answer(self.now, length);
        change(&mut header);
        *self.header = header.seal(&[]);
        Handled::Reply(HEADER_BYTES)
    }

    /// Answers with the first `length` bytes of the payload's room, which the caller has filled.
    #[inline]
    pub(crate) fn answer_payload(self, length: usize) -> Handled {
        *self.header = self.request.answer(self.now, length.narrow_u32()).seal(&self.payload[..length]);
        Handled::Reply(HEADER_BYTES + length)
    }

    /// Answers with `body`, and with `address` in the header; refuses if there is no room for it.
    pub(crate) fn answer_body<B: Body>(self, address: u64, body: &B) -> Handled {
        let bytes = B::BYTES;
        if self.payload.len() < bytes {
            return self.refuse(ErrorCode::BadLength);
        }
        body.write_to(&mut self.payload[..bytes]);
        let header = Header { address, ..self.request.answer(self.now, bytes.narrow_u32()) };
        *self.header = header.seal(&self.payload[..bytes]);
        Handled::Reply(HEADER_BYTES + bytes)
    }

    /// Refuses.
    #[inline]
    pub(crate) fn refuse(self, code: ErrorCode) -> Handled {
        *self.header = self.request.refusal(self.now, code).seal(&[]);
        Handled::Reply(HEADER_BYTES)
    }
}
