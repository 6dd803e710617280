//! [`Keeper`]: what is done about groups whose places fail, or are slow: places are looked for, given up, evacuated and
//! replaced.
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
use yonder_protect::laggards::Laggards;
use yonder_protect::{Cause, GivenUp, Slot, SlotSet, Swept};
use yonder_units::Nanos;

use super::group::{Address, Entry, Kept};
use super::nodes::NodeIndex;
use super::placing::Unplaced;
use super::{Event, Shared};
use crate::areas::{Area, List};
use crate::background::Pace;
use crate::cluster::ClusterError;

/// Pause between two looks while something is amiss.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The longest, where the controller knows nothing new.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(160);
/// Pause while nothing is.
const LOOK_LATER: Duration = Duration::from_millis(25);
/// How often it is seen to that lanes stand.
const LINK_EACH: Nanos = 1_000_000_000;
/// Pause before a controller is asked for places, or told of regions, that did not answer.
const REPLACE_AGAIN: Nanos = 1_000_000_000;
/// Groups that are refused places in one step at most, and the pause after a step in which one was.
const REFUSALS_MAX: u32 = 4;
const REFUSED_AGAIN: Nanos = 200_000_000;
/// Time that is spent on finding places in one step, about.
const REPLACING_MAX: Nanos = 20_000_000;
/// How often the controller is told of pages that are at too few places.
const TELL_EACH: Nanos = 1_000_000_000;
/// Pause before places at lost nodes are asked for again, after no controller has answered.
const ASK_AGAIN: Nanos = 100_000_000;
/// Pause before the controller is asked again about places at a node that does not answer.
const ASK_OF_AGAIN: Nanos = 500_000_000;
/// Words that one look sweeps.
const WORDS_PER_LOOK: u32 = 1 << 16;

/// What a thread that looks after groups remembers.
pub(super) struct Keeper {
    /// Pause before the next look while something is amiss.
    again: Duration,
    /// Nodes that writes wait for.
    laggards: Laggards,
    /// Before then the controller is not asked again about a place at a node that does not answer, nor about all of its
    /// places; by the numbers of nodes.
    one_asked_until: Vec<Nanos>,
    all_asked_until: Vec<Nanos>,
    /// The area that is looked at first.
    first: usize,
    /// Regions that the controller is to be told of: they are not used any more.
    gone: Vec<u32>,
    give_back_at: Nanos,
    link_at: Nanos,
    /// No controller is asked for places at lost nodes before that.
    ask_at: Nanos,
    /// Of places that are missing, and of those beside others that are evacuated.
    replacing: [Replacing; 2],
    /// What the controller was told last: how many pages are at too few places, and when.
    told: (u64, Nanos),
    /// It is told nothing before that.
    tell_again_at: Nanos,
}

/// How far places are found for groups.
#[derive(Default)]
struct Replacing {
    /// Groups from here on come next.
    next: usize,
    /// None is asked for before that.
    again_at: Nanos,
    /// It was said that there are too few nodes.
    is_warned: bool,
}

/// What is known of a place after the controller was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It is elsewhere now.
    Moved,
    /// It is where it was.
    Same,
    /// Nobody could be asked, or it cannot be reached where it is now.
    Unknown,
    /// Its node is lost, as the controller says.
    Lost,
}

impl Default for Keeper {
    fn default() -> Self {
        let (gone, told) = (Vec::new(), (0, 0));
        Self {
            again: LOOK_AGAIN,
            laggards: Laggards::default(),
            one_asked_until: Vec::new(),
            all_asked_until: Vec::new(),
            first: 0,
            gone,
            give_back_at: 0,
            link_at: 0,
            ask_at: 0,
            replacing: Default::default(),
            told,
            tell_again_at: 0,
        }
    }
}

