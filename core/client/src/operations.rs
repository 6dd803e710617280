//! [`Operations`]: every submitted operation, from submission until it is over, and who waits for whom (T2).
//!
//! Three lists of table entries: `live`, in order of submission, has those that still matter to the node; `ready`, in
//! the same order, those of which something may be cut and sent now; `posted` the completions that the owner has not
//! taken. An operation that was given up has a completion and is live at once, until its abort is answered.
//!
//! ```text
//!   Vacant -> Held --all it depends on ended--> Ready --all cut--> Sent --all answered--> Over -> Vacant
//!                                                 \_____________________given up, GivingUp___/
//! ```
//!
//! Invariants: `blockers` of a held operation is the number of live operations before it that conflict with it; an
//! operation is in `ready` exactly in the phase `Ready`, in `live` in all but `Vacant` and `Over`.

use yonder_units::{Nanos, Narrow};
use yonder_wire::Kind;

use crate::event::event;
use crate::list::List;
use crate::operation::{BODY_BYTES_MAX, Completion, Operation, OperationId, Outcome};
use crate::scope::Scope;

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The entry is free.
    Vacant,
    /// It waits for operations before it.
    Held,
    /// Something of it may be sent.
    Ready,
    /// All of it has been sent.
    Sent,
    /// The owner no longer waits for it, but the node may still execute it.
    GivingUp,
    /// The node is done with it; the owner has not taken the completion yet.
    Over,
}

/// What the owner is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    Owed,
    Posted(Outcome),
    /// Taken, or not wanted.
    Closed,
}

/// One entry of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The kind of its requests; `None` for a fence, which has none.
    pub(crate) kind: Option<Kind>,
    pub(crate) phase: Phase,
    report: Report,
    generation: u32,
    blockers: u32,
    pub(crate) pid: u32,
    /// Fragments of it under way.
    pub(crate) fragments: u32,
    pub(crate) capability: u128,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) token: u64,
    pub(crate) deadline: Nanos,
    /// How much of it has been cut into fragments, and how much there is: bytes of a read, write or discard, else one
    /// request, or none.
    pub(crate) cut: u64,
    pub(crate) extent: u64,
    /// Position in the order of submission.
    order: u64,
    scope: Scope,
    /// What it will have come to once nothing of it is under way.
    pub(crate) result: Outcome,
    body_length: u8,
    body: [u8; BODY_BYTES_MAX],
}

impl Entry {
    const VACANT: Self = Self {
        kind: None,
        phase: Phase::Vacant,
        report: Report::Closed,
        generation: 0,
        blockers: 0,
        pid: 0,
        fragments: 0,
        capability: 0,
        address: 0,
        length: 0,
        token: 0,
        deadline: Nanos::MAX,
        cut: 0,
        extent: 0,
        order: 0,
        scope: Scope::FENCE,
        result: Outcome::Done,
        body_length: 0,
        body: [0; BODY_BYTES_MAX],
    };

    pub(crate) fn body(&self) -> &[u8] {
        &self.body[..usize::from(self.body_length)]
    }

    /// Whether the node executes it only once, so that it cannot just be forgotten.
    pub(crate) fn is_exactly_once(&self) -> bool {
        self.kind.is_some_and(Kind::is_exactly_once)
    }

    /// Whether the owner still waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Ready | Phase::Sent)
    }
}

/// The table of operations.
#[derive(Debug)]
pub(crate) struct Operations {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    live: List,
    ready: List,
    posted: List,
    /// Live operations that others may have to wait for, even if they only read.
    excluding: usize,
    held: usize,
    submitted: u64,
    /// Completions that are owed or posted.
    outstanding: usize,
    /// Operations that are about to be over, while [`Operations::end`] works.
    ending: Vec<u32>,
}

impl Operations {
    pub(crate) fn new(operations_max: usize) -> Self {
        let count = u32::try_from(operations_max).expect("at most 2^32 operations");
        Self {
            entries: vec![Entry::VACANT; operations_max],
            vacant: (0..count).rev().collect(),
            live: List::new(operations_max),
            ready: List::new(operations_max),
            posted: List::new(operations_max),
            excluding: 0,
            held: 0,
            submitted: 0,
            outstanding: 0,
            ending: Vec::with_capacity(operations_max),
        }
    }

