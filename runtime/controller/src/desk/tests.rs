//! [`Desk`] by itself: connections are threads, or what one thread says for all of them.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use yonder_placement::{NodeReport, Request};

use super::*;
use crate::peers::Peers;

impl Desk {
    /// Of a connection.
    pub(crate) fn standing(&self, peer: PeerId) -> Standing {
        Standing { shared: Arc::clone(&self.0), peer }
    }

    /// A connection that has begun, and of that nothing is heard.
    fn mouth(&self, peer: u64, party: Party) -> Mouth {
        let place = Peers::default().admit(party.clone()).unwrap();
        let may_be_node = true;
        Mouth { shared: Arc::clone(&self.0), peer: PeerId(peer), party, may_be_node, room: Arc::default(), place }
    }

    /// Waits until a thread waits here.
    pub(crate) fn until_one_sleeps(&self) {
        while self.0.lock().sleepers == 0 {
            thread::yield_now();
        }
    }

    fn has(&self, peer: u64) -> usize {
        self.0.lock().counts.get(&PeerId(peer)).copied().unwrap_or(0)
    }
}

fn named(name: &str) -> Party {
    Party::Member(name.to_owned())
}

fn asked(id: u64) -> ToController {
    ToController::Ask { id, request: Request::Nodes }
}

fn heard(inbox: &Inbox) -> Option<(u64, u64)> {
    match inbox.hear(Duration::ZERO).arrival {
        Arrival::Line(peer, line, _) => match *line {
            ToController::Ask { id, .. } => Some((peer.0, id)),
            line => panic!("{line:?}"),
        },
        Arrival::Nothing => None,
        other => panic!("{other:?}"),
    }
}

/// What a thread of its own comes to: one that is not told of what it waits for fails the test, and does not keep it.
struct Other<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Other<T> {
    /// Of what waits at the desk.
    fn sleeping(desk: &Desk, what: impl FnOnce() -> T + Send + 'static) -> Self {
        let (done, other) = mpsc::channel();
        thread::spawn(move || done.send(what()));
        desk.until_one_sleeps();
        Self(other)
    }

    fn join(self) -> T {
        self.0.recv_timeout(Duration::from_secs(20)).expect("it was not told")
    }
}

#[test]
fn parties_are_heard_in_turn_and_connections_in_their_order() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut many: Vec<Mouth> = (0..10).map(|peer| desk.mouth(peer, named("many"))).collect();
    for id in 0..2 {
        many.iter_mut().for_each(|mouth| mouth.say(asked(id), None).unwrap());
    }
    let mut one = desk.mouth(77, named("one"));
    let mut node = desk.mouth(78, named("many"));
    inbox.admit(PeerId(78));
    for id in 0..2 {
        one.say(asked(id), None).unwrap();
        node.say(asked(id), None).unwrap();
    }
    let order: Vec<_> = std::iter::from_fn(|| heard(&inbox)).collect();
    assert_eq!(order[..6], [(0, 0), (77, 0), (78, 0), (1, 0), (77, 1), (78, 1)]);
    assert_eq!(
        order[6..],
        [2, 3, 4, 5, 6, 7, 8, 9]
            .map(|peer| (peer, 0))
            .into_iter()
            .chain((0..10).map(|peer| (peer, 1)))
            .collect::<Vec<_>>()
    );
}

/// A time that is later than that of a renewal which waits once ended leases that were renewed in time.
#[test]
fn nothing_is_heard_for_a_time_later_than_what_waits() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut many = desk.mouth(1, named("many"));
    let mut one = desk.mouth(2, named("one"));
    many.say(asked(0), None).unwrap();
    many.say(asked(1), None).unwrap();
    one.say(asked(2), None).unwrap();
    desk.mouth(9, named("gone")).end(None);
    let read: Vec<Instant> = desk.0.lock().times.iter().map(|(read, _)| *read).collect();
    let order = [read[0], read[0], read[1], read[1]];
    for came in order {
        let said = inbox.hear(Duration::ZERO);
        assert_eq!(said.came, came);
        if let Arrival::Line(_, line, _) = said.arrival {
            let ToController::Ask { id, .. } = *line else { panic!("{line:?}") };
            assert_eq!(said.read, read[usize::try_from(id).unwrap()], "a line has its own time too");
        }
    }
    assert!(inbox.hear(Duration::ZERO).came > read[2], "now that nothing waits");
}

