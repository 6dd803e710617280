//! Messages of the wire protocol: a request for a page and the answer that carries it, composed and taken apart.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use yonder_units::PAGE_BYTES;
use yonder_wire::{HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, MessageBuffer, split};

/// The benchmarks of this file.
pub fn benches(criterion: &mut Criterion) {
    let request = Header::request(Kind::Read, 77, 5 << 20, PAGE_BYTES as u32);
    let answer = request.answer(1_000_000, PAGE_BYTES as u32);
    let page: Vec<u8> = (0..PAGE_BYTES).map(|byte| (byte * 7) as u8).collect();
    let mut buffer = MessageBuffer::new(MESSAGE_BYTES_MAX);
    let mut group = criterion.benchmark_group("wire");

    group.throughput(Throughput::Bytes(HEADER_BYTES as u64));
    group.bench_function("compose a read", |bencher| {
        bencher.iter(|| {
            buffer.clear();
            compose(&mut buffer, black_box(&request), &[]);
        });
    });
    group.throughput(Throughput::Bytes((HEADER_BYTES + PAGE_BYTES) as u64));
    group.bench_function("compose an answer with a page", |bencher| {
        bencher.iter(|| {
            buffer.clear();
            compose(&mut buffer, black_box(&answer), &page);
        });
    });
    let sealed = [&answer.seal(&page)[..], &page].concat();
    group.bench_function("split and verify an answer with a page", |bencher| {
        bencher.iter(|| {
            let message = split(black_box(&sealed)).expect("it is well formed").expect("it is complete");
            message.verify().expect("it is intact");
            message.bytes()
        });
    });
    group.finish();
}

/// Composes a message in a buffer that is empty, as nodes and clients do.
fn compose(buffer: &mut MessageBuffer, header: &Header, payload: &[u8]) {
    let room = buffer.room_for_message().expect("the buffer is empty");
    let (head, rest) = room.split_at_mut(HEADER_BYTES);
    rest[..payload.len()].copy_from_slice(payload);
    head.copy_from_slice(&header.seal(&rest[..payload.len()]));
    buffer.composed(HEADER_BYTES + payload.len());
}
