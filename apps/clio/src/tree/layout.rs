//! How the tree lies in far memory. All numbers are little-endian words of 8 bytes.
//!
//! ```text
//! header:  magic | nodes there is room for | nodes taken | pointer to the first node of the first level
//! node:    pointer to the next one of its list | pointer to the list below | value + 1, or 0 | byte of the key, 7 x 0
//! ```
//!
//! Node n begins `(n + 1) * NODE_BYTES` after the header, so that no node has the address 0.

use yonder_offload::chase::Field;

/// Bytes of a node, and of the header.
pub const NODE_BYTES: u64 = 32;
/// What a tree begins with.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"yondTree");

/// Where the number of taken nodes lies in the header.
pub(crate) const TAKEN: u64 = 16;
/// Where the pointer to the first list lies in the header.
pub(crate) const ROOT: u64 = 24;

/// Where the pointer to the next node lies in a node.
pub(crate) const NEXT: u64 = 0;
/// Where the pointer to the list below lies in a node.
pub(crate) const CHILD: u64 = 8;
/// Where the value lies in a node.
pub(crate) const VALUE: u64 = 16;
/// Where the byte of the key lies in a node.
pub(crate) const SYMBOL: u64 = 24;
/// The pointer to the list below, and the value: what a search brings back.
pub(crate) const CHILD_AND_VALUE: Field = Field { offset: CHILD as u32, bytes: 16 };

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Node {
    pub(crate) next: u64,
    pub(crate) child: u64,
    /// The value plus one, or 0 of none.
    pub(crate) value: u64,
    pub(crate) symbol: u8,
}

impl Node {
    pub(crate) fn to_words(self) -> [u64; 4] {
        [self.next, self.child, self.value, u64::from(self.symbol)]
    }

    pub(crate) fn from_words([next, child, value, symbol]: [u64; 4]) -> Self {
        Self { next, child, value, symbol: symbol as u8 }
    }
}

const _: () = assert!(NODE_BYTES == 4 * 8 && SYMBOL == 3 * 8);