impl Keeper {
    /// Looks after all groups once. What waits for none comes first.
    pub(super) fn step(&mut self, shared: &Arc<Shared>) -> Pace {
        let areas = shared.areas.all();
        let mut is_amiss = false;
        shared.nodes.leave(&mut self.laggards, yonder_clock::now());
        // Behind the last one of which a place at a silent node was asked about, so that it is not always the same.
        let first = self.first.min(areas.len());
        for at in (first..areas.len()).chain(0..first) {
            if self.look_at_places(shared, &areas[at], &mut is_amiss) {
                self.first = at + 1;
            }
            is_amiss |= evacuate(shared, &areas[at].table);
        }
        is_amiss |= self.sweep(&areas);
        is_amiss |= self.find_doubted(shared, &areas);
        is_amiss |= self.sweep(&areas);
        is_amiss |= self.replace(shared, &areas, false);
        is_amiss |= self.replace(shared, &areas, true);
        self.give_back(shared);
        self.link(shared);
        self.tell(shared);
        if is_amiss { Pace::After(self.again) } else { Pace::Within(LOOK_LATER) }
    }

    /// Gives up the places of a group whose nodes are gone or silent, and notes if anything is not as it should be.
    /// Whether one is to be asked about.
    fn look_at_places(&mut self, shared: &Shared, area: &Arc<Area<Entry>>, is_amiss: &mut bool) -> bool {
        let entry = &area.table;
        let mut asks = false;
        for kept in entry.kept().filter(|kept| entry.address(kept.place).is_some()) {
            if kept.region.is_none() {
                shared.backup.iter().for_each(|backup| backup.tell_failure());
                let has_failed = shared.backup.as_ref().is_some_and(|backup| backup.has_failed());
                *is_amiss |= has_failed && give_up(shared, entry, kept, Cause::Silent);
                continue;
            }
            let state = shared.nodes.get(kept.address.node).health.state();
            // It may have been drained and ended: one place is enough to know.
            if matches!(state, State::Suspect | State::Silent) && is_due(&mut self.one_asked_until, kept.address.node) {
                shared.doubt(entry, kept.place.slot.into());
                asks = true;
            }
            *is_amiss |= match state {
                State::Lost => self.leave_lost(shared, area, kept),
                State::Silent => give_up(shared, entry, kept, Cause::Silent),
                State::Up => entry.group.take_back(kept.place),
                State::Suspect => true,
            };
        }
        asks
    }

    /// A node has nothing any more of what it had, and a place was there as far as is known here. Its region may have
    /// moved before, as off a node that was drained and started anew: then all of it is where the controller says.
    /// While no controller answers, a place that alone has a page stays.
    fn leave_lost(&mut self, shared: &Shared, area: &Arc<Area<Entry>>, kept: Kept) -> bool {
        let found = if yonder_clock::now() < self.ask_at { Found::Unknown } else { find(shared, area, kept) };
        match found {
            Found::Moved => true,
            Found::Same | Found::Lost => give_up(shared, &area.table, kept, Cause::Lost),
            Found::Unknown => {
                let now = yonder_clock::now();
                if now >= self.ask_at {
                    self.ask_at = now + ASK_AGAIN;
                }
                give_up(shared, &area.table, kept, Cause::Silent);
                true
            }
        }
    }

    fn sweep(&mut self, areas: &List<Entry>) -> bool {
        areas.iter().fold(false, |has_more, area| sweep(&area.table, &mut self.gone) | has_more)
    }

    /// Asks where places are that are doubted. Where nothing has changed they are asked for less and less often.
    fn find_doubted(&mut self, shared: &Arc<Shared>, areas: &List<Entry>) -> bool {
        let (mut any, mut left) = (false, Vec::new());
        for area in areas.iter() {
            let entry = &area.table;
            let doubted = entry.take_doubted();
            let asked = yonder_clock::now();
            let kept = entry.kept().filter(|kept| doubted.contains(kept.place.slot) && kept.region.is_some());
            for kept in kept.filter(|kept| entry.address(kept.place).is_some()) {
                any = true;
                let is_heard = || shared.nodes.get(kept.address.node).health.last_heard() > asked;
                match find(shared, area, kept) {
                    Found::Moved => left.push(kept.address.node),
                    // The controller may know more soon.
                    Found::Same | Found::Unknown if !is_heard() => _ = entry.doubt(kept.place.slot.into()),
                    Found::Same | Found::Unknown | Found::Lost => {}
                }
            }
        }
        self.again = if !left.is_empty() || !any { LOOK_AGAIN } else { (2 * self.again).min(LOOK_AGAIN_MAX) };
        self.follow(shared, areas, left);
        any
    }

