//! [`Tables`]: table files in a region.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use yonder::Region;
use yonder_rocksdb_sys::Files;

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Where the files of a database are in a region.
pub(crate) struct Tables {
    region: Arc<Region>,
    /// Bytes of each file, by its offset.
    files: Mutex<BTreeMap<u64, usize>>,
}

impl Tables {
    pub(crate) fn new(region: Arc<Region>) -> Self {
        Self { region, files: Mutex::default() }
    }
}

impl Files for Tables {
    fn map(&self, bytes: usize, read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>) -> Option<usize> {
        let start = self.region.alloc(bytes as u64)?;
        let mut piece = vec![0; PIECE_BYTES];
        let copied = (0..bytes).step_by(PIECE_BYTES).try_for_each(|at| {
            let piece = &mut piece[..PIECE_BYTES.min(bytes - at)];
            read(at as u64, piece)?;
            self.region.write(start + at as u64, piece).map_err(io::Error::other)
        });
        if copied.is_err() {
            // What cannot be given back stays taken.
            let _ = self.region.free(start, bytes as u64);
            return None;
        }
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(start, bytes);
        Some(self.region.address() + start as usize)
    }

    fn unmap(&self, address: usize, bytes: usize) -> bool {
        let Some(start) = address.checked_sub(self.region.address()).map(|offset| offset as u64) else { return false };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.get(&start) != Some(&bytes) {
            return false;
        }
        files.remove(&start);
        drop(files);
        let _ = self.region.free(start, bytes as u64);
        true
    }
}
