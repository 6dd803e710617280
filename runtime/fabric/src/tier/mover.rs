//! [`Mover`]: copies pages between the tiers, in the background, with a few frames of its own.
//!
//! Down: when the node has few free slots and no more to give, the hand of a clock goes round over its slots. A page
//! that was used since the hand came by gets its second chance; another one is read, written far, and is far from then
//! on, if nobody has written it meanwhile. Up: a page that is read far again and again is read and written to a free
//! slot, on the same condition.
//!
//! While a page is moved no queue pair writes it far ([`Entries::begin_move`]), so the far copy has one writer. A write
//! to the far tier whose end is not known may still come, so the mover goes on with that page: it posts the write
//! again, behind the lost one on the same queue pair, until one is done.
//!
//! Invariant: bounded, [`MOVES_MAX`] pages at a time, and nothing is allocated after it was made.

use std::sync::Arc;
use std::time::Duration;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES};

use super::entry::{Entries, Entry, Location};
use super::near::Slot;
use super::{Event, Shared};
use crate::areas::{Area, AreaPage, View};
use crate::background::Pace;
use crate::{
    Completion, FabricError, Module, PageRead, PageWrite, PostError, QueuePair, ReadInto, Status, Vector, WorkId,
};

/// Pages that are under way at a time.
const MOVES_MAX: usize = 32;
/// Slots that the hand passes in a step: once round at most, so that there is time to use a page again.
const HAND_STEPS_MAX: usize = 512;
/// How long an operation may take before it is taken for lost, and how long the next attempt waits.
const TIMEOUT: Nanos = 100_000_000;
const RETRY_PAUSE: Nanos = 10_000_000;
/// How long the mover waits between two looks while nothing has come, and while no page can be moved.
const LOOK_PAUSE: Duration = Duration::from_micros(50);
const NO_VICTIM_PAUSE: Duration = Duration::from_millis(1);

/// How far a page has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Down: read from its slot.
    ReadingNear(Slot),
    /// Down: written far.
    WritingFar(Slot),
    /// Down: to be written far from this time on.
    Waiting(Slot, Nanos),
    /// Up: read far.
    ReadingFar,
    /// Up: written to a slot.
    WritingNear(Slot),
}

/// What became of an attempt to begin one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Begun,
    /// The page is not where it was, or not to be moved now.
    Changed,
    /// The tier that would be read holds as many operations as it can, and will for a while.
    Full,
}

struct Move {
    place: AreaPage<Entries>,
    begun: Entry,
    shape: Vector,
    stage: Stage,
    posted: Nanos,
}

impl Move {
    fn is_of(&self, area: &Arc<Area<Entries>>) -> bool {
        Arc::ptr_eq(&self.place.area, area)
    }
}

/// What copies.
pub(super) struct Mover {
    shared: Arc<Shared>,
    view: View<Entries>,
    near: Box<dyn QueuePair>,
    far: Box<dyn QueuePair>,
    moves: [Option<Move>; MOVES_MAX],
    /// How often each place was used: part of the name below, so that no two operations have the same.
    uses: [u32; MOVES_MAX],
    hand: Slot,
    /// Slots that only the mover may write: a write that was given up may still land there.
    own_slots: Vec<Slot>,
    arrived: Vec<Completion>,
}

impl Mover {
    pub(super) fn new(shared: &Arc<Shared>, url: &str) -> Result<Self, FabricError> {
        let refused = |cause: String| FabricError::System { url: url.to_owned(), cause };
        let frames = Mapping::anonymous(MOVES_MAX * PAGE_BYTES).map_err(|error| refused(error.to_string()))?;
        let frames = Arc::new(frames);
        Ok(Self {
            shared: Arc::clone(shared),
            view: View::new(&shared.areas),
            near: shared.near.fabric().queue_pair(Module::WriteBack, Arc::clone(&frames))?,
            far: shared.far.queue_pair(Module::WriteBack, frames)?,
            moves: [const { None }; MOVES_MAX],
            uses: [0; MOVES_MAX],
            hand: Slot(0),
            own_slots: Vec::with_capacity(MOVES_MAX),
            arrived: Vec::with_capacity(MOVES_MAX),
        })
    }

