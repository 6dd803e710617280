//! A key-value store at the node (Clio-KV): keys and values of any size that fits a message, a table for each caller.
//!
//! Key types: [`KeyValueStore`] is the offload; [`Request`] and [`Answer`] are what clients send and get. Calls are
//! executed one after another, so reads see whole writes and every key is linearizable. `table` has the data structure,
//! `resize` its buckets, `keys` the order in which its keys are told, `record` its layout.

mod keys;
mod protocol;
mod record;
mod resize;
mod table;

use std::collections::BTreeMap;

use yonder_wire::ErrorCode;

use crate::arena::{Own, Pool};
use crate::{Call, Effect, Offload, OffloadMemory};
use keys::Told;
pub use protocol::{Answer, KEY_BYTES_MAX, Keys, PAIR_BYTES_MAX, PutMode, PutOutcome, Request, Stats};
use table::Table;

/// The number of the offload.
pub const NUMBER: u64 = 2;
/// Bytes of the node's memory that one caller's pairs may take, in the shipped store.
pub const CALLER_BYTES_MAX: u64 = 64 << 30;

/// The offload.
#[derive(Debug)]
pub struct KeyValueStore {
    seed: u64,
    caller_bytes_max: u64,
    pool: Pool,
    /// Tables with entries.
    tables: BTreeMap<u32, Table>,
}

impl KeyValueStore {
    /// A store that hashes with `seed`, which callers must not know, and gives each of them `caller_bytes_max` at most.
    #[must_use]
    pub fn new(seed: u64, caller_bytes_max: u64) -> Self {
        Self { seed, caller_bytes_max, pool: Pool::default(), tables: BTreeMap::new() }
    }

    fn put(
        &mut self,
        pid: u32,
        (key, value, mode): (&[u8], &[u8], PutMode),
        memory: &mut dyn OffloadMemory,
    ) -> Result<PutOutcome, ErrorCode> {
        if key.len() > KEY_BYTES_MAX || key.len() + value.len() > PAIR_BYTES_MAX {
            return Err(ErrorCode::BadLength);
        }
        let table = self.tables.entry(pid).or_insert_with(|| Table::new(self.seed, self.caller_bytes_max));
        let outcome = table.put(key, value, mode, &mut Own { pool: &mut self.pool, memory });
        self.drop_if_empty(pid);
        outcome
    }

    fn drop_if_empty(&mut self, pid: u32) {
        if self.tables.get(&pid).is_some_and(Table::is_empty) {
            self.tables.remove(&pid);
        }
    }
}

impl Offload for KeyValueStore {
    fn number(&self) -> u64 {
        NUMBER
    }

    fn name(&self) -> &'static str {
        "key-value"
    }

    fn effect(&self, arguments: &[u8]) -> Effect {
        match Request::decode(arguments) {
            Ok(Request::Put { .. } | Request::Delete { .. }) => Effect::Once,
            Ok(Request::Get { .. } | Request::Stats | Request::Keys { .. }) | Err(_) => Effect::Repeatable,
        }
    }

    fn call(&mut self, Call { pid, arguments, memory, answer }: Call<'_>) -> Result<(), ErrorCode> {
        match Request::decode(arguments)? {
            Request::Get { key } => {
                let Some(table) = self.tables.get(&pid) else {
                    Answer::Absent.encode(answer);
                    return Ok(());
                };
                return table.get(key, &mut Own { pool: &mut self.pool, memory }, answer);
            }
            Request::Put { key, value, mode } => {
                Answer::Put(self.put(pid, (key, value, mode), memory)?).encode(answer);
            }
            Request::Delete { key } => {
                let deleted = match self.tables.get_mut(&pid) {
                    Some(table) => table.delete(key, &mut Own { pool: &mut self.pool, memory })?,
                    None => false,
                };
                self.drop_if_empty(pid);
                if deleted { Answer::Deleted } else { Answer::Absent }.encode(answer);
            }
            Request::Stats => {
                let stats = self.tables.get(&pid).map(Table::stats).unwrap_or_default();
                Answer::Stats(stats).encode(answer);
            }
            Request::Keys { from } => {
                let own = &mut Own { pool: &mut self.pool, memory };
                let told = self.tables.get(&pid).map_or_else(|| Ok(Told::default()), |table| table.keys(from, own))?;
                told.answer().encode(answer);
            }
        }
        Ok(())
    }

    fn space_ended(&mut self, pid: u32, memory: &mut dyn OffloadMemory) {
        if let Some(mut table) = self.tables.remove(&pid) {
            table.clear(&mut Own { pool: &mut self.pool, memory });
        }
    }
}

#[cfg(test)]
mod tests;
