//! The answers of memcached's text protocol, byte for byte.

/// The write was done.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of `add`, `replace`, `append` or `prepend` did not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// `cas` found an item that has changed since.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such item.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The item was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The item has a new expiry.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// End of the items of a `get` or of the lines of `stats`.
pub const END: &[u8] = b"END\r\n";
/// Done, for commands without a result.
pub const OK: &[u8] = b"OK\r\n";
/// Statistics are back at zero.
pub const RESET: &[u8] = b"RESET\r\n";

/// There is no such command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The command exists, its arguments are wrong.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// `delete` has arguments that it does not take.
pub const BAD_DELETE: &[u8] = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// The data block is not followed by a line end.
pub const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// The expiry is not a number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// The delta of `incr` or `decr` is not a number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// The value that `incr` or `decr` found is not a number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// The line has no end within the limit. The connection ends after it.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// How `stats detail` is used.
pub const STATS_DETAIL: &[u8] = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
/// The `stats` command lacks arguments.
pub const BAD_STATS: &[u8] = b"CLIENT_ERROR bad command line\r\n";

/// The value exceeds the item size limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// Nothing could be evicted to make room for the value, or there is no room to receive it.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// There is no room to receive the whole line. The connection ends after it.
pub const NO_ROOM_FOR_LINE: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";
/// There is no room for the value that is asked for.
pub const NO_ROOM_FOR_REPLY: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
/// There is no room for the command.
pub const NO_ROOM_FOR_COMMAND: &[u8] = b"SERVER_ERROR out of memory processing request\r\n";
/// The memory node is lost or did not answer in time.
pub const FAR_UNAVAILABLE: &[u8] = b"SERVER_ERROR far memory unavailable\r\n";
/// The request failed for a reason that is our fault.
pub const INTERNAL_ERROR: &[u8] = b"SERVER_ERROR internal error\r\n";
/// A UDP request came in several datagrams.
pub const MULTI_PACKET: &[u8] = b"SERVER_ERROR multi-packet request not supported\r\n";
/// A UDP reply would exceed the limit.
pub const UDP_TOO_LARGE: &[u8] = b"SERVER_ERROR reply too large for UDP\r\n";
/// All connections are taken. The connection ends after it.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