    /// One bounded piece of work.
    pub(super) fn step(&mut self, now: Nanos) -> Pace {
        let mut has_worked = self.poll(now);
        self.look_for_lost(now);
        has_worked |= self.begin_downs(now);
        has_worked |= self.begin_ups(now);
        if has_worked {
            Pace::Again
        } else if self.moves.iter().any(Option::is_some) {
            Pace::After(LOOK_PAUSE)
        } else if self.wants_downs(now) {
            Pace::After(NO_VICTIM_PAUSE)
        } else {
            Pace::Idle
        }
    }

    /// Forgets the pages of an area that ends: nobody will read them. What is being written far is waited for, because
    /// others may have the memory there soon. Whether all of that has ended: if not, the mover goes on with it, and the
    /// memory must not be given back before [`Mover::has_left`].
    pub(super) fn abandon(&mut self, area: &Arc<Area<Entries>>) -> bool {
        self.give_up_all(area, |stage| !matches!(stage, Stage::WritingFar(_) | Stage::Waiting(..)));
        let begun = yonder_clock::now();
        while yonder_clock::now() < begun + TIMEOUT && self.moves.iter().flatten().any(|moved| moved.is_of(area)) {
            let now = yonder_clock::now();
            self.poll(now);
            self.look_for_lost(now);
            std::thread::yield_now();
        }
        self.has_left(area)
    }

    /// Whether nothing of an area is under way.
    pub(super) fn has_left(&self, area: &Arc<Area<Entries>>) -> bool {
        !self.moves.iter().flatten().any(|moved| moved.is_of(area))
    }

    fn give_up_all(&mut self, area: &Arc<Area<Entries>>, is_to_end: impl Fn(Stage) -> bool) {
        for at in 0..MOVES_MAX {
            if self.moves[at].as_ref().is_some_and(|moved| moved.is_of(area) && is_to_end(moved.stage)) {
                self.withdraw(at);
                self.give_up(at);
            }
        }
    }

