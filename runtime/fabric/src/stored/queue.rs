//! [`StoredQueuePair`]: packs when a write is posted, and unpacks when a read has arrived.
//!
//! The queue pair below has frames of its own, one for each operation, with what is stored of a page; so the poster's
//! frame is never the fabric's, and an operation that is cancelled is over for it at once.
//!
//! Of a page only one version is below, so a write that was cancelled may have made it anything. Therefore it goes on
//! here, as an *orphan*, until it has ended, or until a later write of the page is posted, which goes behind it.
//! Whoever reads the page waits so long.
//!
//! Invariants: nothing is allocated after the queue pair was made. A frame gets bytes only from a whole, unpacked page.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES};

use super::table::{Content, Seen, Stored, Table, Ticket};
use super::{Codec, Form, ProofOf, Shared};
use crate::areas::{AreaPage, View};
use crate::operations::Operations;
use crate::vector::MoveBytes as _;
use crate::{
    Completion, Fabric, FabricError, GRANULE_BYTES, Module, PageRead, PageWrite, PostError, Posting, QueuePair,
    ReadInto, RemoteAddress, Status, Vector, WorkId,
};

/// Operations that a queue pair holds, if the one below holds as many. Orphans are among them.
const DEPTH_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State<P> {
    /// A read that is below.
    Reading(Seen<P>),
    /// A read of a page whose write has not ended, or one that has to be posted below again.
    Waiting,
    /// A write.
    Writing(Written<P>),
    /// A write that was cancelled.
    Orphan(Written<P>),
}

/// What a write makes of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Written<P> {
    ticket: Ticket,
    stored: Stored,
    proof: P,
}

struct Operation<P> {
    id: WorkId,
    state: State<P>,
    place: AreaPage<Table<P>>,
    /// The poster's.
    frame: FrameIndex,
    vector: Vector,
}

/// A queue pair over one of the fabric below.
pub(super) struct StoredQueuePair<F: Form> {
    shared: Arc<Shared<F>>,
    view: View<Table<ProofOf<F>>>,
    below: Box<dyn QueuePair>,
    /// What the queue pair below moves: the frame of an operation has its number.
    stored: Arc<Mapping>,
    frames: Arc<Mapping>,
    codec: F::Codec,
    operations: Operations<Operation<ProofOf<F>>>,
    orphans: usize,
    waiting: usize,
    arrived: Vec<Completion>,
}

impl<F: Form> StoredQueuePair<F> {
    pub(super) fn new(
        url: &str,
        below: &dyn Fabric,
        module: Module,
        shared: &Arc<Shared<F>>,
        frames: Arc<Mapping>,
    ) -> Result<Self, FabricError> {
        let refused = |cause: String| FabricError::System { url: url.to_owned(), cause };
        let stored = Arc::new(Mapping::anonymous(DEPTH_MAX * PAGE_BYTES).map_err(|error| refused(error.to_string()))?);
        let below = below.queue_pair(module, Arc::clone(&stored))?;
        let depth = below.depth().min(DEPTH_MAX);
        Ok(Self {
            shared: Arc::clone(shared),
            view: View::new(&shared.areas),
            below,
            stored,
            frames,
            codec: shared.form.codec(),
            operations: Operations::new(depth),
            orphans: 0,
            waiting: 0,
            arrived: Vec::with_capacity(depth),
        })
    }

    /// Ends the operation at `at`.
    fn finish(&mut self, at: u16, status: Status) {
        let operation = self.take(at);
        if !matches!(operation.state, State::Orphan(_)) {
            self.operations.end(operation.id, status);
        }
    }

    fn take(&mut self, at: u16) -> Operation<ProofOf<F>> {
        let operation = self.operations.take(at);
        self.orphans -= usize::from(matches!(operation.state, State::Orphan(_)));
        self.waiting -= usize::from(operation.state == State::Waiting);
        operation
    }

    /// The place of the next operation. A poster that holds as many as it may gets none, though orphans hold others.
    fn next(&self) -> Result<u16, PostError> {
        if self.outstanding() >= self.depth() { Err(PostError::Full) } else { self.operations.next() }
    }

