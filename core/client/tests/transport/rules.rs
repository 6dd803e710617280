//! One rule at a time.

use yonder_client::{Config, Operation, Outcome, Received, SubmitError, Transport, WindowConfig};
use yonder_wire::{AtomicOperation, Direction, ErrorCode, Header, Kind, PAYLOAD_BYTES_MAX};

use crate::lane::{Lane, kinds, lane, refusal, small};
use crate::node::{CAPABILITY, OFFLOAD, PID, sealed};

#[test]
fn a_write_is_read_back() {
    let mut lane = lane();
    lane.submit(Kind::Write, 100, 300, 1);
    lane.run();
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
    lane.data.insert(2, vec![0; 300]);
    lane.submit(Kind::Read, 100, 300, 2);
    assert_eq!((lane.client.outstanding(), lane.client.idle()), (1, false));
    lane.run();
    assert_eq!(lane.outcomes(), [(2, Outcome::Done)]);
    assert_eq!(lane.data[&2], vec![1; 300]);
    assert_eq!((lane.client.outstanding(), lane.client.idle(), lane.client.timeout()), (0, true, None));
}

#[test]
fn fragments_are_requests_of_their_own_and_split_no_word() {
    let mut lane = lane();
    lane.submit(Kind::Write, 100, 300, 1);
    let sent = lane.transmit_all();
    let cuts: Vec<_> = sent.iter().map(|s| (s.header.address, s.header.length, s.header.fragment_offset)).collect();
    assert_eq!(cuts, [(100, 92, 0), (192, 128, 92), (320, 80, 220)]);
    for sent in &sent {
        assert_eq!(sent.header.first_id, sent.header.request_id);
        assert_eq!((sent.header.pid, sent.header.capability), (PID, CAPABILITY));
    }
    // In any order.
    for sent in sent.iter().rev() {
        assert!(lane.client.completion().is_none());
        lane.exchange(sent);
    }
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
}

#[test]
fn atomics_answer_the_old_word() {
    let mut lane = lane();
    lane.submit_atomic(AtomicOperation::FetchAdd(5), 8, 1);
    lane.submit_atomic(AtomicOperation::FetchAdd(5), 8, 2);
    lane.run();
    assert_eq!(lane.outcomes(), [(1, Outcome::Old(0)), (2, Outcome::Old(5))]);
}

#[test]
fn dependent_operations_wait_and_others_pass() {
    let mut lane = lane();
    lane.submit(Kind::Read, 0, 8, 1);
    lane.submit(Kind::Read, 8, 8, 2);
    lane.submit(Kind::Write, 255, 1, 3);
    lane.submit(Kind::Read, 250, 8, 4);
    lane.submit(Kind::Write, 512, 8, 5);
    let sent = lane.transmit_all();
    assert_eq!(kinds(&sent), [(Kind::Read, 0), (Kind::Read, 8), (Kind::Write, 512)]);
    lane.exchange(&sent[0]);
    assert!(lane.transmit().is_none(), "the write waits for both reads");
    lane.exchange(&sent[1]);
    let sent = lane.transmit_all();
    assert_eq!(kinds(&sent), [(Kind::Write, 255)]);
    lane.exchange(&sent[0]);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Read, 250)], "the read waited for the write");
}

#[test]
fn what_becomes_free_to_go_goes_in_order_of_submission() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap();
    lane.submit(Kind::Write, 0, 8, 2);
    lane.submit(Kind::Write, 512, 8, 3);
    lane.exchange(&first);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Write, 0), (Kind::Write, 512)]);
}

#[test]
fn a_fence_waits_for_all_and_all_for_it() {
    let mut lane = lane();
    lane.submit(Kind::Read, 0, 8, 1);
    lane.client.fence(2, lane.now).unwrap();
    lane.client.fence(3, lane.now).unwrap();
    lane.submit(Kind::Read, 2048, 8, 4);
    let sent = lane.transmit_all();
    assert_eq!((sent.len(), lane.completions().len()), (1, 0));
    lane.exchange(&sent[0]);
    assert_eq!(lane.outcomes(), [(1, Outcome::Done), (2, Outcome::Done), (3, Outcome::Done)]);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Read, 2048)]);
}

#[test]
fn an_operation_about_nothing_completes_in_its_turn() {
    let mut lane = lane();
    lane.submit(Kind::Read, 0, 0, 1);
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
    lane.submit(Kind::Read, 0, 8, 2);
    lane.client.fence(3, lane.now).unwrap();
    lane.submit(Kind::Write, 0, 0, 4);
    assert_eq!(lane.outcomes(), []);
    lane.run();
    assert_eq!(lane.outcomes().len(), 3);
}