    pub(crate) fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.vacant.is_empty()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn live(&self) -> &List {
        &self.live
    }

    pub(crate) fn ready(&self) -> &List {
        &self.ready
    }

    /// Indices of the table.
    pub(crate) fn indices(&self) -> std::ops::Range<u32> {
        0..self.entries.len().narrow_u32()
    }

    /// The live or posted operation of this name.
    pub(crate) fn find(&self, id: OperationId) -> Option<u32> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.phase != Phase::Vacant && entry.generation == id.generation).then_some(id.index)
    }

    fn id(&self, index: u32) -> OperationId {
        OperationId { index, generation: self.entry(index).generation }
    }

    /// Takes an operation of `extent` to cut; `None` if there is no room.
    #[inline]
    pub(crate) fn submit(&mut self, operation: &Operation<'_>, scope: Scope, extent: u64) -> Option<OperationId> {
        let index = self.claim(scope, Some(operation.kind), operation.token, extent)?;
        let entry = self.entry_mut(index);
        (entry.pid, entry.capability) = (operation.pid, operation.capability);
        (entry.address, entry.length) = (operation.address, operation.length);
        entry.deadline = operation.deadline;
        entry.body_length = operation.body.len().narrow_u8();
        entry.body[..operation.body.len()].copy_from_slice(operation.body);
        self.start(index);
        Some(self.id(index))
    }

    /// Takes a fence; `None` if there is no room.
    pub(crate) fn submit_fence(&mut self, token: u64) -> Option<OperationId> {
        let index = self.claim(Scope::FENCE, None, token, 0)?;
        self.entry_mut(index).deadline = Nanos::MAX;
        let id = self.id(index);
        self.start(index);
        Some(id)
    }

    #[inline]
    fn claim(&mut self, scope: Scope, kind: Option<Kind>, token: u64, extent: u64) -> Option<u32> {
        let index = self.vacant.pop()?;
        let blockers = self.blockers(&scope);
        self.submitted += 1;
        self.outstanding += 1;
        self.excluding += usize::from(scope.excludes());
        self.live.push_back(index);
        let order = self.submitted;
        let entry = self.entry_mut(index);
        (entry.kind, entry.token, entry.scope, entry.order) = (kind, token, scope, order);
        (entry.cut, entry.extent, entry.fragments) = (0, extent, 0);
        (entry.report, entry.result, entry.blockers) = (Report::Owed, Outcome::Done, blockers);
        Some(index)
    }

    /// Whether a live operation that is not awaited any more changes pages of `scope`.
    pub(crate) fn may_still_change(&self, scope: &Scope) -> bool {
        let mut live = std::iter::successors(self.live.first(), |index| self.live.after(*index));
        live.any(|index| {
            let entry = self.entry(index);
            entry.is_exactly_once() && !entry.is_awaited() && entry.scope.conflicts(scope)
        })
    }

    /// Live operations that one of this scope must wait for. Readers among readers need no search.
    #[inline]
    fn blockers(&self, scope: &Scope) -> u32 {
        if self.excluding == 0 && !scope.excludes() {
            return 0;
        }
        let live = std::iter::successors(self.live.first(), |index| self.live.after(*index));
        live.filter(|index| self.entry(*index).scope.conflicts(scope)).count().narrow_u32()
    }

    #[inline]
    fn start(&mut self, index: u32) {
        if self.entry(index).blockers > 0 {
            self.held += 1;
            let entry = self.entry_mut(index);
            entry.phase = Phase::Held;
            event!(trace, token = entry.token, blockers = entry.blockers, "an operation waits for others on its pages");
        } else if self.make_ready(index) == Phase::Sent {
            self.end(index);
        }
    }

    /// Puts an operation that waits for nothing among those that may be sent, in order of submission, unless there is
    /// nothing to send.
    #[inline]
    fn make_ready(&mut self, index: u32) -> Phase {
        let entry = self.entry(index);
        let (order, empty) = (entry.order, entry.extent == 0);
        if !empty {
            let mut place = self.ready.last();
            while let Some(before) = place.filter(|before| self.entry(*before).order > order) {
                place = self.ready.before(before);
            }
            self.ready.insert(place, index);
        }
        let phase = if empty { Phase::Sent } else { Phase::Ready };
        self.entry_mut(index).phase = phase;
        phase
    }

    /// Nothing more of the operation is cut.
    pub(crate) fn stop_cutting(&mut self, index: u32, phase: Phase) {
        match self.entry(index).phase {
            Phase::Ready => self.ready.remove(index),
            Phase::Held => self.held -= 1,
            _ => {}
        }
        self.entry_mut(index).phase = phase;
    }

    /// Ends a live operation of which nothing is under way, and what waited for it and has nothing to send.
    pub(crate) fn end(&mut self, index: u32) {
        self.ending.push(index);
        while let Some(index) = self.ending.pop() {
            debug_assert_eq!(self.entry(index).fragments, 0);
            self.stop_cutting(index, Phase::Over);
            let scope = self.entry(index).scope;
            if self.held > 0 {
                self.unblock_after(index, &scope);
            }
            self.live.remove(index);
            self.excluding -= usize::from(scope.excludes());
            self.post(index, self.entry(index).result);
            self.vacate_if_closed(index);
        }
    }

    /// Operations after `index` no longer wait for it.
    fn unblock_after(&mut self, index: u32, scope: &Scope) {
        let mut later = self.live.after(index);
        while let Some(index) = later {
            later = self.live.after(index);
            let entry = self.entry_mut(index);
            if entry.phase != Phase::Held || !entry.scope.conflicts(scope) {
                continue;
            }
            entry.blockers -= 1;
            if entry.blockers == 0 {
                self.held -= 1;
                if self.make_ready(index) == Phase::Sent {
                    self.ending.push(index);
                }
            }
        }
    }

    /// Tells the owner, unless it was told before or does not want to know.
    pub(crate) fn post(&mut self, index: u32, outcome: Outcome) {
        if self.entry(index).report == Report::Owed {
            self.entry_mut(index).report = Report::Posted(outcome);
            self.posted.push_back(index);
        }
    }

    /// The owner does not want to know.
    pub(crate) fn drop_report(&mut self, index: u32) {
        if matches!(self.entry(index).report, Report::Posted(_)) {
            self.posted.remove(index);
        }
        if self.entry(index).report != Report::Closed {
            self.outstanding -= 1;
            self.entry_mut(index).report = Report::Closed;
        }
        self.vacate_if_closed(index);
    }

    /// The next completion.
    #[inline]
    pub(crate) fn take_completion(&mut self) -> Option<Completion> {
        let index = self.posted.pop_front()?;
        let entry = self.entry_mut(index);
        let Report::Posted(outcome) = std::mem::replace(&mut entry.report, Report::Closed) else {
            unreachable!("only posted completions are in the list")
        };
        let token = entry.token;
        let completion = Completion { token, id: self.id(index), outcome };
        self.outstanding -= 1;
        self.vacate_if_closed(index);
        Some(completion)
    }

    /// Ends all live operations; those that the owner waits for are lost. Nothing of them is under way.
    pub(crate) fn lose_all(&mut self) {
        while let Some(index) = self.live.pop_front() {
            self.stop_cutting(index, Phase::Over);
            let entry = self.entry_mut(index);
            (entry.fragments, entry.blockers) = (0, 0);
            self.post(index, Outcome::Lost);
            self.vacate_if_closed(index);
        }
        self.excluding = 0;
    }

    fn vacate_if_closed(&mut self, index: u32) {
        let entry = self.entry_mut(index);
        if entry.phase == Phase::Over && entry.report == Report::Closed {
            entry.phase = Phase::Vacant;
            entry.generation = entry.generation.wrapping_add(1);
            self.vacant.push(index);
        }
    }
}
