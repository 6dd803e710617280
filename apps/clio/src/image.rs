//! An image service on far memory (Clio, section 6): every client keeps its photographs in an address space of its own,
//! in two arrays, the originals and the compressed ones. Compression is done by the client; the node only keeps bytes,
//! and keeps them from other clients.
//!
//! [`Album`] is one client's two arrays; [`Photo`] is a picture, read from a PNG, PPM or PGM file or made up by
//! [`paint`];
//! [`run`] measures clients at work, behind `yonder bench image`.
//!
//! Neighbours: the `png` crate compresses; [`Meter`](crate::Meter) counts. Invariant: what is decompressed has the same
//! pixels, bit by bit, or the run fails.

mod album;
mod paint;
mod photo;
mod pnm;
mod run;

pub use album::{Album, AlbumShape};
pub use paint::paint;
pub use photo::Photo;
pub use run::{ImageResult, ImageSettings, run};
