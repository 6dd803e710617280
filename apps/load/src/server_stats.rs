//! What the server counts about its own memory, asked for by memcached's `stats`.
//!
//! A server that does not know a name (stock memcached knows none of them) counts as zero.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::latency::{LatencyRecorder, LatencySummary};
use crate::results::Predicted;

/// Longest silence of the server while it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Most lines of an answer; more is not an answer to `stats`.
const LINES_MAX: usize = 10_000;

/// What the server has counted: since it started, or over a run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ServerStats {
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) predicted: Predicted,
    /// Times in nanoseconds of requests that met no page which had to be fetched, and how often each; none if the
    /// server does not tell.
    hits: Option<BTreeMap<u64, u64>>,
}

impl ServerStats {
    /// Asks the server.
    pub(crate) fn ask(server: SocketAddr) -> io::Result<Self> {
        let mut socket = TcpStream::connect(server)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.write_all(b"stats\r\n")?;
        let mut answers = BufReader::new(socket);
        let mut stats = Self::read(&mut answers)?;
        if let Some(hits) = &mut stats.hits {
            answers.get_mut().write_all(b"stats hits\r\n")?;
            each_line(&mut answers, |nanos, count| {
                hits.extend(nanos.parse::<u64>().ok().map(|nanos| (nanos, count)));
            })?;
        }
        Ok(stats)
    }

    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: &Self) -> Self {
        let hits = self.hits.map(|mut hits| {
            let before = earlier.hits.iter().flatten();
            before.for_each(|(nanos, count)| {
                hits.entry(*nanos).and_modify(|now| *now = now.saturating_sub(*count));
            });
            hits
        });
        Self {
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            fetched_bytes: self.fetched_bytes.saturating_sub(earlier.fetched_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            predicted: self.predicted.since(&earlier.predicted),
            hits,
        }
    }

    /// The times of requests without a major fault, if the server tells them.
    pub(crate) fn hits(&self) -> Option<LatencySummary> {
        let mut recorder = LatencyRecorder::new();
        // To record a time not even once would still count as the longest.
        let met = self.hits.as_ref()?.iter().filter(|(_, count)| **count > 0);
        met.for_each(|(nanos, count)| recorder.record_n(*nanos, *count));
        Some(recorder.summary())
    }

    fn read(answer: &mut impl BufRead) -> io::Result<Self> {
        let mut stats = Self::default();
        each_line(answer, |name, value| {
            let slot = match name {
                "major_faults" => &mut stats.major_faults,
                "minor_faults" => &mut stats.minor_faults,
                "fetched_bytes" => &mut stats.fetched_bytes,
                "written_bytes" => &mut stats.written_bytes,
                "predicted_hits_right" => &mut stats.predicted.hits_right,
                "predicted_hits_wrong" => &mut stats.predicted.hits_wrong,
                "predicted_faults_right" => &mut stats.predicted.faults_right,
                "predicted_faults_wrong" => &mut stats.predicted.faults_wrong,
                "request_hits" => return stats.hits = Some(BTreeMap::new()),
                _ => return,
            };
            *slot = value;
        })?;
        Ok(stats)
    }
}

/// Calls `with` for the name and the value of each line of an answer to `stats`; a value that is no number is 0.
fn each_line(answer: &mut impl BufRead, mut with: impl FnMut(&str, u64)) -> io::Result<()> {
    let mut line = String::new();
    for _ in 0..LINES_MAX {
        line.clear();
        if answer.read_line(&mut line)? == 0 {
            break;
        }
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("STAT"), Some(name), value) => with(name, value.and_then(|value| value.parse().ok()).unwrap_or(0)),
            // A server without `stats` answers ERROR: it has nothing to tell.
            _ => return Ok(()),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_read_and_others_skipped() {
        let answer =
            "STAT pid 7\r\nSTAT major_faults 10\r\nSTAT version 1.0 yonder\r\nSTAT fetched_bytes 40960\r\nEND\r\n";
        let stats = ServerStats::read(&mut answer.as_bytes()).unwrap();
        assert_eq!(stats, ServerStats { major_faults: 10, fetched_bytes: 40_960, ..ServerStats::default() });
        assert_eq!(ServerStats::read(&mut &b"ERROR\r\n"[..]).unwrap(), ServerStats::default());
        assert!(ServerStats::read(&mut &b"STAT pid 7\r\n"[..]).is_err());
        let earlier = ServerStats { major_faults: 4, minor_faults: 9, ..ServerStats::default() };
        let since = stats.since(&earlier);
        assert_eq!((since.major_faults, since.hits()), (6, None));
        assert_eq!(since.minor_faults, 0, "a server that was restarted counts from zero");
    }

    #[test]
    fn hits_are_those_of_the_run() {
        let counted = |hits: &[(u64, u64)]| ServerStats {
            hits: Some(hits.iter().copied().collect()),
            predicted: Predicted { hits_right: 10 * hits[0].1, faults_wrong: hits[0].1, ..Predicted::default() },
            ..ServerStats::default()
        };
        let (earlier, later) = (counted(&[(1_000, 500), (9_000, 7)]), counted(&[(1_000, 598), (5_000, 2), (9_000, 7)]));
        let run = later.since(&earlier);
        let hits = run.hits().unwrap();
        assert_eq!((hits.count, hits.p50_us.round(), hits.p99_us.round(), hits.max_us.round()), (100, 1.0, 5.0, 5.0));
        assert_eq!((run.predicted.hits_right, run.predicted.right_percent().map(f64::round)), (980, Some(91.0)));
        assert_eq!(Predicted::default().right_percent(), None);
    }

    #[test]
    fn a_server_is_asked_for_its_hits_if_it_has_some() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut asked = String::new();
            let mut questions = BufReader::new(socket.try_clone().unwrap());
            for answer in ["STAT request_hits 3\r\nEND\r\n", "STAT 1200 2\r\nSTAT 4000 1\r\nEND\r\n"] {
                questions.read_line(&mut asked).unwrap();
                socket.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        let hits = ServerStats::ask(server).unwrap().hits().unwrap();
        assert_eq!((hits.count, hits.min_us, hits.max_us.round()), (3, 1.2, 4.0));
        assert_eq!(answering.join().unwrap(), "stats\r\nstats hits\r\n");
    }
}
