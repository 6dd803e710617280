//! What the emulated link promises: times, bytes, failures.

use yonder_units::FrameIndex;

use super::*;
use crate::Vector;

fn open(query: &str) -> EmuFabric {
    let pairs: Vec<_> =
        query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    EmuFabric::from_query(&format!("emu://?{query}"), &pairs).unwrap()
}

fn poll(queue: &mut dyn QueuePair, now: Nanos) -> Vec<Completion> {
    let mut completions = Vec::with_capacity(8);
    queue.poll(now, &mut completions);
    completions
}

#[test]
fn latency_and_bandwidth_are_modelled() {
    let fabric = open("latency=1us&gbps=32.768&size=1MiB");
    let frames = Arc::new(Mapping::anonymous(4 * PAGE_BYTES).unwrap());
    let (mut one, mut two) = (
        fabric.queue_pair(Module::Fault, frames.clone()).unwrap(),
        fabric.queue_pair(Module::WriteBack, frames).unwrap(),
    );
    one.post_read(WorkId(1), RemoteAddress(0), ReadInto::Mapped, 0).unwrap();
    two.post_read(WorkId(2), RemoteAddress(0), ReadInto::Mapped, 0).unwrap();
    assert_eq!((poll(&mut *one, 1_999).len(), poll(&mut *one, 2_000).len()), (0, 1));
    // The second queue pair waits for the link behind the first.
    assert_eq!((poll(&mut *two, 2_999).len(), poll(&mut *two, 3_000).len()), (0, 1));
}

#[test]
fn segments_are_moved_alone_and_take_the_link_for_as_long_as_they_are() {
    // 8 us a page, so 2 us for a quarter of one.
    let fabric = open("latency=1us&gbps=4.096&size=1MiB");
    let frames = Arc::new(Mapping::anonymous(2 * PAGE_BYTES).unwrap());
    let mut queue = fabric.queue_pair(Module::WriteBack, frames.clone()).unwrap();
    let vector = Vector::new([0..512, 1024..1040, 3600..4096]);
    assert_eq!(vector.bytes(), PAGE_BYTES / 4);
    frames.write(0, &[1; PAGE_BYTES]);
    queue.post_write_vector(WorkId(1), PageWrite { to: RemoteAddress(0), from: FrameIndex(0), vector }, 0).unwrap();
    assert_eq!((poll(&mut *queue, 2_999).len(), poll(&mut *queue, 3_000).len()), (0, 1));
    frames.write(PAGE_BYTES as u64, &[2; PAGE_BYTES]);
    let into = ReadInto::Frame(FrameIndex(1));
    queue.post_read_vector(WorkId(2), PageRead { from: RemoteAddress(0), into, vector }, 3_000).unwrap();
    assert_eq!((poll(&mut *queue, 5_999).len(), poll(&mut *queue, 6_000).len()), (0, 1));
    let (mut node, mut local) = ([9; PAGE_BYTES], [9; PAGE_BYTES]);
    fabric.mapped().unwrap().read(0, &mut node);
    frames.read(PAGE_BYTES as u64, &mut local);
    assert!(node == vector.filled(1, 0) && local == vector.filled(1, 2));
}

#[test]
fn writes_are_read_back_and_discard_zeroes() {
    let fabric = open("size=1MiB&gbps=0&latency=1us");
    let frames = Arc::new(Mapping::anonymous(2 * PAGE_BYTES).unwrap());
    let mut queue = fabric.queue_pair(Module::Fault, frames.clone()).unwrap();
    let start = fabric.allocate(2 * PAGE_BYTES as u64).unwrap();
    let mut back = [0; 5];
    frames.write(0, b"bytes");
    queue.post_write(WorkId(1), start, FrameIndex(0), 0).unwrap();
    assert_eq!(poll(&mut *queue, 5_000), [Completion { id: WorkId(1), status: Status::Done }]);
    queue.post_read(WorkId(2), start, ReadInto::Frame(FrameIndex(1)), 5_000).unwrap();
    assert_eq!(poll(&mut *queue, 9_000).len(), 1);
    frames.read(PAGE_BYTES as u64, &mut back);
    assert_eq!(&back, b"bytes");
    fabric.discard(start, PAGE_BYTES as u64).unwrap();
    fabric.mapped().unwrap().read(start.0, &mut back);
    assert_eq!(back, [0; 5]);
}

