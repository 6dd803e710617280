//! [`Turns`]: whose request the slow path executes next.
//!
//! Each sender has a line of its own, and they take turns: one that asks for much, such as the pieces of a long
//! discard, waits behind itself and not in front of others. A sender is a lane, so it is a connection or the address of
//! a socket.
//!
//! Invariant: at most [`SENDERS_MAX`] lines of at most [`LINE_MAX`] requests. What is more is refused as busy.

use std::collections::VecDeque;

use crate::forward::{Forwarded, Lane};

/// Senders that may have requests waiting.
const SENDERS_MAX: usize = 1024;
/// Requests of one sender that may wait.
const LINE_MAX: usize = 64;

/// The requests of one sender, in order.
#[derive(Debug)]
struct Line {
    from: Lane,
    waiting: VecDeque<Forwarded>,
}

/// The lines, the next one first.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    lines: VecDeque<Line>,
}

impl Turns {
    /// Puts a request into the line of its sender. Gives it back if there is no room.
    pub(crate) fn put(&mut self, request: Forwarded) -> Result<(), Forwarded> {
        let from = request.answer_to.lane();
        let is_full = self.lines.len() >= SENDERS_MAX;
        match self.lines.iter_mut().find(|line| line.from == from) {
            Some(line) if line.waiting.len() >= LINE_MAX => return Err(request),
            Some(line) => line.waiting.push_back(request),
            None if is_full => return Err(request),
            None => self.lines.push_back(Line { from, waiting: VecDeque::from([request]) }),
        }
        Ok(())
    }

    /// The next request: each sender has one turn before one has another.
    pub(crate) fn next(&mut self) -> Option<Forwarded> {
        let mut line = self.lines.pop_front()?;
        let request = line.waiting.pop_front().expect("a line without requests is not kept");
        if !line.waiting.is_empty() {
            self.lines.push_back(line);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use yonder_board::Source;

    use super::*;
    use crate::event_loop::Inbox;
    use crate::forward::AnswerTo;

    fn request(inbox: &Arc<Inbox>, token: u64, number: u8) -> Forwarded {
        let answer_to = AnswerTo::Stream { inbox: Arc::clone(inbox), token, source: Source(0), peer: None };
        Forwarded { bytes: Box::new([number]), answer_to }
    }

    #[test]
    fn a_sender_with_one_request_waits_for_one_of_each_other() {
        let (inbox, mut turns) = (Arc::new(Inbox::new().unwrap()), Turns::default());
        for number in 0..LINE_MAX as u8 {
            turns.put(request(&inbox, 1, number)).unwrap();
        }
        assert!(turns.put(request(&inbox, 1, 255)).is_err(), "one sender fills the queue");
        turns.put(request(&inbox, 2, 100)).unwrap();
        turns.put(request(&inbox, 3, 101)).unwrap();
        turns.put(request(&inbox, 2, 102)).unwrap();
        let order: Vec<u8> = std::iter::from_fn(|| turns.next()).map(|next| next.bytes[0]).collect();
        assert_eq!(order[..6], [0, 100, 101, 1, 102, 2]);
        assert!(order[6..].iter().copied().eq(3..LINE_MAX as u8), "{order:?}");
    }
}
