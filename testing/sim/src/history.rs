//! [`History`]: every operation of every client, from submission to completion, and what nodes did for it meanwhile.
//!
//! `oracle` has seen to it that each answer was right when a node gave it. Here it is checked that nodes did this in
//! the order that clients asked for (T2, fences), for the data that clients meant (T1), and between the start and the
//! end of the operation; and that clients were told what had happened: *done* means that every byte was executed once,
//! by one life of one node. What clients saw of whole words goes to [`Words`], which is judged without any knowledge of
//! nodes.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::xxh3_64;
use yonder_wire::{ErrorCode, Header, Kind};

use crate::counts::Count;
use crate::oracle::Verdict;
use crate::words::{Tick, WordName, Words};

/// One life of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Life {
    /// The node.
    pub(crate) node: usize,
    /// How often it has begun anew.
    pub(crate) number: u32,
}

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The lane it went to.
    pub(crate) lane: usize,
    /// What to do.
    pub(crate) kind: Kind,
    /// In which address space.
    pub(crate) pid: u32,
    /// Where.
    pub(crate) address: u64,
    /// For how many bytes.
    pub(crate) length: u64,
    /// What to write.
    pub(crate) data: Vec<u8>,
    /// The allocation, if its words are judged one by one.
    pub(crate) words_of: Option<u32>,
}

/// How an operation ended at its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was done; the word before, for an atomic.
    Done(Option<u64>),
    /// A node refused it, or a part of it.
    Refused(ErrorCode),
    /// Nobody knows: too late, or the node was lost.
    Unknown,
    /// The client has lost interest.
    Cancelled,
}

impl End {
    /// As what it is counted.
    pub(crate) const fn count(self) -> Count {
        match self {
            Self::Done(_) => Count::Done,
            Self::Refused(code) => Count::Refused(code as u32),
            Self::Unknown => Count::Unknown,
            Self::Cancelled => Count::Cancelled,
        }
    }
}

/// An operation.
#[derive(Debug)]
struct Record {
    asked: Asked,
    /// Its place among the operations of its lane.
    serial: u64,
    start: Tick,
    end: Option<End>,
    fragments: Vec<Fragment>,
    /// What a read has brought.
    received: Vec<u8>,
    received_bytes: u64,
}

#[derive(Debug)]
struct Fragment {
    first_id: u64,
    /// A time that the node's clock had passed when it was first sent, as the client says.
    time: u64,
    offset: u64,
    length: u64,
    executed: Option<(Life, u64)>,
    /// Answers to a read: where from, and a hash of the bytes.
    answers: Vec<(Life, u64)>,
    taken: Option<Life>,
    /// A node has said that no copy of it will be executed.
    given_up: bool,
    /// A bit for each code that an attempt was refused with.
    refused: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct PageOrder {
    written: u64,
    touched: u64,
}

#[derive(Default, Debug)]
struct LaneOrder {
    serials: u64,
    /// What was submitted up to this is of processes that have ended: its late copies have no order with what is new.
    ended: u64,
    /// Fences that have not been reached, by serial.
    ahead: BTreeMap<u64, ()>,
    /// The last fence that has been passed.
    passed: u64,
    /// Operations that are not over, by serial.
    open: BTreeMap<u64, ()>,
}

/// Everything that clients asked for.
#[derive(Debug)]
pub(crate) struct History {
    records: Vec<Record>,
    fragments: HashMap<u64, (usize, usize)>,
    lanes: Vec<LaneOrder>,
    order: HashMap<(usize, Life, u32, u64), PageOrder>,
    dependency_page_bytes: u64,
    tick: Tick,
    /// What clients saw of whole words.
    pub(crate) words: Words,
}

impl History {
    /// Nothing yet, of `lanes` lanes that order their operations by pages of `dependency_page_bytes`.
    #[must_use]
    pub(crate) fn new(lanes: usize, dependency_page_bytes: u64) -> Self {
        Self {
            records: Vec::new(),
            fragments: HashMap::new(),
            lanes: (0..lanes).map(|_| LaneOrder::default()).collect(),
            order: HashMap::new(),
            dependency_page_bytes,
            tick: 0,
            words: Words::default(),
        }
    }

