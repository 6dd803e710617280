//! [`Stores`]: what the honest caller keeps at the node, by its own account.
//!
//! A call that memory refused is made again, and must then do what it would have done.

use std::collections::BTreeMap;

use yonder_offload::{kv, mv};
use yonder_wire::ErrorCode;

use super::{HONEST, World};
use crate::script::Step;

/// Keys and objects are few, so that they meet.
const KEYS: u64 = 24;
const OBJECTS_MAX: usize = 6;
/// Attempts after which a call that is refused for a moment is our fault.
const ATTEMPTS_MAX: u32 = 3;

/// What long values begin with. Nobody else may see it.
pub(super) const SECRET: [u8; 12] = *b"honest value";

/// An object with its versions.
#[derive(Debug)]
struct Object {
    id: mv::ObjectId,
    kept: u64,
    versions: Vec<Vec<u8>>,
    is_deleted: bool,
}

/// The honest caller's account.
#[derive(Debug, Default)]
pub(super) struct Stores {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    objects: Vec<Object>,
}

impl Stores {
    /// Does one thing, and says what and what came of it.
    pub(super) fn act(&mut self, world: &mut World, refuse_after: Option<u32>, step: &mut Step<'_>) -> [u64; 3] {
        world.memory.refuse_after = refuse_after;
        let what = step.below(9);
        match what {
            0..3 => self.put(world, step),
            3 => self.get(world, &key(step)),
            4 => self.delete(world, step),
            5 => self.create(world, step),
            6 | 7 => self.append(world, step),
            _ => self.read_or_delete(world, step),
        }
        world.memory.refuse_after = None;
        [1, what, self.pairs.len().min(8) as u64 + 16 * self.objects.len() as u64]
    }

    /// All of it is there.
    pub(super) fn check_all(&self, world: &mut World) {
        for key in self.pairs.keys() {
            self.get(world, key);
        }
        let stats = call(world, kv::NUMBER, &kv::Request::Stats.encode()).expect("it is never refused");
        let Ok(kv::Answer::Stats(stats)) = kv::Answer::decode(&stats) else { panic!("it is no answer: {stats:?}") };
        assert_eq!(stats.keys, self.pairs.len() as u64);
        for object in &self.objects {
            for version in 0..object.versions.len() {
                read(world, object, mv::Version::Number(version as u64));
            }
        }
    }

    fn put(&mut self, world: &mut World, step: &mut Step<'_>) {
        let key = key(step);
        let value = value(step, &[0, 1, 20, 100, 1000, 5000, 60_000]);
        let mode = step.pick(&[kv::PutMode::Always, kv::PutMode::Create, kv::PutMode::Update]);
        let arguments = kv::Request::Put { key: &key, value: &value, mode }.encode();
        let answer = match call(world, kv::NUMBER, &arguments) {
            Ok(answer) => answer,
            Err(code) => return assert_eq!(code, ErrorCode::OutOfMemory, "a good put is refused"),
        };
        let expected = match (self.pairs.contains_key(&key), mode) {
            (true, kv::PutMode::Create) | (false, kv::PutMode::Update) => kv::PutOutcome::Refused,
            (true, _) => kv::PutOutcome::Replaced,
            (false, _) => kv::PutOutcome::Created,
        };
        assert_eq!(kv::Answer::decode(&answer), Ok(kv::Answer::Put(expected)));
        if expected != kv::PutOutcome::Refused {
            self.pairs.insert(key, value);
        }
    }

    fn get(&self, world: &mut World, key: &[u8]) {
        let answer = call(world, kv::NUMBER, &kv::Request::Get { key }.encode()).expect("a get is not refused");
        let expected = self.pairs.get(key).map_or(kv::Answer::Absent, |value| kv::Answer::Value(value));
        assert_eq!(kv::Answer::decode(&answer), Ok(expected));
    }

    fn delete(&mut self, world: &mut World, step: &mut Step<'_>) {
        let key = key(step);
        let arguments = kv::Request::Delete { key: &key }.encode();
        let answer = call(world, kv::NUMBER, &arguments).expect("a delete is not refused");
        let expected = if self.pairs.remove(&key).is_some() { kv::Answer::Deleted } else { kv::Answer::Absent };
        assert_eq!(kv::Answer::decode(&answer), Ok(expected));
    }

