//! [`Tree`]: one client's handle of a tree.

use crate::{AppError, Meter};
use yonder_offload::chase::KEY_BYTES_MAX;

use crate::tree::layout::{MAGIC, NODE_BYTES, ROOT, TAKEN};

/// The largest value of a key.
pub const VALUE_MAX: u64 = u64::MAX - 1;

/// A client's handle of a tree in far memory. Every thread has one of its own.
#[derive(Debug)]
pub struct Tree {
    pub(crate) address: u64,
    /// Nodes there is room for.
    pub(crate) capacity: u64,
    /// The first node of the first level, once it is known: it never changes.
    root: u64,
    /// Nodes that this client has taken and not used yet: the first, and the one after the last.
    pub(crate) spare: std::ops::Range<u64>,
}

impl Tree {
    /// An empty tree with room for `nodes`, of which a key takes one for each byte that no other key shares.
    pub fn create(nodes: u64, meter: &mut Meter) -> Result<Self, AppError> {
        let bytes = nodes.checked_add(1).and_then(|nodes| nodes.checked_mul(NODE_BYTES));
        let bytes =
            bytes.ok_or_else(|| AppError::Settings(format!("a tree of {nodes} nodes is too large: ask for less")))?;
        let address = meter.allocate(bytes)?;
        meter.write(address, [MAGIC, nodes, 0, 0].map(u64::to_le_bytes).as_flattened())?;
        Ok(Self { address, capacity: nodes, root: 0, spare: 0..0 })
    }

    /// The tree at `address`, which somebody else has made in the same address space.
    pub fn open(address: u64, meter: &mut Meter) -> Result<Self, AppError> {
        let [magic, capacity, _, root] = meter.read_words(address)?;
        if magic != MAGIC {
            return Err(AppError::Settings(format!("no tree begins at {address:#x}: give the address of one")));
        }
        Ok(Self { address, capacity, root, spare: 0..0 })
    }

    /// Where it begins, for [`Tree::open`].
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Nodes that clients have taken, whether they use them already or not.
    pub fn nodes(&self, meter: &mut Meter) -> Result<u64, AppError> {
        let [taken] = meter.read_words(self.address + TAKEN)?;
        Ok(taken.min(self.capacity))
    }

    /// The first node of the first level, or 0.
    pub(crate) fn root(&mut self, meter: &mut Meter) -> Result<u64, AppError> {
        if self.root == 0 {
            [self.root] = meter.read_words(self.address + ROOT)?;
        }
        Ok(self.root)
    }

    /// Where node `number` begins.
    pub(crate) const fn node(&self, number: u64) -> u64 {
        self.address + (number + 1) * NODE_BYTES
    }
}

/// Refuses keys that the pointer chase cannot look for.
pub(crate) fn check_key(key: &[u8]) -> Result<(), AppError> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(AppError::Settings(format!("a key of {} bytes: give one of 1 to {KEY_BYTES_MAX} bytes", key.len())))
}
