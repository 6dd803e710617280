//! memcached's text protocol, without sockets: [`Parser`] turns bytes into [`Step`]s, [`reply`] holds the answers.
//!
//! Replies and resynchronisation are those of memcached 1.6, byte for byte, with these differences on purpose: keys
//! with control characters are refused as `protocol.txt` says, a line that is too long is answered before the
//! connection ends, and meta commands are unknown.
//!
//! Neighbours: `server::session` feeds the parser, `store` executes [`Command`]s.

mod command;
mod number;
mod parser;
pub mod reply;
#[cfg(test)]
mod tests;

pub use command::{Answer, CasShown, Command, Direction, Exptime, KeyValue, Keys, StatsKind, WriteMode, WriteRefusal};
pub use number::parse_u64;
pub use parser::{GET_LINE_BYTES_MAX, LINE_BYTES_MAX, Parsed, Parser, Step};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
