//! How operations end other than well: refused, cancelled, timed out, abandoned.

use yonder_client::{Outcome, Payload, Received};
use yonder_wire::{ErrorCode, Kind};

use crate::lane::{kinds, lane, refusal};
use crate::node::{CAPABILITY, MEMORY_BYTES, Node, PID};

#[test]
fn refusals_end_an_operation_once_its_other_fragments_are_answered() {
    let mut lane = lane();
    lane.submit(Kind::Write, MEMORY_BYTES as u64 - 128, 256, 1);
    let sent = lane.transmit_all();
    lane.exchange(&sent[1]);
    assert_eq!(lane.completions(), [], "the other fragment is under way");
    lane.exchange(&sent[0]);
    assert_eq!(lane.outcomes(), [(1, Outcome::Refused(ErrorCode::BadAddress))]);

    lane.submit(Kind::Read, MEMORY_BYTES as u64 - 128, 4096, 2);
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 8);
    lane.exchange(&sent[1]);
    assert_eq!(lane.outcomes(), [(2, Outcome::Refused(ErrorCode::BadAddress))], "a read waits for nothing");
    assert!(lane.transmit().is_none() && lane.client.idle());
    assert_eq!(lane.exchange(&sent[0]), Received::Nothing);
}

#[test]
fn too_old_is_an_outcome() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    let sent = lane.transmit().unwrap();
    let answer = refusal(&sent, &lane, ErrorCode::TooOld);
    lane.receive(&answer);
    assert_eq!(lane.outcomes(), [(1, Outcome::Refused(ErrorCode::TooOld))]);
    assert!(lane.client.idle());
}

#[test]
fn a_read_that_is_cancelled_is_forgotten() {
    let mut lane = lane();
    let id = lane.submit(Kind::Read, 0, 256, 1);
    let sent = lane.transmit_all();
    lane.exchange(&sent[0]);
    lane.client.cancel(id);
    assert!(lane.client.idle() && lane.transmit().is_none());
    assert_eq!(lane.exchange(&sent[1]), Received::Nothing, "its buffer is not touched");
    lane.client.cancel(id);
    lane.submit(Kind::Read, 0, 8, 2);
    lane.client.cancel(id);
    lane.run();
    assert_eq!(lane.outcomes(), [(2, Outcome::Done)], "an old name cancels nothing");
}

#[test]
fn a_write_that_is_cancelled_keeps_its_pages_until_the_node_has_given_it_up() {
    let mut lane = lane();
    let id = lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap();
    lane.submit(Kind::Write, 0, 8, 2);
    lane.client.cancel(id);
    assert_eq!((lane.client.outstanding(), lane.client.stats().aborts), (1, 1));
    let aborts = lane.transmit_all();
    assert_eq!(kinds(&aborts), [(Kind::Abort, 0)]);
    let abort = aborts[0].header;
    assert_eq!((abort.first_id, abort.time, abort.fragment_offset), (first.header.first_id, first.header.time, 0));
    lane.wait();
    let again = lane.transmit().unwrap();
    assert_eq!((again.header.kind, again.header.first_id), (Kind::Abort, first.header.first_id));
    lane.exchange(&again);
    assert_eq!(lane.completions(), []);
    let second = lane.transmit().expect("the abort is answered");
    lane.exchange(&second);
    assert_eq!(lane.outcomes(), [(2, Outcome::Done)]);
    let late = lane.execute(&first);
    assert_eq!(lane.node.executions_of(first.header.first_id), 0);
    assert_eq!(lane.receive(&late), Received::Nothing);
    assert!(lane.client.idle());
}

#[test]
fn an_answer_that_comes_after_all_is_as_good_as_the_abort() {
    let mut lane = lane();
    let id = lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap();
    lane.client.cancel(id);
    let abort = lane.transmit().unwrap();
    let busy = refusal(&first, &lane, ErrorCode::Busy);
    lane.receive(&busy);
    assert!(!lane.client.idle(), "busy says nothing of other copies");
    lane.exchange(&first);
    assert!(lane.client.idle());
    assert_eq!(lane.exchange(&abort), Received::Nothing);
}