    /// The token of the operation that is submitted next; never 0, which is the lane's own messages'.
    #[must_use]
    pub(crate) fn next_token(&self) -> u64 {
        self.records.len() as u64 + 1
    }

    /// An operation is submitted. Its name is the token that [`History::next_token`] gave.
    pub(crate) fn submitted(&mut self, asked: Asked) {
        let lane = &mut self.lanes[asked.lane];
        lane.serials += 1;
        let serial = lane.serials;
        lane.open.insert(serial, ());
        self.tick += 1;
        let received = if asked.kind == Kind::Read { vec![0; asked.length as usize] } else { Vec::new() };
        let start = self.tick;
        let (fragments, received_bytes) = (Vec::new(), 0);
        self.records.push(Record { asked, serial, start, end: None, fragments, received, received_bytes });
    }

    /// A fence is set on `lane`. Returns its serial.
    pub(crate) fn fenced(&mut self, lane: usize) -> u64 {
        let lane = &mut self.lanes[lane];
        lane.serials += 1;
        lane.ahead.insert(lane.serials, ());
        lane.serials
    }

    /// The client says that `lane` has passed the fence.
    pub(crate) fn fence_passed(&mut self, lane: usize, serial: u64) -> Result<(), String> {
        let lane = &mut self.lanes[lane];
        lane.ahead.remove(&serial).ok_or("a fence was passed twice")?;
        lane.passed = lane.passed.max(serial);
        match lane.open.range(..serial).next() {
            Some((open, ())) => Err(format!("fence {serial} was passed before operation {open} had ended")),
            None => Ok(()),
        }
    }

    /// The process that had the lane has ended, and another one has it.
    pub(crate) fn lane_begins(&mut self, lane: usize) {
        self.lanes[lane].ended = self.lanes[lane].serials;
    }

    /// The operation with this token.
    #[must_use]
    pub(crate) fn asked(&self, token: u64) -> &Asked {
        &self.records[token as usize - 1].asked
    }

    /// What the read with this token has brought.
    #[must_use]
    pub(crate) fn received(&self, token: u64) -> &[u8] {
        &self.records[token as usize - 1].received
    }

    /// Operations that have not ended.
    #[must_use]
    pub(crate) fn open(&self) -> usize {
        self.lanes.iter().map(|lane| lane.open.len() + lane.ahead.len()).sum()
    }

    /// The client sends `header` for the operation `token`: a fragment of it, or an attempt of one.
    pub(crate) fn sent(&mut self, token: u64, header: &Header) -> Result<(), String> {
        let record = &mut self.records[token as usize - 1];
        let asked = &record.asked;
        if (header.kind, header.pid) != (asked.kind, asked.pid) {
            return Err(format!("operation {token} is sent as another: {header:?}"));
        }
        if let Some(known) = self.fragments.get(&header.first_id) {
            return match record.fragments.get(known.1).filter(|_| known.0 == token as usize - 1) {
                None => Err("two operations have one name".to_owned()),
                Some(first) if first.time != header.time => Err(format!("a request claims two times: {header:?}")),
                Some(_) => Ok(()),
            };
        }
        let offset = u64::from(header.fragment_offset);
        let length = if moves_bytes(asked.kind) { u64::from(header.length) } else { asked.length };
        if moves_bytes(asked.kind) && (header.address != asked.address + offset || offset + length > asked.length) {
            return Err(format!("operation {token} is cut wrongly: {header:?}"));
        }
        let index = record.fragments.iter().position(|fragment| fragment.offset == offset);
        let index = index.unwrap_or(record.fragments.len());
        let fragment = Fragment {
            first_id: header.first_id,
            time: header.time,
            offset,
            length,
            executed: None,
            answers: Vec::new(),
            taken: None,
            given_up: false,
            refused: 0,
        };
        self.fragments.insert(header.first_id, (token as usize - 1, index));
        match record.fragments.get_mut(index) {
            None => record.fragments.push(fragment),
            // The same is asked for under another name.
            Some(before) if before.given_up => *before = Fragment { refused: before.refused, ..fragment },
            Some(before) => {
                return Err(format!("{header:?} is asked for while {:#x} may be executed", before.first_id));
            }
        }
        Ok(())
    }

