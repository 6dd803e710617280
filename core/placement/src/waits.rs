//! [`Waits`]: requests that wait for nodes, each asker's share of them.
//!
//! One that is asked again when its node has answered, and then waits for another one, keeps its place.

use std::collections::{BTreeMap, VecDeque};

use yonder_board::Share;

use crate::WAITING_MAX;
use crate::asker::Asker;
use crate::controller::{Controller, Ticket, Waiting};
use crate::message::{Answer, Refusal};
use crate::names::{NodeId, Pid};

/// One asker has half of the places at most, and the last quarter is for those with few.
const SHARE: Share = Share { places_max: WAITING_MAX, of_one_max: WAITING_MAX / 2, few_max: 16 };

/// The requests that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    requests: VecDeque<Waiting>,
    /// How many each asker has.
    of: BTreeMap<Asker, usize>,
    /// Those that have waited already are asked.
    asks_again: bool,
}

impl Waits {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        assert_eq!(self.of.values().sum::<usize>(), self.requests.len());
        self.requests.is_empty()
    }

    /// Whether what is asked now has waited.
    pub(crate) fn asks_again(&self) -> bool {
        self.asks_again
    }

    fn add(&mut self, waiting: Waiting) {
        *self.of.entry(waiting.asker.clone()).or_default() += 1;
        self.requests.push_back(waiting);
    }

    fn take(&mut self, is_meant: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        let (meant, others): (VecDeque<Waiting>, _) = self.requests.drain(..).partition(is_meant);
        self.requests = others;
        for Waiting { asker, .. } in &meant {
            let own = self.of.get_mut(asker).expect("a request that waits is counted");
            *own -= 1;
            if *own == 0 {
                self.of.remove(asker);
            }
        }
        meant
    }
}

impl Controller {
    pub(crate) fn wait_for(&mut self, waiting: Waiting) {
        let (all, own) = (self.waiting.requests.len(), self.waiting.of.get(&waiting.asker).copied().unwrap_or(0));
        if self.waiting.asks_again || SHARE.admits(all, own) {
            return self.waiting.add(waiting);
        }
        let cause = format!("{own} of {all} requests that wait for memory nodes are of {}", waiting.asker);
        self.actions.answers.push((waiting.ticket, Answer::Refused(Refusal::Busy { cause })));
    }

    /// Those who asked have gone: what waits of these is not answered any more.
    pub fn withdraw(&mut self, is_meant: impl Fn(Ticket) -> bool) {
        self.take_waiting(|waiting| is_meant(waiting.ticket));
    }

    /// Handles what waited for the node (and, if given, for this space there) from its beginning again.
    pub(crate) fn ask_again(&mut self, node: NodeId, pid: Option<Pid>) {
        let meant = self.take_waiting(|waiting| waiting.node == node && pid.is_none_or(|pid| pid == waiting.pid));
        self.waiting.asks_again = true;
        for waiting in meant {
            self.ask(waiting.ticket, waiting.asker, waiting.request);
        }
        self.waiting.asks_again = false;
    }

    pub(crate) fn take_waiting(&mut self, is_meant: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        self.waiting.take(is_meant)
    }
}