/// What a tenant has waiting once kept dead nodes for as long as it waited.
#[test]
fn leases_of_nodes_wait_for_what_nodes_say_alone() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let report = || ToController::Report(NodeReport::default());
    let mut tenant = Mouth { may_be_node: false, ..desk.mouth(1, named("tenant")) };
    let mut node = desk.mouth(2, named("node"));
    // A tenant reports nothing, whatever it says.
    tenant.say(report(), None).unwrap();
    tenant.say(asked(0), None).unwrap();
    node.say(asked(0), None).unwrap();
    node.say(report(), None).unwrap();
    let read: Vec<Instant> = desk.0.lock().times.iter().map(|(read, _)| *read).collect();
    for came in [read[0], read[1], read[1], read[3]] {
        let said = inbox.hear(Duration::ZERO);
        assert_eq!((said.came, said.nodes_came), (came, read[3]));
    }
    assert!(inbox.hear(Duration::ZERO).nodes_came > read[3], "now that nothing waits");
}

/// They once counted as words of nodes, and kept dead nodes for as long as they waited.
#[test]
fn leases_of_nodes_wait_for_nothing_that_is_not_known() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut stranger = desk.mouth(1, named("stranger"));
    for ask in [Some(7), None] {
        stranger.say(ToController::Unknown { ask }, None).unwrap();
    }
    desk.mouth(2, named("node")).say(ToController::Report(NodeReport::default()), None).unwrap();
    let read: Vec<Instant> = desk.0.lock().times.iter().map(|(read, _)| *read).collect();
    let said = inbox.hear(Duration::ZERO);
    assert_eq!((said.came, said.nodes_came), (read[0], read[2]));
}

#[test]
fn that_a_connection_begins_or_ends_waits_for_no_line_of_another() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut many = desk.mouth(1, named("many"));
    (0..4).for_each(|id| many.say(asked(id), None).unwrap());
    desk.mouth(2, named("gone")).end(None);
    assert!(matches!(inbox.hear(Duration::ZERO).arrival, Arrival::End(PeerId(2), None, _)));
    // All that a connection has said is heard before its end.
    thread::scope(|scope| {
        let ending = scope.spawn(|| many.end(Some("wrong".to_owned())));
        for id in 0..4 {
            assert_eq!(heard(&inbox), Some((1, id)));
        }
        ending.join().unwrap();
    });
    assert!(matches!(inbox.hear(Duration::ZERO).arrival, Arrival::End(PeerId(1), Some(_), _)));
}

#[test]
fn a_connection_waits_while_it_has_many_lines_here_and_others_do_not() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    thread::scope(|scope| {
        let mut mouth = desk.mouth(1, named("much"));
        let saying = scope.spawn(move || (0..100).for_each(|id| mouth.say(asked(id), None).unwrap()));
        for id in 0..100 {
            let Arrival::Line(_, line, _) = inbox.hear(Duration::from_secs(10)).arrival else {
                panic!("line {id} does not come")
            };
            assert!(matches!(*line, ToController::Ask { id: said, .. } if said == id) && desk.has(1) <= LINES_MAX);
        }
        saying.join().unwrap();
    });
    let mut node = desk.mouth(2, named("node"));
    inbox.admit(PeerId(2));
    (0..64).for_each(|id| node.say(asked(id), None).unwrap());
    assert_eq!(desk.has(2), LINES_OF_NODE_MAX);
}

#[test]
fn who_waits_is_told_when_nothing_is_heard_any_more() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let (mut first, last) = (desk.mouth(1, named("a")), desk.mouth(2, named("b")));
    (0..4).for_each(|id| first.say(asked(id), None).unwrap());
    let saying = Other::sleeping(&desk, move || (first.say(asked(5), None), first));
    drop(inbox);
    let (said, mut first) = saying.join();
    assert_eq!(said, Err(Over));
    last.end(None);
    assert!(desk.0.lock().is_idle());
    assert_eq!(first.say(asked(6), None), Err(Over));
}

