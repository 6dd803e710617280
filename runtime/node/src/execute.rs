//! Executing requests: received messages in, replies out.
//!
//! [`serve`] is the whole of what a node does for a client. Reads and writes run in batches under one view of the
//! memory; requests that change who owns what run one by one, without it.

use yonder_wire::{ErrorCode, Header, Kind, Message, MessageBuffer, PAYLOAD_BYTES_MAX, WireError};

use crate::extents::Owner;
use crate::memory::{Memory, View};
use crate::stats::Batch;

/// Why [`serve`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// No whole request is left.
    Drained,
    /// The next reply does not fit: send first, then call again.
    RepliesFull,
}

/// What a peer did that ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Violation {
    /// The bytes are not messages.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The message is not a request, or not one for this moment.
    #[error("unexpected {0:?} message")]
    Unexpected(Kind),
}

enum Stop {
    Pause(Pause),
    SlowRequest,
}

/// Executes the requests of `owner` in `received` and composes their replies.
pub(crate) fn serve(
    received: &mut MessageBuffer,
    replies: &mut MessageBuffer,
    owner: Owner,
    memory: &Memory,
    batch: &mut Batch,
) -> Result<Pause, Violation> {
    loop {
        let view = memory.view();
        let stop = serve_data(received, replies, owner, &view, batch)?;
        drop(view);
        match stop {
            Stop::Pause(pause) => return Ok(pause),
            Stop::SlowRequest if !replies.fits(0) => return Ok(Pause::RepliesFull),
            Stop::SlowRequest => serve_metadata(received, replies, owner, memory, batch)?,
        }
    }
}

/// The fast path: reads, writes and pings, until another request, the end, or a full reply buffer.
fn serve_data(
    received: &mut MessageBuffer,
    replies: &mut MessageBuffer,
    owner: Owner,
    view: &View<'_>,
    batch: &mut Batch,
) -> Result<Stop, Violation> {
    while let Some(message) = received.message()? {
        let (header, bytes) = (message.header, message.bytes());
        let reply_bytes = match header.kind {
            Kind::Read => header.length.min(PAYLOAD_BYTES_MAX as u64) as usize,
            Kind::Write | Kind::Ping => 0,
            _ => return Ok(Stop::SlowRequest),
        };
        if !replies.fits(reply_bytes) {
            return Ok(Stop::Pause(Pause::RepliesFull));
        }
        match refusal(&message, owner, view) {
            Some(code) => refuse(replies, &header, code, batch),
            None => execute(&message, replies, view, batch),
        }
        received.consume(bytes);
    }
    Ok(Stop::Pause(Pause::Drained))
}

/// Why a read, write or ping is not executed, if it is not.
#[inline]
fn refusal(message: &Message<'_>, owner: Owner, view: &View<'_>) -> Option<ErrorCode> {
    let Header { kind, address, length, .. } = message.header;
    if message.verify().is_err() {
        return Some(ErrorCode::Corrupt);
    }
    match kind {
        Kind::Ping => None,
        _ if length == 0 || length > PAYLOAD_BYTES_MAX as u64 => Some(ErrorCode::BadLength),
        _ if !view.owns(owner, address, length) => Some(ErrorCode::BadAddress),
        _ => None,
    }
}

#[inline]
fn execute(message: &Message<'_>, replies: &mut MessageBuffer, view: &View<'_>, batch: &mut Batch) {
    let header = message.header;
    match header.kind {
        Kind::Read => {
            batch.reads += 1;
            batch.read_bytes += header.length;
            answer(replies, &header.answer(Kind::ReadReply), |payload| view.read(header.address, payload));
        }
        Kind::Write => {
            batch.writes += 1;
            batch.written_bytes += header.length;
            view.write(header.address, message.payload);
            answer(replies, &header.answer(Kind::WriteAck), |_| {});
        }
        _ => answer(replies, &header.answer(Kind::PingAck), |_| {}),
    }
}

/// The slow path: the first request of `received`, which changes who owns what.
fn serve_metadata(
    received: &mut MessageBuffer,
    replies: &mut MessageBuffer,
    owner: Owner,
    memory: &Memory,
    batch: &mut Batch,
) -> Result<(), Violation> {
    let Some(message) = received.message()? else { return Ok(()) };
    let (header, bytes) = (message.header, message.bytes());
    let done = match header.kind {
        Kind::Allocate | Kind::Release | Kind::Discard if message.verify().is_err() => Err(ErrorCode::Corrupt),
        Kind::Allocate => {
            memory.allocate(owner, header.length).map(|address| Header { address, ..header.answer(Kind::AllocateAck) })
        }
        Kind::Release => memory.release(owner, header.address, header.length).map(|()| header.answer(Kind::ReleaseAck)),
        Kind::Discard => memory.discard(owner, header.address, header.length).map(|()| header.answer(Kind::DiscardAck)),
        unexpected => return Err(Violation::Unexpected(unexpected)),
    };
    match done {
        Ok(reply) => answer(replies, &reply, |_| {}),
        Err(code) => refuse(replies, &header, code, batch),
    }
    received.consume(bytes);
    Ok(())
}

fn refuse(replies: &mut MessageBuffer, request: &Header, code: ErrorCode, batch: &mut Batch) {
    batch.errors += 1;
    answer(replies, &request.refusal(code), |_| {});
}

/// Composes a reply for which the caller has checked the room.
#[inline]
fn answer(replies: &mut MessageBuffer, header: &Header, fill: impl FnOnce(&mut [u8])) {
    replies.compose(header, fill).expect("the caller has checked that the reply fits");
}

#[cfg(test)]
mod tests {
    use yonder_units::PAGE_BYTES;

    use super::*;

    const OWNER: Owner = Owner(1);
    const PAGE: u64 = PAGE_BYTES as u64;