#[test]
fn an_abort_that_the_node_did_not_take_is_sent_again() {
    let mut lane = lane();
    let id = lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap();
    lane.client.cancel(id);
    for code in [ErrorCode::Corrupt, ErrorCode::Busy] {
        let abort = lane.transmit().unwrap();
        assert_eq!((abort.header.kind, abort.header.first_id), (Kind::Abort, first.header.first_id));
        let answer = refusal(&abort, &lane, code);
        lane.receive(&answer);
        assert!(!lane.client.idle());
    }
    lane.wait();
    let abort = lane.transmit().unwrap();
    let answer = refusal(&abort, &lane, ErrorCode::TooOld);
    lane.receive(&answer);
    assert!(lane.client.idle(), "what the node finds too old it will never execute");
}

#[test]
fn what_was_never_sent_needs_no_abort() {
    let mut lane = lane();
    let first = lane.submit(Kind::Write, 0, 8, 1);
    let held = lane.submit(Kind::Write, 0, 8, 2);
    lane.submit(Kind::Read, 0, 8, 3);
    lane.client.cancel(held);
    lane.client.cancel(first);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Read, 0)]);
    assert_eq!(lane.client.stats().aborts, 0);
}

#[test]
fn aborts_of_the_slow_path_say_so() {
    let mut lane = lane();
    let id = lane.submit(Kind::Discard, 0, 256, 1);
    assert_eq!(lane.transmit().unwrap().header.kind, Kind::Discard);
    lane.client.cancel(id);
    let abort = lane.transmit().unwrap().header;
    assert_eq!((abort.kind, abort.fragment_offset, abort.pid, abort.capability), (Kind::Abort, 1, PID, CAPABILITY));
}

#[test]
fn a_deadline_ends_the_wait_and_nothing_else() {
    let mut lane = lane();
    lane.submit_until(500, Kind::Write, 0, 8, 1);
    lane.submit_until(600, Kind::Read, 512, 8, 2);
    lane.submit_until(400, Kind::Write, 0, 8, 3);
    let sent = lane.transmit_all();
    lane.wait();
    assert_eq!((lane.now, lane.outcomes()), (400, vec![(3, Outcome::TimedOut)]));
    lane.wait();
    assert_eq!((lane.now, lane.outcomes()), (500, vec![(1, Outcome::TimedOut)]));
    lane.wait();
    assert_eq!((lane.now, lane.outcomes()), (600, vec![(2, Outcome::TimedOut)]));
    lane.submit(Kind::Read, 0, 8, 4);
    let abort = lane.transmit_all();
    assert_eq!(kinds(&abort), [(Kind::Abort, 0)], "the read waits for the abort");
    lane.exchange(&abort[0]);
    lane.run();
    assert_eq!(lane.outcomes(), [(4, Outcome::Done)]);
    lane.execute(&sent[0]);
    assert_eq!(lane.node.memory[..8], [0; 8]);
}

#[test]
fn an_abandoned_lane_begins_anew() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    let cancelled = lane.submit(Kind::Write, 512, 8, 2);
    lane.submit(Kind::Write, 0, 8, 3);
    lane.client.fence(4, lane.now).unwrap();
    let sent = lane.transmit_all();
    lane.client.cancel(cancelled);
    let late = lane.execute(&sent[0]);
    lane.client.abandon();
    assert_eq!(lane.outcomes(), [(1, Outcome::Lost), (3, Outcome::Lost), (4, Outcome::Lost)]);
    assert_eq!((lane.client.idle(), lane.client.timeout()), (true, None));
    assert_eq!(lane.receive(&late), Received::Nothing);
    lane.node = Node::new(8, 0);
    lane.submit(Kind::Write, 0, 8, 5);
    let ping = lane.transmit().unwrap();
    assert_eq!(ping.header.kind, Kind::Ping, "the clock of the new node is not known");
    lane.exchange(&ping);
    let write = lane.transmit().unwrap();
    assert!(write.header.time <= lane.node.clock(lane.now));
    lane.exchange(&write);
    assert_eq!(lane.outcomes(), [(5, Outcome::Done)]);
}

#[test]
fn the_caller_is_asked_for_nothing_after_the_end() {
    let mut lane = lane();
    lane.submit_until(500, Kind::Write, 0, 256, 1);
    assert!(matches!(lane.client.transmit(lane.now).unwrap().payload, Payload::Caller { offset: 0, length: 128 }));
    lane.wait();
    lane.data.clear();
    let mut asked = Vec::new();
    while asked.len() < 3 {
        asked.extend(kinds(&lane.transmit_all()));
        lane.wait();
    }
    assert_eq!(asked, [(Kind::Abort, 0); 3]);
}