    /// Brings the read of `place` as far as it gets: an answer, what is to be waited for, or a look at what is below.
    fn read(
        &mut self,
        at: u16,
        place: &AreaPage<Table<ProofOf<F>>>,
        vector: Vector,
        now: Nanos,
    ) -> Result<Read<ProofOf<F>>, PostError> {
        let seen = place.area.table.look(place.page);
        match seen.content() {
            Content::Zeros if place.area.table.is_still(place.page, seen) => Ok(Read::Zeros),
            Content::Unknown => Ok(Read::Failed),
            // Nobody asks for bytes that he has not written.
            Content::Stored(_) if !seen.shape.covers(vector) => Ok(Read::Failed),
            Content::Stored(stored) => {
                let (id, from) = (self.operations.id_below(at), place.area.address(place.page));
                let into = ReadInto::Frame(FrameIndex(u32::from(at)));
                self.below.post_read_vector(id, PageRead { from, into, vector: beginning(stored.bytes) }, now)?;
                Ok(Read::Below(seen))
            }
            Content::Writing | Content::Zeros => Ok(Read::Later),
        }
    }

    /// Posts reads again that waited.
    fn read_again(&mut self, now: Nanos) {
        for at in 0..self.operations.depth().narrow_u16() {
            if self.waiting == 0 {
                return;
            }
            let Some(operation) = self.operations.get(at) else { continue };
            if operation.state != State::Waiting {
                continue;
            }
            let (place, frame, vector) = (operation.place.clone(), operation.frame, operation.vector);
            match self.read(at, &place, vector, now) {
                Ok(Read::Later) | Err(PostError::Full) => {}
                Ok(Read::Zeros) => {
                    vector.clear(&self.frames, frame.offset());
                    self.finish(at, Status::Done);
                }
                Ok(Read::Failed) => self.finish(at, Status::Failed),
                Ok(Read::Below(seen)) => {
                    self.waiting -= 1;
                    self.operations.at(at).state = State::Reading(seen);
                }
            }
        }
    }

    /// Handles the end of what is below for the operation at `at`.
    fn arrive(&mut self, at: u16, status: Status) {
        let Operation { state, place, vector, .. } = self.operations.at(at);
        match *state {
            State::Writing(written) | State::Orphan(written) => {
                let (table, page) = (&place.area.table, place.page);
                match status {
                    Status::Done => table.finish_write(page, written.ticket, written.stored, *vector, written.proof),
                    Status::Failed | Status::Lost | Status::Disconnected => table.lose(page, written.ticket),
                }
                self.finish(at, status);
            }
            State::Reading(_) if status != Status::Done => self.finish(at, status),
            State::Reading(seen) if place.area.table.is_still(place.page, seen) => {
                let status = self.deliver(at, seen);
                self.finish(at, status);
            }
            State::Reading(_) => {
                *state = State::Waiting;
                self.waiting += 1;
                // What is posted below in its place has another name.
                self.operations.rename(at);
            }
            State::Waiting => unreachable!("what waits is not below"),
        }
    }

    /// Unpacks what has arrived, and hands out what was asked for.
    fn deliver(&mut self, at: u16, seen: Seen<ProofOf<F>>) -> Status {
        let Operation { place, frame, vector, .. } = self.operations.at(at);
        let Content::Stored(stored) = seen.content() else { unreachable!("only what is stored is read below") };
        let (address, bytes, offset) = (place.address(), seen.shape.bytes(), FrameIndex(at.into()).offset());
        match self.codec.unpack(address, (stored, seen.proof), bytes, &self.stored, offset) {
            Ok(packed) => {
                seen.shape.scatter(packed, *vector, &self.frames, frame.offset());
                Status::Done
            }
            Err(_) => Status::Failed,
        }
    }

    /// Withdraws writes to the address of `place` that were cancelled, also those of an area that has ended there:
    /// another one goes behind them.
    fn withdraw_orphans(&mut self, place: &AreaPage<Table<ProofOf<F>>>) {
        for at in 0..self.operations.depth().narrow_u16() {
            if self.orphans == 0 {
                return;
            }
            let Some(operation) = self.operations.get(at) else { continue };
            if let State::Orphan(written) = operation.state
                && operation.place.address() == place.address()
            {
                operation.place.area.table.lose(operation.place.page, written.ticket);
                self.below.cancel(self.operations.id_below(at));
                self.take(at);
            }
        }
    }
}

