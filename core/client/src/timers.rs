//! What time does: answers that do not come, pauses, deadlines, and streams that break.
//!
//! The earliest due times are lower bounds: they are renewed by looking through what is under way when they have come,
//! so a packet that is answered in time costs nothing here.

use yonder_units::Nanos;

use crate::client::{Client, is_fast};
use crate::fragments::Owner;

impl Client {
    /// When [`Client::advance`] and [`Client::transmit`] must be called next, if nothing else happens; `None` for
    /// never. It may be earlier than there is anything to do.
    #[must_use]
    pub fn timeout(&self) -> Option<Nanos> {
        let fragments = if self.fragments.is_quiet() { Nanos::MAX } else { self.fragment_due };
        let deadlines = if self.operations.live().is_empty() { Nanos::MAX } else { self.deadline_due };
        Some(fragments.min(deadlines).min(self.pace_due)).filter(|due| *due != Nanos::MAX)
    }

    /// Does what is due at `now`.
    #[inline]
    pub fn advance(&mut self, now: Nanos) {
        if now >= self.fragment_due {
            self.advance_fragments(now);
        }
        if now >= self.deadline_due {
            self.deadline_due = self.expire(now);
        }
    }

    /// The stream broke and is there again, to the same node: everything unanswered is sent again.
    pub fn reconnected(&mut self, _now: Nanos) {
        self.fragments.repeat_all();
    }

    fn advance_fragments(&mut self, now: Nanos) {
        // Nobody wants to know the node's clock when there is nothing to do.
        let is_done = self.operations.live().is_empty();
        let (mut lost, mut late) = (0, 0);
        let operations = &self.operations;
        let answers = self.fragments.for_each_overdue(now, |fragments, slot| {
            let fragment = fragments.slot_mut(slot);
            // What is late from the slow or the extend path says nothing about the network.
            let counter = if is_fast(fragment.owner, operations) { &mut lost } else { &mut late };
            *counter += 1;
            fragment.failed = fragment.failed.saturating_add(1);
            if fragment.owner == Owner::Ping && is_done {
                fragments.release(slot);
            } else {
                fragments.repeat(slot);
            }
        });
        let pauses = self.fragments.for_each_rested(now, crate::fragments::Fragments::repeat);
        self.stats.timeouts += lost + late;
        if lost > 0 {
            self.window.on_loss(self.round_trip.expected(), now);
        }
        self.fragment_due = answers.min(pauses);
    }
}
