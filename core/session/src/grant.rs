//! [`SessionRequest`] and [`SessionGrant`]: what a client asks for, and a node answers, to make a session. Both travel
//! over TLS, whose handshake has named both ends.

use zeroize::Zeroizing;

use crate::cipher::{Cipher, Protection};
use crate::number::SessionNumber;
use crate::secret::SessionSecret;

/// The first bytes of both, and the version of the protocol.
const MAGIC: [u8; 3] = [b'Y', b's', 4];

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRequest {
    /// What is to be done to each message.
    pub protection: Protection,
}

impl SessionRequest {
    /// Bytes of it.
    pub const BYTES: usize = 4;

    /// As it travels.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        [MAGIC[0], MAGIC[1], MAGIC[2], self.protection as u8]
    }

    /// What was sent; `None` if it is of no or of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [magic @ .., protection] = bytes;
        (*magic == MAGIC).then_some(Self { protection: Protection::from_wire(*protection)? })
    }
}

/// What a node answers.
#[derive(Clone, Debug)]
pub struct SessionGrant {
    /// The session.
    pub number: SessionNumber,
    /// Its secret, which knows cipher and protection.
    pub secret: SessionSecret,
    /// The node's incarnation.
    pub incarnation: u64,
    /// The node's clock in nanoseconds when it answered.
    pub time: u64,
    /// For how many seconds the session lasts at least.
    pub seconds: u32,
}

/// A grant as it travels; it has the secret.
pub type GrantBytes = Zeroizing<[u8; SessionGrant::BYTES]>;

impl SessionGrant {
    /// Bytes of it.
    pub const BYTES: usize = 65;

    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> GrantBytes {
        let mut bytes = GrantBytes::new([0; Self::BYTES]);
        let mut rest = &mut bytes[..];
        let mut put = |part: &[u8]| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        };
        put(&MAGIC);
        put(&[self.secret.protection() as u8, self.secret.cipher() as u8]);
        put(&self.number.0.to_le_bytes());
        put(self.secret.as_bytes());
        put(&self.incarnation.to_le_bytes());
        put(&self.time.to_le_bytes());
        put(&self.seconds.to_le_bytes());
        bytes
    }

    /// What was sent; `None` if it is of no or of another version.
    #[must_use]
    pub fn from_bytes(bytes: &GrantBytes) -> Option<Self> {
        let mut rest = &bytes[..];
        fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
            let (head, tail) = rest.split_first_chunk()?;
            *rest = tail;
            Some(*head)
        }
        let magic: [u8; 3] = take(&mut rest)?;
        let [protection, cipher] = take(&mut rest)?;
        let number = SessionNumber(u64::from_le_bytes(take(&mut rest)?));
        let secret = take(&mut rest)?;
        let (protection, cipher) = (Protection::from_wire(protection)?, Cipher::from_wire(cipher)?);
        (magic == MAGIC && number == number.session()).then_some(())?;
        Some(Self {
            number,
            secret: SessionSecret::from_bytes(secret, cipher, protection),
            incarnation: u64::from_le_bytes(take(&mut rest)?),
            time: u64::from_le_bytes(take(&mut rest)?),
            seconds: u32::from_le_bytes(take(&mut rest)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_come_back_and_other_versions_do_not() {
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            let request = SessionRequest { protection };
            assert_eq!(SessionRequest::from_bytes(&request.to_bytes()), Some(request));
            let number = SessionNumber::new(7, 2, 3);
            let secret = SessionSecret::from_bytes([9; 32], Cipher::Aegis128L, protection);
            let grant = SessionGrant { number, secret, incarnation: 1 << 60, time: 5, seconds: 3600 };
            let mut bytes = grant.to_bytes();
            let back = SessionGrant::from_bytes(&bytes).unwrap();
            assert_eq!((back.number, back.incarnation, back.time, back.seconds), (number, 1 << 60, 5, 3600));
            assert_eq!(back.secret.as_bytes(), &[9; 32]);
            assert_eq!((back.secret.cipher(), back.secret.protection()), (Cipher::Aegis128L, protection));
            bytes[2] = 9;
            assert!(SessionGrant::from_bytes(&bytes).is_none());
        }
        assert_eq!(SessionRequest::from_bytes(b"GET "), None);
    }

    /// As the release before wrote them: others need another version in [`MAGIC`].
    #[test]
    fn the_bytes_are_those_of_the_release_before() {
        let request = SessionRequest { protection: Protection::Encrypted };
        let secret = SessionSecret::from_bytes([9; 32], Cipher::Aegis128L, Protection::Encrypted);
        let number = SessionNumber::new(7, 2, 3);
        let grant = SessionGrant { number, secret, incarnation: 0x1122, time: 0x3344, seconds: 3600 };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&request.to_bytes()), "59730402");
        let secret = "09".repeat(32);
        let expected = format!("59730402010003080038000000{secret}22110000000000004433000000000000100e0000");
        assert_eq!(hex(&grant.to_bytes()[..]), expected);
    }
}