#[test]
fn a_retry_has_a_new_name_and_names_the_first() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap();
    assert!(lane.transmit().is_none());
    lane.wait();
    assert_eq!(lane.now, 100 + 1000);
    let second = lane.transmit().unwrap();
    lane.wait();
    assert_eq!(lane.now, 1100 + 2000, "the timeout doubles");
    let third = lane.transmit().unwrap();
    for retry in [&second, &third] {
        assert_eq!(retry.header.first_id, first.header.request_id);
        assert_eq!(retry.header.time, first.header.time);
    }
    assert!(first.header.request_id < second.header.request_id && second.header.request_id < third.header.request_id);
    let answers = [&first, &second, &third].map(|sent| lane.execute(sent));
    assert_eq!(lane.node.executions_of(first.header.first_id), 1);
    lane.receive(&answers[1]);
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
    assert_eq!(lane.receive(&answers[0]), Received::Nothing);
    lane.submit(Kind::Read, 0, 8, 2);
    let read = lane.transmit().unwrap();
    assert_eq!(lane.receive(&answers[2]), Received::Nothing, "an answer to an earlier use of the slot");
    assert_eq!(lane.completions(), []);
    assert!(matches!(lane.exchange(&read), Received::Data { token: 2, offset: 0 }));
    let stats = lane.client.stats();
    assert_eq!((stats.sent, stats.retried, stats.late, stats.timeouts), (5, 2, 2, 2));
}

#[test]
fn retries_go_before_what_was_never_sent() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    lane.transmit().unwrap();
    lane.wait();
    lane.submit(Kind::Read, 512, 8, 2);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Write, 0), (Kind::Read, 512)]);
}

#[test]
fn a_corrupted_request_is_sent_again_at_once_but_not_for_ever() {
    let mut lane = lane();
    lane.submit(Kind::Write, 0, 8, 1);
    for attempt in 0..9 {
        let sent = lane.transmit().unwrap_or_else(|| panic!("attempt {attempt}"));
        let answer = refusal(&sent, &lane, ErrorCode::Corrupt);
        assert_eq!(lane.receive(&answer), Received::Nothing);
        lane.receive(&answer);
    }
    assert!(lane.transmit().is_none(), "now it is left alone for a while");
    lane.wait();
    lane.run();
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
    assert_eq!((lane.client.stats().nacks, lane.client.stats().timeouts), (18, 0));
}

#[test]
fn a_busy_node_is_left_alone_for_longer_and_longer() {
    for transport in [Transport::Datagram, Transport::Stream] {
        let mut lane = Lane::with_clock(small(transport));
        lane.submit(Kind::Write, 0, 8, 1);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let sent = lane.transmit().unwrap();
            lane.now += 100;
            let answer = refusal(&sent, &lane, ErrorCode::Busy);
            lane.receive(&answer);
            assert!(lane.transmit().is_none());
            let before = lane.now;
            lane.wait();
            pauses.push(lane.now - before);
        }
        assert_eq!(pauses, [100, 200, 400, 800]);
        lane.run();
        assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
        assert_eq!(lane.client.stats().busy, 4);
    }
}

#[test]
fn the_nodes_clock_is_asked_for_before_it_is_needed_and_not_for_reads() {
    let mut lane = Lane::new(small(Transport::Datagram));
    lane.submit(Kind::Read, 512, 8, 1);
    assert_eq!(kinds(&lane.transmit_all()), [(Kind::Read, 512)]);
    lane.submit(Kind::Write, 0, 8, 2);
    lane.submit(Kind::Read, 768, 8, 3);
    let sent = lane.transmit_all();
    assert_eq!(kinds(&sent), [(Kind::Ping, 0), (Kind::Read, 768)]);
    lane.exchange(&sent[0]);
    let write = lane.transmit().unwrap();
    assert_eq!(write.header.time, lane.node.clock(lane.now));
    lane.exchange(&write);
    lane.now += 10_000_000_001;
    lane.submit(Kind::Write, 0, 8, 4);
    let sent = lane.transmit_all();
    assert_eq!(kinds(&sent), [(Kind::Ping, 0)], "what was heard is too old");
    lane.exchange(&sent[0]);
    let write = lane.transmit().unwrap();
    assert!(
        write.header.time <= lane.node.clock(lane.now) && write.header.time > lane.node.clock(lane.now) - 10_000_000
    );
}

