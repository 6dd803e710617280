//! The commands that change no value: `get` and its kin, `touch`.

use std::io::Write;

use super::bucket::{Bucket, Found, Hash};
use super::item::{DEADLINE_AT, HEADER_BYTES, Header};
use super::stats::Stat;
use super::{Death, Execution, Failure, Room, Store};
use crate::memory::ItemMemory;
use crate::protocol::{CasShown, Command, Exptime, Keys, reply};

/// Once a reply has grown to this, the remaining keys of a `get` are left for another execution.
const REPLY_BYTES_SOFT_MAX: usize = 256 << 10;
/// What a reply has beside keys and values, for each and at its end.
const VALUE_LINE_BYTES_MAX: usize = 64;

/// What a lookup finds. Dead items have been removed.
pub(super) enum Lookup {
    Live(Found),
    Absent(Option<Death>),
}

impl<M: ItemMemory> Store<M> {
    pub(super) fn get(
        &self,
        mut keys: Keys,
        cas: CasShown,
        touch: Option<Exptime>,
        now_s: u32,
        room: &mut dyn Room,
    ) -> Execution {
        let mut reply = Vec::new();
        while reply.len() < REPLY_BYTES_SOFT_MAX {
            let Some(key) = keys.next_key() else {
                reply.extend_from_slice(reply::END);
                return Execution { reply, rest: None };
            };
            self.counters.add(if touch.is_some() { Stat::CmdTouch } else { Stat::CmdGet }, 1);
            let (hash, start) = (self.table.hash(key), reply.len());
            let done = self.mending(hash, || {
                reply.truncate(start);
                self.get_key(hash, key, cas, touch, now_s, &mut Reply { bytes: &mut reply, room: &mut *room })
            });
            if let Err(failure) = done {
                return Execution { reply: self.failed(&failure).to_vec(), rest: None };
            }
        }
        Execution { reply, rest: Some(Command::Get { keys, cas, touch }) }
    }

    pub(super) fn touch(&self, key: &[u8], exptime: Exptime, now_s: u32) -> Result<&'static [u8], Failure<M::Error>> {
        let hash = self.table.hash(key);
        self.counters.add(Stat::CmdTouch, 1);
        self.mending(hash, || {
            let bucket = self.lock(hash.bucket_part());
            let Lookup::Live(found) = self.look_up(&bucket, hash, key, now_s)? else {
                self.counters.add(Stat::TouchMisses, 1);
                return Ok(reply::NOT_FOUND);
            };
            self.set_deadline(&found, exptime.deadline_s(now_s))?;
            self.slots.used(found.offset, now_s);
            self.counters.add(Stat::TouchHits, 1);
            Ok(reply::TOUCHED)
        })
    }

    fn get_key(
        &self,
        hash: Hash,
        key: &[u8],
        cas: CasShown,
        touch: Option<Exptime>,
        now_s: u32,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure<M::Error>> {
        let bucket = self.lock(hash.bucket_part());
        let found = match self.look_up(&bucket, hash, key, now_s)? {
            Lookup::Live(found) => found,
            Lookup::Absent(death) => {
                self.count_miss(touch, death);
                return Ok(());
            }
        };
        if !reply.reserve(key.len() + found.header.value_bytes as usize + VALUE_LINE_BYTES_MAX) {
            return Err(Failure::NoRoomForReply);
        }
        append_value_line(reply.bytes, key, &found.header, cas);
        self.append_value(&found, reply.bytes)?;
        reply.bytes.extend_from_slice(b"\r\n");
        if let Some(exptime) = touch {
            self.set_deadline(&found, exptime.deadline_s(now_s))?;
            self.counters.add(Stat::TouchHits, 1);
        }
        self.slots.used(found.offset, now_s);
        self.counters.add(Stat::GetHits, 1);
        Ok(())
    }

    pub(super) fn count_miss(&self, touch: Option<Exptime>, death: Option<Death>) {
        self.counters.add(Stat::GetMisses, 1);
        if touch.is_some() {
            self.counters.add(Stat::TouchMisses, 1);
        }
        match death {
            Some(Death::Expired) => self.counters.add(Stat::GetExpired, 1),
            Some(Death::Flushed) => self.counters.add(Stat::GetFlushed, 1),
            None => {}
        }
    }

    pub(super) fn look_up(
        &self,
        bucket: &Bucket<'_, M>,
        hash: Hash,
        key: &[u8],
        now_s: u32,
    ) -> Result<Lookup, M::Error> {
        let Some(found) = bucket.find(hash, key)? else {
            return Ok(Lookup::Absent(None));
        };
        match self.death(&found.header, now_s) {
            None => Ok(Lookup::Live(found)),
            death => {
                drop(bucket.unlink(&found)?);
                Ok(Lookup::Absent(death))
            }
        }
    }

    pub(super) fn set_deadline(&self, found: &Found, deadline_s: u32) -> Result<(), M::Error> {
        if found.header.deadline_s != deadline_s {
            self.memory.write(found.offset + DEADLINE_AT, &deadline_s.to_le_bytes())?;
            self.slots.with(found.offset, |state| state.set_deadline(deadline_s));
        }
        Ok(())
    }

    /// Appends the value of an item. After an error `into` may have grown.
    pub(super) fn append_value(&self, found: &Found, into: &mut Vec<u8>) -> Result<(), M::Error> {
        let start = into.len();
        into.resize(start + found.header.value_bytes as usize, 0);
        let offset = found.offset + HEADER_BYTES as u64 + u64::from(found.header.key_bytes);
        self.memory.read(offset, &mut into[start..])
    }
}

/// A reply that grows in the room that there is for it.
struct Reply<'a> {
    bytes: &'a mut Vec<u8>,
    room: &'a mut dyn Room,
}

impl Reply<'_> {
    /// Makes place for so many bytes more. Returns whether there was room.
    fn reserve(&mut self, more: usize) -> bool {
        let (needed, has) = (self.bytes.len() + more, self.bytes.capacity());
        if needed <= has {
            return true;
        }
        // It doubles, so that many small values are not all copied for each of them.
        let grown = needed.max((2 * has).min(REPLY_BYTES_SOFT_MAX));
        let fits = self.room.grow_to(grown);
        if fits {
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        fits
    }
}

fn append_value_line(reply: &mut Vec<u8>, key: &[u8], header: &Header, cas: CasShown) {
    reply.extend_from_slice(b"VALUE ");
    reply.extend_from_slice(key);
    let written = match cas {
        CasShown::No => write!(reply, " {} {}\r\n", header.flags, header.value_bytes),
        CasShown::Yes => write!(reply, " {} {} {}\r\n", header.flags, header.value_bytes, header.cas),
    };
    written.expect("writing to a vector cannot fail");
}
