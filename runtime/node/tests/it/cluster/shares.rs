//! `yonder://…?code=4+1`: pages of which every node has a part or a sum.

use yonder_fabric::{ALONE_AGE_MAX, PageRead, Posting, ReadInto, RemoteAddress, Status, Vector};
use yonder_node::Node;
use yonder_units::{FrameIndex, PAGE_BYTES};
use yonder_wire::HEADER_BYTES;

use super::scene::{REGION, Scene, stream_node_at, until};
use super::spread::{counter, url};
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

/// Pages of 4 KiB.
const PAGES: u64 = 3 * REGION / SMALL;

/// What a page has after a write: no two parts of any page are the same.
fn content(index: u64, round: u64) -> [u8; PAGE_BYTES] {
    let mut state = (index << 20 | round) + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

fn frame(client: &Client) -> [u8; PAGE_BYTES] {
    frame_of(client, 0)
}

fn frame_of(client: &Client, frame: u32) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    client.frames.read(FrameIndex(frame).offset(), &mut bytes);
    bytes
}

/// Writes a page until it is done: what is silent is given up meanwhile.
pub(super) fn store(client: &mut Client, start: RemoteAddress, index: u64, round: u64) {
    client.frames.write(FrameIndex(0).offset(), &content(index, round));
    until("it is stored", || {
        let id = client.write(page(start, index), 0);
        (client.finish(1)[&id] == Status::Done).then_some(())
    });
}

pub(super) fn check(client: &mut Client, start: RemoteAddress, index: u64, round: u64) {
    client.fill(0, 0xee);
    let id = client.read(page(start, index), 0);
    assert_eq!(client.finish(1)[&id], Status::Done, "page {index}");
    assert!(frame(client) == content(index, round), "page {index} is not what was written in round {round}");
}

fn allocated(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.stats().allocated_bytes).sum()
}

#[test]
fn nodes_end_one_after_the_other_and_every_page_stays() {
    // More than there are slots, so that every one of them has had another place; and a few.
    for (code, parts, sums, rounds) in [("4+1", 4, 1, 9), ("2+1", 2, 1, 2), ("3+2", 3, 2, 2)] {
        let scene = Scene::new(2);
        let mut nodes: Vec<_> = (0..parts + sums + 1).map(|_| scene.node(96)).collect();
        let mut client = Client::new(&format!("{}?code={code}", url(&scene)), 4);
        let start = client.allocate(PAGES);
        let needed = PAGES * SMALL * (parts + sums) / parts;
        assert!((needed..=needed + needed / 16).contains(&allocated(&nodes)), "{code} takes {}", allocated(&nodes));
        let pages = || (0..PAGES).step_by(5);
        pages().for_each(|index| store(&mut client, start, index, 0));
        for round in 1..=rounds {
            until("all pages have all their places", || {
                client.poll();
                (counter(&client, "spread_degraded_pages") == 0).then_some(())
            });
            let given_up = counter(&client, "spread_places_given_up");
            // The one of them that has nothing is last.
            nodes.sort_by_key(|node| std::cmp::Reverse(node.stats().allocated_bytes > 0));
            drop(nodes.remove(0));
            pages().for_each(|index| check(&mut client, start, index, round - 1));
            pages().for_each(|index| store(&mut client, start, index, round));
            pages().for_each(|index| check(&mut client, start, index, round));
            nodes.push(scene.node(96));
            until("all pages have all their places again", || {
                let [degraded, gone, missing] = ["degraded_pages", "places_given_up", "places_missing"]
                    .map(|name| counter(&client, &format!("spread_{name}")));
                (degraded == 0 && gone > given_up && missing == 0).then_some(())
            });
        }
        pages().for_each(|index| check(&mut client, start, index, rounds));
        assert!(counter(&client, "spread_mended_pages") > 0);
        client.fabric.release(start).unwrap();
        assert_eq!(allocated(&nodes), 0);
    }
}

#[test]
fn two_nodes_end_at_once_where_two_may() {
    let scene = Scene::new(2);
    let mut nodes: Vec<_> = (0..5).map(|_| scene.node(96)).collect();
    let mut client = Client::new(&format!("{}?code=2+2", url(&scene)), 4);
    let start = client.allocate(PAGES);
    (0..PAGES).for_each(|index| store(&mut client, start, index, 0));
    drop(nodes.drain(..2));
    (0..PAGES).for_each(|index| check(&mut client, start, index, 0));
    (0..PAGES).step_by(2).for_each(|index| store(&mut client, start, index, 1));
    (0..PAGES).for_each(|index| check(&mut client, start, index, (index + 1) % 2));
}

#[test]
fn what_cannot_be_read_ends_and_what_was_asked_for_it_with_it() {
    let scene = Scene::new(2);
    let mut nodes: Vec<_> = (0..5).map(|_| scene.node(96)).collect();
    let mut client = Client::new(&format!("{}?code=4+1", url(&scene)), 4);
    let start = client.allocate(PAGES);
    (0..40).for_each(|index| store(&mut client, start, index, 0));
    drop(nodes.drain(..2));
    // Answers of the three others come after the ends of reads that wanted four.
    for index in (0..40).cycle().take(400) {
        let id = client.read(page(start, index), 0);
        assert_eq!(client.finish(1)[&id], Status::Disconnected, "page {index}");
    }
}

