//! Databases in a folder, with and without memory of ours for their files.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use yonder_rocksdb::library::{Db, Files, RocksError, Shape};

const SHAPE: Shape = Shape { key_bytes: 16, index_every: 4 };

/// Whether RocksDB is on this machine; says so if not.
fn is_missing() -> bool {
    let folder = tempfile::tempdir().unwrap();
    match Db::open(folder.path(), SHAPE, None) {
        Err(RocksError::Library(missing)) => {
            println!("SKIP: {missing}");
            true
        }
        _ => false,
    }
}

/// Memory of the heap for files.
#[derive(Default)]
struct Heap {
    mapped: Mutex<Vec<Box<[u8]>>>,
    all: AtomicUsize,
}

impl Files for Heap {
    fn map(&self, bytes: usize, read: &dyn Fn(u64, &mut [u8]) -> std::io::Result<()>) -> Option<usize> {
        let mut memory = vec![0; bytes].into_boxed_slice();
        read(0, &mut memory).ok()?;
        let address = memory.as_ptr().expose_provenance();
        self.mapped.lock().unwrap().push(memory);
        self.all.fetch_add(1, Ordering::Relaxed);
        Some(address)
    }

    fn unmap(&self, address: usize, bytes: usize) -> bool {
        let mut mapped = self.mapped.lock().unwrap();
        let before = mapped.len();
        mapped.retain(|memory| memory.as_ptr().addr() != address || memory.len() != bytes);
        mapped.len() < before
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:012}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    (0..100 + number % 7).flat_map(|at| (number ^ at).to_le_bytes()).collect()
}

fn check(db: &Db, numbers: std::ops::Range<u32>) {
    let (mut found_key, mut found) = (Vec::new(), Vec::new());
    for number in numbers.clone() {
        found.clear();
        assert!(db.get(&key(number), &mut found).unwrap(), "{number}");
        assert_eq!(found, value(number), "{number}");
    }
    found.clear();
    assert!(!db.get(&key(numbers.end), &mut found).unwrap() && found.is_empty());
    let mut cursor = db.cursor(&key(numbers.start)).unwrap();
    for number in numbers {
        assert!(cursor.next(&mut found_key, &mut found).unwrap(), "{number}");
        assert_eq!((&found_key, &found), (&key(number), &value(number)));
    }
    assert!(!cursor.next(&mut found_key, &mut found).unwrap());
}

#[test]
fn what_was_put_is_found_in_memory_of_ours_and_in_the_librarys() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let heap = Arc::new(Heap::default());
    {
        let db = Db::open(folder.path(), SHAPE, Some(Arc::clone(&heap) as _)).unwrap();
        (0..5000).for_each(|number| db.put(&key(number), &value(number)).unwrap());
        check(&db, 0..5000);
        db.settle().unwrap();
        check(&db, 0..5000);
        assert!(heap.all.load(Ordering::Relaxed) > 0, "tables are read from our memory");
        let held: usize = heap.mapped.lock().unwrap().iter().map(|memory| memory.len()).sum();
        assert!(held >= 5000 * 412, "all of it: {held} bytes");
        // Read again after new tables have replaced the old ones.
        (5000..6000).for_each(|number| db.put(&key(number), &value(number)).unwrap());
        db.settle().unwrap();
        check(&db, 0..6000);
    }
    assert!(heap.mapped.lock().unwrap().is_empty(), "all memory is given back");
    let all = heap.all.load(Ordering::Relaxed);
    check(&Db::open(folder.path(), SHAPE, None).unwrap(), 0..6000);
    assert_eq!(heap.all.load(Ordering::Relaxed), all, "a database without memory of ours uses none");
}

#[test]
fn what_cannot_be_opened_is_said() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let error = Db::open(&file, SHAPE, None).err().expect("it is a file").to_string();
    assert!(error.contains("file") && error.contains("type a folder"), "{error}");
    std::fs::write(folder.path().join("CURRENT"), "MANIFEST-000009\n").unwrap();
    let error = Db::open(folder.path(), SHAPE, None).err().expect("it is damaged").to_string();
    assert!(error.starts_with("RocksDB: "), "{error}");
}
