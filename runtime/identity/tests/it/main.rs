//! Handshakes and streams over real sockets, with identities of real authorities.

#![forbid(unsafe_code)]

mod files;
mod hands;
mod streams;
mod world;