    /// The time that the request with this name claims; 0 if none is known.
    #[must_use]
    pub(crate) fn claimed(&self, first_id: u64) -> u64 {
        let known = self.fragments.get(&first_id);
        known.map_or(0, |(record, fragment)| self.records[*record].fragments[*fragment].time)
    }

    /// A node has come to `verdict` about a request. Requests of nobody known, such as an attacker's, are not judged.
    pub(crate) fn judged(
        &mut self,
        life: Life,
        request: &Header,
        payloads: [&[u8]; 2],
        verdict: Verdict,
    ) -> Result<(), String> {
        let Some(&(token, index)) = self.fragments.get(&request.first_id) else { return Ok(()) };
        if request.kind == Kind::Abort {
            let fragment = &mut self.records[token].fragments[index];
            match verdict {
                Verdict::Refused(code) => fragment.refused |= 1 << code as u32,
                Verdict::Looked => fragment.given_up |= fragment.first_id == request.first_id,
                Verdict::Executed(_) | Verdict::Repeated => {}
            }
            return Ok(());
        }
        if self.records[token].asked.kind != request.kind {
            return Ok(());
        }
        match verdict {
            Verdict::Executed(old) => {
                self.check_order(life, token, index)?;
                let record = &mut self.records[token];
                let fragment = &mut record.fragments[index];
                let range = fragment.offset as usize..(fragment.offset + fragment.length) as usize;
                if request.kind == Kind::Write && record.asked.data.get(range) != Some(payloads[0]) {
                    return Err(format!("operation {token} wrote other data than its client meant"));
                }
                fragment.executed = Some((life, old));
            }
            Verdict::Looked if request.kind == Kind::Read => {
                if self.records[token].end.is_none() {
                    self.check_order(life, token, index)?;
                }
                self.records[token].fragments[index].answers.push((life, xxh3_64(payloads[1])));
            }
            Verdict::Refused(code) => self.records[token].fragments[index].refused |= 1 << code as u32,
            Verdict::Looked | Verdict::Repeated => {}
        }
        Ok(())
    }

    /// T2 and fences: what is executed now comes after nothing that was submitted later.
    fn check_order(&mut self, life: Life, token: usize, index: usize) -> Result<(), String> {
        let Record { asked, serial, end, fragments, .. } = &self.records[token];
        if asked.kind == Kind::CreateSpace {
            // It needs no right, so a late copy makes an address space in the node's next life too, which nobody uses.
            return Ok(());
        }
        let (lane, fragment) = (&self.lanes[asked.lane], &fragments[index]);
        if *serial <= lane.ended {
            return Ok(());
        }
        if lane.ahead.keys().next().is_some_and(|fence| fence < serial) {
            return Err(format!("operation {token} was executed before a fence that it comes after"));
        }
        if end.is_some() && asked.kind.is_exactly_once() && lane.passed > *serial {
            return Err(format!("operation {token} was executed after a fence that it comes before"));
        }
        let (address, writes) = (asked.address + fragment.offset, asked.kind != Kind::Read);
        if fragment.length == 0 || !is_ordered(asked.kind) {
            return Ok(());
        }
        for page in address / self.dependency_page_bytes..=(address + fragment.length - 1) / self.dependency_page_bytes
        {
            let order = self.order.entry((asked.lane, life, asked.pid, page)).or_default();
            let later = if writes { order.touched } else { order.written };
            if later > *serial {
                return Err(format!(
                    "operation {token}, number {serial} on its lane, was executed after number {later}"
                ));
            }
            order.touched = order.touched.max(*serial);
            order.written = if writes { order.written.max(*serial) } else { order.written };
        }
        Ok(())
    }

