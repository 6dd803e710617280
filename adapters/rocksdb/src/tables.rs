//! [`Tables`]: table files in a region.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::library::Files;
use yonder::{FarError, Region};

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Where the files of a database are in a region.
pub(crate) struct Tables {
    places: Mutex<Places>,
}

struct Places {
    region: Region,
    /// Bytes of each file, by its offset.
    files: BTreeMap<u64, usize>,
}

impl Tables {
    pub(crate) fn new(region: Region) -> Self {
        Self { places: Mutex::new(Places { region, files: BTreeMap::new() }) }
    }

    /// There will be no more files: from now on pages are dropped without a copy.
    pub(crate) fn seal(&self) -> Result<(), FarError> {
        self.places().region.seal()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for Tables {
    fn map(&self, bytes: usize, read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>) -> Option<usize> {
        let Places { region, files } = &mut *self.places();
        if region.is_sealed() {
            return None;
        }
        let start = region.alloc(bytes as u64)?;
        let mut piece = vec![0; PIECE_BYTES];
        let copied = (0..bytes).step_by(PIECE_BYTES).try_for_each(|at| {
            let piece = &mut piece[..PIECE_BYTES.min(bytes - at)];
            read(at as u64, piece)?;
            region.write(start + at as u64, piece).map_err(io::Error::other)
        });
        if copied.is_err() {
            // What cannot be given back stays taken.
            let _ = region.free(start, bytes as u64);
            return None;
        }
        files.insert(start, bytes);
        Some(region.address() + start as usize)
    }

    fn unmap(&self, address: usize, bytes: usize) -> bool {
        let Places { region, files } = &mut *self.places();
        let Some(start) = address.checked_sub(region.address()).map(|offset| offset as u64) else { return false };
        if files.get(&start) != Some(&bytes) {
            return false;
        }
        files.remove(&start);
        let _ = region.free(start, bytes as u64);
        true
    }
}

#[cfg(test)]
mod tests {
    use yonder::{Config, FarMemory};

    use super::*;

    #[test]
    fn sealed_tables_stay_as_they_are_and_take_no_more() {
        if let Err(why) = yonder::abilities().userfaultfd {
            println!("SKIP: no userfaultfd: {why}");
            return;
        }
        let far = FarMemory::open("emu://?latency=2us&gbps=100", Config::with_local(4 << 20)).unwrap();
        let tables = Tables::new(far.region(16 << 20).unwrap());
        let sevens = |_: u64, piece: &mut [u8]| {
            piece.fill(7);
            Ok(())
        };
        let bytes = 3 * PIECE_BYTES + 5;
        let address = tables.map(bytes, &sevens).unwrap();
        assert_eq!(tables.map(bytes, &|_, _| Err(io::Error::other("no file"))), None);
        tables.seal().unwrap();
        assert_eq!(tables.map(bytes, &sevens), None);
        let mut found = vec![0; bytes];
        {
            let Places { region, .. } = &*tables.places();
            region.read((address - region.address()) as u64, &mut found).unwrap();
        }
        assert!(found.iter().all(|byte| *byte == 7));
        assert!(!tables.unmap(address, bytes - 1) && tables.unmap(address, bytes) && !tables.unmap(address, bytes));
    }
}