    /// What was at a node that does not answer, and from which some place has moved, has moved too: a drained one that
    /// has ended. Each node is asked about once in a while.
    fn follow(&mut self, shared: &Shared, areas: &List<Entry>, mut left: Vec<NodeIndex>) {
        left.sort_unstable_by_key(|node| node.0);
        left.dedup();
        left.retain(|node| !shared.nodes.get(*node).health.state().is_up() && is_due(&mut self.all_asked_until, *node));
        if left.is_empty() {
            return;
        }
        for area in areas.iter() {
            let is_left = |kept: &Kept| kept.region.is_some() && left.contains(&kept.address.node);
            area.table.doubt(area.table.kept().filter(is_left).map(|kept| kept.place.slot).collect());
        }
    }

    /// Finds places for groups that lack some, beside those that are evacuated or not. Whether any do.
    ///
    /// It takes some time at most, and where nodes have no room for a few groups the others wait too: the next step
    /// goes on behind them.
    fn replace(&mut self, shared: &Arc<Shared>, areas: &List<Entry>, is_evacuated: bool) -> bool {
        let without = |entry: &Entry| if is_evacuated { entry.group.evacuated() } else { SlotSet::NONE };
        let lacks = |at: &usize| shared.lacks_places(&areas[*at].table, without(&areas[*at].table));
        let mut lacking: Vec<usize> = (0..areas.len()).filter(lacks).collect();
        let begun = yonder_clock::now();
        let replacing = &mut self.replacing[usize::from(is_evacuated)];
        if lacking.is_empty() || begun < replacing.again_at {
            return !lacking.is_empty();
        }
        let first = lacking.partition_point(|at| *at < replacing.next);
        lacking.rotate_left(first);
        let mut refusals = 0;
        for at in lacking {
            let entry = &areas[at].table;
            let replaced = match is_evacuated {
                true => shared.replace_evacuated(entry),
                false => shared.replace_missing(entry),
            };
            replacing.next = at + 1;
            let now = yonder_clock::now();
            match replaced {
                Ok(()) => {
                    replacing.is_warned = false;
                    // So that the next step knows that it has begun.
                    evacuate(shared, entry);
                }
                Err(Unplaced { error, is_refusal }) => {
                    if !std::mem::replace(&mut replacing.is_warned, true) {
                        let amiss = ["pages have fewer places than was asked for", "writes wait for a node"];
                        let amiss = amiss[usize::from(is_evacuated)];
                        tracing::warn!(%error, "{amiss}, and no other node takes them");
                    }
                    // Also after one: the next step comes soon, and there is no more room by then.
                    replacing.again_at = now + if is_refusal { REFUSED_AGAIN } else { REPLACE_AGAIN };
                    refusals += 1;
                    if !is_refusal || refusals == REFUSALS_MAX {
                        break;
                    }
                }
            }
            if now >= begun + REPLACING_MAX {
                break;
            }
        }
        true
    }

    /// Tells the controller of regions that are not used any more. A node that comes back frees them then; what is not
    /// told ends with the address space.
    fn give_back(&mut self, shared: &Shared) {
        if yonder_clock::now() < self.give_back_at {
            return;
        }
        while let Some(region) = self.gone.last() {
            match shared.cluster.give_up(*region) {
                Err(ClusterError::Controller(ClientError::Unreachable { .. })) => {
                    self.give_back_at = yonder_clock::now() + REPLACE_AGAIN;
                    return;
                }
                _ => _ = self.gone.pop(),
            }
        }
    }

    /// Sees to it that queue pairs have lanes to all nodes that answer, also those that were made while one did not.
    fn link(&mut self, shared: &Shared) {
        let now = yonder_clock::now();
        if now >= self.link_at {
            self.link_at = now + LINK_EACH;
            shared.nodes.connect_all();
        }
    }