#[test]
fn a_ping_that_nobody_waits_for_ends() {
    let mut lane = Lane::new(small(Transport::Datagram));
    let id = lane.submit(Kind::Write, 0, 8, 1);
    assert_eq!(lane.transmit().unwrap().header.kind, Kind::Ping);
    lane.client.cancel(id);
    lane.wait();
    assert_eq!((lane.client.timeout(), lane.transmit().is_none()), (None, true));
}

#[test]
fn the_congestion_window_bounds_what_is_unanswered() {
    let window = WindowConfig { packets_initial: 2.0, ..WindowConfig::default() };
    let mut lane = Lane::new(Config { window, ..small(Transport::Datagram) });
    (0..8).for_each(|at| _ = lane.submit(Kind::Read, 8 * at, 8, at));
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 2);
    lane.exchange(&sent[0]);
    assert_eq!(lane.transmit_all().len(), 1, "one for one, as the window is not yet three");
    lane.now += 1000;
    lane.client.advance(lane.now);
    assert!(lane.client.stats().window_packets < 2.0);
    assert_eq!(lane.transmit_all().len(), 1, "after a loss one at a time");
}

#[test]
fn below_one_packet_they_are_paced() {
    let window = WindowConfig { packets_initial: 0.1, delay_target: 1, ..WindowConfig::default() };
    let mut lane = Lane::new(Config { window, ..small(Transport::Datagram) });
    (0..2).for_each(|at| _ = lane.submit(Kind::Read, 8 * at, 8, at));
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 1);
    lane.now += 100;
    lane.exchange(&sent[0]);
    assert!(lane.transmit().is_none());
    let packets = lane.client.stats().window_packets;
    assert!((0.05..0.06).contains(&packets), "{packets}");
    lane.wait();
    assert_eq!(lane.now, 100 + (100.0 / packets) as u64);
    assert_eq!(lane.transmit_all().len(), 1);
}

#[test]
fn the_incast_window_bounds_expected_bytes_but_lets_one_answer_through() {
    let mut lane = Lane::new(Config { incast_bytes: 100, ..small(Transport::Stream) });
    lane.submit(Kind::Read, 0, 128, 1);
    lane.submit(Kind::Read, 0, 60, 2);
    lane.submit(Kind::Read, 0, 40, 3);
    lane.submit(Kind::Read, 0, 1, 4);
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 1, "a larger answer goes alone");
    lane.exchange(&sent[0]);
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 2);
    lane.exchange(&sent[0]);
    assert_eq!(lane.transmit_all().len(), 1);
}

#[test]
fn a_stream_is_patient_until_it_breaks() {
    let window = WindowConfig { packets_initial: 1.0, ..WindowConfig::default() };
    let mut lane = Lane::with_clock(Config { window, ..small(Transport::Stream) });
    lane.submit(Kind::Write, 0, 256, 1);
    lane.submit(Kind::Read, 512, 8, 2);
    let sent = lane.transmit_all();
    assert_eq!((sent.len(), lane.client.timeout()), (3, None));
    lane.execute(&sent[0]);
    lane.client.reconnected(lane.now);
    let again = lane.transmit_all();
    assert_eq!(kinds(&again), kinds(&sent));
    assert!(again.iter().zip(&sent).all(|(again, sent)| again.header.first_id == sent.header.request_id));
    again.iter().for_each(|sent| _ = lane.exchange(sent));
    assert_eq!(lane.outcomes(), [(1, Outcome::Done), (2, Outcome::Done)]);
    assert_eq!(lane.node.executions.len(), 3);
}

#[test]
fn a_full_client_takes_nothing_until_completions_are_taken() {
    let mut lane = lane();
    (0..8).for_each(|token| _ = lane.submit(Kind::Read, 0, 8, token));
    assert!(!lane.client.has_room());
    let more = Lane::operation(Kind::Read, 0, 8, 9);
    assert_eq!(lane.try_submit(&more), Err(SubmitError::Full));
    lane.run();
    assert_eq!(lane.try_submit(&more), Err(SubmitError::Full));
    assert_eq!(lane.client.completion().map(|completion| completion.token), Some(0));
    assert!(lane.try_submit(&more).is_ok());
}

