//! [`Cipher`] and [`Protection`]: which authenticated encryption a node uses, and what it does to messages.

/// An authenticated encryption. A node has one for all its messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Cipher {
    /// AEGIS-128L: the fastest where the processor has instructions for AES.
    Aegis128L = 1,
    /// ChaCha20-Poly1305 of RFC 8439, for all other processors.
    ChaCha20Poly1305 = 2,
}

impl Cipher {
    /// The faster one on this processor.
    #[must_use]
    pub fn best() -> Self {
        if has_aes() { Self::Aegis128L } else { Self::ChaCha20Poly1305 }
    }

    /// The cipher with this number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Aegis128L),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }
}

/// What is done to a message. Both kinds prove who sent it and that nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Protection {
    /// Everything can be read by others.
    Authenticated = 1,
    /// Others can read the prefix alone.
    Encrypted = 2,
}

impl Protection {
    /// The protection with this number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Authenticated),
            2 => Some(Self::Encrypted),
            _ => None,
        }
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// The ciphers that tests use. AEGIS is a library in C, which Miri does not interpret.
#[cfg(test)]
pub(crate) const TESTED: &[Cipher] =
    if cfg!(miri) { &[Cipher::ChaCha20Poly1305] } else { &[Cipher::Aegis128L, Cipher::ChaCha20Poly1305] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_others_are_none() {
        for number in 0..=u8::MAX {
            assert!(Cipher::from_wire(number).is_none_or(|cipher| cipher as u8 == number));
            assert!(Protection::from_wire(number).is_none_or(|protection| protection as u8 == number));
        }
        for cipher in TESTED {
            assert_eq!(Cipher::from_wire(*cipher as u8), Some(*cipher));
        }
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            assert_eq!(Protection::from_wire(protection as u8), Some(protection));
        }
        assert!(TESTED.contains(&Cipher::best()));
    }
}
