//! What the server counts about its own memory, asked for by memcached's `stats`.
//!
//! A server that does not know a name (stock memcached knows none of them) counts as zero.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;

/// Longest silence of the server while it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Most lines of an answer; more is not an answer to `stats`.
const LINES_MAX: usize = 10_000;

/// Far-memory traffic of the server: since it started, or over a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ServerStats {
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) written_bytes: u64,
}

impl ServerStats {
    /// Asks the server.
    pub(crate) fn ask(server: SocketAddr) -> io::Result<Self> {
        let mut socket = TcpStream::connect(server)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.write_all(b"stats\r\n")?;
        Self::read(BufReader::new(socket))
    }

    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            fetched_bytes: self.fetched_bytes.saturating_sub(earlier.fetched_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }

    fn read(answer: impl BufRead) -> io::Result<Self> {
        let mut stats = Self::default();
        for line in answer.lines().take(LINES_MAX) {
            let line = line?;
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), value) => {
                    let slot = match name {
                        "major_faults" => &mut stats.major_faults,
                        "minor_faults" => &mut stats.minor_faults,
                        "fetched_bytes" => &mut stats.fetched_bytes,
                        "written_bytes" => &mut stats.written_bytes,
                        _ => continue,
                    };
                    *slot = value.and_then(|value| value.parse().ok()).unwrap_or(0);
                }
                // A server without `stats` answers ERROR: it has nothing to tell.
                _ => return Ok(stats),
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_read_and_others_skipped() {
        let answer =
            "STAT pid 7\r\nSTAT major_faults 10\r\nSTAT version 1.0 yonder\r\nSTAT fetched_bytes 40960\r\nEND\r\n";
        let stats = ServerStats::read(answer.as_bytes()).unwrap();
        assert_eq!(stats, ServerStats { major_faults: 10, fetched_bytes: 40_960, ..ServerStats::default() });
        assert_eq!(ServerStats::read(&b"ERROR\r\n"[..]).unwrap(), ServerStats::default());
        assert!(ServerStats::read(&b"STAT pid 7\r\n"[..]).is_err());
        let earlier = ServerStats { major_faults: 4, minor_faults: 9, ..ServerStats::default() };
        assert_eq!(stats.since(earlier).major_faults, 6);
        assert_eq!(stats.since(earlier).minor_faults, 0, "a server that was restarted counts from zero");
    }
}