#[test]
fn who_waits_for_room_is_told_of_the_first_and_who_ends_of_the_last() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut mouth = desk.mouth(1, named("a"));
    (0..4).for_each(|id| mouth.say(asked(id), None).unwrap());
    let saying = Other::sleeping(&desk, move || mouth.say(asked(4), None).map(|()| mouth));
    assert_eq!(heard(&inbox), Some((1, 0)));
    let mouth = saying.join().unwrap();
    for id in 1..4 {
        assert_eq!(heard(&inbox), Some((1, id)));
    }
    let ending = Other::sleeping(&desk, move || mouth.end(None));
    assert_eq!(heard(&inbox), Some((1, 4)));
    ending.join();
}

#[test]
fn who_hears_is_told_of_all_that_comes() {
    let desk = Desk::default();
    let next = |inbox: Inbox| Other::sleeping(&desk, move || (inbox.hear(Duration::from_secs(3600)).arrival, inbox));
    let mut mouth = desk.mouth(1, named("a"));
    let hearing = next(desk.inbox());
    mouth.say(asked(1), None).unwrap();
    let (arrival, inbox) = hearing.join();
    assert!(matches!(arrival, Arrival::Line(PeerId(1), ..)));
    let hearing = next(inbox);
    mouth.end(None);
    let (arrival, inbox) = hearing.join();
    assert!(matches!(arrival, Arrival::End(PeerId(1), ..)));
    let hearing = next(inbox);
    desk.stop();
    assert!(matches!(hearing.join().0, Arrival::Stop));
}

/// Their readers wait for what the other end says, which is not heard any more.
#[test]
fn connections_of_which_was_not_heard_end_with_all() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream: Stream = listener.accept().unwrap().0.into();
    let desk = Desk::default();
    let inbox = desk.inbox();
    let place = Peers::default().admit(named("a")).unwrap();
    let source = Host::of(Ipv4Addr::LOCALHOST.into());
    let _mouth = desk.begin(PeerId(1), stream.clone(), source, None, place).unwrap();
    drop(inbox);
    there.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(there.read(&mut [0]).expect("it has ended"), 0);
    drop(stream);
}

/// Those who come and go faster than they are heard once kept all others waiting.
#[test]
fn lines_are_heard_between_what_begins_and_ends_and_none_before_its_connection() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let gone = |peer| desk.mouth(peer, named("gone")).end(None);
    let mut first = desk.mouth(1, named("a"));
    (0..3).for_each(|id| first.say(asked(id), None).unwrap());
    (10..13).for_each(gone);
    // This one says something, and of its beginning was not heard yet.
    let mut later = desk.mouth(2, named("b"));
    later.say(asked(0), None).unwrap();
    (13..16).for_each(gone);
    let said = std::iter::from_fn(|| match inbox.hear(Duration::ZERO).arrival {
        Arrival::End(peer, ..) | Arrival::Line(peer, ..) => Some(peer.0),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [10, 1, 11, 12, 2, 13, 1, 14, 1, 15]);
}

/// Whoever begins as a node does once had turns for each of its connections.
#[test]
fn a_node_has_its_own_turns_once_it_was_admitted_with_what_it_has_said() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut many: Vec<Mouth> = (0..3).map(|peer| desk.mouth(peer, named("many"))).collect();
    for mouth in &mut many {
        (0..4).for_each(|id| mouth.say(asked(id), None).unwrap());
    }
    assert_eq!((heard(&inbox), desk.0.lock().turns.len()), (Some((0, 0)), 1));
    inbox.admit(PeerId(2));
    many[2].say(asked(4), None).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| heard(&inbox)).collect();
    assert_eq!(order[..6], [(0, 1), (2, 0), (0, 2), (2, 1), (0, 3), (2, 2)]);
    let of_node = order.iter().filter(|(peer, _)| *peer == 2).map(|(_, id)| *id);
    assert_eq!(of_node.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(desk.0.lock().is_idle() && desk.0.lock().counts.is_empty());
    many.pop().unwrap().end(None);
    assert!(matches!(inbox.hear(Duration::ZERO).arrival, Arrival::End(PeerId(2), ..)));
    assert!(desk.0.lock().nodes.is_empty());
}

