//! Payloads of [`Adopt`](crate::Kind::Adopt): how a range of an address space comes to a node from another one.
//!
//! [`AdoptRequest`] is one stage of a transfer: a fixed head of [`ADOPT_HEAD_BYTES`] and what belongs to the stage. The
//! first stage says what is allocated in the range ([`AdoptedAllocation`]) and which of its pages have memory; the next
//! ones bring the bytes of those pages; then the range is prepared, and stays closed; the last one ends the transfer:
//! the source has closed the range for good, or has given the transfer up. All stages name the transfer, and the
//! numbers of a range's transfers only rise, so a message of an earlier one that comes late finds nothing to change.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::{Backing, PAYLOAD_BYTES_MAX, Permission, WireError};

/// Most pages of a range that moves: what one message can say about them.
pub const ADOPT_PAGES_MAX: u32 = 2048;
/// Bytes of the head of every stage.
pub const ADOPT_HEAD_BYTES: usize = size_of::<RawHead>();

/// One stage of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdoptRequest<'a> {
    /// The number of the transfer: higher than that of every earlier transfer of the range.
    pub transfer: u64,
    /// First address of the range.
    pub from: u64,
    /// The address behind the range.
    pub to: u64,
    /// What is to be done.
    pub stage: AdoptStage<'a>,
}

/// What a stage of a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdoptStage<'a> {
    /// Makes the allocations, and gives memory to pages. Nobody may use the range yet.
    Begin(Inventory<'a>),
    /// Stores these bytes at the header's address, which is in memory that the range has.
    Fill(&'a [u8]),
    /// All bytes are there: they are kept, and nobody may use the range, until the source decides.
    Prepare,
    /// The source has closed the range and will never open it again: the range may be used.
    Finish,
    /// The source has given the transfer up: frees everything again.
    Abandon,
}

/// An allocation that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C, packed)]
pub struct AdoptedAllocation {
    /// Its first page.
    pub first: u32,
    /// Its pages.
    pub pages: u32,
    /// What it may be used for.
    pub permission: Permission,
    /// When it gets its memory.
    pub backing: Backing,
}

/// What is in a range that moves. Made from bytes it has been checked: every value is one that this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inventory<'a> {
    allocations: &'a [AdoptedAllocation],
    pages: &'a [U32],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    stage: U16,
    reserved: U16,
    allocations: U16,
    pages: U16,
    transfer: U64,
    from: U64,
    to: U64,
}

const _: () = assert!(ADOPT_HEAD_BYTES == 32);
const _: () = assert!(size_of::<AdoptedAllocation>() == 16);
const _: () = assert!(
    ADOPT_HEAD_BYTES + ADOPT_PAGES_MAX as usize * (size_of::<AdoptedAllocation>() + size_of::<U32>())
        <= PAYLOAD_BYTES_MAX,
    "the largest inventory fits a message"
);

const BEGIN: u16 = 1;
const FILL: u16 = 2;
const FINISH: u16 = 3;
const ABANDON: u16 = 4;
const PREPARE: u16 = 5;

impl<'a> AdoptRequest<'a> {
    /// The request in `payload`. Fails on anything that this version does not send.
    pub fn from_bytes(payload: &'a [u8]) -> Result<Self, WireError> {
        let wrong_length = || WireError::Length(payload.len());
        let (head, rest) = RawHead::ref_from_prefix(payload).map_err(|_| wrong_length())?;
        let counts = (head.allocations.get(), head.pages.get());
        let stage = match head.stage.get() {
            BEGIN => AdoptStage::Begin(Inventory::from_bytes(rest, counts).ok_or(WireError::Body)?),
            FILL if counts == (0, 0) && !rest.is_empty() => AdoptStage::Fill(rest),
            FINISH if counts == (0, 0) && rest.is_empty() => AdoptStage::Finish,
            ABANDON if counts == (0, 0) && rest.is_empty() => AdoptStage::Abandon,
            PREPARE if counts == (0, 0) && rest.is_empty() => AdoptStage::Prepare,
            FILL | FINISH | ABANDON | PREPARE => return Err(wrong_length()),
            _ => return Err(WireError::Body),
        };
        let (transfer, from, to) = (head.transfer.get(), head.from.get(), head.to.get());
        let is_range = head.reserved == U16::ZERO && from < to;
        is_range.then_some(Self { transfer, from, to, stage }).ok_or(WireError::Body)
    }

    /// The payload up to the bytes of a fill, which follow it.
    #[must_use]
    pub fn head(&self) -> [u8; ADOPT_HEAD_BYTES] {
        let (stage, allocations, pages) = match self.stage {
            AdoptStage::Begin(inventory) => (BEGIN, inventory.allocations.len(), inventory.pages.len()),
            AdoptStage::Fill(_) => (FILL, 0, 0),
            AdoptStage::Prepare => (PREPARE, 0, 0),
            AdoptStage::Finish => (FINISH, 0, 0),
            AdoptStage::Abandon => (ABANDON, 0, 0),
        };
        zerocopy::transmute!(RawHead {
            stage: U16::new(stage),
            reserved: U16::ZERO,
            allocations: U16::new(u16::try_from(allocations).expect("a payload has no room for more")),
            pages: U16::new(u16::try_from(pages).expect("a payload has no room for more")),
            transfer: U64::new(self.transfer),
            from: U64::new(self.from),
            to: U64::new(self.to),
        })
    }

