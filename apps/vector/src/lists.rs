//! [`Lists`]: inverted lists in a region.

use std::io;
use std::sync::Arc;

use yonder::Region;
use yonder_faiss_sys::Memory;

/// The memory of a region.
pub(crate) struct Lists {
    region: Arc<Region>,
}

impl Lists {
    pub(crate) fn new(region: Arc<Region>) -> Self {
        Self { region }
    }

    fn offset(&self, address: usize) -> u64 {
        (address - self.region.address()) as u64
    }
}

impl Memory for Lists {
    fn take(&self, bytes: usize) -> Option<usize> {
        self.region.alloc(bytes as u64).map(|offset| self.region.address() + offset as usize)
    }

    fn write(&self, address: usize, from: &[u8]) -> io::Result<()> {
        self.region.write(self.offset(address), from).map_err(io::Error::other)
    }

    fn give_back(&self, address: usize, bytes: usize) {
        // What cannot be given back stays taken.
        let _ = self.region.free(self.offset(address), bytes as u64);
    }
}
