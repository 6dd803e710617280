//! `mg` and `me`.

use std::io::Write;

use super::{LINE_BYTES_MAX, Line, Origin, deadline_of_new, echo, form_of, new_marks, write_key};
use crate::memory::ItemMemory;
use crate::protocol::{Exptime, KeyValue, MetaRequest, MetaStep, reply};
use crate::store::bucket::{Bucket, Found, Hash};
use crate::store::item::{Header, MARKS_AT, Marks};
use crate::store::read::Lookup;
use crate::store::stats::Stat;
use crate::store::write::Traits;
use crate::store::{Answered, Death, Failure, Room, Store};

impl<M: ItemMemory> Store<M> {
    pub(super) fn meta_debug(&self, request: &MetaRequest, now_s: u32) -> Answered<M> {
        self.counters.add(Stat::CmdMeta, 1);
        let (key, hash) = (request.key(), self.table.hash(request.key()));
        self.mending(hash, || {
            let bucket = self.lock(hash.bucket_part());
            let Lookup::Live(Found { header, offset, .. }) = self.look_up(&bucket, hash, key, now_s)? else {
                return Ok(Line::new(reply::META_MISS).end());
            };
            let mut line = Line::new(reply::META_DEBUG);
            line.bytes.push(b' ');
            write_key(key, form_of(&header), &mut line.bytes);
            let left = match header.deadline_s {
                0 => -1,
                deadline_s => i64::from(deadline_s) - i64::from(now_s),
            };
            let fetched = if self.slots.with(offset, |state| state.is_fetched()) { "yes" } else { "no" };
            let class = self.slots.slab_at(offset).map_or(0, |slab| slab.class.index() + 1);
            write!(
                line.bytes,
                " exp={left} la={} cas={} fetch={fetched} cls={class} size={}",
                self.silent_s(offset, now_s),
                header.cas,
                header.item_bytes(),
            )
            .expect("writing to a vector cannot fail");
            Ok(line.end())
        })
    }

    pub(super) fn meta_get(&self, request: &MetaRequest, now_s: u32, room: &mut dyn Room) -> Answered<M> {
        let flags = &request.flags;
        let touches = flags.exptime();
        self.counters.add(if touches.is_some() { Stat::CmdTouch } else { Stat::CmdGet }, 1);
        let (key, hash) = (request.key(), self.table.hash(request.key()));
        self.mending(hash, || {
            let bucket = self.lock(hash.bucket_part());
            let death = match self.look_up(&bucket, hash, key, now_s)? {
                Lookup::Live(found) => return self.meta_show(request, &found, Origin::Found, now_s, room),
                Lookup::Absent(death) => death,
            };
            drop(bucket);
            match deadline_of_new(flags, now_s) {
                Some(deadline_s) => self.meta_make(request, hash, deadline_s, now_s, room),
                None => Ok(self.meta_miss(request, touches, death)),
            }
        })
    }

    fn meta_miss(&self, request: &MetaRequest, touches: Option<Exptime>, death: Option<Death>) -> Vec<u8> {
        self.count_miss(touches, death);
        echo(reply::META_MISS, request).end_unless(request.flags.answer)
    }

