//! What datagrams consist of. Numbers are little-endian.
//!
//! ```text
//!   request   id: u64 | token: u64 | mark: 8 bytes | body        an empty body asks who the server is
//!   reply     id: u64 | piece: u16 | pieces: u16 | status: u32 | part of the body
//! ```
//! All pieces of a reply but the last have [`PIECE_BYTES`] of its body.
//!
//! Who has sent a datagram is what the datagram says, and may be forged. A request is executed, and told more than it
//! has said, only with the token of its sender's address (`address_tokens`); another is replied to with
//! [`Status::Prove`] and that token. Such a reply is as long as the head of a request, so no request is shorter, and it
//! is no request itself, because the token stands where a request has its mark: two servers that are made to speak to
//! each other stop at once.

/// Most bytes of a request's body: what a datagram takes everywhere.
pub const REQUEST_BYTES_MAX: usize = 1400;
/// Bytes of a reply's body in one datagram.
pub const PIECE_BYTES: usize = 1400;
/// Room that is asked of the kernel for datagrams that wait: replies to scans are long, and several come at once.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Bytes before the body.
pub(crate) const REQUEST_HEAD: usize = 24;
pub(crate) const REPLY_HEAD: usize = 16;
/// Ends the head of a request.
const MARK: [u8; 8] = *b"yonder:2";
/// Bytes of a token.
const TOKEN_BYTES: usize = size_of::<u64>();

// An address that is not proven gets no more bytes than came from there.
const _: () = assert!(REPLY_HEAD + TOKEN_BYTES <= REQUEST_HEAD);
// A token stands where a request has its mark.
const _: () = assert!(REPLY_HEAD == REQUEST_HEAD - MARK.len() && TOKEN_BYTES == MARK.len());

/// What a reply's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// The answer.
    Answer,
    /// Why the request is none, as text.
    BadRequest,
    /// Why it cannot be answered, as text.
    Failed,
    /// The token that the request needs. Nothing else was done with it: it may be sent again.
    Prove,
}

const STATUSES: [Status; 4] = [Status::Answer, Status::BadRequest, Status::Failed, Status::Prove];

/// The first bytes of a request.
pub(crate) fn request_head(id: u64, token: u64) -> [u8; REQUEST_HEAD] {
    let mut head = [0; REQUEST_HEAD];
    head[..8].copy_from_slice(&id.to_le_bytes());
    head[8..16].copy_from_slice(&token.to_le_bytes());
    head[16..].copy_from_slice(&MARK);
    head
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) id: u64,
    /// What its sender has for the proof of its address.
    pub(crate) token: u64,
    pub(crate) body: &'a [u8],
}

impl<'a> Question<'a> {
    /// The request that a datagram is; `None` if it is none.
    pub(crate) fn of(datagram: &'a [u8]) -> Option<Self> {
        let (id, rest) = datagram.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let body = rest.strip_prefix(&MARK)?;
        Some(Self { id: u64::from_le_bytes(*id), token: u64::from_le_bytes(*token), body })
    }
}

/// In how many datagrams a body of so many bytes travels; `None` if it is too long for a reply.
pub(crate) fn pieces_of(bytes: usize) -> Option<u16> {
    u16::try_from(bytes.div_ceil(PIECE_BYTES).max(1)).ok()
}

/// The datagrams of a reply: what each begins with, and its part of the body. `None` if the body is too long.
pub(crate) fn pieces(id: u64, status: Status, body: &[u8]) -> Option<impl Iterator<Item = ([u8; REPLY_HEAD], &[u8])>> {
    let count = pieces_of(body.len())?;
    Some((0..count).map(move |piece| {
        let start = usize::from(piece) * PIECE_BYTES;
        let mut head = [0; REPLY_HEAD];
        head[..8].copy_from_slice(&id.to_le_bytes());
        head[8..10].copy_from_slice(&piece.to_le_bytes());
        head[10..12].copy_from_slice(&count.to_le_bytes());
        head[12..].copy_from_slice(&(status as u32).to_le_bytes());
        (head, &body[start..body.len().min(start + PIECE_BYTES)])
    }))
}

/// One datagram of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) id: u64,
    number: u16,
    count: u16,
    status: Status,
    body: &'a [u8],
}

impl<'a> Piece<'a> {
    /// The piece that a datagram is; `None` if it is none.
    pub(crate) fn of(datagram: &'a [u8]) -> Option<Self> {
        let (head, body) = datagram.split_first_chunk::<REPLY_HEAD>()?;
        let two = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (id, status) = (&head[..8], &head[12..]);
        let status = u32::from_le_bytes(status.try_into().expect("four bytes"));
        let piece = Self {
            id: u64::from_le_bytes(id.try_into().expect("eight bytes")),
            number: two(8),
            count: two(10),
            status: *STATUSES.get(status as usize)?,
            body,
        };
        let is_last = piece.number + 1 == piece.count;
        let fits = body.len() == PIECE_BYTES || is_last && body.len() < PIECE_BYTES;
        (piece.number < piece.count && fits).then_some(piece)
    }

    /// The token that the server asks for; `None` if this is no such reply.
    pub(crate) fn token(&self) -> Option<u64> {
        let token = self.body.try_into().ok().filter(|_| self.status == Status::Prove);
        token.map(u64::from_le_bytes)
    }
}