    /// The client gives the owner of operation `token` the bytes from `offset`, from an answer to `first_id`.
    pub(crate) fn delivered(&mut self, token: u64, offset: u64, first_id: u64, payload: &[u8]) -> Result<(), String> {
        let record = &mut self.records[token as usize - 1];
        let known = self.fragments.get(&first_id).filter(|known| known.0 == token as usize - 1);
        let (_, index) = known.ok_or("data of another operation was delivered")?;
        let fragment = &mut record.fragments[*index];
        if record.end.is_some() || fragment.offset != offset || fragment.length != payload.len() as u64 {
            return Err(format!("operation {token} got bytes that it did not ask for"));
        }
        let hash = xxh3_64(payload);
        let answer = fragment.answers.iter().find(|(_, answer)| *answer == hash);
        let (life, _) = answer.ok_or("bytes were delivered that no node has sent")?;
        if fragment.taken.replace(*life).is_some() {
            return Err(format!("operation {token} got the same bytes twice"));
        }
        record.received[offset as usize..][..payload.len()].copy_from_slice(payload);
        record.received_bytes += payload.len() as u64;
        Ok(())
    }

    /// The operation has ended at its client.
    pub(crate) fn ended(&mut self, token: u64, end: End) -> Result<(), String> {
        self.tick += 1;
        let record = &mut self.records[token as usize - 1];
        if record.end.replace(end).is_some() {
            return Err(format!("operation {token} ended twice"));
        }
        self.lanes[record.asked.lane].open.remove(&record.serial);
        match end {
            End::Done(old) => record.check_done(old).map_err(|cause| format!("operation {token}: {cause}"))?,
            End::Refused(code) => {
                if !record.fragments.iter().any(|fragment| fragment.refused & 1 << code as u32 != 0) {
                    return Err(format!("operation {token} was refused ({code}) by nobody"));
                }
            }
            End::Unknown | End::Cancelled => {}
        }
        self.remember_words(token as usize - 1);
        Ok(())
    }

    /// What the operation says about whole words.
    fn remember_words(&mut self, index: usize) {
        let record = &self.records[index];
        let Some(allocation) = record.asked.words_of else { return };
        let done = matches!(record.end, Some(End::Done(_)));
        let end = done.then_some(self.tick);
        let name = |index: usize| -> WordName { (allocation, record.asked.address + 8 * index as u64) };
        match record.asked.kind {
            Kind::Write => {
                for (index, value) in words(&record.asked.data).enumerate() {
                    self.words.write(name(index), value, record.start, end);
                }
            }
            Kind::Read if done => {
                for (index, value) in words(&record.received).enumerate() {
                    self.words.read(name(index), value, record.start, self.tick);
                }
            }
            _ => {}
        }
    }
}

impl Record {
    /// Whether *done* is true.
    fn check_done(&self, old: Option<u64>) -> Result<(), String> {
        let kind = self.asked.kind;
        let mut lives = Vec::new();
        for fragment in &self.fragments {
            let life = match kind {
                Kind::Read => fragment.taken,
                kind if kind.is_exactly_once() => fragment.executed.map(|(life, _)| life),
                _ => continue,
            };
            lives.push(life.ok_or_else(|| format!("done, but {:#x} was not executed", fragment.first_id))?);
        }
        lives.dedup();
        if lives.len() > 1 {
            return Err("two lives of a node did a part each".to_owned());
        }
        let bytes: u64 = self.fragments.iter().map(|fragment| fragment.length).sum();
        if moves_bytes(kind) && (bytes != self.asked.length || !self.is_gapless()) {
            return Err(format!("done, but only {bytes} of {} bytes", self.asked.length));
        }
        if kind == Kind::Atomic && old != self.fragments.first().and_then(|first| Some(first.executed?.1)) {
            return Err(format!("the old word was said to be {old:?}"));
        }
        Ok(())
    }

    fn is_gapless(&self) -> bool {
        let mut parts: Vec<_> = self.fragments.iter().map(|fragment| (fragment.offset, fragment.length)).collect();
        parts.sort_unstable();
        parts.iter().try_fold(0, |at, part| (at == part.0).then_some(at + part.1)).is_some()
    }
}

/// Whether operations of this kind are cut into fragments.
const fn moves_bytes(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write)
}

/// Whether T2 orders operations of this kind by their pages.
const fn is_ordered(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write | Kind::Atomic | Kind::Discard | Kind::Free)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("a word has 8 bytes")))
}
