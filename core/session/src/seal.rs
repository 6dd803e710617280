//! [`seal`] and [`open`]: a message is protected, and checked, where it lies.
//!
//! Encrypted, the body and the payload are the text and the prefix is the additional data; authenticated, all of it is
//! additional data and the text is empty. The nonce is the counter, little-endian, with zeros behind it. AEGIS-128L
//! takes the first half of a key.
//!
//! Invariant: nothing here allocates, locks or waits. The library of AEGIS looks at the processor once, behind a lock;
//! [`prepare`] makes it do so, and no lane gets keys before. That of ChaCha20 needs no lock for it.

use aegis::aegis128l::Aegis128L;
use chacha20poly1305::{AeadInOut as _, ChaCha20Poly1305, KeyInit as _, Nonce, Tag};

use crate::cipher::{Cipher, Protection};
use crate::frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX, PREFIX_BYTES, TAG_BYTES, write_plain};
use crate::number::SessionNumber;
use crate::secret::Key;

/// The message was not sealed with this key, or not as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message is forged or damaged")]
pub struct Forged;

/// Protects `message` for the lane `number` with a `counter` that its key has not sealed anything with before. The
/// message is a header, whose prefix is overwritten, a payload, and room for a tag of [`TAG_BYTES`].
///
/// # Panics
/// If the message is shorter than header and tag, or its payload longer than [`PAYLOAD_BYTES_MAX`].
#[inline]
pub fn seal(key: &Key, number: SessionNumber, counter: u64, message: &mut [u8]) {
    let payload_bytes = message.len().checked_sub(HEADER_BYTES + TAG_BYTES).expect("a message has a header and a tag");
    assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "a payload of {payload_bytes} bytes");
    let (text, tag) = split_tag(message);
    let (prefix, body) = split_prefix(text);
    let Key { protection, home, .. } = *key;
    let (is_greeting, thread) = (home.is_door(), home.told());
    Frame { protection, is_greeting, thread, payload_bytes, number, counter }.write(prefix);
    *tag = match key.protection {
        Protection::Encrypted => encrypt(key, counter, prefix, body),
        Protection::Authenticated => encrypt(key, counter, text, &mut []),
    };
}

/// Checks `message`, which [`seal`] has made with `key`, and puts the prefix of a plain message in front. Returns the
/// bytes of header and payload; the tag behind them means nothing any more.
///
/// # Errors
/// If a bit of the message is another, or it was sealed with another key. Nothing is decrypted then: an encrypted
/// message stays encrypted or is erased, one that was only authenticated stays as it came, and the first byte stays
/// that of a protected message.
#[inline]
pub fn open(key: &Key, message: &mut [u8]) -> Result<usize, Forged> {
    let frame = Frame::parse(message).ok_or(Forged)?;
    if frame.message_bytes() != message.len()
        || (frame.protection, frame.is_greeting, frame.thread) != (key.protection, key.home.is_door(), key.home.told())
    {
        return Err(Forged);
    }
    let (text, tag) = split_tag(message);
    let bytes = text.len();
    match frame.protection {
        Protection::Encrypted => {
            let (prefix, body) = split_prefix(text);
            decrypt(key, frame.counter, prefix, body, tag)?;
        }
        Protection::Authenticated => decrypt(key, frame.counter, text, &mut [], tag)?,
    }
    write_plain(split_prefix(text).0);
    Ok(bytes)
}

/// Lets the library look at the processor, so that it need not do it while a fault is handled.
pub(crate) fn prepare(cipher: Cipher) {
    if cipher == Cipher::Aegis128L {
        let _ = aegis(&[0; 32], 0);
    }
}

fn split_tag(message: &mut [u8]) -> (&mut [u8], &mut [u8; TAG_BYTES]) {
    message.split_last_chunk_mut().expect("the message has a tag")
}

fn split_prefix(text: &mut [u8]) -> (&mut [u8; PREFIX_BYTES], &mut [u8]) {
    text.split_first_chunk_mut().expect("the message has a prefix")
}

fn encrypt(key: &Key, counter: u64, additional: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
    match key.cipher {
        Cipher::Aegis128L => aegis(&key.bytes, counter).encrypt_in_place(text, additional),
        Cipher::ChaCha20Poly1305 => {
            let sealed = chacha(key).encrypt_inout_detached(&chacha_nonce(counter), additional, text.into());
            sealed.expect("a message is shorter than what a nonce is good for").into()
        }
    }
}

/// Both libraries compare tags in constant time. That of AEGIS decrypts first, and erases the text if the tag is
/// another; the other one checks first.
fn decrypt(key: &Key, counter: u64, additional: &[u8], text: &mut [u8], tag: &[u8; TAG_BYTES]) -> Result<(), Forged> {
    match key.cipher {
        Cipher::Aegis128L => aegis(&key.bytes, counter).decrypt_in_place(text, tag, additional).map_err(|_| Forged),
        Cipher::ChaCha20Poly1305 => {
            let (nonce, tag) = (chacha_nonce(counter), Tag::from(*tag));
            chacha(key).decrypt_inout_detached(&nonce, additional, text.into(), &tag).map_err(|_| Forged)
        }
    }
}

fn aegis(key: &[u8; 32], counter: u64) -> Aegis128L<TAG_BYTES> {
    let key = key.first_chunk().expect("the key is long enough");
    Aegis128L::new(key, &u128::from(counter).to_le_bytes())
}

fn chacha(key: &Key) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new((&*key.bytes).into())
}

fn chacha_nonce(counter: u64) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..size_of::<u64>()].copy_from_slice(&counter.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests;
