//! Settings that a running process shows and changes: what they are called, what values they take, and the lines in
//! which one process asks another for them.
//!
//! [`Name`] and [`Value`] are a setting and what it is set to, as a user types and reads them. A [`Request`] is one
//! line, the answer to it is lines too: any number of [`Row`]s, then how it ended ([`ReplyLine`]). [`Lines`] cuts a
//! stream into lines of bounded length. Sockets are `runtime/control`'s, tables and JSON `edge/cli`'s; the protocol is
//! written down in `docs/design/control.md`.
//!
//! Invariants: whatever is parsed prints as what parses to the same; no bytes, from whomever, make anything here panic.

#![forbid(unsafe_code)]

mod lines;
mod name;
mod reply;
mod request;
mod row;
mod value;

pub use lines::{LineTooLong, Lines};
pub use name::{Name, names};
pub use reply::{Refusal, ReplyError, ReplyLine};
pub use request::{Request, VERSION, parse_assignment};
pub use row::{Datum, Row, TEXT_BYTES_MAX};
pub use value::{Kind, TIME_NS_MAX, Value};

/// Longest line of a request, with its end, in bytes.
pub const REQUEST_BYTES_MAX: usize = 256;
/// Longest line of a reply, with its end, in bytes.
pub const REPLY_LINE_BYTES_MAX: usize = 16 << 10;
/// Most rows of a reply.
pub const ROWS_MAX: usize = 4096;
