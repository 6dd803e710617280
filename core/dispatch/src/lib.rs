//! Dispatch policies: which worker gets the next request, and which request a worker takes next.
//!
//! The dispatcher owns the single queue, or one of hits and one of faults under [`DispatchPolicy::Predicted`]. At each
//! turn it takes the workers that have room, in an order that the policy gives, and hands each one request.
//! Page-fault-aware order is Adios' Algorithm 1: fewest outstanding fetches first, so that a burst of faults on one
//! worker's queue pair does not delay the requests behind it.
//!
//! Where faults are predicted, [`Turns`] says whose turn it is at a worker; elsewhere [`Order`] does.
//!
//! Neighbours: `runtime/sched` performs the hand-over; [`predict`] tells the requests of the two queues apart.

#![forbid(unsafe_code)]

mod order;
pub mod predict;
mod turns;

pub use order::Order;
pub use turns::{FAULTS_OVERTAKEN_MAX, RESUMED_OVERTAKEN_MAX, Turn, Turns, Waiting};

/// How the dispatcher orders workers and requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatchPolicy {
    /// One after another.
    RoundRobin,
    /// Fewest outstanding fetches first (Adios, Algorithm 1).
    PageFaultAware,
    /// The same, and requests that will probably fault queue apart, so that no other waits for them (the poster,
    /// section 4.2).
    Predicted,
}

/// What the dispatcher sees of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerView {
    /// Requests that the worker can take now.
    pub room: u32,
    /// Its fetches in flight.
    pub outstanding: u32,
}

/// Chooses workers. Keeps where the round has got to.
#[derive(Debug)]
pub struct Chooser {
    policy: DispatchPolicy,
    next: usize,
}

impl Chooser {
    /// A chooser of `policy`.
    #[must_use]
    pub fn new(policy: DispatchPolicy) -> Self {
        Self { policy, next: 0 }
    }

    /// Fills `order` with the workers that have room, first choice first. Workers with equally many fetches are taken
    /// in turn, so that none starves at low load.
    pub fn order(&mut self, workers: &[WorkerView], order: &mut Vec<usize>) {
        order.clear();
        let count = workers.len();
        order.extend((0..count).map(|step| (self.next + step) % count).filter(|worker| workers[*worker].room > 0));
        if self.policy != DispatchPolicy::RoundRobin {
            order.sort_by_key(|worker| workers[*worker].outstanding);
        }
    }

    /// Notes that `worker` got a request.
    pub fn dispatched(&mut self, worker: usize, workers: usize) {
        self.next = (worker + 1) % workers;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn views(outstanding: &[u32]) -> Vec<WorkerView> {
        outstanding.iter().map(|outstanding| WorkerView { room: 1, outstanding: *outstanding }).collect()
    }

    fn order(policy: DispatchPolicy, next: usize, workers: &[WorkerView]) -> Vec<usize> {
        let mut order = Vec::new();
        Chooser { policy, next }.order(workers, &mut order);
        order
    }

    #[test]
    fn fewest_fetches_first() {
        assert_eq!(order(DispatchPolicy::PageFaultAware, 0, &views(&[3, 0, 2])), [1, 2, 0]);
        assert_eq!(order(DispatchPolicy::RoundRobin, 1, &views(&[3, 0, 2])), [1, 2, 0]);
        assert_eq!(order(DispatchPolicy::RoundRobin, 2, &views(&[3, 0, 2])), [2, 0, 1]);
    }

    #[test]
    fn equal_workers_take_turns() {
        let (mut chooser, mut list) = (Chooser::new(DispatchPolicy::PageFaultAware), Vec::new());
        let turns: Vec<usize> = (0..4)
            .map(|_| {
                chooser.order(&views(&[1, 1, 1]), &mut list);
                chooser.dispatched(list[0], 3);
                list[0]
            })
            .collect();
        assert_eq!(turns, [0, 1, 2, 0]);
    }

    fn policies() -> impl Strategy<Value = DispatchPolicy> {
        prop::sample::select(vec![
            DispatchPolicy::RoundRobin,
            DispatchPolicy::PageFaultAware,
            DispatchPolicy::Predicted,
        ])
    }

    proptest! {
        #[test]
        fn every_worker_with_room_is_offered_once(
            workers in prop::collection::vec((0u32..2, 0u32..9), 1..70), next in 0usize..70, policy in policies(),
        ) {
            let workers: Vec<_> = workers.into_iter().map(|(room, outstanding)| WorkerView { room, outstanding }).collect();
            let order = order(policy, next % workers.len(), &workers);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let expected: Vec<_> = (0..workers.len()).filter(|worker| workers[*worker].room > 0).collect();
            prop_assert_eq!(sorted, expected);
            if policy != DispatchPolicy::RoundRobin {
                prop_assert!(order.is_sorted_by_key(|worker| workers[*worker].outstanding));
            }
        }
    }
}