    /// The whole payload.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head().to_vec();
        match self.stage {
            AdoptStage::Begin(inventory) => {
                bytes.extend_from_slice(inventory.allocations.as_bytes());
                bytes.extend_from_slice(inventory.pages.as_bytes());
            }
            AdoptStage::Fill(content) => bytes.extend_from_slice(content),
            AdoptStage::Prepare | AdoptStage::Finish | AdoptStage::Abandon => {}
        }
        bytes
    }
}

impl<'a> Inventory<'a> {
    fn from_bytes(bytes: &'a [u8], (allocations, pages): (u16, u16)) -> Option<Self> {
        if u32::from(allocations.max(pages)) > ADOPT_PAGES_MAX {
            return None;
        }
        let (allocations, rest) =
            <[AdoptedAllocation]>::try_ref_from_prefix_with_elems(bytes, usize::from(allocations)).ok()?;
        let pages = <[U32]>::ref_from_bytes_with_elems(rest, usize::from(pages)).ok()?;
        Some(Self { allocations, pages })
    }

    /// What is allocated.
    #[must_use]
    pub fn allocations(&self) -> impl ExactSizeIterator<Item = AdoptedAllocation> + use<'a> {
        self.allocations.iter().copied()
    }

    /// Pages that have memory.
    #[must_use]
    pub fn pages(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.pages.iter().map(|page| page.get())
    }
}

/// An inventory in the making.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InventoryList {
    allocations: Vec<AdoptedAllocation>,
    pages: Vec<U32>,
}

impl InventoryList {
    /// What is allocated, and which pages have memory; `None` if these are more than [`ADOPT_PAGES_MAX`].
    #[must_use]
    pub fn new(
        allocations: impl IntoIterator<Item = AdoptedAllocation>,
        pages: impl IntoIterator<Item = u32>,
    ) -> Option<Self> {
        let allocations: Vec<AdoptedAllocation> = allocations.into_iter().collect();
        let pages: Vec<U32> = pages.into_iter().map(U32::new).collect();
        let fits = allocations.len().max(pages.len()) <= ADOPT_PAGES_MAX as usize;
        fits.then_some(Self { allocations, pages })
    }

    /// The inventory.
    #[must_use]
    pub fn inventory(&self) -> Inventory<'_> {
        Inventory { allocations: &self.allocations, pages: &self.pages }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allocation() -> impl Strategy<Value = AdoptedAllocation> {
        let permission = prop_oneof![Just(Permission::Read), Just(Permission::ReadWrite)];
        let backing = prop_oneof![Just(Backing::OnDemand), Just(Backing::Now)];
        (any::<u32>(), any::<u32>(), permission, backing)
            .prop_map(|(first, pages, permission, backing)| AdoptedAllocation { first, pages, permission, backing })
    }

    fn request(stage: AdoptStage<'_>) -> AdoptRequest<'_> {
        AdoptRequest { transfer: 9, from: 4096, to: 8192, stage }
    }

    proptest! {
        #[test]
        fn requests_come_back(
            allocations in prop::collection::vec(allocation(), 0..20),
            pages in prop::collection::vec(any::<u32>(), 0..20),
            content in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            let list = InventoryList::new(allocations.iter().copied(), pages.iter().copied()).unwrap();
            prop_assert!(list.inventory().allocations().eq(allocations) && list.inventory().pages().eq(pages));
            let stages = [
                AdoptStage::Begin(list.inventory()),
                AdoptStage::Fill(&content),
                AdoptStage::Prepare,
                AdoptStage::Finish,
                AdoptStage::Abandon,
            ];
            for stage in stages {
                let mut bytes = request(stage).to_bytes();
                prop_assert_eq!(AdoptRequest::from_bytes(&bytes), Ok(request(stage)));
                prop_assert_eq!(&bytes[..ADOPT_HEAD_BYTES], request(stage).head());
                bytes.push(0);
                prop_assert_eq!(AdoptRequest::from_bytes(&bytes).is_ok(), matches!(stage, AdoptStage::Fill(_)));
            }
        }

        #[test]
        fn random_bytes_never_panic(stage in 0u8..7, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&[stage, 0, 0, 0][..], &bytes].concat();
            if let Ok(AdoptRequest { stage: AdoptStage::Begin(inventory), .. }) = AdoptRequest::from_bytes(&bytes) {
                prop_assert!(inventory.allocations().len() + inventory.pages().len() < 200);
            }
        }
    }

    #[test]
    fn what_nobody_sends_is_refused() {
        let list = InventoryList::new([], [1, 2]).unwrap();
        let good = request(AdoptStage::Begin(list.inventory())).to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            AdoptRequest::from_bytes(&bytes).is_ok()
        };
        assert!(with(0, 1));
        assert!(!with(0, 9) && !with(2, 1) && !with(4, 1) && !with(6, 3) && !with(7, 0xff), "stage, flags and counts");
        assert!(!with(25, 0x10), "an empty range");
        assert!(AdoptRequest::from_bytes(&request(AdoptStage::Fill(&[])).to_bytes()).is_err());
        let most = ADOPT_PAGES_MAX;
        assert!(InventoryList::new([], 0..most).is_some() && InventoryList::new([], 0..=most).is_none());
    }
}
