//! What a client can ask of the store: [`Command`] and the types of its parts.
//!
//! A command owns its bytes: it outlives the input buffer it was read from and moves to a worker.

use std::ops::Range;

use super::{MetaRequest, MetaVerb, reply};

/// A request that the store executes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// The keys asked for.
        keys: Keys,
        /// Whether the cas unique is part of the answer.
        cas: CasShown,
        /// The new expiry, for `gat` and `gats`.
        touch: Option<Exptime>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Write {
        /// Under which condition the value is stored, and how.
        mode: WriteMode,
        /// The key and the new value.
        item: KeyValue,
        /// Opaque to the server.
        flags: u32,
        /// When the item expires.
        exptime: Exptime,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// A write whose value cannot be taken. Its data block does not come along; a `set` drops what is stored.
    WriteRefused {
        /// As of the write.
        mode: WriteMode,
        /// The key.
        key: Vec<u8>,
        /// Why.
        refusal: WriteRefusal,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// The key.
        key: Vec<u8>,
        /// Up or down.
        direction: Direction,
        /// By how much.
        delta: u64,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: Vec<u8>,
        /// The new expiry.
        exptime: Exptime,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// `flush_all`.
    FlushAll {
        /// When, in the form of an expiry; zero or less is now.
        delay: Exptime,
        /// Whether the client waits for an answer.
        answer: Answer,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(Box<MetaRequest>),
}

impl Command {
    /// The key that it is about, the first if there are several; `flush_all` is about none.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Get { keys, .. } => keys.first(),
            Self::Write { item, .. } => Some(item.key()),
            Self::WriteRefused { key, .. }
            | Self::Delete { key, .. }
            | Self::Arithmetic { key, .. }
            | Self::Touch { key, .. } => Some(key),
            Self::Meta(request) => Some(request.key()),
            Self::FlushAll { .. } => None,
        }
    }

    /// What is left to execute when there is no room for it: a write's refusal. Else what is answered.
    pub(crate) fn without_room(self) -> Result<Self, &'static [u8]> {
        match self {
            Self::Write { mode, item, answer, .. } => {
                Ok(Self::WriteRefused { mode, key: item.key().to_vec(), refusal: WriteRefusal::NoRoom, answer })
            }
            Self::Meta(request) if matches!(request.verb, MetaVerb::Set(_)) => {
                Ok(Self::meta_refused(request.key(), WriteRefusal::NoRoom))
            }
            Self::Get { .. } | Self::Meta(_) => Err(reply::NO_ROOM_FOR_COMMAND),
            Self::WriteRefused { answer, .. }
            | Self::Delete { answer, .. }
            | Self::Arithmetic { answer, .. }
            | Self::Touch { answer, .. }
            | Self::FlushAll { answer, .. } => {
                Err(if answer == Answer::Wanted { reply::NO_ROOM_FOR_COMMAND } else { b"" })
            }
        }
    }

    /// A `ms` whose value cannot be taken: whatever its mode, the old value goes, and errors are never kept quiet.
    pub(super) fn meta_refused(key: &[u8], refusal: WriteRefusal) -> Self {
        Self::WriteRefused { mode: WriteMode::Set, key: key.to_vec(), refusal, answer: Answer::Wanted }
    }

    /// Bytes that are allocated for its parts.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        match self {
            Self::Get { keys, .. } => keys.line.capacity(),
            Self::Write { item, .. } => item.allocated_bytes(),
            Self::Meta(request) => request.allocated_bytes(),
            Self::WriteRefused { key, .. }
            | Self::Delete { key, .. }
            | Self::Arithmetic { key, .. }
            | Self::Touch { key, .. } => key.capacity(),
            Self::FlushAll { .. } => 0,
        }
    }
}

/// Why the value of a write cannot be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRefusal {
    /// It exceeds the limit.
    TooLarge,
    /// There is no room to receive it.
    NoRoom,
}

/// Whether the client waits for an answer (no `noreply`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It does.
    Wanted,
    /// It does not: not even errors are sent.
    Quiet,
}

/// Whether `get` shows cas uniques.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasShown {
    /// `gets`, `gats`.
    Yes,
    /// `get`, `gat`.
    No,
}

/// Whether arithmetic adds or subtracts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// `incr`, wrapping at 64 bits.
    Up,
    /// `decr`, stopping at zero.
    Down,
}

/// Under which condition, and how, a write stores its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// Always.
    Set,
    /// If there is no such item.
    Add,
    /// If there is such an item.
    Replace,
    /// Behind the value of an existing item.
    Append,
    /// In front of the value of an existing item.
    Prepend,
    /// If the item still has this cas unique.
    Cas(u64),
}

