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

/// A meta command found what it asked for, or was done.
pub const META_DONE: &[u8] = b"HD";
/// The same, and a value follows.
pub const META_VALUE: &[u8] = b"VA";
/// `mg` and `me` found no such item.
pub const META_MISS: &[u8] = b"EN";
/// The others found no such item.
pub const META_NOT_FOUND: &[u8] = b"NF";
/// The condition of the mode did not hold.
pub const META_NOT_STORED: &[u8] = b"NS";
/// The item has another cas unique.
pub const META_EXISTS: &[u8] = b"EX";
/// What is known of an item follows.
pub const META_DEBUG: &[u8] = b"ME";
/// `mn`: all that came before is answered.
pub const META_NO_OP: &[u8] = b"MN\r\n";

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
/// The client has not said who it is.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// There is no such user with such a password.
pub const AUTHENTICATION_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// What a client says of itself is not a user and a password.
pub const BAD_CREDENTIALS: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// It is not followed by a line end.
pub const BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
/// There are no certificates that could be read again.
pub const NO_TLS: &[u8] = b"Error TLS not enabled\r\n";
/// There are, and they cannot be used: those from before still are.
pub const BAD_CERTIFICATES: &[u8] = b"Error loading certificates, see the server's log\r\n";
/// Clients may not end the server.
pub const SHUTDOWN_REFUSED: &[u8] = b"ERROR: shutdown not enabled\r\n";
/// There is no such way to end it.
pub const BAD_SHUTDOWN: &[u8] = b"CLIENT_ERROR invalid shutdown mode\r\n";
/// `cache_memlimit` asks for less than any cache has.
pub const MEMORY_LIMIT_TOO_SMALL: &[u8] = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
/// The memory of items stays as it is while the server runs.
pub const MEMORY_LIMIT_REFUSED: &[u8] = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
/// A number, a time or a cas unique behind a flag of a meta command is none.
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// A flag is there twice, or is no letter.
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// There is no such flag.
pub const UNKNOWN_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// Something is wrong with a flag of `md` or `ma`.
pub const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
/// `mg` has more flags than there are.
pub const TOO_MANY_GET_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
/// Another meta command has.
pub const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
/// The key is no base64.
pub const BAD_BASE64: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// The opaque token is longer than it may be.
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// A mode is one letter.
pub const BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
/// `ms` has no such mode.
pub const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// `ma` has no such mode.
pub const BAD_ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
/// The number that a new item is to have is none.
pub const BAD_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
/// The delta of `ma` is not a number.
pub const BAD_META_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";
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
