//! [`serve_all`]: requests that are known beforehand, and an end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use yonder_paging::FarMemory;
use yonder_units::Nanos;

use crate::dispatcher::{SchedError, serve};
use crate::{Activity, Done, Frontend, Handler, Outcome, SchedConfig, SchedStats};

/// Requests to come, and what the others led to.
struct Batch<Q, R> {
    to_come: VecDeque<Q>,
    under_way: usize,
    outcomes: Vec<Outcome<R>>,
}

/// Serves these requests, as [`serve`] does, and returns what they led to, in the order in which they ended. The
/// calling thread is the dispatcher meanwhile.
///
/// # Errors
/// As for [`serve`].
pub fn serve_all<H: Handler>(
    config: &SchedConfig,
    far: &FarMemory,
    handler: &Arc<H>,
    requests: impl IntoIterator<Item = H::Request>,
) -> Result<Vec<Outcome<H::Reply>>, SchedError> {
    let mut batch = Batch { to_come: requests.into_iter().collect(), under_way: 0, outcomes: Vec::new() };
    serve(config, far, handler, &mut batch, &SchedStats::default())?;
    Ok(batch.outcomes)
}

impl<Q, R> Frontend for Batch<Q, R> {
    type Request = Q;
    type Reply = R;

    fn poll(&mut self, _: Nanos, room: usize, admit: &mut dyn FnMut(Q)) -> Activity {
        let next = room.min(self.to_come.len());
        self.under_way += next;
        self.to_come.drain(..next).for_each(admit);
        if next > 0 { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, _: Nanos, done: Done<R>) {
        self.under_way -= 1;
        self.outcomes.push(done.outcome);
    }

    fn wait(&mut self, timeout: Duration) {
        thread::park_timeout(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let dispatcher = thread::current();
        Arc::new(move || dispatcher.unpark())
    }

    fn is_finished(&self) -> bool {
        self.to_come.is_empty() && self.under_way == 0
    }
}
