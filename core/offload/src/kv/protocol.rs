//! What clients of the key-value store send and get, and how it lies in a message. All numbers are little-endian.
//!
//! ```text
//! request:  operation u32 | key bytes u32 | value bytes u32 | mode u32 | key | value
//! answer:   outcome u32   | value bytes u32 | value, or the statistics, or next u64 | keys
//! key:      key bytes u32 | key
//! ```
//!
//! In a request for keys the key is the position, a u64. In the answer the value is the keys.

use yonder_wire::PAYLOAD_BYTES_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;
use crate::number::{length, one_of};

/// Most bytes in a key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Most bytes in a key and its value together.
pub const PAIR_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - size_of::<RawRequest>();
/// Bytes of an answer before the value.
pub(super) const ANSWER_HEAD_BYTES: usize = size_of::<RawAnswer>();

/// Most bytes of keys in an answer, with their lengths: many keys, and no long message.
pub(super) const KEYS_BYTES_MAX: usize = 16 << 10;
/// Bytes of a key in an answer before the key.
pub(super) const KEY_HEAD_BYTES: usize = size_of::<U32>();

const _: () = assert!(ANSWER_HEAD_BYTES + PAIR_BYTES_MAX <= PAYLOAD_BYTES_MAX);
const _: () = assert!(KEY_HEAD_BYTES + KEY_BYTES_MAX <= KEYS_BYTES_MAX, "an answer has room for a key");
const _: () = assert!(ANSWER_HEAD_BYTES + size_of::<RawStats>() <= crate::ONCE_ANSWER_BYTES_MAX);

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The value of a key: answered by [`Answer::Value`] or [`Answer::Absent`].
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Gives a key a value: answered by [`Answer::Put`].
    Put {
        /// The key, of at most [`KEY_BYTES_MAX`].
        key: &'a [u8],
        /// Its value; both together have at most [`PAIR_BYTES_MAX`].
        value: &'a [u8],
        /// Whether there must be one already.
        mode: PutMode,
    },
    /// Removes a key: answered by [`Answer::Deleted`] or [`Answer::Absent`].
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// How full the caller's table is: answered by [`Answer::Stats`].
    Stats,
    /// Some keys of the caller's: answered by [`Answer::Keys`].
    ///
    /// Calls from 0 on, and then from where each answer ended, tell every key that is there all the time once. Keys
    /// that come or go meanwhile may be among them.
    Keys {
        /// The position where the answer before ended, at first 0.
        from: u64,
    },
}

/// Whether a put needs a key to be there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum PutMode {
    /// It does not matter.
    Always = 0,
    /// Only a key that is not there.
    Create = 1,
    /// Only a key that is there.
    Update = 2,
}

/// What a put did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PutOutcome {
    /// The key is new.
    Created,
    /// The key had another value.
    Replaced,
    /// Nothing, because of the [`PutMode`].
    Refused,
}

/// What a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// The key's value.
    Value(&'a [u8]),
    /// There is no such key.
    Absent,
    /// What a put did.
    Put(PutOutcome),
    /// The key was removed.
    Deleted,
    /// How full the table is.
    Stats(Stats),
    /// Some keys.
    Keys {
        /// Where the next answer begins, or 0 if there are no more.
        next: u64,
        /// The keys.
        keys: Keys<'a>,
    },
}

/// Keys as they lie in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys<'a>(&'a [u8]);

/// How full a caller's table is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub pair_bytes: u64,
    /// Hash buckets.
    pub buckets: u64,
    /// Slots that are chained to buckets that overflow.
    pub chained_slots: u64,
    /// Bytes of the node's memory that the table takes.
    pub memory_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    operation: U32,
    key_bytes: U32,
    value_bytes: U32,
    mode: U32,
}

const _: () = assert!(size_of::<RawRequest>() == 16);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAnswer {
    outcome: U32,
    value_bytes: U32,
}

const _: () = assert!(size_of::<RawAnswer>() == 8);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawStats {
    fields: [U64; 5],
}

/// By number.
const PUT_MODES: [PutMode; 3] = [PutMode::Always, PutMode::Create, PutMode::Update];

const VALUE: u32 = 0;
const ABSENT: u32 = 1;
const CREATED: u32 = 2;
const REPLACED: u32 = 3;
const REFUSED: u32 = 4;
const DELETED: u32 = 5;
const STATS: u32 = 6;
const KEYS: u32 = 7;

