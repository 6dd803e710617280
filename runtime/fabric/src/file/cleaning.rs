//! The thread that cleans the log.

use std::io;
use std::sync::Arc;

use yonder_ring::{Ring, RingError};
use yonder_store::{BufferIndex, Cleaner};

use super::{RingDisk, SEGMENT_BYTES, Shared};
use crate::background::{Background, Pace};

/// Buffers of the cleaner: one that it reads into, the others to be written.
const BUFFERS: u16 = 5;
/// Bytes of each.
const BUFFER_BYTES: usize = 256 << 10;

/// Why there is no thread.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("no thread can be started to clean the log: {0}")]
    Thread(#[from] io::Error),
}

/// Starts it. It sleeps while nothing is to be cleaned.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Background, StartError> {
    let mut disk = RingDisk { ring: Ring::new(Arc::clone(&shared.file), BUFFERS, BUFFER_BYTES)? };
    let mut cleaner = Cleaner::new(SEGMENT_BYTES / yonder_store::GRAIN_BYTES, BUFFERS, BUFFER_BYTES);
    let shared = Arc::clone(shared);
    Ok(Background::start("yonder-cleaner", move || clean(&shared, &mut cleaner, &mut disk))?)
}

fn clean(shared: &Shared, cleaner: &mut Cleaner, disk: &mut RingDisk) -> Pace {
    if !cleaner.step(&shared.index, &mut shared.log(), disk) {
        return Pace::Idle;
    }
    disk.ring.wait();
    while let Some(ended) = disk.ring.ended() {
        cleaner.done(&shared.index, &mut shared.log(), BufferIndex(ended.buffer), ended.is_done);
    }
    Pace::Again
}