/// Which statistics are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsKind {
    /// The general ones.
    General,
    /// The settings in force.
    Settings,
    /// Items by size class.
    Items,
    /// Memory by size class.
    Slabs,
    /// Item sizes, which are not tracked.
    Sizes,
    /// The connections, one by one.
    Connections,
    /// Times of commands that met no page which had to be fetched.
    Hits,
    /// Set the counters to zero.
    Reset,
}

/// An expiry as a client writes it: 0 is never, negative is already, up to 30 days is from now in seconds, and more is
/// seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exptime(pub i32);

/// Largest expiry that counts from now, in seconds.
const RELATIVE_S_MAX: i32 = 60 * 60 * 24 * 30;

impl Exptime {
    /// The moment of expiry in seconds since 1970, when it is `now_s`; 0 is never.
    #[must_use]
    pub fn deadline_s(self, now_s: u32) -> u32 {
        match self.0 {
            0 => 0,
            ..0 => 1,
            relative @ 1..=RELATIVE_S_MAX => now_s.saturating_add(relative as u32),
            absolute => absolute as u32,
        }
    }
}

/// The keys of a `get`: the rest of its line, taken key by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    line: Vec<u8>,
    next: usize,
}

impl Keys {
    /// Keys separated by blanks.
    #[must_use]
    pub fn new(line: &[u8]) -> Self {
        Self { line: line.to_vec(), next: 0 }
    }

    /// The next key, in the order asked for.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        let key = self.find()?;
        self.next = key.end;
        Some(&self.line[key])
    }

    /// The key that is next, which stays so.
    #[must_use]
    pub fn first(&self) -> Option<&[u8]> {
        self.find().map(|key| &self.line[key])
    }

    /// Where the next key is in the line.
    fn find(&self) -> Option<Range<usize>> {
        let start = self.next + self.line[self.next..].iter().position(|byte| *byte != b' ')?;
        let len = self.line[start..].iter().position(|byte| *byte == b' ').unwrap_or(self.line.len() - start);
        Some(start..start + len)
    }

    /// Whether all keys were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line[self.next..].iter().all(|byte| *byte == b' ')
    }
}

/// A key and a value in one buffer, in the order in which an item stores them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl KeyValue {
    /// Copies a key and a value.
    #[must_use]
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self { bytes, key_bytes: key.len() }
    }

    /// A key and a value behind it, in `bytes`.
    #[must_use]
    pub(crate) fn whole(bytes: Vec<u8>, key_bytes: usize) -> Self {
        Self { bytes, key_bytes }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes]
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes..]
    }

    /// Bytes that are allocated for both.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The key followed by the value.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_relative_up_to_thirty_days() {
        let now_s = 1_700_000_000;
        assert_eq!(Exptime(0).deadline_s(now_s), 0);
        assert_eq!(Exptime(-1).deadline_s(now_s), 1);
        assert_eq!(Exptime(10).deadline_s(now_s), now_s + 10);
        assert_eq!(Exptime(RELATIVE_S_MAX).deadline_s(now_s), now_s + RELATIVE_S_MAX as u32);
        assert_eq!(Exptime(RELATIVE_S_MAX + 1).deadline_s(now_s), RELATIVE_S_MAX as u32 + 1);
    }

    #[test]
    fn commands_know_their_key() {
        let (answer, exptime) = (Answer::Wanted, Exptime(0));
        let get = Command::Get { keys: Keys::new(b" first second"), cas: CasShown::No, touch: None };
        let item = KeyValue::new(b"stored", b"value");
        let set = Command::Write { mode: WriteMode::Set, item, flags: 0, exptime, answer };
        assert_eq!((get.key(), set.key()), (Some(&b"first"[..]), Some(&b"stored"[..])));
        assert_eq!(Command::Touch { key: b"touched".to_vec(), exptime, answer }.key(), Some(&b"touched"[..]));
        assert_eq!(Command::FlushAll { delay: exptime, answer }.key(), None);
    }

    #[test]
    fn keys_come_in_order_without_blanks() {
        let mut keys = Keys::new(b"  a  bc d ");
        assert!(!keys.is_empty());
        assert_eq!(keys.first(), Some(&b"a"[..]));
        assert_eq!(keys.next_key(), Some(&b"a"[..]));
        assert_eq!(keys.first(), Some(&b"bc"[..]));
        assert_eq!(keys.next_key(), Some(&b"bc"[..]));
        assert_eq!(keys.next_key(), Some(&b"d"[..]));
        assert!(keys.is_empty());
        assert_eq!(keys.next_key(), None);
    }
}
