//! [`step`]: what is done about groups whose places fail: places are looked for, given up and replaced.
//!
//! One thread does this for all groups of a fabric. It asks the controller and nodes, and may wait for them: queue
//! pairs need nothing of it to go on, but for regions that have moved.
//!
//! Invariant: lanes of all queue pairs to a place stand before the place is adopted.

use std::sync::Arc;
use std::time::Duration;

use yonder_controller::ClientError;
use yonder_placement::Refusal;
use yonder_protect::health::State;
use yonder_protect::{Cause, GivenUp, SlotSet, Swept};
use yonder_units::Nanos;

use super::group::{Address, Entry, Kept};
use super::{Event, Shared};
use crate::areas::Area;
use crate::background::Pace;
use crate::cluster::ClusterError;

/// Pause between two looks while something is amiss.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The same, while nothing is.
const LOOK_LATER: Duration = Duration::from_millis(25);
/// Pause before a replacement is asked for again that was refused.
const REPLACE_AGAIN: Nanos = 1_000_000_000;
/// How often the controller is told of pages that are at too few places.
const TELL_EACH: Nanos = 1_000_000_000;
/// Words that one look sweeps.
const WORDS_PER_LOOK: u32 = 1 << 16;

/// What a thread that looks after groups remembers.
#[derive(Default)]
pub(super) struct Keeper {
    /// Nothing is replaced before that.
    replace_at: Nanos,
    /// It was said that there are too few nodes.
    is_warned: bool,
    /// What the controller was told last: how many pages are at too few places, and when.
    told: (u64, Nanos),
    /// It is told nothing before that.
    tell_again_at: Nanos,
}

/// What is known of a place after the controller was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It is elsewhere now.
    Moved,
    /// It is where it was, as far as is known.
    Same,
    /// Its node is lost, as the controller says.
    Lost,
}

impl Keeper {
    /// Looks after all groups once.
    pub(super) fn step(&mut self, shared: &Arc<Shared>) -> Pace {
        let mut is_amiss = false;
        shared.nodes.judge(yonder_clock::now());
        for area in shared.areas.all().iter() {
            let entry = &area.table;
            let doubted = entry.take_doubted();
            let now = yonder_clock::now();
            for kept in entry.kept() {
                if entry.address(kept.place).is_none() {
                    continue;
                }
                match shared.nodes.get(kept.address.node).health.state() {
                    State::Lost => is_amiss |= give_up(shared, entry, kept, Cause::Lost),
                    State::Silent => is_amiss |= give_up(shared, entry, kept, Cause::Silent),
                    State::Up => is_amiss |= entry.group.take_back(kept.place),
                    State::Suspect => is_amiss = true,
                }
                if doubted.contains(kept.place.slot) && entry.address(kept.place).is_some() {
                    is_amiss = true;
                    let is_heard = || shared.nodes.get(kept.address.node).health.last_heard() > now;
                    if find(shared, area, kept) == Found::Same && !is_heard() {
                        // The controller may know more soon.
                        entry.doubt(kept.place.slot.into());
                    }
                }
            }
            is_amiss |= sweep(shared, entry);
            if now >= self.replace_at && is_short(entry) {
                is_amiss = true;
                match shared.replace(entry) {
                    Ok(()) => self.is_warned = false,
                    Err(error) => {
                        if !std::mem::replace(&mut self.is_warned, true) {
                            tracing::warn!(%error, "pages have fewer places than was asked for");
                        }
                        self.replace_at = now + REPLACE_AGAIN;
                    }
                }
            }
        }
        self.tell(shared);
        if is_amiss { Pace::After(LOOK_AGAIN) } else { Pace::Within(LOOK_LATER) }
    }
}

impl Keeper {
    /// Tells the controller how many pages are at too few places: at once when there are some, or none any more, and
    /// now and then in between.
    fn tell(&mut self, shared: &Shared) {
        if shared.protection.wanted() == 1 {
            return;
        }
        let (now, (before, at)) = (yonder_clock::now(), self.told);
        let below = shared.areas.all().iter().map(|area| area.table.group.pages_degraded()).sum();
        let is_due = (below == 0) != (before == 0) || below > 0 && now >= at.saturating_add(TELL_EACH);
        if is_due && now >= self.tell_again_at {
            match shared.cluster.note_protection(below) {
                Ok(()) => self.told = (below, now),
                // It is told later, or to another one.
                Err(_) => self.tell_again_at = now + TELL_EACH,
            }
        }
    }
}

/// Asks where a place is, and notes it.
pub(super) fn find(shared: &Shared, area: &Area<Entry>, kept: Kept) -> Found {
    let entry = &area.table;
    let location = match shared.cluster.ask(kept.region) {
        Ok(location) => location,
        // The node may come back. Where others have its pages it is given up all the same.
        Err(ClusterError::Controller(ClientError::Refused(Refusal::RegionLost { .. }))) => {
            give_up(shared, entry, kept, Cause::Silent);
            return Found::Lost;
        }
        // Controllers that are away come again, and one that was deposed may know less than there is.
        Err(_) => return Found::Same,
    };
    let Ok(node) = shared.nodes.know(&location) else { return Found::Same };
    // It may be one that could not be reached when a queue pair was made.
    let is_linked = shared.nodes.connect(node).is_ok();
    if node == kept.address.node || !is_linked {
        return Found::Same;
    }
    entry.relocate(kept, Address { node, ..kept.address });
    shared.count(Event::Moved);
    Found::Moved
}

/// Gives a place up. Whether there is something to do for it.
fn give_up(shared: &Shared, entry: &Entry, kept: Kept, cause: Cause) -> bool {
    match entry.group.give_up(kept.place, cause) {
        GivenUp::Already | GivenUp::Kept => false,
        GivenUp::Leaving | GivenUp::Retiring => {
            shared.count(Event::GivenUp);
            true
        }
    }
}

/// Sweeps words of a group, and gives regions back whose places are gone. Whether there is more to do.
fn sweep(shared: &Shared, entry: &Entry) -> bool {
    let mut has_more = false;
    if entry.group.wants_sweep() {
        match entry.group.sweep(WORDS_PER_LOOK) {
            Swept::More => has_more = true,
            Swept::Freed(slots) => {
                has_more = true;
                for kept in slots.iter().filter_map(|slot| entry.forget(slot)) {
                    // A node that comes back frees it then; what cannot be told now ends with the address space.
                    let _ = shared.cluster.give_up(kept.region);
                }
            }
            Swept::Nothing | Swept::Busy => {}
        }
    }
    has_more
}

/// Whether a group has fewer live places than it should, and a slot for one.
fn is_short(entry: &Entry) -> bool {
    let view = entry.group.view();
    view.live().count() < entry.group.protection().wanted() && view.free() != SlotSet::NONE
}
