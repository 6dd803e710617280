//! [`Ledger`]: what was submitted, sent and answered, and so what a client may report.
//!
//! Tokens are positions in `operations`, plus 1. Invariant: an operation that waits has no completion.

use std::collections::{BTreeMap, BTreeSet};

use yonder_client::{Completion, OperationId, Outcome, Payload, Transmit};
use yonder_wire::{Direction, ErrorCode, Header, Kind};

use crate::script::Step;

/// What an operation is about; a fence has no kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) kind: Option<Kind>,
    pub(super) pid: u32,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) deadline: u64,
}

/// How far an operation is for its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Completed,
    Cancelled,
}

#[derive(Clone, Debug)]
struct Entry {
    id: OperationId,
    fields: Submission,
    state: State,
    /// Names of first attempts, with the offset and length of their fragments.
    fragments: BTreeMap<u64, (u64, u64)>,
    /// Fragments with an answer that is no refusal.
    done: BTreeSet<u64>,
    refusals: Vec<ErrorCode>,
    old_words: BTreeSet<u64>,
    /// Data that was taken, as offset and length.
    data: BTreeMap<u64, u64>,
    answers: u32,
}

/// All operations of a lane.
#[derive(Debug)]
pub(super) struct Ledger {
    page_bytes: u64,
    operations: Vec<Entry>,
    /// Every request that was sent.
    sent: BTreeMap<u64, Header>,
    order: Vec<u64>,
    /// Whose fragments the names of first attempts are; the lane's own have none.
    owners: BTreeMap<u64, usize>,
    /// Names of first attempts that were refused because they claim a time to come: they may be given up, and the same
    /// be asked for under another name.
    early: BTreeSet<u64>,
    abandoned: usize,
}

impl Ledger {
    pub(super) fn new(page_bytes: u64) -> Self {
        let (operations, order) = (Vec::new(), Vec::new());
        let (sent, owners, early) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { page_bytes, operations, sent, order, owners, early, abandoned: 0 }
    }

    pub(super) fn next_token(&self) -> u64 {
        self.operations.len() as u64 + 1
    }

    pub(super) fn submit(&mut self, id: OperationId, fields: Submission) {
        assert!(self.operations.iter().all(|other| other.id != id), "a name is used twice");
        self.operations.push(Entry {
            id,
            fields,
            state: State::Waiting,
            fragments: BTreeMap::new(),
            done: BTreeSet::new(),
            refusals: Vec::new(),
            old_words: BTreeSet::new(),
            data: BTreeMap::new(),
            answers: 0,
        });
    }

    /// Operations whose completion has not come.
    pub(super) fn waiting(&self) -> usize {
        self.operations.iter().filter(|entry| entry.state == State::Waiting).count()
    }

    /// The client sends this.
    pub(super) fn send(&mut self, transmit: &Transmit<'_>) {
        let header = &transmit.header;
        assert_eq!(header.direction, Direction::Request);
        assert!(self.sent.insert(header.request_id, *header).is_none(), "a name of a request is used twice");
        self.order.push(header.request_id);
        let payload_bytes = match transmit.payload {
            Payload::None => 0,
            Payload::Inline(bytes) => bytes.len(),
            Payload::Caller { length, .. } => length,
        };
        assert_eq!(payload_bytes, header.payload_bytes(), "a message that cannot be sealed");
        if header.kind == Kind::Abort {
            let Some(owner) = self.owners.get(&header.first_id) else {
                // What was to be asked for under another name may be given up before it is.
                assert!(!self.early.is_empty(), "what is aborted was sent");
                return;
            };
            let is_waited_for = self.operations[*owner].state == State::Waiting;
            assert!(!is_waited_for || self.early.contains(&header.first_id), "what is waited for is aborted");
            return;
        }
        let Some(index) = (transmit.token as usize).checked_sub(1) else { return };
        if header.first_id != header.request_id {
            let first = self.sent.get(&header.first_id).expect("a retry names an attempt that was sent");
            assert_eq!((first.kind, first.address, first.length), (header.kind, header.address, header.length));
            assert_eq!(first.time, header.time, "a retry says when the first attempt was sent");
            return;
        }
        self.check_order(index);
        let entry = &mut self.operations[index];
        assert_eq!(entry.state, State::Waiting, "something is sent of what nobody waits for");
        assert_eq!(Some(header.kind), entry.fields.kind);
        let offset = header.address.wrapping_sub(entry.fields.address);
        let (offset, length) = match header.kind {
            Kind::Read | Kind::Write | Kind::Discard => (offset, u64::from(header.length)),
            _ => (0, 0),
        };
        assert!(offset + length <= entry.fields.length || length == 0, "more is asked for than was submitted");
        let early = &self.early;
        entry.fragments.retain(|id, fragment| *fragment != (offset, length) || !early.contains(id));
        entry.fragments.insert(header.first_id, (offset, length));
        self.owners.insert(header.first_id, index);
    }

    /// Whether this answers a request that was sent, in the form that such an answer has.
    pub(super) fn hear(&mut self, answer: &Header, payload_bytes: usize) -> bool {
        let Some(asked) = self.sent.get(&answer.request_id) else { return false };
        let is_whole = asked.kind != Kind::Read || answer.is_refusal() || payload_bytes == asked.length as usize;
        if answer.kind != asked.kind || answer.direction != Direction::Answer || !is_whole {
            return false;
        }
        let Some(index) = self.owners.get(&asked.first_id) else { return true };
        let entry = &mut self.operations[*index];
        if answer.kind == Kind::Abort {
            // Then it is not known, and the owner is told that.
            let is_told = answer.is_refusal() && self.early.contains(&asked.first_id);
            entry.refusals.extend(is_told.then_some(answer.code));
            return true;
        }
        if answer.code == ErrorCode::Busy && answer.time < asked.time && asked.kind.is_exactly_once() {
            self.early.insert(asked.first_id);
        }
        if answer.is_refusal() {
            entry.refusals.push(answer.code);
        } else {
            entry.done.insert(asked.first_id);
            entry.old_words.insert(answer.address);
        }
        true
    }