#[test]
fn more_fragments_than_slots_go_in_turns() {
    let mut lane = lane();
    lane.submit(Kind::Read, 0, 2048, 1);
    let sent = lane.transmit_all();
    assert_eq!(sent.len(), 8);
    sent.iter().for_each(|sent| _ = lane.exchange(sent));
    assert_eq!(lane.transmit_all().len(), 8);
}

#[test]
fn answers_of_the_slow_and_the_extend_path_go_to_the_caller() {
    let mut lane = lane();
    lane.submit(Kind::Status, 0, 0, 1);
    lane.data.insert(2, b"some arguments".to_vec());
    lane.submit(Kind::Call, OFFLOAD, 14, 2);
    lane.try_submit(&Operation { body: b"few", ..Lane::operation(Kind::Call, OFFLOAD, 0, 3) }).unwrap();
    lane.submit(Kind::Call, OFFLOAD + 1, 0, 4);
    lane.run();
    assert_eq!(lane.answers.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&lane.answers[1].1[..], &lane.answers[2].1[..]), (&b"some arguments"[..], &b"few"[..]));
    assert_eq!(lane.outcomes()[3], (4, Outcome::Refused(ErrorCode::NoOffload)));
}

#[test]
fn a_long_discard_goes_in_pieces_few_at_a_time() {
    const PIECE: u64 = 1 << 20;
    let mut lane = lane();
    lane.submit(Kind::Discard, 4096, 20 * PIECE, 1);
    let sent: Vec<_> =
        lane.transmit_all().iter().map(|sent| (sent.header.address, sent.header.length.into())).collect();
    let pieces = (1..8).map(|piece| (piece * PIECE, PIECE));
    assert_eq!(sent, std::iter::once((4096, PIECE - 4096)).chain(pieces).collect::<Vec<_>>());
    assert!(lane.transmit().is_none(), "the others wait for answers");
}

#[test]
fn answers_that_do_not_fit_are_dropped() {
    let mut lane = lane();
    lane.submit(Kind::Read, 0, 8, 1);
    let sent = lane.transmit().unwrap();
    let short = sealed(&sent.header.answer(5, 4), &[0; 4]);
    let other = sealed(&Header { kind: Kind::Write, ..sent.header.answer(5, 8) }, &[]);
    let request = sealed(&sent.header, &[]);
    let unknown = sealed(&Header { request_id: 77, first_id: 77, ..sent.header.answer(5, 8) }, &[0; 8]);
    let future = sent.header.request_id + 16;
    let future = sealed(&Header { request_id: future, first_id: future, ..sent.header.answer(5, 8) }, &[0; 8]);
    let heard = lane.client.answers_heard();
    for bytes in [short, other, request, unknown, future] {
        assert_eq!(lane.receive(&bytes), Received::Nothing);
    }
    assert_eq!((lane.client.stats().unfit, lane.client.stats().late), (3, 2));
    assert_eq!((lane.completions(), lane.client.answers_heard()), (vec![], heard), "none says that the node is there");
    lane.exchange(&sent);
    assert_eq!((lane.outcomes(), lane.client.answers_heard()), (vec![(1, Outcome::Done)], heard + 1));
}

#[test]
fn a_retry_never_runs_out_of_names_that_the_header_can_tell() {
    let mut lane = Lane::with_clock(Config { fragments_max: 1 << 16, ..small(Transport::Stream) });
    lane.submit(Kind::Write, 0, 8, 1);
    let first = lane.transmit().unwrap().header;
    for _ in 0..(1 << 15) + 10 {
        lane.client.reconnected(lane.now);
        let retry = lane.transmit().unwrap().header;
        assert_eq!((retry.first_id, retry.direction), (first.first_id, Direction::Request));
    }
    lane.client.reconnected(lane.now);
    let sent = lane.transmit().unwrap();
    lane.exchange(&sent);
    assert_eq!(lane.outcomes(), [(1, Outcome::Done)]);
    assert_eq!(lane.node.executions_of(first.first_id), 1);
}

#[test]
fn limits_of_operations_are_asserted() {
    let long = Operation { body: &[], ..Lane::operation(Kind::Call, OFFLOAD, PAYLOAD_BYTES_MAX as u64 + 1, 1) };
    let huge = Lane::operation(Kind::Read, 0, 1 << 32, 1);
    let abort = Lane::operation(Kind::Abort, 0, 0, 1);
    for operation in [long, huge, abort] {
        let refused = std::panic::catch_unwind(|| _ = Lane::new(small(Transport::Stream)).client.submit(&operation, 0));
        assert!(refused.is_err(), "{operation:?}");
    }
}
