//! Operations whose owner no longer waits: [`Client::cancel`], deadlines and [`Client::abandon`].
//!
//! What the node may execute at any time without harm is forgotten at once. Anything else that has been sent may still
//! be on its way, however late, and would undo what comes after it: the node is asked to give it up, and until it has
//! answered the operation keeps its pages.

use yonder_units::Nanos;

use crate::client::Client;
use crate::fragments::Fragments;
use crate::operation::{OperationId, Outcome};
use crate::operations::Phase;

impl Client {
    /// The owner no longer waits for the operation: it does not complete, and no data of it is asked for or given. If
    /// it completed already, or is not known, only its completion is dropped, if there is one.
    pub fn cancel(&mut self, id: OperationId) {
        let Some(index) = self.operations.find(id) else { return };
        self.operations.drop_report(index);
        if self.operations.entry(index).is_awaited() {
            self.give_up(index);
        }
    }

    /// The node is gone, or another one: every operation that the owner waits for is [`Outcome::Lost`], nothing is
    /// under way any more, and nothing is known of the node's clock.
    pub fn abandon(&mut self) {
        self.fragments.release_all();
        self.operations.lose_all();
        self.clock.reset();
        (self.fragment_due, self.deadline_due, self.pace_due) = (Nanos::MAX, Nanos::MAX, Nanos::MAX);
    }

    /// Gives up what has passed its deadline, and returns when the next one will.
    pub(crate) fn expire(&mut self, now: Nanos) -> Nanos {
        let mut earliest = Nanos::MAX;
        // By index and not along the list: the end of one operation may end others.
        for index in self.operations.indices() {
            let entry = self.operations.entry(index);
            if !entry.is_awaited() {
                continue;
            }
            if entry.deadline > now {
                earliest = earliest.min(entry.deadline);
                continue;
            }
            // A refusal is a certain outcome, and stands.
            let outcome = if entry.result == Outcome::Done { Outcome::TimedOut } else { entry.result };
            self.operations.post(index, outcome);
            self.give_up(index);
        }
        earliest
    }

    /// Stops an operation that is awaited. It is over when nothing of it can be executed any more.
    fn give_up(&mut self, index: u32) {
        self.operations.stop_cutting(index, Phase::GivingUp);
        let entry = self.operations.entry(index);
        if entry.is_exactly_once() {
            self.stats.aborts += u64::from(entry.fragments);
            self.fragments.for_each_of(index, entry.fragments, Fragments::abort);
        } else {
            self.forget_fragments(index);
        }
        self.end_if_answered(index);
    }

    /// Frees the slots of an operation: answers to them are late from now on.
    pub(crate) fn forget_fragments(&mut self, index: u32) {
        let count = std::mem::take(&mut self.operations.entry_mut(index).fragments);
        self.fragments.for_each_of(index, count, Fragments::release);
    }
}
