//! memcached's text protocol, without sockets: [`Parser`] turns bytes into [`Step`]s, [`reply`] holds the answers.
//!
//! Replies and resynchronisation are those of memcached 1.6, byte for byte, with these differences on purpose: keys
//! with control characters are refused as `protocol.txt` says, a line that is too long is answered before the
//! connection ends, and meta commands (`meta`) have the flags that came later, too.
//!
//! Neighbours: `server::session` feeds the parser, `store` executes [`Command`]s.

mod command;
mod login;
pub(crate) mod meta;
mod number;
mod parser;
pub mod reply;
#[cfg(test)]
mod tests;

pub use command::{Answer, CasShown, Command, Direction, Exptime, KeyValue, Keys, StatsKind, WriteMode, WriteRefusal};
pub use login::{LoginParser, LoginStep};
pub use meta::{KeyForm, MetaArithmetic, MetaFlags, MetaRequest, MetaSetMode, MetaStep, MetaVerb};
pub use number::parse_u64;
pub use parser::{GET_LINE_BYTES_MAX, LINE_BYTES_MAX, Parsed, Parser, Step};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// Largest length of a data block that memcached accepts to skip.
const ANNOUNCED_BYTES_MAX: i32 = i32::MAX - 2;

/// Whether memcached takes `word` as a key: its text says no control characters, its code takes all but NUL, and stock
/// clients (memcaslap) rely on the code.
fn is_key(word: &[u8]) -> bool {
    !word.is_empty() && word.len() <= KEY_BYTES_MAX && !word.contains(&0)
}