    pub(super) fn take_data(&mut self, token: u64, offset: u64, length: u64) {
        let entry = self.waiting_entry(token);
        assert_eq!(entry.fields.kind, Some(Kind::Read));
        assert!(offset + length <= entry.fields.length, "data is put behind the end of its buffer");
        assert!(entry.fragments.values().any(|fragment| *fragment == (offset, length)));
        assert!(entry.data.insert(offset, length).is_none(), "data is taken twice");
    }

    pub(super) fn take_answer(&mut self, token: u64, kind: Kind) {
        let entry = self.waiting_entry(token);
        assert_eq!(entry.fields.kind, Some(kind));
        entry.answers += 1;
    }

    fn waiting_entry(&mut self, token: u64) -> &mut Entry {
        let entry = &mut self.operations[token as usize - 1];
        assert_eq!(entry.state, State::Waiting, "something comes for an operation that is over");
        entry
    }

    /// The client says that an operation is over.
    pub(super) fn complete(&mut self, completion: &Completion, now: u64) {
        let index = completion.token as usize - 1;
        let entry = &self.operations[index];
        assert_eq!(entry.state, State::Waiting, "an operation is over twice, or was cancelled");
        assert_eq!(entry.id, completion.id);
        match completion.outcome {
            Outcome::Done => self.check_done(index),
            Outcome::Old(word) => {
                assert!(entry.fields.kind == Some(Kind::Atomic) && entry.old_words.contains(&word));
            }
            Outcome::Refused(code) => {
                assert!(entry.refusals.contains(&code) && !code.may_pass(), "it was not refused so: {code}");
            }
            Outcome::TimedOut => assert!(now >= entry.fields.deadline, "it has time left"),
            Outcome::Lost => assert!(index < self.abandoned, "nothing was lost"),
        }
        self.operations[index].state = State::Completed;
    }

    /// Every byte of a read, a write and a discard was answered; everything else was answered once; before a fence
    /// nothing is waited for.
    fn check_done(&self, index: usize) {
        let Entry { fields, fragments, done, data, answers, .. } = &self.operations[index];
        let answered: u64 = fragments.iter().filter(|(id, _)| done.contains(*id)).map(|(_, (_, length))| length).sum();
        match fields.kind {
            None => {
                let before = &self.operations[..index];
                assert!(before.iter().all(|entry| entry.state != State::Waiting), "a fence did not wait");
            }
            Some(Kind::Read) => {
                assert_eq!(data.values().sum::<u64>(), fields.length, "data is missing");
                assert_eq!(answered, fields.length);
            }
            Some(Kind::Write | Kind::Discard) => assert_eq!(answered, fields.length, "not all of it was done"),
            Some(Kind::Atomic) => panic!("an atomic ends with a word"),
            Some(_) => {
                let done = fragments.keys().filter(|id| done.contains(*id)).count();
                assert_eq!((done, *answers), (1, 1), "it was not answered");
            }
        }
    }

    /// Nothing before it that is waited for touches its pages, if one of both changes them (T2).
    fn check_order(&self, index: usize) {
        let later = &self.operations[index].fields;
        let conflicting = |entry: &Entry| entry.state == State::Waiting && self.conflict(&entry.fields, later);
        assert!(!self.operations[..index].iter().any(conflicting), "an operation does not wait for one before it");
    }

    fn conflict(&self, earlier: &Submission, later: &Submission) -> bool {
        let (Some((first, changes)), Some((second, changes_too))) = (self.pages(earlier), self.pages(later)) else {
            return earlier.kind.is_none();
        };
        earlier.pid == later.pid && (changes || changes_too) && first.0 <= second.1 && second.0 <= first.1
    }

    /// First and last page, and whether they are changed; `None` for what touches none.
    fn pages(&self, fields: &Submission) -> Option<((u64, u64), bool)> {
        let (length, changes) = match fields.kind? {
            Kind::Read => (fields.length, false),
            Kind::Write | Kind::Discard => (fields.length, true),
            Kind::Atomic => (8, true),
            _ => return None,
        };
        let last = fields.address.saturating_add(length.checked_sub(1)?);
        Some(((fields.address / self.page_bytes, last / self.page_bytes), changes))
    }

    /// A request that was sent; the latest ones more often.
    pub(super) fn recall(&self, step: &mut Step<'_>) -> Option<Header> {
        let back = if step.once_in(4) { step.index(self.order.len()) } else { step.index(self.order.len().min(8)) };
        let id = self.order.get(self.order.len().checked_sub(back + 1)?)?;
        self.sent.get(id).copied()
    }

    /// An operation, which nobody waits for from now on.
    pub(super) fn cancel(&mut self, step: &mut Step<'_>) -> Option<OperationId> {
        let back = step.index(self.operations.len().min(12));
        let index = self.operations.len().checked_sub(back + 1)?;
        let entry = &mut self.operations[index];
        if entry.state == State::Waiting {
            entry.state = State::Cancelled;
        }
        Some(entry.id)
    }

    /// The node is gone: what is waited for now may be lost, and nothing of it is asked for any more.
    pub(super) fn abandon(&mut self) {
        self.abandoned = self.operations.len();
    }
}