    /// Serves `requests` with room for `reply_bytes` of replies, and returns the replies.
    fn answers(memory: &Memory, requests: &[(Header, Vec<u8>)], reply_bytes: usize) -> Vec<(Header, Vec<u8>)> {
        let (mut received, mut replies) = (MessageBuffer::new(1 << 20), MessageBuffer::new(reply_bytes));
        for (header, payload) in requests {
            received.compose(header, |into| into.copy_from_slice(payload)).unwrap();
        }
        let (mut batch, mut seen) = (Batch::default(), Vec::new());
        loop {
            let pause = serve(&mut received, &mut replies, OWNER, memory, &mut batch).unwrap();
            while let Some(message) = replies.message().unwrap() {
                assert_eq!(message.verify(), Ok(()));
                seen.push((message.header, message.payload.to_vec()));
                let bytes = message.bytes();
                replies.consume(bytes);
            }
            if pause == Pause::Drained {
                assert!(received.is_empty());
                return seen;
            }
        }
    }

    fn code(memory: &Memory, header: Header) -> ErrorCode {
        let payload = vec![0; header.payload_bytes() as usize];
        let replies = answers(memory, &[(header, payload)], 1 << 20);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].0.request_id, header.request_id);
        replies[0].0.code
    }

    #[test]
    fn a_read_sees_the_write_before_it_even_with_room_for_one_reply() {
        let memory = Memory::new(4 * PAGE).unwrap();
        let start = memory.allocate(OWNER, 4 * PAGE).unwrap();
        let mut requests = Vec::new();
        for turn in 0..40u64 {
            let address = start + turn % 4 * PAGE;
            requests.push((Header::request(Kind::Write, 2 * turn, address, PAGE), vec![turn as u8; PAGE_BYTES]));
            requests.push((Header::request(Kind::Read, 2 * turn + 1, address, PAGE), vec![]));
            requests.push((Header::request(Kind::Discard, 0, address, PAGE), vec![]));
            requests.push((Header::request(Kind::Read, 2 * turn + 1, address, PAGE), vec![]));
        }
        let replies = answers(&memory, &requests, PAGE_BYTES + 64);
        assert_eq!(replies.len(), 160);
        for (turn, reply) in replies.chunks(4).enumerate() {
            assert_eq!(reply[0].0, requests[4 * turn].0.answer(Kind::WriteAck));
            assert_eq!(reply[1], (requests[4 * turn + 1].0.answer(Kind::ReadReply), vec![turn as u8; PAGE_BYTES]));
            assert_eq!(reply[3].1, vec![0; PAGE_BYTES]);
        }
    }

    #[test]
    fn wrong_ranges_are_refused() {
        let memory = Memory::new(4 * PAGE).unwrap();
        let start = memory.allocate(OWNER, 2 * PAGE).unwrap();
        let foreign = memory.allocate(Owner(2), PAGE).unwrap();
        for kind in [Kind::Read, Kind::Write] {
            assert_eq!(code(&memory, Header::request(kind, 1, start, PAGE)), ErrorCode::None);
            for address in [foreign, start + PAGE + 1, 3 * PAGE, 1 << 40, u64::MAX - 10] {
                assert_eq!(code(&memory, Header::request(kind, 2, address, PAGE)), ErrorCode::BadAddress);
            }
            assert_eq!(code(&memory, Header::request(kind, 3, start, 0)), ErrorCode::BadLength);
        }
        for length in [PAYLOAD_BYTES_MAX as u64 + 1, u64::MAX] {
            assert_eq!(code(&memory, Header::request(Kind::Read, 4, start, length)), ErrorCode::BadLength);
        }
        for kind in [Kind::Release, Kind::Discard] {
            assert_eq!(code(&memory, Header::request(kind, 5, foreign, PAGE)), ErrorCode::BadAddress);
        }
        assert_eq!(code(&memory, Header::request(Kind::Allocate, 6, 0, 2 * PAGE)), ErrorCode::OutOfMemory);
        assert_eq!(code(&memory, Header::request(Kind::Ping, 7, 0, 0)), ErrorCode::None);
    }

    #[test]
    fn a_corrupt_write_is_refused_and_not_applied() {
        let memory = Memory::new(PAGE).unwrap();
        let start = memory.allocate(OWNER, PAGE).unwrap();
        let mut bytes = Header::request(Kind::Write, 9, start, 4).seal(&[1, 2, 3, 4]).to_vec();
        bytes.extend([1, 2, 3, 5]);
        let (mut received, mut replies) = (MessageBuffer::new(1 << 17), MessageBuffer::new(1 << 17));
        received.room()[..bytes.len()].copy_from_slice(&bytes);
        received.received(bytes.len());
        let mut batch = Batch::default();
        assert_eq!(serve(&mut received, &mut replies, OWNER, &memory, &mut batch), Ok(Pause::Drained));
        let reply = replies.message().unwrap().unwrap().header;
        assert_eq!((reply.request_id, reply.code, batch.errors), (9, ErrorCode::Corrupt, 1));
        let mut content = [9; 4];
        memory.view().read(start, &mut content);
        assert_eq!(content, [0; 4]);
    }

    #[test]
    fn what_is_not_a_request_ends_the_connection() {
        let memory = Memory::new(PAGE).unwrap();
        let (mut received, mut replies) = (MessageBuffer::new(1 << 17), MessageBuffer::new(1 << 17));
        received.compose(&Header::request(Kind::ReadReply, 1, 0, 0), |_| {}).unwrap();
        let served = serve(&mut received, &mut replies, OWNER, &memory, &mut Batch::default());
        assert_eq!(served, Err(Violation::Unexpected(Kind::ReadReply)));
    }
}
