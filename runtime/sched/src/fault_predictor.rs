//! [`FaultPredictor`]: the predictor at work, and [`Queues`], the two queues that it fills.
//!
//! The dispatcher asks when it admits a request and teaches when it reaps the reply, so nobody else touches the
//! predictor. Without it (any policy but `Predicted`) all requests are in the queue of hits.

use std::ops::{Index, IndexMut};

use yonder_dispatch::predict::{Forecast, Outcome, Prediction, Predictor};
use yonder_paging::FarMemory;
use yonder_units::{PAGE_BYTES, PageId};

use crate::frontend::Timing;
use crate::task::SchedStats;

/// A queue of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// Of those that will not fault, or of which nothing is known.
    Hits,
    /// Of those that will fault.
    Faults,
}

impl Queue {
    pub(crate) const ALL: [Self; 2] = [Self::Hits, Self::Faults];
}

/// One of something for each queue.
pub(crate) struct Queues<T>([T; 2]);

impl<T> Queues<T> {
    pub(crate) fn new(hits: T, faults: T) -> Self {
        Self([hits, faults])
    }
}

impl<T> Index<Queue> for Queues<T> {
    type Output = T;

    fn index(&self, queue: Queue) -> &T {
        &self.0[queue as usize]
    }
}

impl<T> IndexMut<Queue> for Queues<T> {
    fn index_mut(&mut self, queue: Queue) -> &mut T {
        &mut self.0[queue as usize]
    }
}

/// What was predicted for a request, and travels with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictedRequest {
    key: u64,
    forecast: Forecast,
}

impl PredictedRequest {
    pub(crate) fn queue(&self) -> Queue {
        match self.forecast.prediction {
            Prediction::Hit => Queue::Hits,
            Prediction::Fault => Queue::Faults,
        }
    }
}

/// Predicts faults of the requests on one far memory.
pub(crate) struct FaultPredictor<'a> {
    predictor: Predictor,
    far: &'a FarMemory,
    stats: &'a SchedStats,
}

impl<'a> FaultPredictor<'a> {
    pub(crate) fn new(far: &'a FarMemory, stats: &'a SchedStats) -> Self {
        let predictor = Predictor::new(far.local() / PAGE_BYTES as u64);
        stats.set_predictor_bytes(predictor.bytes() as u64);
        Self { predictor, far, stats }
    }

    /// What will become of a request for `key`.
    pub(crate) fn predict(&self, key: u64) -> PredictedRequest {
        PredictedRequest { key, forecast: self.predictor.predict(key, |page_id| self.far.residence(page_id)) }
    }

    /// A request is over, whose last fault was at `place`.
    pub(crate) fn learn(&mut self, prediction: Option<PredictedRequest>, timing: &Timing, page_id: Option<PageId>) {
        let Some(PredictedRequest { key, forecast }) = prediction else {
            self.predictor.note_faults(timing.major_faults);
            return;
        };
        self.stats.count_prediction(forecast.prediction, timing.major_faults);
        let outcome = Outcome { major_faults: timing.major_faults, page_id };
        self.predictor.learn(key, forecast, outcome, |page_id| self.far.residence(page_id));
    }
}
