//! Indexes with lists of Faiss' own and in memory of ours.
//!
//! The vectors are of small whole numbers, so that squared distances are exact, whoever adds them up in which order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use yonder_faiss_sys::{FaissError, Index, K_MAX, Memory, Neighbour};

/// An odd dimension, so that ids do not come to lie on multiples of eight by themselves.
const DIMENSION: usize = 13;
const NLIST: usize = 16;
const VECTORS: u64 = 3000;

/// Whether Faiss is on this machine; says so if not.
fn is_missing() -> bool {
    match Index::train(&[0.0], 1, 1) {
        Err(error) if error.is_missing() => {
            println!("SKIP: {error}");
            true
        }
        trained => {
            trained.unwrap();
            false
        }
    }
}

/// Numbers of vectors that follow from their numbers.
fn vectors(numbers: std::ops::Range<u64>) -> Vec<f32> {
    let number = |at: u64| (at.wrapping_add(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57) as f32;
    (numbers.start * DIMENSION as u64..numbers.end * DIMENSION as u64).map(number).collect()
}

fn index() -> Index {
    let all = vectors(0..VECTORS);
    let mut index = Index::train(&all, DIMENSION, NLIST).unwrap();
    let (first, second) = all.split_at(1000 * DIMENSION);
    index.add(first).unwrap();
    index.add(second).unwrap();
    index
}

/// Memory of the heap for lists.
#[derive(Default)]
struct Heap {
    taken: Mutex<Vec<(usize, Box<[u8]>)>>,
    /// Writes that succeed, if not all are to.
    writes_left: Option<AtomicUsize>,
}

impl Memory for Heap {
    fn take(&self, bytes: usize) -> Option<usize> {
        let memory = vec![0xA5; bytes + 4096].into_boxed_slice();
        let address = memory.as_ptr().expose_provenance().next_multiple_of(4096);
        self.taken.lock().unwrap().push((address, memory));
        Some(address)
    }

    fn write(&self, address: usize, from: &[u8]) -> std::io::Result<()> {
        assert!(address.is_multiple_of(8), "ids lie as their type demands");
        if let Some(left) = &self.writes_left
            && left.fetch_sub(1, Ordering::Relaxed) == 0
        {
            return Err(std::io::Error::other("no more is written"));
        }
        let mut taken = self.taken.lock().unwrap();
        let (_, memory) =
            taken.iter_mut().find(|(start, memory)| (*start..start + memory.len()).contains(&address)).unwrap();
        let at = address - memory.as_ptr().addr();
        memory[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn give_back(&self, address: usize, bytes: usize) {
        let mut taken = self.taken.lock().unwrap();
        let before = taken.len();
        taken.retain(|(start, memory)| *start != address || memory.len() != bytes + 4096);
        assert_eq!(taken.len() + 1, before, "what is given back was taken");
    }
}

/// The distances of the `k` nearest vectors, by looking at all.
fn distances(query: &[f32], k: usize) -> Vec<f32> {
    let all = vectors(0..VECTORS);
    let square = |vector: &[f32]| vector.iter().zip(query).map(|(one, other)| (one - other) * (one - other)).sum();
    let mut all: Vec<f32> = all.chunks_exact(DIMENSION).map(square).collect();
    all.sort_by(f32::total_cmp);
    all.truncate(k);
    all
}

/// Searches in pieces, and checks that others could run in between.
fn search(index: &Index, query: &[f32], k: usize, nprobe: usize) -> Vec<Neighbour> {
    let mut places = 0;
    let found = index.search(query, k, nprobe, || places += 1).unwrap();
    let looked_at = VECTORS as usize * nprobe.min(NLIST) / NLIST;
    assert!(places >= looked_at / 320, "others could run {places} times in a search of about {looked_at} vectors");
    found
}

#[test]
fn lists_in_memory_of_ours_give_what_those_of_faiss_give() {
    if is_missing() {
        return;
    }
    let mut index = index();
    let asked: Vec<_> = (0..40)
        .map(|number| {
            (vectors(VECTORS + number..VECTORS + number + 1), [1, 10, 150][number as usize % 3], 1 << (number % 6))
        })
        .collect();
    let ask = |index: &Index| -> Vec<Vec<Neighbour>> {
        asked.iter().map(|(query, k, nprobe)| search(index, query, *k, *nprobe)).collect()
    };
    let at_once = |index: &Index| -> Vec<Vec<Neighbour>> {
        asked.iter().map(|(query, k, nprobe)| index.search_at_once(query, *k, *nprobe).unwrap()).collect()
    };
    let expected = at_once(&index);
    assert_eq!(ask(&index), expected, "a search in pieces finds what Faiss' own finds");
    for (found, (query, k, nprobe)) in expected.iter().zip(&asked) {
        if *nprobe >= NLIST {
            assert!(found.iter().map(|(_, distance)| *distance).eq(distances(query, *k)), "all lists have all vectors");
        }
    }
    let heap = Arc::new(Heap::default());
    let bytes = index.list_bytes().unwrap();
    index.place(Arc::clone(&heap) as _).unwrap();
    assert!(bytes >= VECTORS as usize * (DIMENSION * 4 + 8) && bytes.is_multiple_of(4096), "{bytes} bytes of lists");
    assert_eq!(heap.taken.lock().unwrap()[0].1.len(), bytes + 4096);
    assert_eq!(index.list_bytes().unwrap(), bytes);
    assert_eq!((ask(&index), at_once(&index)), (expected.clone(), expected.clone()));
    // They are read there and nowhere else: with other ids in that memory others are found.
    for (_, memory) in &mut *heap.taken.lock().unwrap() {
        memory.fill(0);
    }
    assert_ne!(ask(&index), expected);
    drop(index);
    assert!(heap.taken.lock().unwrap().is_empty(), "all memory is given back");
}

#[test]
fn threads_search_at_a_time() {
    if is_missing() {
        return;
    }
    let index = index();
    let query = |number: u64| vectors(number..number + 1);
    let expected: Vec<_> = (0..200).map(|number| index.search_at_once(&query(number), 5, 4).unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (number, expected) in (0..200).zip(&expected) {
                    assert_eq!(search(&index, &query(number), 5, 4), *expected);
                    assert_eq!(expected[0], (number as i64, 0.0), "a vector is nearest to itself");
                }
            });
        }
    });
}

