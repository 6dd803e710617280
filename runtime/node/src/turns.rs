//! [`Turns`]: whose request a path executes next, and how many may wait.
//!
//! Hosts take turns, and within one its lanes do: a lane that asks for much, such as the pieces of a long discard,
//! waits behind itself and not in front of others; and a host that opens many lanes has the turns of one host, and a
//! share of the queue. A lane is a connection or the address of a socket.
//!
//! A datagram that needs no capability and has none proves not even where it comes from. Strangers who send such are
//! one party together, with the turns and the share of one host.
//!
//! Invariants: at most [`QUEUE`] requests wait, in lines of at most [`LINE_MAX`]; what is more is refused as busy. A
//! party or a line without requests is not kept.

use std::collections::VecDeque;

use yonder_board::{Share, Source};

use crate::forward::{Forwarded, Lane};

/// Requests that wait, and how many of one party.
const QUEUE: Share = Share { places_max: 1024, of_one_max: 256, few_max: 8 };
/// Requests of one lane that may wait.
const LINE_MAX: usize = 64;
/// Requests of strangers that may wait and seem to come from one host.
const STRANGERS_LINE_MAX: usize = 8;

/// Who takes turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    /// A host, or a user of this machine.
    Host(Source),
    /// All who have shown nothing.
    Strangers,
}

/// The requests that wait; the next party first.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: usize,
    parties: VecDeque<Waiting>,
}

/// The requests of one party; the next line first.
#[derive(Debug)]
struct Waiting {
    party: Party,
    requests: usize,
    lines: VecDeque<Line>,
}

/// The requests of one lane, in order.
#[derive(Debug)]
struct Line {
    from: Lane,
    requests: VecDeque<Forwarded>,
}

impl Turns {
    /// Puts a request of `party` into the line of the lane that it came by; false if there is no room.
    pub(crate) fn put(&mut self, party: Party, from: Lane, request: Forwarded) -> bool {
        let place = self.parties.iter().position(|waiting| waiting.party == party);
        let own = place.map_or(0, |place| self.parties[place].requests);
        if !QUEUE.admits(self.waiting, own) {
            return false;
        }
        let has_room = match place {
            Some(place) => self.parties[place].put(from, request),
            None => {
                let line = Line { from, requests: VecDeque::from([request]) };
                self.parties.push_back(Waiting { party, requests: 1, lines: VecDeque::from([line]) });
                true
            }
        };
        self.waiting += usize::from(has_room);
        has_room
    }

    /// The next request: each party has one turn before one has another.
    pub(crate) fn next(&mut self) -> Option<Forwarded> {
        let mut next = self.parties.pop_front()?;
        let request = next.next();
        self.waiting -= 1;
        if next.requests > 0 {
            self.parties.push_back(next);
        }
        Some(request)
    }
}

impl Waiting {
    fn put(&mut self, from: Lane, request: Forwarded) -> bool {
        let line_max = if self.party == Party::Strangers { STRANGERS_LINE_MAX } else { LINE_MAX };
        match self.lines.iter_mut().find(|line| line.from == from) {
            Some(line) if line.requests.len() >= line_max => return false,
            Some(line) => line.requests.push_back(request),
            None => self.lines.push_back(Line { from, requests: VecDeque::from([request]) }),
        }
        self.requests += 1;
        true
    }

    fn next(&mut self) -> Forwarded {
        let mut line = self.lines.pop_front().expect("a party without requests is not kept");
        let request = line.requests.pop_front().expect("a line without requests is not kept");
        self.requests -= 1;
        if !line.requests.is_empty() {
            self.lines.push_back(line);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event_loop::Inbox;
    use crate::forward::AnswerTo;
    use crate::gate::Wrap;

    /// A queue into which lanes of hosts put requests that are numbers.
    struct Scene {
        turns: Turns,
        inbox: Arc<Inbox>,
    }

    impl Scene {
        fn new() -> Self {
            Self { turns: Turns::default(), inbox: Arc::new(Inbox::new().unwrap()) }
        }

        fn put(&mut self, party: Party, lane: u64, number: u8) -> bool {
            let source = Source(0);
            let answer_to =
                AnswerTo::Stream { inbox: Arc::clone(&self.inbox), token: lane, source, wrap: Wrap::Plain, peer: None };
            self.turns.put(
                party,
                Lane::Connection(0, lane),
                Forwarded { bytes: Box::new([number]), is_proven: false, answer_to },
            )
        }

        fn order(&mut self) -> Vec<u8> {
            std::iter::from_fn(|| self.turns.next()).map(|next| next.bytes[0]).collect()
        }
    }

    const ATTACKER: Party = Party::Host(Source(1));
    const VICTIM: Party = Party::Host(Source(2));

    #[test]
    fn a_lane_with_one_request_waits_for_one_of_each_other() {
        let mut scene = Scene::new();
        for number in 0..LINE_MAX as u8 {
            assert!(scene.put(ATTACKER, 1, number));
        }
        assert!(!scene.put(ATTACKER, 1, 255), "one lane fills the queue");
        for (lane, number) in [(2, 100), (3, 101), (2, 102)] {
            assert!(scene.put(ATTACKER, lane, number));
        }
        let order = scene.order();
        assert_eq!(order[..6], [0, 100, 101, 1, 102, 2]);
        assert!(order[6..].iter().copied().eq(3..LINE_MAX as u8), "{order:?}");
    }

    #[test]
    fn a_host_with_many_lanes_has_the_turns_and_the_share_of_one() {
        let mut scene = Scene::new();
        let taken = (0..2000).filter(|lane| scene.put(ATTACKER, *lane, 0)).count();
        assert_eq!(taken, QUEUE.of_one_max, "one host fills the queue");
        for number in 1..=3 {
            assert!(scene.put(VICTIM, 1, number), "another host has no room");
        }
        assert_eq!(scene.order()[..6], [0, 1, 0, 2, 0, 3], "each lane of the host has a turn");
        assert!(scene.order().is_empty());
    }

    #[test]
    fn hosts_that_fill_the_queue_leave_room_for_those_with_few_requests() {
        let mut scene = Scene::new();
        for host in 10..100 {
            let taken = (0..2000).filter(|lane| scene.put(Party::Host(Source(host)), *lane, 0)).count();
            assert!(taken <= QUEUE.of_one_max);
        }
        let strangers = (0..5).map(|lane| scene.put(Party::Strangers, lane, 0));
        assert!(strangers.eq([false; 5]), "ninety hosts are more than there is room for");
        while scene.turns.waiting >= QUEUE.places_max - QUEUE.few_max {
            scene.turns.next();
        }
        assert!(scene.put(VICTIM, 1, 1) && !scene.put(Party::Host(Source(10)), 1, 1));
    }

    /// As many hosts as an attacker forges are one party.
    #[test]
    fn strangers_have_the_turns_and_the_share_of_one() {
        let mut scene = Scene::new();
        let taken = (0..5000).filter(|host| scene.put(Party::Strangers, host % 1000, 0)).count();
        assert_eq!(taken, QUEUE.of_one_max);
        assert!((1..=3).all(|number| scene.put(VICTIM, 1, number)));
        assert_eq!(scene.order()[..6], [0, 1, 0, 2, 0, 3]);
        let taken = (0..100).filter(|_| scene.put(Party::Strangers, 1, 0)).count();
        assert_eq!(taken, STRANGERS_LINE_MAX);
    }
}
