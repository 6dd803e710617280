//! `seal+URL`: pages encrypted and authenticated before they leave this process, for nodes, disks and networks that are
//! not trusted.
//!
//! AEGIS-128L, with a key that is drawn when the fabric is opened, is never written anywhere, to swap or a core dump
//! neither, and is wiped when the fabric ends: what a process leaves on a node or in a file when it is killed is noise.
//! Nonce and tag of a page stay here, so what is below is as long as the page was, and an older version of it, another
//! page, or anything else that was not written last is an error. What is below learns how much is stored of which page,
//! and when it is moved.
//!
//! Invariant: no nonce is used twice. All queue pairs of a fabric count in one number, 64 bits of it, and a forked
//! child writes no pages.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aegis::aegis128l::Aegis128L;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use yonder_mapping::{Inherited, LockedBox, Mapping};
use yonder_units::PAGE_BYTES;

use super::table::Stored;
use super::{Codec, Damaged, Form, StoredFabric};
use crate::vector::MoveBytes as _;
use crate::{RemoteAddress, Vector};

/// Bytes of a tag: what is forged passes once in 2^128 attempts.
const TAG_BYTES: usize = 16;

/// A fabric whose pages are encrypted.
pub type SealFabric = StoredFabric<Seal>;

type Cipher = Aegis128L<TAG_BYTES>;
type Key = LockedBox<[u8; 16]>;

/// Pages as AEGIS-128L makes them.
pub struct Seal {
    key: Key,
    /// Pages that were sealed.
    count: AtomicU64,
}

impl Form for Seal {
    const PREFIX: &'static str = "seal+";

    type Codec = SealCodec;

    fn new() -> Result<Self, String> {
        // A forked child reads its parent's pages, for which it needs the key.
        let mut key = Key::new([0; 16], Inherited::Copied).map_err(|error| error.to_string())?;
        OsRng.try_fill_bytes(&mut *key).map_err(|error| error.to_string())?;
        if !key.is_locked() {
            tracing::warn!("the key of seal+ may be swapped out: the limit of locked memory (ulimit -l) is reached");
        }
        // The library looks at the processor once: here, and not in the handler of a fault.
        let _ = Cipher::new(&key, &nonce(0));
        Ok(Self { key, count: AtomicU64::new(0) })
    }

    fn codec(self: &Arc<Self>) -> SealCodec {
        SealCodec { seal: Arc::clone(self), page: Box::new(Page([0; PAGE_BYTES])) }
    }
}

impl fmt::Debug for Seal {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seal")
    }
}

/// Number of a page that was sealed, and the two halves of its tag.
type Proof = [u64; 3];

/// The key, and a buffer that was made once.
pub struct SealCodec {
    seal: Arc<Seal>,
    page: Box<Page>,
}

/// Where a page lies as frames do: a processor copies to a little beyond the place in another page that it copies from
/// at a tenth of its speed.
#[repr(align(4096))]
struct Page([u8; PAGE_BYTES]);

impl SealCodec {
    fn cipher(&self, number: u64) -> Cipher {
        Cipher::new(&self.seal.key, &nonce(number))
    }
}

fn nonce(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

impl Codec for SealCodec {
    type Proof = Proof;

    fn pack(&mut self, to: RemoteAddress, vector: Vector, frames: &Mapping, offset: u64) -> (Stored, &[u8], Proof) {
        let bytes = vector.gather(frames, offset, &mut self.page.0);
        let number = self.seal.count.fetch_add(1, Ordering::Relaxed) + 1;
        let tag = self.cipher(number).encrypt_in_place(&mut self.page.0[..bytes], &to.0.to_le_bytes());
        let [low, high]: [u64; 2] = zerocopy::transmute!(tag);
        (Stored { bytes, is_compressed: false }, &self.page.0[..bytes], [number, low, high])
    }

    fn unpack(
        &mut self,
        address: RemoteAddress,
        (stored, [number, low, high]): (Stored, Proof),
        bytes: usize,
        from: &Mapping,
        offset: u64,
    ) -> Result<&[u8], Damaged> {
        if stored.bytes != bytes {
            return Err(Damaged);
        }
        let tag: [u8; TAG_BYTES] = zerocopy::transmute!([low, high]);
        let cipher = self.cipher(number);
        let found = &mut self.page.0[..bytes];
        from.read(offset, found);
        cipher.decrypt_in_place(found, &tag, &address.0.to_le_bytes()).map_err(|_| Damaged)?;
        Ok(found)
    }
}