#[test]
fn bytes_that_are_not_asked_for_stay_and_what_is_discarded_is_zeros() {
    let scene = Scene::new(2);
    let _nodes: Vec<_> = (0..4).map(|_| scene.node(96)).collect();
    let mut client = Client::new(&format!("{}?code=3+1", url(&scene)), 4);
    let start = client.allocate(PAGES);
    (0..40).for_each(|index| store(&mut client, start, index, 3));
    // Segments over the ends of parts, which are at 1408 and 2816.
    let vector = Vector::new([0..16, 1392..1424, 2000..4096]);
    client.fill(0, 0xee);
    let (id, into) = (client.id(), ReadInto::Frame(FrameIndex(0)));
    let read = PageRead { from: page(start, 7), into, vector };
    client.queue_pair.post_read_vector(id, read, yonder_clock::now()).unwrap();
    assert_eq!(client.finish(1)[&id], Status::Done);
    let mut expected = [0xee; PAGE_BYTES];
    vector.segments().for_each(|bytes| expected[bytes.clone()].copy_from_slice(&content(7, 3)[bytes]));
    assert!(frame(&client) == expected, "bytes between segments are written");

    client.fabric.discard(page(start, 3), 31 * SMALL).unwrap();
    for index in 3..34 {
        assert_eq!(client.load(page(start, index)), (Status::Done, 0), "page {index}");
    }
    for index in (0..3).chain(34..40) {
        check(&mut client, start, index, 3);
    }
    (0..40).for_each(|index| store(&mut client, start, index, 4));
    (0..40).for_each(|index| check(&mut client, start, index, 4));
}

/// A thread that has other work sends what it has posted since the last round together, and hears nothing meanwhile.
#[test]
fn reads_leave_in_rounds_while_their_thread_has_other_work() {
    const READS: u32 = 12;
    let scene = Scene::new(2);
    // A stream takes all that is sent; of datagrams a window lets only some go.
    let _nodes: Vec<_> = (0..5).map(|_| stream_node_at(scene.address(), 96)).collect();
    let mut client = Client::new(&format!("{}?code=4+1", url(&scene)), READS as usize);
    let start = client.allocate(PAGES);
    (0..READS).for_each(|index| store(&mut client, start, index.into(), 5));
    let sent = |client: &Client| counter(client, "wire_sent_bytes");
    // Times that nobody has to wait for: a poll believes what it is told. The lease and the mender send by themselves.
    let begun = yonder_clock::now() + 10 * ALONE_AGE_MAX;
    let mut ended = Vec::with_capacity(2 * READS as usize);
    client.queue_pair.poll(begun, &mut ended);
    client.queue_pair.set_posting(Posting::Together);
    (0..READS).for_each(|frame| client.fill(frame, 0xee));
    let before = sent(&client);
    let ids: Vec<_> = (0..READS).map(|_| client.id()).collect();
    for (id, frame) in ids.iter().zip(0..) {
        let into = ReadInto::Frame(FrameIndex(frame));
        let read = PageRead { from: page(start, frame.into()), into, vector: Vector::WHOLE };
        client.queue_pair.post_read_vector(*id, read, begun).unwrap();
    }
    for early in [1, ALONE_AGE_MAX / 2, ALONE_AGE_MAX - 1] {
        client.queue_pair.poll(begun + early, &mut ended);
    }
    let (least, early) = (u64::from(READS) * 4 * HEADER_BYTES as u64, sent(&client) - before);
    assert!(early < least, "{early} bytes are sent before their round");
    client.queue_pair.poll(begun + ALONE_AGE_MAX, &mut ended);
    let round = sent(&client) - before;
    assert!(round >= least, "{round} bytes are sent in the round");
    // What has been asked for is heard in a later round, and in each poll of one who waits for it.
    let mut now = begun + ALONE_AGE_MAX;
    client.queue_pair.set_posting(Posting::AtOnce);
    until("all have ended", || {
        now = now.max(yonder_clock::now());
        client.queue_pair.poll(now, &mut ended);
        (ended.len() == READS as usize).then_some(())
    });
    for (id, frame) in ids.into_iter().zip(0..) {
        let end = ended.iter().find(|end| end.id == id).unwrap();
        assert_eq!(end.status, Status::Done, "page {frame}");
        assert!(frame_of(&client, frame) == content(frame.into(), 5), "page {frame} is not what was written");
    }
    // A write does not wait for a round.
    now += ALONE_AGE_MAX;
    client.queue_pair.poll(now, &mut ended);
    client.queue_pair.set_posting(Posting::Together);
    let (before, write) = (sent(&client), client.id());
    client.queue_pair.post_write(write, page(start, 0), FrameIndex(0), now).unwrap();
    client.queue_pair.poll(now + 1, &mut ended);
    let at_once = sent(&client) - before;
    assert!(at_once >= PAGE_BYTES as u64 * 5 / 4, "{at_once} bytes are sent of a write");
}
