//! [`Narrow`]: numbers that are known to fit into a smaller type.
//!
//! `as` says nothing of why a number fits, and wraps silently where it does not. These say that it does, and check it
//! in debug builds; in others they are `as`.

/// Conversions of numbers that fit.
///
/// # Panics
/// In debug builds, if the number does not fit: the caller has a bug.
pub trait Narrow: Copy {
    /// As a byte.
    #[must_use]
    fn narrow_u8(self) -> u8;
    /// As 16 bits.
    #[must_use]
    fn narrow_u16(self) -> u16;
    /// As 32 bits.
    #[must_use]
    fn narrow_u32(self) -> u32;
    /// As 64 bits.
    #[must_use]
    fn narrow_u64(self) -> u64;
    /// As an index or a number of bytes in memory.
    #[must_use]
    fn narrow_usize(self) -> usize;
}

macro_rules! narrow {
    ($($from:ty),*) => { $(
        impl Narrow for $from {
            narrow!(@to $from, narrow_u8 u8, narrow_u16 u16, narrow_u32 u32, narrow_u64 u64, narrow_usize usize);
        }
    )* };
    (@to $from:ty, $($name:ident $to:ty),*) => { $(
        #[inline(always)]
        #[track_caller]
        #[allow(clippy::cast_lossless, clippy::cast_possible_truncation, reason = "that it fits is asserted")]
        fn $name(self) -> $to {
            debug_assert!(<$to>::try_from(self).is_ok(), "{self} does not fit into {}", stringify!($to));
            self as $to
        }
    )* };
}

narrow!(u32, u64, u128, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_what_it_is() {
        assert_eq!((255u64.narrow_u8(), 65_535usize.narrow_u16()), (u8::MAX, u16::MAX));
        assert_eq!((0xffff_ffffu64.narrow_u32(), u128::from(u64::MAX).narrow_u64()), (u32::MAX, u64::MAX));
        assert_eq!(u64::MAX.narrow_usize(), usize::MAX);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "256 does not fit into u8")]
    fn what_does_not_fit_is_our_bug() {
        let _ = 256usize.narrow_u8();
    }
}
