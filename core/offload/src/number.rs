//! Numbers in requests and answers that stand for something else: lengths, and choices by their place among all.
//!
//! Neighbours: the protocols of all offloads. Invariant: what nobody of this release sends is [`Malformed`].

use zerocopy::little_endian::U32;

use crate::Malformed;

/// The length of a part of a message, as it is said in the message's head. One that no message holds has none there,
/// and the receiver finds other bytes than it was told of.
pub(crate) fn length(part: &[u8]) -> U32 {
    U32::new(u32::try_from(part.len()).unwrap_or(u32::MAX))
}

/// The choice with this number.
pub(crate) fn one_of<T: Copy, const N: usize>(all: [T; N], number: U32) -> Result<T, Malformed> {
    all.get(number.get() as usize).copied().ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_nothing_has_is_malformed() {
        let chosen = [0, 1, 2, u32::MAX].map(|number| one_of(['a', 'b'], U32::new(number)));
        assert_eq!(chosen, [Ok('a'), Ok('b'), Err(Malformed), Err(Malformed)]);
    }
}