#[test]
fn failures_happen_as_asked() {
    let fabric = open("size=1MiB&latency=1us");
    let mut queue = fabric.queue_pair(Module::Fault, Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap())).unwrap();
    let read =
        |queue: &mut dyn QueuePair, id| queue.post_read(WorkId(id), RemoteAddress(0), ReadInto::Mapped, 0).unwrap();
    fabric.control().set_errors(1.0);
    read(&mut *queue, 1);
    assert_eq!(poll(&mut *queue, 1 << 40)[0].status, Status::Failed);
    fabric.control().set_errors(0.0);
    fabric.control().set_drops(1.0);
    read(&mut *queue, 2);
    assert!(poll(&mut *queue, 1 << 40).is_empty());
    assert_eq!(queue.outstanding(), 1);
    queue.cancel(WorkId(2));
    assert_eq!(queue.outstanding(), 0);
    fabric.control().set_drops(0.0);
    fabric.control().set_dead(true);
    read(&mut *queue, 3);
    assert_eq!(poll(&mut *queue, 0)[0].status, Status::Disconnected);
}

#[test]
fn memory_is_allocated_and_released() {
    let fabric = open("size=1MiB");
    let page = PAGE_BYTES as u64;
    let parts: Vec<_> = (0..3).map(|_| fabric.allocate(page).unwrap()).collect();
    for part in [1, 0, 2] {
        fabric.release(parts[part]).unwrap();
    }
    assert_eq!(fabric.allocate(1 << 20).unwrap(), RemoteAddress(0));
    assert!(matches!(fabric.allocate(page), Err(FabricError::OutOfMemory { .. })));
}

#[test]
fn bad_queries_say_what_to_type() {
    for (key, value) in
        [("latency", "5"), ("depth", "0"), ("drop", "2"), ("delay", "1ms"), ("speed", "1"), ("gbps", "-1")]
    {
        let error = EmuFabric::from_query("emu://", &[(key.into(), value.into())]).unwrap_err().to_string();
        assert!(error.contains("type emu://?latency") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_lost_page_is_lost_until_it_is_written() {
    for reads in ["mapped", "frames"] {
        let fabric = open(&format!("size=1MiB&gbps=0&latency=1us&reads={reads}"));
        let frames = Arc::new(Mapping::anonymous(2 * PAGE_BYTES).unwrap());
        let mut queue = fabric.queue_pair(Module::Fault, frames.clone()).unwrap();
        let start = fabric.allocate(2 * PAGE_BYTES as u64).unwrap();
        let into = if reads == "mapped" { ReadInto::Mapped } else { ReadInto::Frame(FrameIndex(1)) };
        let next = RemoteAddress(start.0 + PAGE_BYTES as u64);
        let read = |queue: &mut Box<dyn QueuePair>, from| {
            queue.post_read(WorkId(1), from, into, 0).unwrap();
            poll(&mut **queue, 10_000)[0].status
        };
        fabric.control().lose(start);
        assert_eq!([start, start, next].map(|page| read(&mut queue, page)), [Status::Lost, Status::Lost, Status::Done]);
        queue.post_write(WorkId(2), start, FrameIndex(0), 0).unwrap();
        assert_eq!(poll(&mut *queue, 10_000)[0].status, Status::Done);
        assert_eq!(read(&mut queue, start), Status::Done);
        fabric.control().set_losses(1.0);
        assert_eq!((read(&mut queue, start), fabric.control().losses()), (Status::Lost, 2));
    }
}
