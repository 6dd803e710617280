//! Operations on segments of a page: several requests, one completion.

use yonder_fabric::{PageRead, PageWrite, ReadInto, RemoteAddress, Status, Vector, WorkId};
use yonder_units::{FrameIndex, PAGE_BYTES};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::messages::sealed;
use crate::scene::{NODE_TIME, Scene, done, ended, refusal};

const PAGE: u64 = PAGE_BYTES as u64;

/// Where the segments of the vector begin and end.
const SEGMENTS: [(u64, u64); 3] = [(16, 48), (1024, 2048), (4080, 4096)];

fn vector() -> Vector {
    Vector::new(SEGMENTS.map(|(start, end)| start as usize..end as usize))
}

/// The node's answer to a read of one segment.
fn bytes(request: &Header, byte: u8) -> Vec<u8> {
    sealed(&request.answer(NODE_TIME, request.length), &vec![byte; request.length as usize])
}

/// A page of which every segment begins with another byte, the first with `number`.
fn content(number: u8) -> Vec<u8> {
    (0..PAGE_BYTES).map(|byte| number ^ (byte / 256) as u8).collect()
}

/// What a write of a page with the content of `number` brings to where `request` says.
fn part(number: u8, request: &Header) -> Vec<u8> {
    let start = (request.address % PAGE) as usize;
    content(number)[start..start + request.length as usize].to_vec()
}

impl Scene {
    /// Posts a read of segments of page `id` into frame `id`, and returns the requests that the node sees.
    fn asked_for_segments(&mut self, id: u64) -> [Header; 3] {
        let (from, into) = (RemoteAddress(id * PAGE), ReadInto::Frame(FrameIndex(id as u32)));
        let read = PageRead { from, into, vector: vector() };
        self.queue_pair.post_read_vector(WorkId(id), read, yonder_clock::now()).unwrap();
        SEGMENTS.map(|_| self.request().0)
    }

    /// Posts a write of segments of frame `frame`, which has the content of `number`, to page `page`.
    fn write_segments(&mut self, id: u64, page: u64, frame: u32, number: u8) {
        self.frames.write(FrameIndex(frame).offset(), &content(number));
        let write = PageWrite { to: RemoteAddress(page * PAGE), from: FrameIndex(frame), vector: vector() };
        self.queue_pair.post_write_vector(WorkId(id), write, yonder_clock::now()).unwrap();
    }

    /// The page of frame `frame`.
    fn page(&self, frame: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        self.frames.read(FrameIndex(frame).offset(), &mut page);
        page
    }
}

#[test]
fn the_segments_of_a_read_arrive_in_any_order_and_end_as_one() {
    let mut scene = Scene::steady();
    let requests = scene.asked_for_segments(1);
    for (request, (start, end)) in requests.iter().zip(SEGMENTS) {
        let expected = (Kind::Read, PAGE + start, (end - start) as u32);
        assert_eq!((request.kind, request.address, request.length), expected);
    }
    assert_eq!(scene.queue_pair.outstanding(), 1);
    // What is answered to something else meanwhile is not held up.
    for (at, byte) in [(2, 3), (0, 1), (1, 2)] {
        let other = scene.asked(2);
        scene.send(&[bytes(&requests[at], byte), bytes(&other, 9)].concat());
        let last = [ended(1, Status::Done), ended(2, Status::Done)];
        let expected = if at == 1 { &last[..] } else { &last[1..] };
        assert_eq!(scene.until(|ended| ended.len() == expected.len()), expected);
    }
    let mut expected = vec![0xee; PAGE_BYTES];
    for ((start, end), byte) in SEGMENTS.into_iter().zip(1..) {
        expected[start as usize..end as usize].fill(byte);
    }
    assert!(scene.page(1) == expected, "bytes outside of the segments have changed, or inside they have not");
    assert_eq!(scene.queue_pair.outstanding(), 0);
}

#[test]
fn the_segments_of_a_write_are_sent_together_and_end_as_one() {
    let mut scene = Scene::steady();
    scene.write_segments(1, 3, 0, 0x11);
    let requests = SEGMENTS.map(|_| scene.request());
    for ((request, payload), (start, end)) in requests.iter().zip(SEGMENTS) {
        assert_eq!((request.kind, request.address), (Kind::Write, 3 * PAGE + start));
        assert_eq!((*payload == part(0x11, request), payload.len() as u64), (true, end - start));
    }
    scene.send(&[done(&requests[1].0), done(&requests[2].0)].concat());
    let other = scene.asked(2);
    scene.send(&bytes(&other, 9));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    scene.send(&done(&requests[0].0));
    assert_eq!(scene.completes(), [ended(1, Status::Done)]);
}

