//! [`Lists`]: inverted lists in a region.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::library::Memory;
use yonder::{FarError, Region};

/// The memory of a region.
pub(crate) struct Lists {
    region: Mutex<Region>,
}

impl Lists {
    pub(crate) fn new(region: Region) -> Self {
        Self { region: Mutex::new(region) }
    }

    /// Everything is written: from now on pages are dropped without a copy.
    pub(crate) fn seal(&self) -> Result<(), FarError> {
        self.region().seal()
    }

    fn region(&self) -> MutexGuard<'_, Region> {
        self.region.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn offset(region: &Region, address: usize) -> u64 {
    (address - region.address()) as u64
}

impl Memory for Lists {
    fn take(&self, bytes: usize) -> Option<usize> {
        let region = self.region();
        region.alloc(bytes as u64).map(|offset| region.address() + offset as usize)
    }

    fn write(&self, address: usize, from: &[u8]) -> io::Result<()> {
        let region = self.region();
        region.write(offset(&region, address), from).map_err(io::Error::other)
    }

    fn give_back(&self, address: usize, bytes: usize) {
        let region = self.region();
        // What cannot be given back stays taken.
        let _ = region.free(offset(&region, address), bytes as u64);
    }
}
