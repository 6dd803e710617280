//! `ms`, `md` and `ma`.

use std::io::Write;

use super::{Line, Origin, deadline_of_new, echo, new_marks};
use crate::memory::ItemMemory;
use crate::protocol::{Answer, KeyValue, MetaArithmetic, MetaRequest, MetaSetMode, MetaStep, WriteMode, reply};
use crate::store::bucket::Found;
use crate::store::item::{CAS_AT, Header, Marks};
use crate::store::stats::Stat;
use crate::store::write::{
    Edited, Extension, History, OlderCas, Put, Reading, Revision, Seen, Sum, Summed, Traits, Written,
};
use crate::store::{Answered, Failure, Room, Store};

/// How `md` ended.
enum Deleted {
    Done,
    NotFound,
    /// The item has another cas unique.
    Exists,
}

/// How `ma` ended.
enum Computed {
    NotFound,
    NonNumeric,
    /// The item has another cas unique.
    Exists,
    Done(Number),
}

/// A number that was stored.
struct Number {
    digits: String,
    header: Header,
    /// When its item would have expired.
    old_deadline_s: u32,
    origin: Origin,
}

impl<M: ItemMemory> Store<M> {
    pub(super) fn meta_set(
        &self,
        request: &MetaRequest,
        mode: MetaSetMode,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Answered<M> {
        self.counters.add(Stat::CmdSet, 1);
        let hash = self.table.hash(request.key());
        let written = self.mending(hash, || match mode {
            MetaSetMode::Set => self.meta_put(request, WriteMode::Set, now_s),
            MetaSetMode::Add => self.meta_put(request, WriteMode::Add, now_s),
            MetaSetMode::Replace => self.meta_put(request, WriteMode::Replace, now_s),
            MetaSetMode::Append | MetaSetMode::Prepend => self.meta_extend(request, mode, now_s, room),
        })?;
        let (code, stored) = match written {
            Written::Stored(header) => (reply::META_DONE, Some(header)),
            Written::NotStored => (reply::META_NOT_STORED, None),
            Written::Exists => (reply::META_EXISTS, None),
            Written::NotFound => (reply::META_NOT_FOUND, None),
        };
        let mut line = Line::new(code);
        for step in &request.flags.steps {
            match step {
                MetaStep::Cas => line.number('c', stored.map_or(0, |header| header.cas)),
                MetaStep::Size => {
                    let given = request.item.value().len();
                    line.number('s', stored.map_or(given, |header| header.value_bytes as usize));
                }
                _ => {
                    line.echo(*step, request);
                }
            }
        }
        Ok(if stored.is_some() { line.end_unless(request.flags.answer) } else { line.end() })
    }

    fn meta_put(&self, request: &MetaRequest, mode: WriteMode, now_s: u32) -> Result<Written, Failure<M::Error>> {
        let flags = &request.flags;
        let mode = flags.cas.filter(|_| mode != WriteMode::Add).map_or(mode, WriteMode::Cas);
        let deadline_s = flags.exptime().map_or(0, |exptime| exptime.deadline_s(now_s));
        self.meta_put_until(request, mode, deadline_s, now_s)
    }

    fn meta_put_until(
        &self,
        request: &MetaRequest,
        mode: WriteMode,
        deadline_s: u32,
        now_s: u32,
    ) -> Result<Written, Failure<M::Error>> {
        let flags = &request.flags;
        let traits = Traits { flags: flags.client_flags, deadline_s, marks: new_marks(flags), cas: flags.new_cas };
        let older = if flags.invalidates { OlderCas::Stale } else { OlderCas::Refused };
        self.put(&Put { mode, item: &request.item, traits, older }, now_s)
    }

    /// Appends or prepends; stores the value alone if there is no item and the flags say so.
    fn meta_extend(
        &self,
        request: &MetaRequest,
        mode: MetaSetMode,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<Written, Failure<M::Error>> {
        let (flags, value) = (&request.flags, request.item.value());
        let (before, after): (&[u8], &[u8]) = if mode == MetaSetMode::Append { (&[], value) } else { (value, &[]) };
        let extension = Extension { before, after, cas: flags.cas.unwrap_or(0), new_cas: flags.new_cas };
        loop {
            if let Some(written) = self.extend(request.key(), extension, now_s, room)?.written() {
                return Ok(written);
            }
            let Some(exptime) = flags.new_exptime() else { return Ok(Written::NotStored) };
            match self.meta_put_until(request, WriteMode::Add, exptime.deadline_s(now_s), now_s)? {
                // Another request has stored one meanwhile, which is progress too.
                Written::NotStored => {}
                written => return Ok(written),
            }
        }
    }

    pub(super) fn meta_delete(&self, request: &MetaRequest, now_s: u32, room: &mut dyn Room) -> Answered<M> {
        let flags = &request.flags;
        let hash = self.table.hash(request.key());
        let deleted = self.mending(hash, || {
            if flags.empties { self.meta_empty(request, now_s, room) } else { self.meta_remove(request, now_s) }
        })?;
        let (code, answer) = match deleted {
            Deleted::Done => (reply::META_DONE, flags.answer),
            Deleted::NotFound => (reply::META_NOT_FOUND, Answer::Wanted),
            Deleted::Exists => (reply::META_EXISTS, Answer::Wanted),
        };
        match deleted {
            Deleted::Done if flags.invalidates => {}
            Deleted::Done => self.counters.add(Stat::DeleteHits, 1),
            Deleted::NotFound | Deleted::Exists => self.counters.add(Stat::DeleteMisses, 1),
        }
        Ok(echo(code, request).end_unless(answer))
    }

    /// Unlinks the item, or makes it stale in place.
    fn meta_remove(&self, request: &MetaRequest, now_s: u32) -> Result<Deleted, Failure<M::Error>> {
        let (key, flags) = (request.key(), &request.flags);
        let hash = self.table.hash(key);
        let mut bucket = self.lock(hash.bucket_part());
        let Some(found) = bucket.find(hash, key)?.filter(|found| self.death(&found.header, now_s).is_none()) else {
            return Ok(Deleted::NotFound);
        };
        if flags.cas.is_some_and(|cas| cas != found.header.cas) {
            return Ok(Deleted::Exists);
        }
        if !flags.invalidates {
            drop(bucket.unlink(&found)?);
            return Ok(Deleted::Done);
        }
        if let Some(exptime) = flags.exptime() {
            self.set_deadline(&found, exptime.deadline_s(now_s))?;
        }
        self.set_marks(&found, Marks { stale: true, win_sent: false, ..found.header.marks })?;
        if flags.new_cas.is_some() {
            bucket.choose_cas();
        }
        self.set_cas(&found, flags.new_cas.unwrap_or_else(|| self.next_cas()))?;
        Ok(Deleted::Done)
    }

    /// Puts an item without a value in the place of the item.
    fn meta_empty(&self, request: &MetaRequest, now_s: u32, room: &mut dyn Room) -> Result<Deleted, Failure<M::Error>> {
        let (key, flags) = (request.key(), &request.flags);
        let reading = Reading { value_bytes_max: 0, before: &[], after: &[] };
        let edited = self.edit(key, now_s, reading, room, |Seen { header, .. }| {
            if flags.cas.is_some_and(|cas| cas != header.cas) {
                return Err(());
            }
            let traits = Traits {
                flags: flags.client_flags,
                deadline_s: flags.exptime().map_or(0, |exptime| exptime.deadline_s(now_s)),
                marks: Marks { stale: flags.invalidates, ..header.marks.of_key() },
                cas: if flags.invalidates { flags.new_cas } else { flags.new_cas.or(Some(header.cas)) },
            };
            Ok(Revision { item: KeyValue::new(key, &[]), traits, history: History::Dropped })
        })?;
        Ok(match edited {
            Edited::Absent => Deleted::NotFound,
            Edited::Refused(()) => Deleted::Exists,
            Edited::Stored(_) => Deleted::Done,
        })
    }

    pub(super) fn meta_arithmetic(
        &self,
        request: &MetaRequest,
        arithmetic: MetaArithmetic,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Answered<M> {
        let flags = &request.flags;
        let number = match self.meta_compute(request, arithmetic, now_s, room)? {
            Computed::NonNumeric => return Ok(reply::NON_NUMERIC.to_vec()),
            Computed::NotFound => return Ok(echo(reply::META_NOT_FOUND, request).end()),
            Computed::Exists => return Ok(echo(reply::META_EXISTS, request).end()),
            Computed::Done(number) => number,
        };
        if flags.answer == Answer::Quiet {
            return Ok(Vec::new());
        }
        let mut line = Line::new(if flags.shows_value { reply::META_VALUE } else { reply::META_DONE });
        if flags.shows_value {
            write!(line.bytes, " {}", number.digits.len()).expect("writing to a vector cannot fail");
        }
        let mut deadline_s = number.old_deadline_s;
        for step in &flags.steps {
            match *step {
                MetaStep::Cas => line.number('c', number.header.cas),
                MetaStep::TimeLeft => line.time_left(deadline_s, now_s),
                MetaStep::Expire(exptime) => deadline_s = exptime.deadline_s(now_s),
                MetaStep::ExpireNew(exptime) if number.origin == Origin::Made => {
                    deadline_s = exptime.deadline_s(now_s);
                }
                step => {
                    line.echo(step, request);
                }
            }
        }
        let mut answer = line.end();
        if flags.shows_value {
            answer.extend_from_slice(number.digits.as_bytes());
            answer.extend_from_slice(b"\r\n");
        }
        Ok(answer)
    }

    /// Adds, or makes an item if there is none and the flags say so.
    fn meta_compute(
        &self,
        request: &MetaRequest,
        MetaArithmetic { direction, delta, initial }: MetaArithmetic,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Result<Computed, Failure<M::Error>> {
        let flags = &request.flags;
        let deadline_s = flags.exptime().map(|exptime| exptime.deadline_s(now_s));
        let sum = Sum { direction, delta, cas: flags.cas.unwrap_or(0), new_cas: flags.new_cas, deadline_s };
        loop {
            match self.sum(request.key(), sum, now_s, room)? {
                Summed::NonNumeric => return Ok(Computed::NonNumeric),
                Summed::Exists => return Ok(Computed::Exists),
                Summed::Stored { digits, header, old_deadline_s } => {
                    return Ok(Computed::Done(Number { digits, header, old_deadline_s, origin: Origin::Found }));
                }
                Summed::Absent => {}
            }
            let Some(deadline_s) = deadline_of_new(flags, now_s) else { return Ok(Computed::NotFound) };
            // Unless another request has made one meanwhile, which is progress too.
            if let Some(number) = self.meta_make_number(request, initial, deadline_s, now_s)? {
                return Ok(Computed::Done(number));
            }
        }
    }

    fn meta_make_number(
        &self,
        request: &MetaRequest,
        initial: u64,
        deadline_s: u32,
        now_s: u32,
    ) -> Result<Option<Number>, Failure<M::Error>> {
        let (key, flags, digits) = (request.key(), &request.flags, initial.to_string());
        let item = KeyValue::new(key, digits.as_bytes());
        let traits = Traits { flags: 0, deadline_s, marks: new_marks(flags), cas: flags.new_cas };
        let put = Put { mode: WriteMode::Add, item: &item, traits, older: OlderCas::Refused };
        Ok(match self.mending(self.table.hash(key), || self.put(&put, now_s))? {
            // Until its flag has its turn, it never expires.
            Written::Stored(header) => Some(Number { digits, header, old_deadline_s: 0, origin: Origin::Made }),
            Written::NotStored | Written::Exists | Written::NotFound => None,
        })
    }

    /// Changes the cas unique of an item whose bucket is locked, in place.
    fn set_cas(&self, found: &Found, cas: u64) -> Result<(), M::Error> {
        self.memory.write_u64(found.offset + CAS_AT, cas)
    }
}
