//! The index of the store on a disk: the flat one that is there against a hash table that could be ([ADR 0013]).
//!
//! The hash table is favoured: the standard library's, of one thread, with the cheapest hash of a page's number that
//! spreads. A store is used by many threads, so it would need a lock or atomics on top of that.
//!
//! [ADR 0013]: ../../../docs/adr/0013-keep-the-index-of-the-store-flat.md

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use criterion::Criterion;
use yonder_store::{BufferIndex, Disk, Geometry, Head, Index, Log, Shape, Write, Writer};
use yonder_units::PageIndex;

/// Pages of the benchmark under criterion: what a cache of the last level has no room for.
const PAGES: usize = 1 << 20;
const SEGMENT_BYTES: usize = 2 << 20;
const BUFFERS: u16 = 2;
const BUFFER_BYTES: usize = 256 << 10;

/// A disk that forgets what it is given: the benchmark is about where pages are.
struct Nowhere {
    buffers: Vec<Vec<u8>>,
    written: Vec<BufferIndex>,
}

impl Disk for Nowhere {
    fn read(&mut self, _buffer: BufferIndex, _offset: u64, _bytes: usize) {
        unreachable!("nothing is read");
    }

    fn write(&mut self, buffer: BufferIndex, _offset: u64, _bytes: usize) {
        self.written.push(buffer);
    }

    fn buffer(&mut self, buffer: BufferIndex) -> &mut [u8] {
        &mut self.buffers[usize::from(buffer.0)]
    }

    fn copy(&mut self, _from: BufferIndex, _start: usize, _to: BufferIndex, _to_start: usize, _bytes: usize) {
        unreachable!("nothing is moved");
    }
}

/// The store's index, with `pages` pages that were written once, each in a whole number of its places.
#[must_use]
pub fn flat(pages: usize) -> Index {
    let index = Index::new(pages, 1);
    let mut log = Log::new(Geometry::keeping(pages, SEGMENT_BYTES));
    let mut disk = Nowhere { buffers: vec![vec![0; BUFFER_BYTES]; usize::from(BUFFERS)], written: Vec::new() };
    let mut writer = Writer::new(Head::Fresh, 0, BUFFERS, BUFFER_BYTES);
    for page in 0..pages {
        let write = Write { id: page as u64, page: PageIndex(page as u32), shape: Shape(0), bytes: 1 };
        while writer.post(&index, &mut log, &mut disk, write, |_| {}).is_err() {
            end(&index, &mut log, &mut disk, &mut writer);
        }
    }
    writer.flush(&mut disk);
    end(&index, &mut log, &mut disk, &mut writer);
    index
}

fn end(index: &Index, log: &mut Log, disk: &mut Nowhere, writer: &mut Writer) {
    for buffer in std::mem::take(&mut disk.written) {
        writer.done(index, log, buffer, true, &mut |_| {});
    }
}

/// One multiplication, whose upper and lower half both count.
#[derive(Default)]
pub struct Multiplied(u64);

impl Hasher for Multiplied {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("the number of a page is written as one");
    }

    fn write_u32(&mut self, page: u32) {
        let product = u128::from(page).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The number of a page, its location and its checksum.
pub type Hashed = HashMap<u32, [u64; 2], BuildHasherDefault<Multiplied>>;

/// A hash table that has the same. It grows as a store does, whose pages nobody has counted before.
#[must_use]
pub fn hashed(pages: usize) -> Hashed {
    let mut table = Hashed::default();
    for page in 0..pages as u32 {
        table.insert(page, [u64::from(page) << 4 | 1, u64::from(page)]);
    }
    table
}

/// Numbers of pages in an order that no cache knows, without end.
pub fn order(pages: usize) -> impl Iterator<Item = u32> {
    let mut state = 1_u64;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        Some((((state >> 32) * pages as u64) >> 32) as u32)
    })
}

/// Where a page is, by the store's index.
#[inline]
#[must_use]
pub fn find_flat(index: &Index, page: u32) -> u64 {
    index.location(PageIndex(page)).map_or(0, |location| location.start())
}

/// Where a page is, by a hash table.
#[inline]
#[must_use]
pub fn find_hashed(table: &Hashed, page: u32) -> u64 {
    table.get(&page).map_or(0, |[location, _]| location >> 4)
}

/// Look-ups in both.
pub fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store index");
    let (index, mut pages) = (flat(PAGES), order(PAGES));
    group.bench_function("flat", |bencher| {
        bencher.iter(|| find_flat(black_box(&index), pages.next().unwrap_or_default()));
    });
    let (table, mut pages) = (hashed(PAGES), order(PAGES));
    group.bench_function("hashed", |bencher| {
        bencher.iter(|| find_hashed(black_box(&table), pages.next().unwrap_or_default()));
    });
    group.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_find_every_page_and_no_other() {
        let (index, table) = (flat(1000), hashed(1000));
        let places: std::collections::HashSet<u64> = (0..1000).map(|page| find_flat(&index, page)).collect();
        assert_eq!(places.len(), 1000);
        assert!((0..1000).all(|page| find_hashed(&table, page) == u64::from(page)));
        assert_eq!((find_hashed(&table, 1000), Index::new(4, 1).location(PageIndex(3))), (0, None));
        assert!(order(1000).take(10_000).all(|page| page < 1000));
    }
}
