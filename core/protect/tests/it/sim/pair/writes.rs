//! The writes of a [`Pair`].

use yonder_protect::pace::Answering;
use yonder_protect::{Extent, Place, SlotSet, Write, WriteEnd, WriteNext, WriteStep};

use super::super::node::{Call, Reply, Request};
use super::super::owner::Owner;
use super::super::runs::{Task, WriteRun};
use super::super::{Count, MS, Sabotage};
use super::Pair;

impl Pair {
    /// Looks at those that are under way.
    pub(super) fn look_at_writes(&mut self, owner: &mut Owner, nodes: Answering) {
        for run in self.writes.keys().copied().collect::<Vec<_>>() {
            let entry = self.writes.get_mut(&run).expect("it is under way");
            let is_held_up = entry.write.is_held_up(&owner.group, nodes.up);
            if is_held_up {
                owner.count(Count::HeldUp);
            }
            let is_abandoned = is_held_up || owner.now >= entry.give_up_at;
            let step = if is_abandoned { entry.write.abandon() } else { entry.write.look(&owner.group, nodes.up) };
            owner.doubted |= entry.write.waiting() - nodes.up;
            self.go_on_writing(owner, run, step);
            self.write_again(owner, run);
        }
    }

    pub(super) fn go_on_writing(&mut self, owner: &mut Owner, run: u64, step: WriteStep) {
        let entry = self.writes.get_mut(&run).expect("it is under way");
        // What is to be posted again is not posted.
        for slot in (step.cancel & entry.again).iter() {
            entry.write.settled(slot);
        }
        let posted = step.cancel - entry.again;
        entry.again -= step.cancel;
        for slot in posted.iter() {
            let write = self.writes[&run].write;
            let is_it = |task| matches!(task, Task::Write(other, at) if other == run && at == slot);
            self.cancel(owner, is_it, write.place(slot));
            if owner.sabotage == Some(Sabotage::SettledEarly) {
                self.writes.get_mut(&run).expect("it is under way").write.settled(slot);
            }
        }
        if step.then == WriteNext::Wait {
            return;
        }
        let WriteRun { write, content, .. } = self.writes.remove(&run).expect("it is under way");
        let page = &mut owner.pages[write.ticket().page()];
        page.is_busy = false;
        match write.finish(&owner.group) {
            WriteEnd::Acknowledged(current) => {
                let needed = owner.group.protection().needed();
                assert!(current.count() >= needed, "a write is acknowledged that is at too few places: {current:?}");
                (page.acknowledged, page.is_dirty) = (content, false);
                owner.count(Count::Written);
                if current.count() < owner.group.protection().wanted() {
                    owner.count(Count::WrittenDegraded);
                }
            }
            WriteEnd::Unacknowledged => {
                page.is_dirty = true;
                owner.count(Count::WriteFailed);
            }
        }
    }

    /// Posts a write again where regions have moved.
    fn write_again(&mut self, owner: &mut Owner, run: u64) {
        let Some(WriteRun { write, content, again, again_at, .. }) = self.writes.get(&run).copied() else { return };
        if owner.now < again_at {
            return;
        }
        for slot in (again & write.waiting()).iter() {
            let (page, call) = (write.ticket().page(), owner.share(content, slot));
            if self.post(owner, Task::Write(run, slot), write.place(slot), page, call) {
                self.writes.get_mut(&run).expect("it is under way").again -= slot.into();
            }
        }
    }

    /// Cancels a write: it is aborted until that is agreed to.
    pub(super) fn cancel(&mut self, owner: &mut Owner, is_it: impl Fn(Task) -> bool, place: Place) {
        let found = self.operations.iter().find(|(_, operation)| is_it(operation.task)).map(|(id, _)| *id);
        let operation = found.and_then(|id| self.operations.remove(&id)).expect("it is under way");
        if !owner.group.view().has(place) {
            return;
        }
        // Where it was sent, wherever the place is now.
        let request = Request { id: owner.id(), call: Call::Abort(operation.request.id), ..operation.request };
        self.send(owner, Task::Abort(place), request, (operation.health, operation.address));
    }

    /// Writes that were cancelled where a place was before it moved have settled once it has answered elsewhere who
    /// asked since: the region has left that node, and when it comes back they are too old.
    pub(super) fn leave_behind(&mut self, owner: &mut Owner) {
        let is_believed = owner.sabotage == Some(Sabotage::SettledByWord);
        let left_behind = self.operations.values().filter(|operation| {
            let Task::Abort(place) = operation.task else { return false };
            let is_said = owner.health_of(place).is_some_and(|health| health != operation.health);
            let last = owner.answered[place.slot.index()];
            let has_left = last > operation.address && owner.places[last as usize].health != operation.health;
            has_left || is_believed && is_said
        });
        for id in left_behind.map(|operation| operation.request.id).collect::<Vec<_>>() {
            let operation = self.operations.remove(&id).expect("it is under way");
            self.end(owner, operation, Reply::Done);
        }
    }

    /// Writes a page whose last write was not acknowledged.
    pub(in super::super) fn write_back(&mut self, owner: &mut Owner, page: usize) {
        self.write(owner, page);
    }

    pub(super) fn write(&mut self, owner: &mut Owner, page: usize) {
        let word = owner.group.look(page);
        let Ok(ticket) = owner.group.begin_write(page, Extent::All) else {
            owner.count(Count::WriteRefused);
            return;
        };
        let closed = word.unsettled() | word.mended().map_or(SlotSet::NONE, SlotSet::only);
        let is_left_out = !(owner.group.view().live() - closed).is_within(ticket.targets());
        let is_enough = ticket.targets().count() >= owner.group.protection().wanted();
        assert!(is_enough || !is_left_out, "a write of page {page} leaves a place out that it needs");
        let run = owner.id();
        let content = owner.content();
        let give_up_at = owner.now + rand::Rng::random_range(&mut owner.rng, 100..900) * MS;
        let write = Write::begin(ticket, &owner.group, owner.up());
        owner.pages[page].is_busy = true;
        self.writes.insert(run, WriteRun { write, again: SlotSet::NONE, again_at: 0, content, give_up_at });
        for slot in write.waiting().iter() {
            if !self.post(owner, Task::Write(run, slot), write.place(slot), page, owner.share(content, slot)) {
                let entry = self.writes.get_mut(&run).expect("it is under way");
                let step = entry.write.was_not_sent(slot);
                self.go_on_writing(owner, run, step);
            }
        }
    }
}
