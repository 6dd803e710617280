//! [`Comparison`]: how two values are compared, by [`chase`](crate::chase) and [`frame`](crate::frame) alike.

use std::cmp::Ordering;

use zerocopy::little_endian::U32;

use crate::Malformed;
use crate::number::one_of;

/// How what is found must relate to what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Comparison {
    /// They are the same.
    Equal = 0,
    /// They differ; a number that is none differs from all.
    NotEqual = 1,
    /// What is found is less.
    Less = 2,
    /// What is found is less, or the same.
    LessOrEqual = 3,
    /// What is found is greater.
    Greater = 4,
    /// What is found is greater, or the same.
    GreaterOrEqual = 5,
}

impl Comparison {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// Whether what is found relates so, if it is `ordering` to what was asked for.
    #[must_use]
    pub const fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    pub(crate) fn from_number(number: U32) -> Result<Self, Malformed> {
        one_of(Self::ALL, number)
    }
}