impl<'a> Request<'a> {
    /// The arguments of a call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let position;
        let (operation, key, value, mode): (u32, &[u8], &[u8], PutMode) = match *self {
            Self::Get { key } => (0, key, &[], PutMode::Always),
            Self::Put { key, value, mode } => (1, key, value, mode),
            Self::Delete { key } => (2, key, &[], PutMode::Always),
            Self::Stats => (3, &[], &[], PutMode::Always),
            Self::Keys { from } => {
                position = from.to_le_bytes();
                (4, &position, &[], PutMode::Always)
            }
        };
        let [key_bytes, value_bytes] = [key, value].map(length);
        let raw = RawRequest { operation: U32::new(operation), key_bytes, value_bytes, mode: U32::new(mode as u32) };
        [raw.as_bytes(), key, value].concat()
    }

    /// The request in the arguments of a call.
    pub fn decode(arguments: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, rest) = RawRequest::ref_from_prefix(arguments).map_err(|_| Malformed)?;
        let (key, value) = rest.split_at_checked(raw.key_bytes.get() as usize).ok_or(Malformed)?;
        if value.len() != raw.value_bytes.get() as usize {
            return Err(Malformed);
        }
        match (raw.operation.get(), key, value) {
            (0, key, []) => Ok(Self::Get { key }),
            (1, key, value) => Ok(Self::Put { key, value, mode: one_of(PUT_MODES, raw.mode)? }),
            (2, key, []) => Ok(Self::Delete { key }),
            (3, [], []) => Ok(Self::Stats),
            (4, position, []) => {
                Ok(Self::Keys { from: u64::from_le_bytes(position.try_into().map_err(|_| Malformed)?) })
            }
            _ => Err(Malformed),
        }
    }
}

impl<'a> Answer<'a> {
    /// Appends the answer of a call to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Value(value) => {
                into.extend(value_head(value.len()));
                into.extend(value);
            }
            Self::Absent => into.extend(head(ABSENT)),
            Self::Put(PutOutcome::Created) => into.extend(head(CREATED)),
            Self::Put(PutOutcome::Replaced) => into.extend(head(REPLACED)),
            Self::Put(PutOutcome::Refused) => into.extend(head(REFUSED)),
            Self::Deleted => into.extend(head(DELETED)),
            Self::Stats(stats) => {
                into.extend(head(STATS));
                let Stats { keys, pair_bytes, buckets, chained_slots, memory_bytes } = stats;
                let fields = [keys, pair_bytes, buckets, chained_slots, memory_bytes].map(U64::new);
                into.extend(RawStats { fields }.as_bytes());
            }
            Self::Keys { next, keys } => {
                let raw = RawAnswer { outcome: U32::new(KEYS), value_bytes: length(keys.0) };
                into.extend(raw.as_bytes());
                into.extend(next.to_le_bytes());
                into.extend(keys.0);
            }
        }
    }

    /// The answer of a call.
    pub fn decode(answer: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, rest) = RawAnswer::ref_from_prefix(answer).map_err(|_| Malformed)?;
        if raw.outcome.get() == VALUE && rest.len() == raw.value_bytes.get() as usize {
            return Ok(Self::Value(rest));
        }
        match (raw.outcome.get(), rest) {
            (ABSENT, []) => Ok(Self::Absent),
            (CREATED, []) => Ok(Self::Put(PutOutcome::Created)),
            (REPLACED, []) => Ok(Self::Put(PutOutcome::Replaced)),
            (REFUSED, []) => Ok(Self::Put(PutOutcome::Refused)),
            (DELETED, []) => Ok(Self::Deleted),
            (STATS, stats) => {
                let raw = RawStats::ref_from_bytes(stats).map_err(|_| Malformed)?;
                let [keys, pair_bytes, buckets, chained_slots, memory_bytes] = raw.fields.map(U64::get);
                Ok(Self::Stats(Stats { keys, pair_bytes, buckets, chained_slots, memory_bytes }))
            }
            (KEYS, rest) => {
                let (next, keys) = U64::ref_from_prefix(rest).map_err(|_| Malformed)?;
                if raw.value_bytes != length(keys) {
                    return Err(Malformed);
                }
                Ok(Self::Keys { next: next.get(), keys: Keys::decode(keys)? })
            }
            _ => Err(Malformed),
        }
    }
}

impl<'a> Keys<'a> {
    /// The keys in `packed`, which [`Keys::pack`] has made.
    pub(super) fn decode(packed: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = packed;
        while !rest.is_empty() {
            let (_, behind) = first_key(rest).ok_or(Malformed)?;
            rest = behind;
        }
        Ok(Self(packed))
    }

    /// Appends a key to others.
    pub(super) fn pack(key: &[u8], into: &mut Vec<u8>) {
        into.extend(length(key).as_bytes());
        into.extend(key);
    }

    /// One after another.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (key, behind) = first_key(rest)?;
            rest = behind;
            Some(key)
        })
    }
}

/// The first of packed keys, and the others.
fn first_key(packed: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bytes, rest) = U32::ref_from_prefix(packed).ok()?;
    rest.split_at_checked(bytes.get() as usize)
}

/// What precedes a value of `bytes` in an answer.
pub(super) fn value_head(bytes: usize) -> [u8; ANSWER_HEAD_BYTES] {
    let value_bytes = U32::new(u32::try_from(bytes).expect("a value fits a message"));
    zerocopy::transmute!(RawAnswer { outcome: U32::new(VALUE), value_bytes })
}

fn head(outcome: u32) -> [u8; ANSWER_HEAD_BYTES] {
    zerocopy::transmute!(RawAnswer { outcome: U32::new(outcome), value_bytes: U32::ZERO })
}
