//! [`Turns`]: whose request a path executes next, and how many may wait.
//!
//! Hosts take turns, and within one its lanes do: a lane that asks for much, such as the pieces of a long discard,
//! waits behind itself and not in front of others; and a host that opens many lanes has the turns of one host, and a
//! share of the queue. A lane is a connection or the address of a socket.
//!
//! Turns are of time and not of requests ([`Rounds`]): one whose requests take long has fewer of them.
//!
//! A datagram that needs no capability and has none proves not even where it comes from. Strangers who send such are
//! one party together, with the turns and the share of one host.
//!
//! Invariants: at most [`QUEUE`] requests wait, in lines of at most [`LINE_MAX`]; what is more is refused as busy. A
//! line without requests is not kept.

use std::collections::VecDeque;
use std::time::Duration;

use yonder_board::{Share, Source};
use yonder_units::saturating_nanos;

use crate::forward::{Forwarded, Lane};
use crate::rounds::{Rounds, Waiting};

/// Requests that wait, and how many of one party.
const QUEUE: Share = Share { places_max: 1024, of_one_max: 256, few_max: 8 };
/// Requests of one lane that may wait.
const LINE_MAX: usize = 64;
/// Requests of strangers that may wait and seem to come from one host.
const STRANGERS_LINE_MAX: usize = 8;
/// Nanoseconds that a party gets in each round.
const QUANTUM: u32 = 200_000;

/// Who takes turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    /// A host, or a user of this machine.
    Host(Source),
    /// All who have shown nothing.
    Strangers,
}

/// The requests that wait, by party.
#[derive(Debug)]
pub(crate) struct Turns(Rounds<Party, Lines>);

/// The requests of one party; the next line first.
#[derive(Default, Debug)]
struct Lines {
    requests: usize,
    lines: VecDeque<Line>,
}

/// The requests of one lane, in order.
#[derive(Debug)]
struct Line {
    from: Lane,
    requests: VecDeque<Forwarded>,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Rounds::new(QUANTUM, 2 * QUEUE.places_max))
    }
}

impl Turns {
    /// Puts a request of `party` into the line of the lane that it came by; false if there is no room.
    pub(crate) fn put(&mut self, party: Party, from: Lane, request: Forwarded) -> bool {
        if !QUEUE.admits(self.0.len(), self.0.len_of(party)) {
            return false;
        }
        let line_max = if party == Party::Strangers { STRANGERS_LINE_MAX } else { LINE_MAX };
        self.0.change(party, |lines| lines.put(from, request, line_max))
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Option<Forwarded> {
        self.0.next().map(|(_, request)| request)
    }

    /// A request of a party has taken so long.
    pub(crate) fn charge(&mut self, party: Party, took: Duration) {
        self.0.charge(party, saturating_nanos(took));
    }
}

impl Lines {
    fn put(&mut self, from: Lane, request: Forwarded, line_max: usize) -> bool {
        match self.lines.iter_mut().find(|line| line.from == from) {
            Some(line) if line.requests.len() >= line_max => return false,
            Some(line) => line.requests.push_back(request),
            None => self.lines.push_back(Line { from, requests: VecDeque::from([request]) }),
        }
        self.requests += 1;
        true
    }
}

impl Waiting for Lines {
    type Item = Forwarded;

    fn pop(&mut self) -> Option<Forwarded> {
        let mut line = self.lines.pop_front()?;
        let request = line.requests.pop_front().expect("a line without requests is not kept");
        self.requests -= 1;
        if !line.requests.is_empty() {
            self.lines.push_back(line);
        }
        Some(request)
    }

    fn len(&self) -> usize {
        self.requests
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use yonder_wire::{Header, Kind, split};

    use super::*;
    use crate::event_loop::Inbox;
    use crate::forward::AnswerTo;
    use crate::gate::Wrap;
    use crate::owned_message::OwnedMessage;

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
            let request = Header::request(Kind::Ping, 1, number.into(), 0).seal(&[]);
            let message = OwnedMessage::new(&split(&request).unwrap().unwrap());
            self.turns.put(party, Lane::Connection(0, lane), Forwarded { message, party, answer_to })
        }

        /// The order in which they are executed, if each takes a whole round.
        fn order(&mut self) -> Vec<u8> {
            let mut next = || {
                let request = self.turns.next()?;
                self.turns.charge(request.party, Duration::from_nanos(QUANTUM.into()));
                Some(request.message.get().header.address as u8)
            };
            std::iter::from_fn(&mut next).collect()
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
        while scene.turns.0.len() >= QUEUE.places_max - QUEUE.few_max {
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

    /// One whose requests take forty times as long has as much time as the other, and no more requests than that.
    #[test]
    fn turns_are_of_time() {
        let mut scene = Scene::new();
        let (mut slow, mut quick) = (0u64, 0u64);
        for _ in 0..5000 {
            while scene.put(ATTACKER, 1, 0) {}
            while scene.put(VICTIM, 1, 1) {}
            let next = scene.turns.next().unwrap();
            let took = if next.party == ATTACKER { 2_000_000 } else { 50_000 };
            *(if next.party == ATTACKER { &mut slow } else { &mut quick }) += took;
            scene.turns.charge(next.party, Duration::from_nanos(took));
        }
        let share = quick as f64 / (slow + quick) as f64;
        assert!((0.45..0.55).contains(&share), "{share}");
    }
}
