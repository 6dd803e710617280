//! [`SharedKey`]: 32 random bytes in a file of one line, from which both ends derive the same authority.

use std::fmt;
use std::path::Path;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::IdentityError;
use crate::private_file::create_secret;

/// What the line begins with. The number changes if what is derived does.
pub(crate) const PREFIX: &str = "yonder-key-1:";
const KEY_BYTES: usize = 32;
/// Separates what is derived here from what others derive of the same bytes.
const SALT: &[u8] = b"yonder shared key 1";
const AUTHORITY: &[u8] = b"authority";

/// A key that all members of a cluster have. Whoever has it may do everything.
pub struct SharedKey(Zeroizing<[u8; KEY_BYTES]>);

impl SharedKey {
    /// A new one.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(bytes.as_mut()).map_err(|error| IdentityError::crypto(&error))?;
        Ok(Self(bytes))
    }

    /// Writes it to a new file that only its user may read.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        create_secret(path, &self.text())
    }

    /// The line of a file. An error says what is wrong with it, and nothing of the key.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end().strip_prefix(PREFIX).ok_or("it does not begin with yonder-key-1:")?;
        if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("after yonder-key-1: there are not 64 hexadecimal digits");
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16);
            *byte = pair.expect("they are hexadecimal digits");
        }
        Ok(Self(bytes))
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + 2 * KEY_BYTES + 1));
        text.push_str(PREFIX);
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        text
    }

    /// The seed of the authority's key (RFC 5869: extracted with a salt, expanded with a purpose).
    pub(crate) fn authority_seed(&self) -> Result<Zeroizing<[u8; 32]>, IdentityError> {
        struct Seed;
        impl KeyType for Seed {
            fn len(&self) -> usize {
                32
            }
        }
        let mut seed = Zeroizing::new([0; 32]);
        let extracted = Salt::new(HKDF_SHA256, SALT).extract(self.0.as_ref());
        let expanded = extracted.expand(&[AUTHORITY], Seed).and_then(|material| material.fill(seed.as_mut()));
        expanded.map_err(|error| IdentityError::crypto(&error))?;
        Ok(seed)
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_and_other_text_does_not() {
        let key = SharedKey::generate().unwrap();
        let again = SharedKey::parse(&key.text()).unwrap();
        assert_eq!(*key.0, *again.0);
        assert_eq!(*key.authority_seed().unwrap(), *again.authority_seed().unwrap());
        assert_ne!(*key.authority_seed().unwrap(), *key.0);
        assert_ne!(*SharedKey::generate().unwrap().0, *key.0);
        let digits = "0".repeat(64);
        for bad in ["", "yonder-key-1:", "yonder-key-1:00", &digits, &format!("yonder-key-2:{digits}")] {
            SharedKey::parse(bad).unwrap_err();
        }
        SharedKey::parse(&format!("yonder-key-1:{}é", "0".repeat(62))).unwrap_err();
        assert_eq!(format!("{key:?}"), "SharedKey(..)");
    }

    /// All releases derive the same, so that a cluster can be changed one machine after the other.
    #[test]
    fn what_is_derived_does_not_change() {
        let key = SharedKey::parse(&format!("yonder-key-1:{}", "5a".repeat(32))).unwrap();
        let seed: String = key.authority_seed().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(seed, "4545915b35e175610fc1cd4d5b8e8adee2b0de0167b5b2fe999aa2e35d7ea96c");
    }
}