#[test]
fn what_cannot_be_done_is_said_and_leaves_the_index_as_it_was() {
    if is_missing() {
        return;
    }
    let mut index = index();
    let query = vectors(0..1);
    let said = |error: FaissError| error.to_string();
    let refused = |query: &[f32], k, nprobe| index.search(query, k, nprobe, || ()).map_err(said).unwrap_err();
    assert_eq!(refused(&query[1..], 5, 1), "a query of 12 numbers among vectors of 13: give 13");
    assert_eq!(refused(&query, 0, 1), "0 neighbours of a query: ask for 1 to 65536");
    assert!(refused(&query, K_MAX + 1, 1).starts_with("65537 neighbours"));
    assert_eq!(refused(&query, 5, 0), "a search of no list finds nothing: look at 1 or more");
    // More than there are are not made up, and nothing is near what is no number.
    assert_eq!(search(&index, &query, K_MAX, NLIST + 5).len(), VECTORS as usize);
    assert_eq!(search_of_nothing(&index), []);
    let few = Index::train(&query, DIMENSION, 2).map(|_| ()).map_err(said).unwrap_err();
    assert!(few.starts_with("Faiss: ") && few.contains("Number of training points"), "{few}");

    let expected = search(&index, &query, 20, 3);
    let failing = Arc::new(Heap { writes_left: Some(AtomicUsize::new(7)), ..Heap::default() });
    let error = index.place(Arc::clone(&failing) as _).map_err(said).unwrap_err();
    assert_eq!(error, "cannot move inverted lists: no more is written");
    assert!(failing.taken.lock().unwrap().is_empty(), "what was taken is given back");
    assert_eq!(search(&index, &query, 20, 3), expected);
    index.place(Arc::new(Heap::default())).unwrap();
    // Faiss would end the process.
    assert!(catch_unwind(AssertUnwindSafe(|| index.add(&query))).is_err(), "lists that have been moved are only read");
    assert_eq!(search(&index, &query, 20, 3), expected);
}

fn search_of_nothing(index: &Index) -> Vec<Neighbour> {
    index.search(&[f32::NAN; DIMENSION], 5, 4, || ()).unwrap()
}
