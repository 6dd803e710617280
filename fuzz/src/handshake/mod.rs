//! The target `handshake`: what a stranger says before he has shown who he is.
//!
//! The first byte of an input says where it arrives: at a node's port as a datagram or as a stream (`doors`), as one
//! of the words by which sessions are made (`words`), at the server's end of TLS (`tls`), or as a file that says who
//! one is and what he may have (`text`). Where a true message can be made, it is let in, and is not once a byte of it
//! is another. [`seeds`] are inputs that true clients would make.
//!
//! Invariant: certificates are drawn once in a process, with the time of its clock, and TLS draws keys of its own for
//! each handshake; what the target notes and asserts depends on none of these.

mod doors;
mod seeds;
mod text;
mod tls;
mod words;

use yonder_session::Cipher;

pub use seeds::{file_that_says, hello_of, seeds};

use crate::{Target, Trail};

pub(crate) const TARGET: Target = Target { name: "handshake", step_bytes: 1, bytes_max: 4096, run };

/// Where an input arrives: its first byte, modulo the number of places, and the cipher that the node has.
const DATAGRAM: u8 = 0;
const STREAM: u8 = 1;
const CHANGED_MESSAGE: u8 = 2;
const WORD: u8 = 3;
const TLS: u8 = 4;
const CHANGED_TLS: u8 = 5;
const CREDENTIAL: u8 = 6;
const TYPED: u8 = 7;
const PLACES: u8 = 8;
/// A first byte from here on is one of a node without instructions for AES.
const WITHOUT_AES: u8 = 0x80;

fn run(data: &[u8], trail: &mut Trail) {
    let Some((place, bytes)) = data.split_first() else { return };
    let cipher = if *place < WITHOUT_AES { Cipher::Aegis128L } else { Cipher::ChaCha20Poly1305 };
    match place % PLACES {
        DATAGRAM => doors::check_datagram(cipher, bytes, trail),
        STREAM => doors::check_stream(cipher, bytes, trail),
        CHANGED_MESSAGE => doors::check_changed(cipher, bytes, trail),
        WORD => words::check(bytes, trail),
        TLS => tls::check_bytes(bytes, trail),
        CHANGED_TLS => tls::check_changed(bytes, trail),
        CREDENTIAL => text::check_credential(bytes, trail),
        _ => text::check_typed(bytes, trail),
    }
}
