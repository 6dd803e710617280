//! What clients of the multi-version store send and get, and how it lies in a message. All numbers are little-endian.
//!
//! ```text
//! request:  operation u32 | versions kept u32 | object u64 | version u64 | value
//! answer:   outcome u32   | value bytes u32   | version u64 | value, or object u64, or oldest version u64
//! ```

use yonder_wire::PAYLOAD_BYTES_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;

/// Most bytes in a value.
pub const VALUE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - size_of::<RawRequest>();
/// Most versions of an object that can be kept.
pub const VERSIONS_KEPT_MAX: u32 = 4095;
/// Bytes of an answer before the value.
pub(super) const ANSWER_HEAD_BYTES: usize = size_of::<RawAnswer>();

const _: () = assert!(ANSWER_HEAD_BYTES + VALUE_BYTES_MAX <= PAYLOAD_BYTES_MAX);

/// An object of one caller. A number is never used again while the caller's address space lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u64);

/// Which version to read. The first is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// The one that was appended last.
    Latest,
    /// The one with this number, less than 2^64 - 1.
    Number(u64),
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Makes an object without a version: answered by [`Answer::Created`].
    Create {
        /// How many versions to keep, 1 to [`VERSIONS_KEPT_MAX`]; each one more drops the oldest.
        versions_kept: u32,
    },
    /// Appends a version: answered by [`Answer::Appended`].
    Append {
        /// To which object.
        object: ObjectId,
        /// Its value, of at most [`VALUE_BYTES_MAX`].
        value: &'a [u8],
    },
    /// The value of a version: answered by [`Answer::Value`].
    Read {
        /// Of which object.
        object: ObjectId,
        /// Which version.
        version: Version,
    },
    /// Removes an object: answered by [`Answer::Deleted`].
    Delete {
        /// Which object.
        object: ObjectId,
    },
    /// Which versions there are: answered by [`Answer::Description`].
    Describe {
        /// Of which object.
        object: ObjectId,
    },
}

/// What a client gets. [`Answer::NoObject`] answers anything about an object that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// The new object.
    Created(ObjectId),
    /// Number of the new version.
    Appended(u64),
    /// A version.
    Value {
        /// Its number.
        version: u64,
        /// Its value.
        value: &'a [u8],
    },
    /// The version was never appended, or is no longer kept.
    NoVersion(Description),
    /// The object is removed.
    Deleted,
    /// Which versions there are.
    Description(Description),
    /// The caller has no such object.
    NoObject,
}

/// The versions of an object: from `oldest` to the one before `next`; none if they are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// The oldest version that is kept.
    pub oldest: u64,
    /// The version that will be appended next.
    pub next: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    operation: U32,
    versions_kept: U32,
    object: U64,
    version: U64,
}

const _: () = assert!(size_of::<RawRequest>() == 24);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAnswer {
    outcome: U32,
    value_bytes: U32,
    version: U64,
}

const _: () = assert!(size_of::<RawAnswer>() == 16);

/// Stands for [`Version::Latest`].
const LATEST: u64 = u64::MAX;

const CREATED: u32 = 0;
const APPENDED: u32 = 1;
const VALUE: u32 = 2;
const NO_VERSION: u32 = 3;
const DELETED: u32 = 4;
const DESCRIPTION: u32 = 5;
const NO_OBJECT: u32 = 6;

impl<'a> Request<'a> {
    /// The arguments of a call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let nothing: &[u8] = &[];
        let (operation, versions_kept, object, version, value) = match *self {
            Self::Create { versions_kept } => (0, versions_kept, 0, 0, nothing),
            Self::Append { object, value } => (1, 0, object.0, 0, value),
            Self::Read { object, version: Version::Latest } => (2, 0, object.0, LATEST, nothing),
            Self::Read { object, version: Version::Number(version) } => (2, 0, object.0, version, nothing),
            Self::Delete { object } => (3, 0, object.0, 0, nothing),
            Self::Describe { object } => (4, 0, object.0, 0, nothing),
        };
        let [operation, versions_kept] = [operation, versions_kept].map(U32::new);
        let [object, version] = [object, version].map(U64::new);
        [RawRequest { operation, versions_kept, object, version }.as_bytes(), value].concat()
    }

    /// The request in the arguments of a call.
    pub fn decode(arguments: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, value) = RawRequest::ref_from_prefix(arguments).map_err(|_| Malformed)?;
        let object = ObjectId(raw.object.get());
        match (raw.operation.get(), value) {
            (0, []) => Ok(Self::Create { versions_kept: raw.versions_kept.get() }),
            (1, value) => Ok(Self::Append { object, value }),
            (2, []) if raw.version.get() == LATEST => Ok(Self::Read { object, version: Version::Latest }),
            (2, []) => Ok(Self::Read { object, version: Version::Number(raw.version.get()) }),
            (3, []) => Ok(Self::Delete { object }),
            (4, []) => Ok(Self::Describe { object }),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Answer<'a> {
    /// Appends the answer of a call to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Created(object) => {
                into.extend(head(CREATED, 0, 0));
                into.extend(object.0.to_le_bytes());
            }
            Self::Appended(version) => into.extend(head(APPENDED, 0, version)),
            Self::Value { version, value } => {
                into.extend(value_head(version, value.len()));
                into.extend(value);
            }
            Self::NoVersion(Description { oldest, next }) => {
                into.extend(head(NO_VERSION, 0, next));
                into.extend(oldest.to_le_bytes());
            }
            Self::Deleted => into.extend(head(DELETED, 0, 0)),
            Self::Description(Description { oldest, next }) => {
                into.extend(head(DESCRIPTION, 0, next));
                into.extend(oldest.to_le_bytes());
            }
            Self::NoObject => into.extend(head(NO_OBJECT, 0, 0)),
        }
    }

    /// The answer of a call.
    pub fn decode(answer: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, rest) = RawAnswer::ref_from_prefix(answer).map_err(|_| Malformed)?;
        let (outcome, version) = (raw.outcome.get(), raw.version.get());
        if outcome == VALUE && rest.len() == raw.value_bytes.get() as usize {
            return Ok(Self::Value { version, value: rest });
        }
        let word = <[u8; 8]>::try_from(rest).map(u64::from_le_bytes).ok();
        match (outcome, word) {
            (CREATED, Some(object)) => Ok(Self::Created(ObjectId(object))),
            (NO_VERSION, Some(oldest)) => Ok(Self::NoVersion(Description { oldest, next: version })),
            (DESCRIPTION, Some(oldest)) => Ok(Self::Description(Description { oldest, next: version })),
            (APPENDED, None) if rest.is_empty() => Ok(Self::Appended(version)),
            (DELETED, None) if rest.is_empty() => Ok(Self::Deleted),
            (NO_OBJECT, None) if rest.is_empty() => Ok(Self::NoObject),
            _ => Err(Malformed),
        }
    }
}

/// What precedes a value of `bytes` in an answer.
pub(super) fn value_head(version: u64, bytes: usize) -> [u8; ANSWER_HEAD_BYTES] {
    head(VALUE, u32::try_from(bytes).expect("a value fits a message"), version)
}

fn head(outcome: u32, value_bytes: u32, version: u64) -> [u8; ANSWER_HEAD_BYTES] {
    let [outcome, value_bytes] = [outcome, value_bytes].map(U32::new);
    zerocopy::transmute!(RawAnswer { outcome, value_bytes, version: U64::new(version) })
}