    /// Makes an item without a value, unless another request has made one meanwhile.
    fn meta_make(
        &self,
        request: &MetaRequest,
        hash: Hash,
        deadline_s: u32,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Answered<M> {
        let item = KeyValue::new(request.key(), &[]);
        let slot = self.fill_slot(&item, now_s)?;
        let mut bucket = self.lock(hash.bucket_part());
        if let Lookup::Live(found) = self.look_up(&bucket, hash, request.key(), now_s)? {
            return self.meta_show(request, &found, Origin::Found, now_s, room);
        }
        let traits = Traits { flags: 0, deadline_s, marks: new_marks(&request.flags), cas: request.flags.new_cas };
        let header = self.new_header(&mut bucket, hash.bucket_part(), &item, traits);
        bucket.link(slot, hash, header, None, now_s)?;
        let made = self.find_linked(&bucket, hash, request.key())?;
        self.meta_show(request, &made, Origin::Made, now_s, room)
    }

    /// The item that the caller has just linked, in the bucket that it holds.
    fn find_linked(&self, bucket: &Bucket<'_, M>, hash: Hash, key: &[u8]) -> Result<Found, Failure<M::Error>> {
        Ok(bucket.find(hash, key)?.expect("the bucket is locked, so what was linked is there"))
    }

    /// Answers for an item whose bucket is locked, and does what the flags say to it.
    fn meta_show(
        &self,
        request: &MetaRequest,
        found: &Found,
        origin: Origin,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Answered<M> {
        let (header, flags) = (&found.header, &request.flags);
        let shows_value = flags.shows_value && flags.cas.is_none_or(|cas| cas != header.cas);
        let value_bytes = if shows_value { header.value_bytes as usize } else { 0 };
        if !room.grow_to(LINE_BYTES_MAX + value_bytes) {
            return Err(Failure::NoRoomForReply);
        }
        let mut line = Line { bytes: Vec::with_capacity(LINE_BYTES_MAX + value_bytes) };
        line.bytes.extend_from_slice(if shows_value { reply::META_VALUE } else { reply::META_DONE });
        if shows_value {
            write!(line.bytes, " {value_bytes}").expect("writing to a vector cannot fail");
        }
        let (deadline_s, mut won) = self.meta_steps(request, found, origin, now_s, &mut line);
        let Marks { stale, win_sent, .. } = header.marks;
        if win_sent {
            line.letter(b'Z');
        }
        if stale {
            line.letter(b'X');
            won |= !win_sent;
        }
        if won {
            line.letter(b'W');
        }
        let mut answer = line.end();
        if shows_value {
            self.append_value(found, &mut answer)?;
            answer.extend_from_slice(b"\r\n");
        }
        if won && !win_sent {
            self.set_marks(found, Marks { win_sent: true, ..header.marks })?;
        }
        self.set_deadline(found, deadline_s)?;
        if !flags.leaves_no_trace {
            self.slots.used(found.offset, now_s);
        }
        if flags.exptime().is_some() {
            self.counters.add(Stat::TouchHits, 1);
        }
        self.counters.add(Stat::GetHits, 1);
        Ok(answer)
    }

    /// Shows what the flags ask for, in their order. Returns when the item is to expire, and whether its client is told
    /// to recache it.
    fn meta_steps(
        &self,
        request: &MetaRequest,
        found: &Found,
        origin: Origin,
        now_s: u32,
        line: &mut Line,
    ) -> (u32, bool) {
        let (header, mut won) = (&found.header, false);
        // An item that was made never expires until its flag has its turn.
        let mut deadline_s = if origin == Origin::Made { 0 } else { header.deadline_s };
        for step in &request.flags.steps {
            match *step {
                MetaStep::Expire(exptime) => deadline_s = exptime.deadline_s(now_s),
                MetaStep::ExpireNew(exptime) if origin == Origin::Made => {
                    deadline_s = exptime.deadline_s(now_s);
                    won = true;
                }
                MetaStep::Recache(exptime) if origin == Origin::Found => {
                    let is_soon = deadline_s != 0 && deadline_s < exptime.deadline_s(now_s);
                    won |= is_soon && !header.marks.win_sent;
                }
                MetaStep::ExpireNew(_) | MetaStep::Recache(_) => {}
                MetaStep::Size => line.number('s', header.value_bytes),
                MetaStep::TimeLeft => line.time_left(deadline_s, now_s),
                MetaStep::Cas => line.number('c', header.cas),
                MetaStep::ClientFlags => line.number('f', header.flags),
                MetaStep::LastAccess => line.number('l', self.silent_s(found.offset, now_s)),
                MetaStep::Fetched => {
                    line.number('h', u8::from(self.slots.with(found.offset, |state| state.is_fetched())));
                }
                MetaStep::Key => line.key(request.key(), form_of(header)),
                MetaStep::Opaque => {
                    line.echo(*step, request);
                }
            }
        }
        (deadline_s, won)
    }

    /// Seconds since the item of a slot was accessed, as far as that was recorded.
    fn silent_s(&self, offset: u64, now_s: u32) -> u32 {
        self.slots.accessed_s(offset).map_or(0, |accessed_s| now_s.saturating_sub(accessed_s))
    }

    /// Changes the marks of an item whose bucket is locked, in place.
    pub(super) fn set_marks(&self, found: &Found, marks: Marks) -> Result<(), M::Error> {
        let header = Header { marks, ..found.header };
        self.memory.write(found.offset + MARKS_AT, &header.marks_word())
    }
}
