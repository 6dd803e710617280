//! Numbers that must not be mixed up: [`Pid`], [`VirtualPage`], [`PhysicalPage`], [`PageSize`].

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

/// What an address space may do with a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Permission {
    /// Reads only.
    Read,
    /// Reads, writes and atomics.
    ReadWrite,
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
        if bytes.is_power_of_two() && bytes >= 1 << 12 && bytes <= 1 << 30 {
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
}