#[test]
fn one_segment_that_fails_ends_all_and_those_that_come_later_count_for_nothing() {
    let mut scene = Scene::steady();
    let late = scene.asked_for_segments(1);
    scene.send(&refusal(&late[1], ErrorCode::BadAddress));
    assert_eq!(scene.completes(), [ended(1, Status::Failed)]);
    assert_eq!((scene.frame(1), scene.queue_pair.outstanding()), (0xee, 0));
    // The next operation takes the same slot and the same frame.
    let next = scene.asked_for_segments(1);
    scene.send(&[bytes(&late[0], 7), bytes(&late[2], 7)].concat());
    scene.send(&next.map(|request| bytes(&request, 8)).concat());
    assert_eq!(scene.completes(), [ended(1, Status::Done)]);
    assert!(!scene.page(1).contains(&7), "an answer to a question of before has been taken");
}

#[test]
fn a_cancelled_operation_ends_with_all_of_its_segments() {
    let mut scene = Scene::steady();
    let late = scene.asked_for_segments(1);
    scene.send(&bytes(&late[0], 7));
    let other = scene.asked(2);
    scene.send(&bytes(&other, 9));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    scene.queue_pair.cancel(WorkId(1));
    assert_eq!(scene.queue_pair.outstanding(), 0);
    scene.frames.write(FrameIndex(1).offset(), &[0xee; PAGE_BYTES]);
    let other = scene.asked(2);
    scene.send(&[bytes(&late[1], 7), bytes(&late[2], 7), bytes(&other, 9)].concat());
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    assert_eq!(scene.frame(1), 0xee);
}

#[test]
fn a_write_waits_until_the_node_has_given_up_the_segments_it_shares_with_a_cancelled_one() {
    let mut scene = Scene::steady();
    scene.write_segments(1, 3, 0, 0x11);
    let first = SEGMENTS.map(|_| scene.request().0);
    scene.send(&done(&first[0]));
    let other = scene.asked(2);
    scene.send(&bytes(&other, 9));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    scene.queue_pair.cancel(WorkId(1));
    scene.write_segments(3, 3, 1, 0x22);
    // The first segment was acknowledged before, so nothing can come after it.
    let mut seen: Vec<_> = (0..3).map(|_| scene.request()).collect();
    seen.sort_by_key(|(request, _)| (request.kind != Kind::Abort, request.first_id));
    let [(one, _), (two, _), (write, payload)] = &seen[..] else { unreachable!("three were taken") };
    assert_eq!((one.kind, two.kind), (Kind::Abort, Kind::Abort));
    assert_eq!([one.first_id, two.first_id], [first[1].first_id, first[2].first_id]);
    assert_eq!((write.kind, write.address, payload[0]), (Kind::Write, 3 * PAGE + SEGMENTS[0].0, 0x22));
    scene.send(&[done(write), sealed(&one.answer(NODE_TIME, 1), &[]), sealed(&two.answer(NODE_TIME, 0), &[])].concat());
    let rest = [scene.request(), scene.request()];
    assert!(rest.iter().all(|(request, payload)| request.kind == Kind::Write && *payload == part(0x22, request)));
    scene.send(&rest.map(|(request, _)| done(&request)).concat());
    assert_eq!(scene.completes(), [ended(3, Status::Done)]);
}

#[test]
fn a_post_that_is_refused_leaves_nothing_of_itself_on_the_lane() {
    /// Requests that a lane has room for, beside those of a full queue pair.
    const ROOM: u64 = 256;
    let mut scene = Scene::steady();
    let depth = scene.queue_pair.depth() as u64;
    let vector = Vector::new([0..16, 32..48, 64..80]);
    let post = |scene: &mut Scene, id: u64| {
        let write = PageWrite { to: RemoteAddress(id * PAGE), from: FrameIndex(0), vector };
        scene.queue_pair.post_write_vector(WorkId(id), write, yonder_clock::now()).is_ok()
    };
    assert!((0..depth).all(|id| post(&mut scene, id)) && !post(&mut scene, depth));
    // Sent and cancelled, their requests stay on the lane until the node has confirmed that.
    (0..3 * depth).for_each(|_| assert_eq!(scene.request().0.kind, Kind::Write));
    (0..depth).for_each(|id| scene.queue_pair.cancel(WorkId(id)));
    assert_eq!(scene.queue_pair.outstanding(), 0);
    let taken = (depth..).take_while(|id| post(&mut scene, *id)).count() as u64;
    assert_eq!((taken, ROOM % 3), (ROOM / 3, 1));
    // The one request that there was room for has been taken back.
    let (to, now) = (RemoteAddress(999 * PAGE), yonder_clock::now());
    assert!(scene.queue_pair.post_write(WorkId(999), to, FrameIndex(0), now).is_ok());
    assert!(scene.queue_pair.post_write(WorkId(1000), to, FrameIndex(0), now).is_err());
    assert_eq!(scene.queue_pair.outstanding() as u64, taken + 1);
}