    /// Handles what has ended below. Whether there was anything.
    fn poll(&mut self, now: Nanos) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        let mut has_worked = false;
        for is_near in [true, false] {
            let queue = if is_near { &mut self.near } else { &mut self.far };
            queue.poll(now, &mut arrived);
            for Completion { id, status } in arrived.drain(..) {
                let at = (id.0 & u64::from(u16::MAX)).narrow_usize();
                assert_eq!(id, self.id_below(at), "a completion of what was cancelled");
                self.arrive(at, status, now);
                has_worked = true;
            }
        }
        self.arrived = arrived;
        has_worked
    }

    fn arrive(&mut self, at: usize, status: Status, now: Nanos) {
        let moved = self.moves[at].as_ref().expect("only what is under way ends");
        let (place, begun) = (moved.place.clone(), moved.begun);
        let entries = &place.area.table;
        // What is posted next in its place has another name.
        self.uses[at] = self.uses[at].wrapping_add(1);
        match (moved.stage, status) {
            (Stage::ReadingNear(slot), Status::Done) if entries.is_move_good(place.page, begun) => {
                self.write_far(at, slot, now);
            }
            (Stage::WritingFar(slot), Status::Done) => {
                if entries.end_move(place.page, begun, Location::Far) {
                    self.shared.near.give(slot);
                    self.shared.count(Event::Demoted);
                }
                self.moves[at] = None;
            }
            // It may still come, or a part of it: the page is written far again, and by nobody else before.
            (Stage::WritingFar(slot), status) if status == Status::Disconnected || self.may_still_come(&place) => {
                self.wait(at, slot, now);
            }
            (Stage::ReadingFar, Status::Done) if entries.is_move_good(place.page, begun) => self.write_near(at, now),
            (Stage::WritingNear(slot), Status::Done) => {
                self.shared.near.set_owner(slot, Some(place.area.address(place.page)));
                if entries.end_move(place.page, begun, Location::Near(slot)) {
                    self.shared.count(Event::Promoted);
                } else {
                    self.shared.near.give(slot);
                }
                self.moves[at] = None;
            }
            (stage, status) => {
                let is_node = matches!(stage, Stage::ReadingNear(_) | Stage::WritingNear(_));
                if is_node && status != Status::Done {
                    self.shared.near.failed(now);
                }
                self.give_up(at);
            }
        }
    }

    /// Whether a write far of the page that has ended badly may still be executed.
    fn may_still_come(&self, place: &AreaPage<Entries>) -> bool {
        self.far.may_still_write(place.address(), PAGE_BYTES as u64)
    }

    /// Withdraws what is under way below for the page at `at`.
    fn withdraw(&mut self, at: usize) {
        let id = self.id_below(at);
        match self.moves[at].as_ref().map(|moved| moved.stage) {
            Some(Stage::ReadingNear(_) | Stage::WritingNear(_)) => self.near.cancel(id),
            Some(Stage::ReadingFar | Stage::WritingFar(_)) => self.far.cancel(id),
            Some(Stage::Waiting(..)) | None => {}
        }
        self.uses[at] = self.uses[at].wrapping_add(1);
    }

    /// Leaves the page at `at` where it is.
    fn give_up(&mut self, at: usize) {
        let moved = self.moves[at].take().expect("only what is under way is given up");
        if let Stage::WritingNear(slot) = moved.stage {
            self.own_slots.push(slot);
        }
        moved.place.area.table.give_move_up(moved.place.page);
    }

    /// Withdraws what takes too long, and posts what has waited.
    fn look_for_lost(&mut self, now: Nanos) {
        for at in 0..MOVES_MAX {
            let Some(moved) = &self.moves[at] else { continue };
            let is_late = now > moved.posted + TIMEOUT;
            match moved.stage {
                Stage::Waiting(slot, from) if now >= from => self.write_far(at, slot, now),
                Stage::ReadingNear(_) | Stage::WritingNear(_) if is_late => {
                    self.shared.near.failed(now);
                    self.withdraw(at);
                    self.give_up(at);
                }
                Stage::ReadingFar if is_late => {
                    self.withdraw(at);
                    self.give_up(at);
                }
                Stage::WritingFar(slot) if is_late && self.shared.far.loses_operations() => {
                    self.withdraw(at);
                    self.write_far(at, slot, now);
                }
                _ => {}
            }
        }
    }

    fn wants_downs(&self, now: Nanos) -> bool {
        let near = &self.shared.near;
        near.slots() > 0 && near.is_short() && near.is_complete(now) && near.is_up(now)
    }

    /// Begins to move pages down that nobody has used for a while. Whether any were found.
    fn begin_downs(&mut self, now: Nanos) -> bool {
        if !self.wants_downs(now) {
            return false;
        }
        let near = &self.shared.near;
        let is_down = |moved: &&Move| !matches!(moved.stage, Stage::ReadingFar | Stage::WritingNear(_));
        let under_way = self.moves.iter().flatten().filter(is_down).count();
        let mut missing = near.reserve().saturating_sub(near.free_slots() + under_way);
        let (mut left, mut has_begun) = (HAND_STEPS_MAX.min(near.slots()), false);
        while missing > 0
            && left > 0
            && let Some(at) = self.moves.iter().position(Option::is_none)
        {
            left -= 1;
            let Some((slot, page)) = self.shared.near.next_owner(&mut self.hand, 1) else { continue };
            let Some(place) = self.view.find(page) else { continue };
            let entry = place.area.table.look(place.page);
            if entry.location() != Location::Near(slot) {
                continue;
            }
            if entry.is_used() {
                place.area.table.pass(place.page);
                continue;
            }
            match self.begin(at, place, entry, Stage::ReadingNear(slot), now) {
                Attempt::Begun => (missing, has_begun) = (missing - 1, true),
                Attempt::Changed => {}
                Attempt::Full => break,
            }
        }
        has_begun
    }

    /// Begins to move pages up that were read far again and again, while there are slots.
    fn begin_ups(&mut self, now: Nanos) -> bool {
        let mut has_begun = false;
        while self.shared.can_promote(now)
            && let Some(at) = self.moves.iter().position(Option::is_none)
            && let Some(page) = self.shared.suggestions.pop()
        {
            let Some(place) = self.view.find(page) else { continue };
            let entry = place.area.table.look(place.page);
            if entry.location() != Location::Far {
                continue;
            }
            match self.begin(at, place, entry, Stage::ReadingFar, now) {
                Attempt::Begun => has_begun = true,
                Attempt::Changed => {}
                Attempt::Full => break,
            }
        }
        has_begun
    }

    /// Begins to move a page that is where it was at `seen`.
    fn begin(&mut self, at: usize, place: AreaPage<Entries>, seen: Entry, stage: Stage, now: Nanos) -> Attempt {
        let Some(begun) = place.area.table.begin_move(place.page, seen) else { return Attempt::Changed };
        let shape = place.area.table.shape(place.page);
        let (id, into) = (self.id_below(at), ReadInto::Frame(FrameIndex(at.narrow_u32())));
        let (queue, from) = match stage {
            Stage::ReadingNear(slot) => (&mut self.near, self.shared.near.address(slot)),
            _ => (&mut self.far, place.area.address(place.page)),
        };
        let posted = queue.post_read_vector(id, PageRead { from, into, vector: shape }, now);
        self.moves[at] = Some(Move { place, begun, shape, stage, posted: now });
        match posted {
            Ok(()) => Attempt::Begun,
            Err(PostError::Full) => {
                self.give_up(at);
                Attempt::Full
            }
        }
    }

    /// Posts the write of a page that was read to the far tier.
    fn write_far(&mut self, at: usize, slot: Slot, now: Nanos) {
        let id = self.id_below(at);
        let moved = self.moves[at].as_mut().expect("it was read");
        let (to, from) = (moved.place.area.address(moved.place.page), FrameIndex(at.narrow_u32()));
        moved.posted = now;
        moved.stage = match self.far.post_write_vector(id, PageWrite { to, from, vector: moved.shape }, now) {
            Ok(()) => Stage::WritingFar(slot),
            Err(_) => Stage::Waiting(slot, now + RETRY_PAUSE),
        };
    }

    fn wait(&mut self, at: usize, slot: Slot, now: Nanos) {
        self.moves[at].as_mut().expect("it was written").stage = Stage::Waiting(slot, now + RETRY_PAUSE);
    }

    /// Posts the write of a page that was read to a slot of the node.
    fn write_near(&mut self, at: usize, now: Nanos) {
        let Some(slot) = self.own_slots.pop().or_else(|| self.shared.near.take()) else { return self.give_up(at) };
        let id = self.id_below(at);
        let (to, from) = (self.shared.near.address(slot), FrameIndex(at.narrow_u32()));
        let moved = self.moves[at].as_mut().expect("it was read");
        if self.near.post_write_vector(id, PageWrite { to, from, vector: moved.shape }, now).is_err() {
            self.own_slots.push(slot);
            return self.give_up(at);
        }
        (moved.stage, moved.posted) = (Stage::WritingNear(slot), now);
    }

    /// The name below of the operation at `at`.
    fn id_below(&self, at: usize) -> WorkId {
        WorkId(u64::from(self.uses[at]) << 16 | at as u64)
    }
}
