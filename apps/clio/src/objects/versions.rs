//! [`Versions`]: a client of the node's multi-version store.

use crate::{AppError, Meter};
use yonder_offload::mv::{Answer, Description, NUMBER, ObjectId, Request, VALUE_BYTES_MAX, VERSIONS_KEPT_MAX, Version};

/// The store of the address space that the meter is a thread of. Every operation is one round trip; those on one object
/// have one order, which all clients see.
pub struct Versions<'m>(pub &'m mut Meter);

/// What reading a version has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The version.
    Value {
        /// Its number.
        version: u64,
        /// Its value.
        value: Vec<u8>,
    },
    /// It was never appended, or is no longer kept. These are.
    NoVersion(Description),
}

impl Versions<'_> {
    /// Makes an object that keeps the last `versions_kept` versions.
    pub fn create(&mut self, versions_kept: u32) -> Result<ObjectId, AppError> {
        if !(1..=VERSIONS_KEPT_MAX).contains(&versions_kept) {
            let what = format!("an object of {versions_kept} versions: keep 1 to {VERSIONS_KEPT_MAX}");
            return Err(AppError::Settings(what));
        }
        match Answer::decode(&self.call(Request::Create { versions_kept })?)? {
            Answer::Created(object) => Ok(object),
            _ => Err(wrong_answer()),
        }
    }

    /// Appends a version, and returns its number: the first is 0. `None` if there is no such object.
    pub fn append(&mut self, object: ObjectId, value: &[u8]) -> Result<Option<u64>, AppError> {
        if value.len() > VALUE_BYTES_MAX {
            let what = format!("a version of {} bytes: give one of at most {VALUE_BYTES_MAX}", value.len());
            return Err(AppError::Settings(what));
        }
        match Answer::decode(&self.call(Request::Append { object, value })?)? {
            Answer::Appended(version) => Ok(Some(version)),
            Answer::NoObject => Ok(None),
            _ => Err(wrong_answer()),
        }
    }

    /// Reads a version. `None` if there is no such object.
    pub fn read(&mut self, object: ObjectId, version: Version) -> Result<Option<Read>, AppError> {
        match Answer::decode(&self.call(Request::Read { object, version })?)? {
            Answer::Value { version, value } => Ok(Some(Read::Value { version, value: value.to_vec() })),
            Answer::NoVersion(kept) => Ok(Some(Read::NoVersion(kept))),
            Answer::NoObject => Ok(None),
            _ => Err(wrong_answer()),
        }
    }

    /// Removes an object with all its versions. Returns whether it was there.
    pub fn delete(&mut self, object: ObjectId) -> Result<bool, AppError> {
        match Answer::decode(&self.call(Request::Delete { object })?)? {
            Answer::Deleted => Ok(true),
            Answer::NoObject => Ok(false),
            _ => Err(wrong_answer()),
        }
    }

    /// Which versions of an object are kept. `None` if there is no such object.
    pub fn describe(&mut self, object: ObjectId) -> Result<Option<Description>, AppError> {
        match Answer::decode(&self.call(Request::Describe { object })?)? {
            Answer::Description(description) => Ok(Some(description)),
            Answer::NoObject => Ok(None),
            _ => Err(wrong_answer()),
        }
    }

    fn call(&mut self, request: Request<'_>) -> Result<Vec<u8>, AppError> {
        self.0.call(NUMBER, &request.encode())
    }
}

fn wrong_answer() -> AppError {
    AppError::WrongAnswer("the version store")
}
