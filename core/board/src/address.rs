//! Numbers that must not be mixed up: [`Pid`], [`VirtualPage`], [`PhysicalPage`], [`PageSize`]; and how a range of
//! bytes falls into pages: [`Pieces`].

use yonder_wire::ErrorCode;

/// Bytes of the smallest pages.
pub(crate) const PAGE_BYTES_MIN: u64 = 4096;
/// Bytes of the largest pages.
const PAGE_BYTES_MAX: u64 = 1 << 30;

/// Smallest number of an address space that a controller names.
pub(crate) const PID_OF_CONTROLLER_MIN: u32 = 1 << 31;

/// Number of a remote address space, unique among all nodes; never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(std::num::NonZeroU32);

impl Pid {
    /// The address space with this number; `None` for 0, which no address space has.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match std::num::NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether a controller names such address spaces; those that a node names by itself have smaller numbers.
    #[must_use]
    pub const fn is_of_controller(self) -> bool {
        self.get() >= PID_OF_CONTROLLER_MIN
    }
}

/// A page of a remote address space, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VirtualPage(pub u32);

/// A page of a node's memory, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PhysicalPage(pub u32);

impl PhysicalPage {
    /// Largest number that an entry can hold.
    pub const MAX: Self = Self((1 << 31) - 1);
}

/// Size of a node's pages: a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// 4 MiB, as in Clio.
    pub const DEFAULT: Self = Self { shift: 22 };

    /// Pages of `bytes`, a power of two of at least 4 KiB and at most 1 GiB; else `None`.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= PAGE_BYTES_MIN && bytes <= PAGE_BYTES_MAX {
            Some(Self { shift: bytes.trailing_zeros() })
        } else {
            None
        }
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The page that `address` lies in, and where; `None` beyond the last page that has a number.
    #[must_use]
    pub fn split(self, address: u64) -> Option<(VirtualPage, u64)> {
        let page = u32::try_from(address >> self.shift).ok()?;
        Some((VirtualPage(page), address & (self.bytes() - 1)))
    }

    /// Pages that hold `bytes`, at least one; `None` if an address space has not as many.
    #[must_use]
    pub fn pages_for(self, bytes: u64) -> Option<u32> {
        u32::try_from(bytes.max(1).div_ceil(self.bytes())).ok()
    }

    /// Address of the first byte of `page`.
    #[must_use]
    pub const fn address(self, page: VirtualPage) -> u64 {
        (page.0 as u64) << self.shift
    }

    /// The parts of the range of `bytes` bytes from `address`, page by page.
    ///
    /// # Errors
    /// `BadLength` if the range is empty, `BadAddress` if it leaves the address space.
    #[inline]
    pub fn pieces(self, address: u64, bytes: u64) -> Result<Pieces, ErrorCode> {
        let before_last = bytes.checked_sub(1).ok_or(ErrorCode::BadLength)?;
        let last = address.checked_add(before_last).ok_or(ErrorCode::BadAddress)?;
        self.split(last).ok_or(ErrorCode::BadAddress)?;
        Ok(Pieces { size: self, address, left: bytes })
    }
}

/// A part of a range that lies in one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The page.
    pub page: VirtualPage,
    /// Where in the page it begins, in bytes.
    pub offset: u64,
    /// How many bytes it has; never 0.
    pub bytes: u64,
}

/// The parts of a range, page by page, in order.
#[derive(Clone, Debug)]
pub struct Pieces {
    size: PageSize,
    address: u64,
    left: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let (page, offset) = self.size.split(self.address).expect("the range was checked");
        let bytes = self.left.min(self.size.bytes() - offset);
        // The end of the last page may be the end of all 64-bit addresses.
        self.address = self.address.wrapping_add(bytes);
        self.left -= bytes;
        Some(Piece { page, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_and_joined() {
        let size = PageSize::new(4096).unwrap();
        assert_eq!(size.split(3 * 4096 + 5), Some((VirtualPage(3), 5)));
        assert_eq!(size.address(VirtualPage(3)), 3 * 4096);
        assert_eq!(size.split(u64::MAX), None);
        assert_eq!((size.pages_for(0), size.pages_for(4096), size.pages_for(4097)), (Some(1), Some(1), Some(2)));
        assert_eq!(size.pages_for(u64::MAX), None);
        assert!([0, 4095, 6144, 1 << 31].into_iter().all(|bytes| PageSize::new(bytes).is_none()));
        assert!(Pid::new(0).is_none());
    }

    #[test]
    fn ranges_fall_into_pages() {
        let size = PageSize::new(4096).unwrap();
        let pieces: Vec<Piece> = size.pieces(4096 - 3, 3 + 4096 + 1).unwrap().collect();
        let piece = |page, offset, bytes| Piece { page: VirtualPage(page), offset, bytes };
        assert_eq!(pieces, [piece(0, 4093, 3), piece(1, 0, 4096), piece(2, 0, 1)]);
        let end = u64::from(u32::MAX) * 4096 + 4096;
        assert_eq!(size.pieces(end - 1, 1).unwrap().count(), 1);
        for (address, bytes, code) in
            [(0, 0, ErrorCode::BadLength), (end - 1, 2, ErrorCode::BadAddress), (u64::MAX, 2, ErrorCode::BadAddress)]
        {
            assert_eq!(size.pieces(address, bytes).err(), Some(code));
        }
        let largest = PageSize::new(PAGE_BYTES_MAX).unwrap();
        assert_eq!(largest.pieces(u64::from(u32::MAX) << 30, 1 << 30).unwrap().count(), 1);
    }
}