/// A reply that is being put together, in whatever order its pieces come.
#[derive(Default, Debug)]
pub(crate) struct Assembly {
    body: Vec<u8>,
    /// Which pieces are here.
    has: Vec<bool>,
    missing: usize,
}

impl Assembly {
    /// Takes a piece. The whole reply if it was the last that was missing.
    pub(crate) fn take(&mut self, piece: Piece<'_>) -> Option<(Status, Vec<u8>)> {
        let count = usize::from(piece.count);
        if self.has.is_empty() {
            (self.has, self.missing) = (vec![false; count], count);
            self.body.resize(count * PIECE_BYTES, 0);
        }
        let number = usize::from(piece.number);
        // One that came twice, or of a reply that is not this one.
        if count != self.has.len() || std::mem::replace(&mut self.has[number], true) {
            return None;
        }
        let start = number * PIECE_BYTES;
        self.body[start..start + piece.body.len()].copy_from_slice(piece.body);
        if number + 1 == count {
            self.body.truncate(start + piece.body.len());
        }
        self.missing -= 1;
        (self.missing == 0).then(|| (piece.status, std::mem::take(&mut self.body)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The datagrams of a reply.
    fn datagrams(id: u64, status: Status, body: &[u8]) -> Vec<Vec<u8>> {
        pieces(id, status, body).unwrap().map(|(head, part)| [&head[..], part].concat()).collect()
    }

    #[test]
    fn a_request_has_an_identity_a_token_and_a_body() {
        let datagram = [&request_head(77, 99)[..], b"what"].concat();
        let question = |body| Some(Question { id: 77, token: 99, body });
        assert_eq!(Question::of(&datagram), question(&b"what"[..]));
        assert_eq!(Question::of(&datagram[..24]), question(&b""[..]));
        assert_eq!(Question::of(&datagram[..23]), None);
        for at in 16..24 {
            let mut other = datagram.clone();
            other[at] ^= 1;
            assert_eq!(Question::of(&other), None, "another mark");
        }
    }

    #[test]
    fn what_asks_for_a_proof_is_no_longer_than_a_request_and_is_none() {
        let sent = datagrams(7, Status::Prove, &99_u64.to_le_bytes());
        assert_eq!((sent.len(), sent[0].len()), (1, REQUEST_HEAD));
        assert_eq!(Question::of(&sent[0]), None);
        assert_eq!(Piece::of(&sent[0]).unwrap().token(), Some(99));
        for (status, body) in [(Status::Prove, &[9; 7][..]), (Status::Prove, &[9; 9]), (Status::Answer, &[9; 8])] {
            assert_eq!(Piece::of(&datagrams(7, status, body)[0]).unwrap().token(), None);
        }
    }

    #[test]
    fn an_empty_body_is_one_piece_and_too_long_a_body_is_no_reply() {
        let datagrams = datagrams(1, Status::Failed, b"");
        assert_eq!(datagrams.len(), 1);
        let whole = Assembly::default().take(Piece::of(&datagrams[0]).unwrap());
        assert_eq!(whole, Some((Status::Failed, Vec::new())));
        let most = usize::from(u16::MAX) * PIECE_BYTES;
        assert_eq!((pieces_of(most), pieces_of(most + 1)), (Some(u16::MAX), None));
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        let whole = &datagrams(9, Status::Answer, &[5; 2 * PIECE_BYTES + 10]);
        assert!(whole.iter().all(|datagram| Piece::of(datagram).is_some()));
        let changed = |which: usize, change: fn(&mut Vec<u8>)| {
            let mut datagram = whole[which].clone();
            change(&mut datagram);
            Piece::of(&datagram).is_none()
        };
        assert!(changed(0, |bytes| bytes.truncate(15)));
        assert!(changed(0, |bytes| bytes.truncate(100)), "only the last piece is short");
        assert!(changed(2, |bytes| bytes.extend([0; PIECE_BYTES])));
        assert!(changed(1, |bytes| bytes[8] = 3), "piece 3 of 3, counted from 0");
        assert!(changed(1, |bytes| bytes[12] = 9), "no such status");
    }

    proptest! {
        /// In any order, with some twice and with pieces of another reply among them.
        #[test]
        fn a_reply_is_put_together(
            bytes in 0_usize..5 * PIECE_BYTES,
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let body: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
            let sent = datagrams(3, Status::Answer, &body);
            let other = datagrams(3, Status::Answer, &[0; 7 * PIECE_BYTES]);
            let mut assembly = Assembly::default();
            let mut here = vec![false; sent.len()];
            for at in order {
                let at = at.index(sent.len());
                let whole = assembly.take(Piece::of(&sent[at]).unwrap());
                let was_here = std::mem::replace(&mut here[at], true);
                let is_whole = !was_here && here.iter().all(|here| *here);
                prop_assert_eq!(whole, is_whole.then(|| (Status::Answer, body.clone())));
                if is_whole {
                    break;
                }
                prop_assert_eq!(assembly.take(Piece::of(&other[0]).unwrap()), None);
            }
        }

        #[test]
        fn noise_never_panics(datagram in prop::collection::vec(any::<u8>(), 0..3000)) {
            let _ = Question::of(&datagram);
            if let Some(piece) = Piece::of(&datagram) {
                let _ = Assembly::default().take(piece);
            }
        }
    }
}
