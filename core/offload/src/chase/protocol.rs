//! What clients of the pointer chase send and get, and how it lies in a message. All numbers are little-endian.
//!
//! ```text
//! request:  start u64 | shape u32 | comparison u32 | order u32 | take u32
//!           levels u32 | next offset u32 | child offset u32 | key offset u32 | value offset u32 | value bytes u32
//!           steps u32 | mask bytes u32 | key bytes u32 | reserved u32 | mask | key
//! answer:   outcome u32 | steps u32 | level u32 | value bytes u32 | node u64 | previous u64 | value
//! ```

use yonder_wire::PAYLOAD_BYTES_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::number::{length, one_of};
use crate::{Comparison, Malformed};

/// Most nodes that one call looks at.
pub const STEPS_MAX: u32 = 4096;
/// Most bytes in a key, of all levels together.
pub const KEY_BYTES_MAX: usize = 256;
/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - size_of::<RawAnswer>();

/// Where to walk, and what to bring back. Pointers are words of 8 bytes, little-endian; 0 leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Address of the first node.
    pub start: u64,
    /// How nodes hang together.
    pub shape: Shape<'a>,
    /// What is looked for, of at most [`KEY_BYTES_MAX`]. Lists split it evenly between their levels.
    pub key: &'a [u8],
    /// What of the node that is found comes back, at most [`VALUE_BYTES_MAX`].
    pub value: Field,
    /// Most nodes to look at, 1 to [`STEPS_MAX`]; 2 at least if [`Take::Before`] is to be gone on with.
    pub steps_max: u32,
}

/// Some bytes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Field {
    /// Where they begin in the node.
    pub offset: u32,
    /// How many they are.
    pub bytes: u32,
}

/// How nodes hang together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape<'a> {
    /// Linked lists, one below the other.
    Lists(Lists<'a>),
    /// Tables of 256 pointers; each byte of the key goes one level down.
    Tables {
        /// Where the table begins in a node.
        table_offset: u32,
    },
}

/// Linked lists, one below the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lists<'a> {
    /// Where the pointer to the next node of the same list lies in a node.
    pub next_offset: u32,
    /// Where the pointer to the list below lies in a node.
    pub child_offset: u32,
    /// Where the key of a node begins. It is as long as the level's part of the key.
    pub key_offset: u32,
    /// Lists to go through, at least one; the length of the key is a multiple of it.
    pub levels: u32,
    /// How keys are ordered.
    pub order: Order,
    /// How a node's key must compare with the wanted one for the walk along a list to stop.
    pub comparison: Comparison,
    /// Which node is taken then.
    pub take: Take,
    /// The bits of keys that count; all bits of bytes that it is too short for.
    pub mask: &'a [u8],
}

/// How keys are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Order {
    /// As strings of bytes, or as big-endian numbers.
    Bytes = 0,
    /// As little-endian numbers without a sign.
    LittleEndian = 1,
}

/// Which node of a list is taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Take {
    /// The first that compares as asked.
    Match = 0,
    /// The one before it, or the last of all: in an ordered list, with [`Comparison::Greater`], the last node whose key
    /// is less or the same, as the inner nodes of a search tree need.
    Before = 1,
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Outcome {
    /// At the node that was looked for.
    Found = 0,
    /// At a pointer that leads nowhere: there is no such node.
    Ended = 1,
    /// After the most steps. The same request goes on from `previous`, if that is not 0 and nodes are taken before a
    /// match, or else from `node`; without the levels above `level`, and their part of the key.
    StepsSpent = 2,
}

/// Where a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// How.
    pub outcome: Outcome,
    /// Nodes that were looked at.
    pub steps: u32,
    /// Levels that were gone down.
    pub level: u32,
    /// The node that was found, or that would have been looked at next, or 0.
    pub node: u64,
    /// The node before it, or 0 where it is the first or the found one was taken before a match.
    pub previous: u64,
    /// The value, if a node was found.
    pub value: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    start: U64,
    shape: U32,
    comparison: U32,
    order: U32,
    take: U32,
    levels: U32,
    next_offset: U32,
    child_offset: U32,
    key_offset: U32,
    value_offset: U32,
    value_bytes: U32,
    steps_max: U32,
    mask_bytes: U32,
    key_bytes: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawRequest>() == 64);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAnswer {
    outcome: U32,
    steps: U32,
    level: U32,
    value_bytes: U32,
    node: U64,
    previous: U64,
}

