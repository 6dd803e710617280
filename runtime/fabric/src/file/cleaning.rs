//! [`Cleaning`]: the thread that cleans the log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};

use yonder_ring::{Ring, RingError};
use yonder_store::{BufferIndex, Cleaner};

use super::{RingDisk, SEGMENT_BYTES, Shared};

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

/// The thread. It sleeps while nothing is to be cleaned.
pub(super) struct Cleaning {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread.
pub(super) struct Waker {
    thread: Thread,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Cleaning {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, StartError> {
        let disk = RingDisk { ring: Ring::new(Arc::clone(&shared.file), BUFFERS, BUFFER_BYTES)? };
        let (shared, state) = (Arc::clone(shared), Arc::new(State::default()));
        let told = Arc::clone(&state);
        let thread =
            thread::Builder::new().name("yonder-cleaner".to_owned()).spawn(move || clean(&shared, disk, &told))?;
        let waker = Arc::new(Waker { thread: thread.thread().clone(), state });
        Ok(Self { waker, thread: Some(thread) })
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Ends the thread, when its transfers are over.
    pub(super) fn stop(&mut self) {
        self.waker.state.is_over.store(true, Ordering::Release);
        self.waker.thread.unpark();
        if let Some(thread) = self.thread.take() {
            // It has nothing to report.
            let _ = thread.join();
        }
    }
}

impl Waker {
    /// The log wants cleaning.
    pub(super) fn wake(&self) {
        // One system call for each time that it sleeps.
        if self.state.is_asleep.swap(false, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

fn clean(shared: &Shared, mut disk: RingDisk, state: &State) {
    let grains = SEGMENT_BYTES / yonder_store::GRAIN_BYTES;
    let mut cleaner = Cleaner::new(grains, BUFFERS, BUFFER_BYTES);
    while !state.is_over.load(Ordering::Acquire) {
        // Said before the log is looked at, so that who changes it afterwards wakes the thread.
        state.is_asleep.store(true, Ordering::Release);
        if cleaner.step(&shared.index, &mut shared.log(), &mut disk) {
            state.is_asleep.store(false, Ordering::Release);
            disk.ring.wait();
            while let Some(ended) = disk.ring.ended() {
                cleaner.done(&shared.index, &mut shared.log(), BufferIndex(ended.buffer), ended.is_done);
            }
        } else {
            thread::park();
        }
    }
}
