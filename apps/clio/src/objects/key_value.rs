//! [`KeyValue`]: a client of the node's key-value store.

use crate::{AppError, Meter};
use yonder_offload::kv::{Answer, KEY_BYTES_MAX, NUMBER, PAIR_BYTES_MAX, PutMode, PutOutcome, Request, Stats};

/// The store of the address space that the meter is a thread of. Every operation is one round trip, and is seen whole
/// or not at all by others.
pub struct KeyValue<'m>(pub &'m mut Meter);

impl KeyValue<'_> {
    /// The value of a key, or `None` if it has none.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, AppError> {
        check(key, &[])?;
        let answer = self.0.call(NUMBER, &Request::Get { key }.encode())?;
        match Answer::decode(&answer)? {
            Answer::Value(value) => Ok(Some(value.to_vec())),
            Answer::Absent => Ok(None),
            _ => Err(wrong_answer()),
        }
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Result<PutOutcome, AppError> {
        check(key, value)?;
        let answer = self.0.call(NUMBER, &Request::Put { key, value, mode }.encode())?;
        match Answer::decode(&answer)? {
            Answer::Put(outcome) => Ok(outcome),
            _ => Err(wrong_answer()),
        }
    }

    /// Removes a key. Returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, AppError> {
        check(key, &[])?;
        let answer = self.0.call(NUMBER, &Request::Delete { key }.encode())?;
        match Answer::decode(&answer)? {
            Answer::Deleted => Ok(true),
            Answer::Absent => Ok(false),
            _ => Err(wrong_answer()),
        }
    }

    /// How full the store of this address space is.
    pub fn stats(&mut self) -> Result<Stats, AppError> {
        let answer = self.0.call(NUMBER, &Request::Stats.encode())?;
        match Answer::decode(&answer)? {
            Answer::Stats(stats) => Ok(stats),
            _ => Err(wrong_answer()),
        }
    }
}

fn check(key: &[u8], value: &[u8]) -> Result<(), AppError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(AppError::Settings(format!("a key of {} bytes: give one of at most {KEY_BYTES_MAX}", key.len())));
    }
    let pair = key.len() + value.len();
    if pair > PAIR_BYTES_MAX {
        return Err(AppError::Settings(format!("key and value of {pair} bytes: give at most {PAIR_BYTES_MAX}")));
    }
    Ok(())
}

fn wrong_answer() -> AppError {
    AppError::WrongAnswer("the key-value store")
}