/// A reader that waits for room as one of many once waited until all of its lines were heard.
#[test]
fn a_node_that_is_admitted_has_room_at_once() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let mut node = desk.mouth(1, named("a"));
    (0..4).for_each(|id| node.say(asked(id), None).unwrap());
    let saying = Other::sleeping(&desk, move || node.say(asked(4), None));
    inbox.admit(PeerId(1));
    assert_eq!(saying.join(), Ok(()));
    assert_eq!(desk.has(1), 5);
}

/// A place that was free before its end was heard let any number of ends, and of open sockets, wait.
#[test]
fn a_connection_has_its_place_until_its_end_was_heard() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    let peers = Peers::default();
    let place = peers.admit(named("a")).unwrap();
    Mouth { place, ..desk.mouth(1, named("a")) }.end(None);
    assert_eq!(peers.all(), 1);
    drop(inbox.hear(Duration::ZERO));
    assert_eq!(peers.all(), 0);
}

#[test]
fn a_server_that_stops_waits_for_nothing() {
    let desk = Desk::default();
    let inbox = desk.inbox();
    desk.mouth(1, named("a")).say(asked(1), None).unwrap();
    desk.stop();
    assert!(matches!(inbox.hear(Duration::from_secs(3600)).arrival, Arrival::Stop));
}

proptest! {
    /// Whoever says what: each line is heard once and in the order of its connection, no party is heard twice while
    /// another waits that was there before, and nothing is heard for a time later than what waits.
    #[test]
    fn all_is_heard_once_in_order_and_in_turn(steps in prop::collection::vec((0_u64..9, any::<bool>()), 0..200)) {
        let desk = Desk::default();
        let inbox = desk.inbox();
        let mut mouths: Vec<Mouth> = (0..9).map(|peer| desk.mouth(peer, named(&(peer % 3).to_string()))).collect();
        let (mut said, mut told) = ([0_u64; 9], [0_u64; 9]);
        // Turns that others have had since the line that a party has waiting was its first one.
        let mut passed = [[0_u32; 3]; 3];
        let mut hear = |said: &[u64; 9]| -> Result<bool, TestCaseError> {
            let earliest = desk.0.lock().times.first().map(|(read, _)| *read);
            let Said { arrival, came, .. } = inbox.hear(Duration::ZERO);
            let Arrival::Line(peer, line, _) = arrival else { return Ok(false) };
            prop_assert!(earliest.is_some_and(|earliest| came <= earliest));
            let ToController::Ask { id, .. } = *line else { unreachable!("nothing else is said") };
            let peer = peer.0 as usize;
            prop_assert_eq!(id, told[peer]);
            told[peer] += 1;
            let party = peer % 3;
            passed[party] = [0; 3];
            for other in (0..3).filter(|other| *other != party) {
                let waits = (0..9).any(|peer| peer % 3 == other && said[peer] > told[peer]);
                passed[other][party] = if waits { passed[other][party] + 1 } else { 0 };
                prop_assert!(passed[other][party] <= 2, "{other} waits while {party} is heard again");
            }
            Ok(true)
        };
        for (peer, says) in steps {
            let at = peer as usize;
            if says && desk.has(peer) < LINES_MAX {
                mouths[at].say(asked(said[at]), None).unwrap();
                said[at] += 1;
            } else {
                hear(&said)?;
            }
        }
        while hear(&said)? {}
        prop_assert_eq!(said, told);
        let waiting = desk.0.lock();
        prop_assert!(waiting.is_idle() && waiting.lines.is_empty());
        prop_assert!(waiting.counts.is_empty() && waiting.times.is_empty());
        prop_assert!(waiting.times_of_nodes.is_empty());
    }
}