/// How far a read has got.
enum Read<P> {
    Zeros,
    Failed,
    Below(Seen<P>),
    Later,
}

/// The granules that have the first `bytes` of a page.
fn beginning(bytes: usize) -> Vector {
    Vector::new(std::iter::once(0..bytes.next_multiple_of(GRANULE_BYTES)))
}

impl<F: Form> QueuePair for StoredQueuePair<F> {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into: ReadInto::Frame(frame), vector } = read else {
            panic!("pages in another form are not mapped")
        };
        let at = self.next()?;
        let Some(place) = self.view.find(from) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        let state = match self.read(at, &place, vector, now)? {
            Read::Zeros => {
                vector.clear(&self.frames, frame.offset());
                self.operations.end(id, Status::Done);
                return Ok(());
            }
            Read::Failed => {
                self.operations.end(id, Status::Failed);
                return Ok(());
            }
            Read::Below(seen) => State::Reading(seen),
            Read::Later => State::Waiting,
        };
        self.waiting += usize::from(state == State::Waiting);
        self.operations.begin(at, Operation { id, state, place, frame, vector });
        Ok(())
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        let PageWrite { to, from, vector } = write;
        let Some(place) = self.view.find(to) else {
            self.operations.end(id, Status::Failed);
            return Ok(());
        };
        self.next()?;
        self.withdraw_orphans(&place);
        let at = self.next()?;
        let (stored, bytes, proof) = self.codec.pack(to, vector, &self.frames, from.offset());
        self.stored.write(FrameIndex(at.into()).offset(), bytes);
        let below = PageWrite { to, from: FrameIndex(at.into()), vector: beginning(stored.bytes) };
        let table = &place.area.table;
        let begun = table.begin_write(place.page);
        let posted = self.below.post_write_vector(self.operations.id_below(at), below, now);
        if posted.is_err() {
            table.take_back_write(place.page, begun);
            return posted;
        }
        self.shared.form.posted(vector, stored.bytes);
        let state = State::Writing(Written { ticket: begun.ticket, stored, proof });
        self.operations.begin(at, Operation { id, state, place, frame: from, vector });
        Ok(())
    }

    fn set_posting(&mut self, posting: Posting) {
        self.below.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.below.poll(now, &mut arrived);
        for Completion { id, status } in arrived.drain(..) {
            self.arrive(self.operations.place_of(id), status);
        }
        self.arrived = arrived;
        if self.waiting > 0 {
            self.read_again(now);
        }
        self.operations.hand_out(completions);
    }

    fn cancel(&mut self, id: WorkId) {
        let named =
            |operation: &Operation<ProofOf<F>>| operation.id == id && !matches!(operation.state, State::Orphan(_));
        let Some(at) = self.operations.position(named) else { return self.operations.forget_ended(id) };
        let operation = self.operations.at(at);
        match operation.state {
            State::Writing(written) => {
                operation.state = State::Orphan(written);
                self.orphans += 1;
            }
            State::Reading(_) => {
                self.below.cancel(self.operations.id_below(at));
                self.take(at);
            }
            State::Waiting => drop(self.take(at)),
            State::Orphan(_) => unreachable!("orphans were not looked for"),
        }
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        let range = start.0..start.0 + bytes;
        let is_orphan_there = |operation: &Operation<ProofOf<F>>| {
            matches!(operation.state, State::Orphan(_)) && range.contains(&operation.place.address().0)
        };
        let has_orphan = self.orphans > 0 && self.operations.iter().any(is_orphan_there);
        has_orphan || self.below.may_still_write(start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        self.below.next_poll()
    }

    fn outstanding(&self) -> usize {
        self.operations.outstanding() - self.orphans
    }

    fn depth(&self) -> usize {
        self.operations.depth()
    }
}

impl<F: Form> Drop for StoredQueuePair<F> {
    fn drop(&mut self) {
        // Nobody will know how they end.
        for operation in self.operations.iter() {
            if let State::Writing(written) | State::Orphan(written) = operation.state {
                operation.place.area.table.lose(operation.place.page, written.ticket);
            }
        }
    }
}