    fn create(&mut self, world: &mut World, step: &mut Step<'_>) {
        let kept = step.pick(&[1, 2, 3, 5, 200]);
        if self.objects.len() >= OBJECTS_MAX {
            return;
        }
        let arguments = mv::Request::Create { versions_kept: kept }.encode();
        let answer = match call(world, mv::NUMBER, &arguments) {
            Ok(answer) => answer,
            Err(code) => return assert_eq!(code, ErrorCode::OutOfMemory, "a good create is refused"),
        };
        let Ok(mv::Answer::Created(id)) = mv::Answer::decode(&answer) else { panic!("it is no answer: {answer:?}") };
        assert!(self.objects.iter().all(|object| object.id != id), "a number is used again");
        self.objects.push(Object { id, kept: kept.into(), versions: Vec::new(), is_deleted: false });
    }

    fn append(&mut self, world: &mut World, step: &mut Step<'_>) {
        let index = step.index(self.objects.len());
        let Some(object) = self.objects.get_mut(index) else { return };
        let value = value(step, &[0, 1, 30, 300, 4000, 60_000]);
        let arguments = mv::Request::Append { object: object.id, value: &value }.encode();
        let answer = match call(world, mv::NUMBER, &arguments) {
            Ok(answer) => answer,
            Err(code) => return assert_eq!(code, ErrorCode::OutOfMemory, "a good append is refused"),
        };
        if object.is_deleted {
            return assert_eq!(mv::Answer::decode(&answer), Ok(mv::Answer::NoObject));
        }
        assert_eq!(mv::Answer::decode(&answer), Ok(mv::Answer::Appended(object.versions.len() as u64)));
        object.versions.push(value);
    }

    fn read_or_delete(&mut self, world: &mut World, step: &mut Step<'_>) {
        let index = step.index(self.objects.len());
        let Some(object) = self.objects.get_mut(index) else { return };
        match step.below(8) {
            0 => {
                let arguments = mv::Request::Delete { object: object.id }.encode();
                let answer = call(world, mv::NUMBER, &arguments).expect("a delete is not refused");
                let expected = if object.is_deleted { mv::Answer::NoObject } else { mv::Answer::Deleted };
                assert_eq!(mv::Answer::decode(&answer), Ok(expected));
                object.is_deleted = true;
            }
            1..5 => read(world, object, mv::Version::Latest),
            _ => read(world, object, mv::Version::Number(step.below(6))),
        }
    }
}

fn read(world: &mut World, object: &Object, version: mv::Version) {
    let arguments = mv::Request::Read { object: object.id, version }.encode();
    let answer = call(world, mv::NUMBER, &arguments).expect("a read is not refused");
    let next = object.versions.len() as u64;
    let oldest = next.saturating_sub(object.kept);
    let number = match version {
        mv::Version::Latest => next.wrapping_sub(1),
        mv::Version::Number(number) => number,
    };
    let expected = match object.versions.get(number as usize) {
        _ if object.is_deleted => mv::Answer::NoObject,
        Some(value) if number >= oldest => mv::Answer::Value { version: number, value },
        _ => mv::Answer::NoVersion(mv::Description { oldest, next }),
    };
    assert_eq!(mv::Answer::decode(&answer), Ok(expected));
}

/// Calls until memory no longer refuses for a moment.
fn call(world: &mut World, number: u64, arguments: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    for _ in 0..ATTEMPTS_MAX {
        match world.call(HONEST, number, arguments) {
            Err(ErrorCode::Busy) => {}
            result => return result,
        }
    }
    panic!("a call is refused for a moment, and no memory was refused to it");
}

/// A value of one of these lengths, with the secret if it is long enough.
fn value(step: &mut Step<'_>, lengths: &[usize]) -> Vec<u8> {
    let mut value = vec![step.byte(); step.pick(lengths)];
    if let Some(beginning) = value.first_chunk_mut() {
        *beginning = SECRET;
    }
    value
}

/// One of the keys that the honest caller uses.
pub(super) fn key(step: &mut Step<'_>) -> Vec<u8> {
    let key = step.below(KEYS);
    let length = if key % 8 == 7 { 4000 } else { key as usize };
    [&key.to_le_bytes()[..], &vec![7; length]].concat()
}
