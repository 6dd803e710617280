//! A store of objects with versions at the node (Clio-MV): create an object, append versions, read any that is kept.
//!
//! Key types: [`VersionStore`] is the offload; [`Request`] and [`Answer`] are what clients send and get. Calls are
//! executed one after another, so every object is sequentially consistent. `objects` has the data structure.

mod objects;
mod protocol;

use std::collections::BTreeMap;

use yonder_wire::ErrorCode;

use crate::arena::{Own, Pool};
use crate::{Call, Effect, Offload, OffloadMemory};
use objects::Objects;
pub use protocol::{Answer, Description, ObjectId, Request, VALUE_BYTES_MAX, VERSIONS_KEPT_MAX, Version};

/// The number of the offload.
pub const NUMBER: u64 = 3;
/// Bytes of the node's memory that one caller's objects may take, in the shipped store.
pub const CALLER_BYTES_MAX: u64 = 64 << 30;

/// The offload.
#[derive(Debug)]
pub struct VersionStore {
    caller_bytes_max: u64,
    pool: Pool,
    /// Callers that have created an object.
    callers: BTreeMap<u32, Objects>,
}

impl VersionStore {
    /// A store that gives each caller `caller_bytes_max` at most.
    #[must_use]
    pub fn new(caller_bytes_max: u64) -> Self {
        Self { caller_bytes_max, pool: Pool::default(), callers: BTreeMap::new() }
    }
}

impl Offload for VersionStore {
    fn number(&self) -> u64 {
        NUMBER
    }

    fn name(&self) -> &'static str {
        "multi-version"
    }

    fn effect(&self, arguments: &[u8]) -> Effect {
        match Request::decode(arguments) {
            Ok(Request::Create { .. } | Request::Append { .. } | Request::Delete { .. }) => Effect::Once,
            Ok(Request::Read { .. } | Request::Describe { .. }) | Err(_) => Effect::Repeatable,
        }
    }

    fn call(&mut self, Call { pid, arguments, memory, answer }: Call<'_>) -> Result<(), ErrorCode> {
        let request = Request::decode(arguments)?;
        let mut own = Own { pool: &mut self.pool, memory };
        if let Request::Create { versions_kept } = request {
            let objects = self.callers.entry(pid).or_insert_with(|| Objects::new(self.caller_bytes_max));
            Answer::Created(objects.create(versions_kept, &mut own)?).encode(answer);
            return Ok(());
        }
        let Some(objects) = self.callers.get_mut(&pid) else {
            Answer::NoObject.encode(answer);
            return Ok(());
        };
        match request {
            Request::Create { .. } => {}
            Request::Append { object, value } => objects.append(object, value, &mut own)?.encode(answer),
            Request::Read { object, version } => return objects.read(object, version, &mut own, answer),
            Request::Delete { object } => objects.delete(object, &mut own)?.encode(answer),
            Request::Describe { object } => objects.describe(object, &mut own)?.encode(answer),
        }
        Ok(())
    }

    fn space_ended(&mut self, pid: u32, memory: &mut dyn OffloadMemory) {
        if let Some(mut objects) = self.callers.remove(&pid) {
            objects.clear(&mut Own { pool: &mut self.pool, memory });
        }
    }
}

#[cfg(test)]
mod tests;