const _: () = assert!(size_of::<RawAnswer>() == 32);

const LISTS: u32 = 0;
const TABLES: u32 = 1;

impl<'a> Request<'a> {
    /// The arguments of a call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let no_lists = |table_offset| Lists {
            next_offset: table_offset,
            child_offset: 0,
            key_offset: 0,
            levels: 0,
            order: Order::Bytes,
            comparison: Comparison::Equal,
            take: Take::Match,
            mask: &[],
        };
        let (shape, lists) = match self.shape {
            Shape::Lists(lists) => (LISTS, lists),
            Shape::Tables { table_offset } => (TABLES, no_lists(table_offset)),
        };
        let raw = RawRequest {
            start: U64::new(self.start),
            shape: U32::new(shape),
            comparison: U32::new(lists.comparison as u32),
            order: U32::new(lists.order as u32),
            take: U32::new(lists.take as u32),
            levels: U32::new(lists.levels),
            next_offset: U32::new(lists.next_offset),
            child_offset: U32::new(lists.child_offset),
            key_offset: U32::new(lists.key_offset),
            value_offset: U32::new(self.value.offset),
            value_bytes: U32::new(self.value.bytes),
            steps_max: U32::new(self.steps_max),
            mask_bytes: length(lists.mask),
            key_bytes: length(self.key),
            reserved: U32::ZERO,
        };
        [raw.as_bytes(), lists.mask, self.key].concat()
    }

    /// The request in the arguments of a call.
    pub fn decode(arguments: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, rest) = RawRequest::ref_from_prefix(arguments).map_err(|_| Malformed)?;
        let (mask, key) = rest.split_at_checked(raw.mask_bytes.get() as usize).ok_or(Malformed)?;
        if key.len() != raw.key_bytes.get() as usize {
            return Err(Malformed);
        }
        let shape = match raw.shape.get() {
            LISTS => Shape::Lists(Lists {
                next_offset: raw.next_offset.get(),
                child_offset: raw.child_offset.get(),
                key_offset: raw.key_offset.get(),
                levels: raw.levels.get(),
                order: one_of([Order::Bytes, Order::LittleEndian], raw.order)?,
                comparison: Comparison::from_number(raw.comparison)?,
                take: one_of([Take::Match, Take::Before], raw.take)?,
                mask,
            }),
            TABLES if mask.is_empty() => Shape::Tables { table_offset: raw.next_offset.get() },
            _ => return Err(Malformed),
        };
        let value = Field { offset: raw.value_offset.get(), bytes: raw.value_bytes.get() };
        Ok(Self { start: raw.start.get(), shape, key, value, steps_max: raw.steps_max.get() })
    }
}

impl<'a> Answer<'a> {
    /// Appends the answer of a call to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let raw = RawAnswer {
            outcome: U32::new(self.outcome as u32),
            steps: U32::new(self.steps),
            level: U32::new(self.level),
            value_bytes: length(self.value),
            node: U64::new(self.node),
            previous: U64::new(self.previous),
        };
        into.extend(raw.as_bytes());
        into.extend(self.value);
    }

    /// The answer of a call.
    pub fn decode(answer: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, value) = RawAnswer::ref_from_prefix(answer).map_err(|_| Malformed)?;
        if value.len() != raw.value_bytes.get() as usize {
            return Err(Malformed);
        }
        Ok(Self {
            outcome: one_of([Outcome::Found, Outcome::Ended, Outcome::StepsSpent], raw.outcome)?,
            steps: raw.steps.get(),
            level: raw.level.get(),
            node: raw.node.get(),
            previous: raw.previous.get(),
            value,
        })
    }
}
