//! The target `stream`: messages on a stream that is cut anywhere, through the buffers of both ends.
//!
//! What one end composes the other reads, in order and unchanged, however the bytes are cut; and bytes that are no
//! message end the stream, at the place where they begin.

use std::collections::VecDeque;

use yonder_wire::{Direction, Header, Kind, MESSAGE_BYTES_MAX, MessageBuffer};

use crate::script::Step;
use crate::{Target, Trail};

const STEP_BYTES: usize = 8;
pub(crate) const TARGET: Target = Target { name: "stream", step_bytes: STEP_BYTES, bytes_max: 200 * STEP_BYTES, run };

/// Bytes that may be pending at the sending end for another message to be composed.
const PENDING_BYTES: usize = 3000;
/// Most payload bytes of a message here.
const PAYLOAD_BYTES: u64 = 1500;

const KINDS: [Kind; 5] = [Kind::Ping, Kind::Write, Kind::Read, Kind::Call, Kind::Status];

fn run(data: &[u8], trail: &mut Trail) {
    let mut line = Line {
        sender: MessageBuffer::new(MESSAGE_BYTES_MAX + PENDING_BYTES),
        receiver: MessageBuffer::new(MESSAGE_BYTES_MAX + 100),
        on_the_way: VecDeque::new(),
        expected: VecDeque::new(),
        is_clean: true,
        next_id: 1,
    };
    for mut step in Step::all(data, STEP_BYTES) {
        let what = step.below(8);
        trail.note([what, line.expected.len().min(4) as u64, line.is_clean.into()]);
        match what {
            0..3 => line.compose(&mut step),
            3..5 => line.send(step.below(4000) as usize),
            5..7 => line.receive(1 + step.below(4000) as usize),
            _ if step.once_in(4) => line.disturb(step.rest()),
            _ => line.compose(&mut step),
        }
        line.read(trail);
    }
    line.send(usize::MAX);
    while line.is_clean && !line.on_the_way.is_empty() {
        line.receive(MESSAGE_BYTES_MAX);
        line.read(trail);
    }
    if line.is_clean {
        assert!(line.expected.is_empty(), "{} messages were lost", line.expected.len());
    }
}

/// Both ends of a stream, and what is between them.
struct Line {
    sender: MessageBuffer,
    receiver: MessageBuffer,
    on_the_way: VecDeque<u8>,
    /// Composed, and not yet read.
    expected: VecDeque<(Header, Vec<u8>)>,
    /// Whether nobody has put bytes of his own between.
    is_clean: bool,
    next_id: u64,
}

impl Line {
    fn message(&mut self, step: &mut Step<'_>) -> (Header, Vec<u8>) {
        let (kind, length) = (step.pick(&KINDS), step.below(PAYLOAD_BYTES));
        let header = Header::request(kind, self.next_id, length, length as u32);
        let header = if step.once_in(2) { header.answer(9, length as u32) } else { header };
        let payload = vec![self.next_id as u8; header.payload_bytes()];
        self.next_id += 1;
        assert!(header.direction == Direction::Answer || header.time == 0);
        (header, payload)
    }

    fn compose(&mut self, step: &mut Step<'_>) {
        let (header, payload) = self.message(step);
        let before = self.sender.pending().to_vec();
        let Some(room) = self.sender.room_for_message() else {
            assert!(before.len() > PENDING_BYTES, "there is room for any message");
            assert_eq!(self.sender.pending(), before, "what does not fit leaves no trace");
            return;
        };
        assert_eq!((room.len(), before.len() <= PENDING_BYTES), (MESSAGE_BYTES_MAX, true));
        let sealed = [&header.seal(&payload)[..], &payload].concat();
        room[..sealed.len()].copy_from_slice(&sealed);
        self.sender.composed(sealed.len());
        self.expected.push_back((header, payload));
    }

    fn send(&mut self, bytes: usize) {
        let bytes = bytes.min(self.sender.pending().len());
        self.on_the_way.extend(&self.sender.pending()[..bytes]);
        self.sender.consume(bytes);
    }

    fn receive(&mut self, bytes: usize) {
        let room = self.receiver.room();
        let bytes = bytes.min(room.len()).min(self.on_the_way.len());
        for (place, byte) in room.iter_mut().zip(self.on_the_way.drain(..bytes)) {
            *place = byte;
        }
        self.receiver.received(bytes);
    }

    /// Somebody else's bytes come between.
    fn disturb(&mut self, bytes: &[u8]) {
        self.is_clean &= bytes.is_empty();
        self.on_the_way.extend(bytes);
    }

    fn read(&mut self, trail: &mut Trail) {
        loop {
            let (header, payload, bytes) = match self.receiver.message() {
                Ok(Some(message)) => (message.header, message.payload.to_vec(), message.bytes()),
                Ok(None) => return,
                Err(error) => {
                    assert!(!self.is_clean, "the stream is lost: {error}");
                    trail.note([9, 9, 9]);
                    self.receiver.clear();
                    self.on_the_way.clear();
                    return;
                }
            };
            self.receiver.consume(bytes);
            if self.is_clean {
                assert_eq!(self.expected.pop_front(), Some((header, payload)), "messages come in order and unchanged");
            }
        }
    }
}
