//! One request at a time touches far pages, one after the other, and notes when each fault passed what.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use yonder::clock;
use yonder::sched::{Activity, Done, Frontend, Handler, Outcome};
use yonder::units::{Nanos, PAGE_BYTES};
use yonder::{PagingError, Region};

use super::stamps::{Passed, Stamps};
use crate::parking;

/// Faults of one request.
const BATCH: u64 = 256;
/// Pages that are looked at for each fault, most of which are local if local memory is large.
const LOOKS_MAX: u64 = 1000;

/// What a page holds: never zero, as a page that was lost would be.
pub(super) fn value_of(page: u64) -> u64 {
    !page
}

/// When a touch was made, what it passed, and when it was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Touch {
    pub(super) touched: Nanos,
    pub(super) passed: Passed,
    pub(super) over: Nanos,
}

/// Touches pages.
pub(super) struct Toucher {
    pub(super) region: Arc<Region>,
    pub(super) stamps: Arc<Stamps>,
}

/// So many faults are to be had.
pub(super) struct Batch {
    faults: u64,
    random: SmallRng,
}

/// What a batch has come to.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) touches: Vec<Touch>,
    /// Faults that were not one plain major fault.
    pub(super) left_out: u64,
    pub(super) wrong: u64,
}

impl Handler for Toucher {
    type Request = Batch;
    type Reply = Result<Touched, PagingError>;

    fn handle(&self, mut batch: Batch) -> Result<Touched, PagingError> {
        let pages = self.region.bytes() / PAGE_BYTES as u64;
        let mut touched = Touched { touches: Vec::with_capacity(batch.faults as usize), ..Touched::default() };
        for _ in 0..batch.faults * LOOKS_MAX {
            if touched.touches.len() as u64 + touched.left_out >= batch.faults {
                break;
            }
            let page = batch.random.random_range(0..pages);
            if !self.region.is_resident(page * PAGE_BYTES as u64) {
                self.touch(page, &mut touched)?;
            }
        }
        Ok(touched)
    }
}

impl Toucher {
    fn touch(&self, page: u64, all: &mut Touched) -> Result<(), PagingError> {
        self.stamps.clear();
        let touched = clock::now();
        let value = self.region.read_u64(page * PAGE_BYTES as u64)?;
        let over = clock::now();
        all.wrong += u64::from(value != value_of(page));
        match self.stamps.passed() {
            Some(passed) => all.touches.push(Touch { touched, passed, over }),
            None => all.left_out += 1,
        }
        Ok(())
    }
}

/// Asks for faults, a batch at a time.
pub(super) struct Asking {
    left: u64,
    is_busy: bool,
    random: SmallRng,
    pub(super) touched: Touched,
    pub(super) failed: Option<PagingError>,
    pub(super) panicked: u64,
}

impl Asking {
    pub(super) fn new(faults: u64, seed: u64) -> Self {
        Self {
            left: faults,
            is_busy: false,
            random: SmallRng::seed_from_u64(seed),
            touched: Touched::default(),
            failed: None,
            panicked: 0,
        }
    }
}

impl Frontend for Asking {
    type Request = Batch;
    type Reply = Result<Touched, PagingError>;

    fn poll(&mut self, _now: Nanos, room: usize, admit: &mut dyn FnMut(Batch)) -> Activity {
        if self.is_busy || self.left == 0 || room == 0 {
            return Activity::Idle;
        }
        let faults = self.left.min(BATCH);
        self.left -= faults;
        self.is_busy = true;
        admit(Batch { faults, random: SmallRng::from_rng(&mut self.random) });
        Activity::Busy
    }

    fn complete(&mut self, _now: Nanos, done: Done<Self::Reply>) {
        self.is_busy = false;
        match done.outcome {
            Outcome::Reply(Ok(Touched { touches, left_out, wrong })) => {
                self.touched.touches.extend(touches);
                self.touched.left_out += left_out;
                self.touched.wrong += wrong;
            }
            Outcome::Reply(Err(error)) => (self.failed, self.left) = (Some(error), 0),
            Outcome::Panicked => (self.panicked, self.left) = (self.panicked + 1, 0),
        }
    }

    fn wait(&mut self, timeout: Duration) {
        parking::park(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        parking::waker_of_this_thread()
    }

    fn is_finished(&self) -> bool {
        self.left == 0 && !self.is_busy
    }
}