    /// Tells the controller how many pages are at too few places: at once when there are some, or none any more, and
    /// now and then in between.
    fn tell(&mut self, shared: &Shared) {
        if shared.protection.wanted() == 1 {
            return;
        }
        let (now, (before, at)) = (yonder_clock::now(), self.told);
        let below = shared.areas.all().iter().map(|area| area.table.pages_below()).sum();
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

/// Whether a node is to be asked about, by times for each; then it is not for a while.
fn is_due(times: &mut Vec<Nanos>, node: NodeIndex) -> bool {
    let (index, now) = (usize::from(node.0), yonder_clock::now());
    times.resize(times.len().max(index + 1), 0);
    let is_due = now >= times[index];
    if is_due {
        times[index] = now + ASK_OF_AGAIN;
    }
    is_due
}

/// Asks where a place is, and notes it.
pub(super) fn find(shared: &Shared, area: &Arc<Area<Entry>>, kept: Kept) -> Found {
    let entry = &area.table;
    let Some(region) = kept.region else { return Found::Same };
    let location = match shared.cluster.ask(region) {
        Ok(location) => location,
        // The node may come back. Where others have its pages it is given up all the same.
        Err(ClusterError::Controller(ClientError::Refused(Refusal::RegionLost { .. }))) => {
            give_up(shared, entry, kept, Cause::Silent);
            return Found::Lost;
        }
        // Controllers that are away come again, and one that was deposed may know less than there is.
        Err(_) => return Found::Unknown,
    };
    let Ok(node) = shared.nodes.know(&location) else { return Found::Unknown };
    // It may be one that could not be reached when a queue pair was made.
    let is_linked = shared.nodes.connect(node).is_ok();
    if node == kept.address.node {
        return Found::Same;
    }
    if !is_linked {
        return Found::Unknown;
    }
    shared.nodes.get(node).health.wait_anew(yonder_clock::now());
    // Another thread may have heard the same.
    if entry.relocate(kept, Address { node, ..kept.address }) {
        shared.nodes.get(node).note_moved(area);
        shared.count(Event::Moved);
    }
    Found::Moved
}

/// Gives a place up. Whether there is something to do for it.
fn give_up(shared: &Shared, entry: &Entry, kept: Kept, cause: Cause) -> bool {
    let is_given_up = matches!(entry.group.give_up(kept.place, cause), GivenUp::Leaving | GivenUp::Retiring);
    if is_given_up {
        shared.count(Event::GivenUp);
    }
    is_given_up
}

/// Says which places of a group are evacuated, and gives those up that have no page any more. Whether there are any.
fn evacuate(shared: &Shared, entry: &Entry) -> bool {
    let view = entry.group.view();
    let at_nodes = shared.of_nodes(view.live());
    let is_left = |slot: &Slot| {
        let address = entry.address(view.place(*slot));
        address.is_some_and(|address| shared.nodes.get(address.node).is_left())
    };
    // With a file that has failed each page lacks a place: it leaves no other.
    let has_failed = shared.backup.as_ref().is_some_and(|backup| backup.has_failed());
    let usable = if has_failed { SlotSet::NONE } else { at_nodes };
    let left = usable.iter().filter(is_left).collect();
    for slot in entry.evacuate(usable, left, shared.nodes_wanted(), yonder_clock::now()).iter() {
        if matches!(entry.group.give_up(view.place(slot), Cause::Silent), GivenUp::Leaving | GivenUp::Retiring) {
            shared.count(Event::Evacuated);
        }
    }
    entry.group.is_evacuating()
}

/// Sweeps words of a group, and adds the regions to `gone` whose places are. Whether there is more to do.
fn sweep(entry: &Entry, gone: &mut Vec<u32>) -> bool {
    if !entry.group.wants_sweep() {
        return false;
    }
    match entry.group.sweep(WORDS_PER_LOOK) {
        Swept::More => true,
        Swept::Freed(slots) => {
            gone.extend(slots.iter().filter_map(|slot| entry.forget(slot)).filter_map(|kept| kept.region));
            true
        }
        Swept::Nothing | Swept::Busy => false,
    }
}
