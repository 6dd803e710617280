//! Errands to the slow path: a thread of the node has something done there, and waits for the result.
//!
//! [`Shared::on_slow_path`] is how offloads allocate and how ranges move. Requests of clients are messages and go by
//! the queue.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crossbeam_queue::SegQueue;
use yonder_board::{Shell, SlowPath};

use crate::Shared;
use crate::memory::Memory;
use crate::slow::{Janitor, publish_changes};

/// Longest time between two looks at the order to stop.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// What the slow path's thread has beside the slow path.
pub(crate) type SlowShell<'a, 'b> = Shell<'a, Memory, Memory, Janitor<'b>>;

type Errand = Box<dyn FnOnce(&mut SlowPath, &mut SlowShell<'_, '_>) + Send>;

/// The errands that wait. As many as there are threads beside the data threads, so the queue needs no bound.
#[derive(Default)]
pub(crate) struct Errands {
    waiting: SegQueue<Errand>,
}

impl Errands {
    /// Runs the errand that has waited longest. False if there is none.
    pub(crate) fn run_one(&self, slow: &mut SlowPath, shell: &mut SlowShell<'_, '_>) -> bool {
        let Some(errand) = self.waiting.pop() else { return false };
        errand(slow, shell);
        true
    }

    /// Lets everybody go who waits: nothing is run any more.
    pub(crate) fn send_away(&self) {
        while self.waiting.pop().is_some() {}
    }
}

impl fmt::Debug for Errands {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Errands").field("waiting", &self.waiting.len()).finish()
    }
}

impl Shared {
    /// Runs `errand` on the slow path's thread, and returns its result. `None` if the node stops; then it may have been
    /// run or not. Must not be called during a visit, nor on the slow path's thread.
    pub(crate) fn on_slow_path<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut SlowPath, &mut SlowShell<'_, '_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, result) = sync_channel(1);
        self.errands.waiting.push(Box::new(move |slow, shell| {
            let result = errand(slow, shell);
            // Before the caller goes on, so that the extend path knows every address space before its owner does.
            publish_changes(shell.upkeep.shared, slow);
            // Who no longer waits is ending with the node.
            let _ = sender.send(result);
        }));
        self.slow.wake();
        loop {
            match result.recv_timeout(PAUSE_MAX) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if !self.stop.load(Ordering::Acquire) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
