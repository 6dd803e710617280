//! [`Asking`]: Redis' own load generator, `redis-benchmark`, and what it has measured.

use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::children::{Child, lines_of};

/// Its name.
pub(super) const PROGRAM: &str = "redis-benchmark";
/// How long it may take. It only decides when a hang is called one.
const TIME_MAX: Duration = Duration::from_secs(300);

/// What it is told.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    /// The server's port.
    pub(super) port: u16,
    /// The query, with its place for a random key.
    pub(super) query: &'a [&'a str],
    /// Keys that there are.
    pub(super) keys: usize,
    /// Requests in all.
    pub(super) requests: usize,
    /// Connections, with a request under way on each.
    pub(super) clients: usize,
}

/// What it has measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) ops_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Asking<'_> {
    /// Asks, and returns when all is answered.
    pub(super) fn run(&self) -> Result<Measured, BenchError> {
        let mut command = Command::new(PROGRAM);
        command.args(["-p", &self.port.to_string(), "-r", &self.keys.to_string(), "-n", &self.requests.to_string()]);
        command.args(["-c", &self.clients.to_string(), "--csv"]).args(self.query);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Child::spawn(&mut command, PROGRAM)?;
        let written = lines_of(child.take_stdout().expect("it is piped"))?;
        let said = lines_of(child.take_stderr().expect("it is piped"))?;
        let (give_up, mut csv) = (Instant::now() + TIME_MAX, Vec::new());
        loop {
            match written.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => csv.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(BenchError::Child(format!("{PROGRAM} was stopped after {} s", TIME_MAX.as_secs())));
                }
            }
        }
        measured(&csv).ok_or_else(|| {
            let all: Vec<String> = csv.into_iter().chain(said.iter()).collect();
            BenchError::Child(format!("{PROGRAM} has measured nothing; it said: {}", all.join("; ")))
        })
    }
}

/// What stands in the one row of its table.
fn measured(csv: &[String]) -> Option<Measured> {
    let [names, .., row] = csv else { return None };
    let (names, row) = (fields(names), fields(row));
    let number = |name| row.get(names.iter().position(|other| *other == name)?)?.parse().ok();
    Some(Measured { ops_per_s: number("rps")?, p50_ms: number("p50_latency_ms")?, p99_ms: number("p99_latency_ms")? })
}

fn fields(line: &str) -> Vec<&str> {
    line.trim().trim_matches('"').split("\",\"").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                         \"p99_latency_ms\",\"max_latency_ms\"";

    fn read(lines: &[&str]) -> Option<Measured> {
        measured(&lines.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_row_is_read_by_its_names() {
        let row =
            "\"LRANGE l:__rand_int__ 0 99\",\"39215.69\",\"0.068\",\"0.016\",\"0.063\",\"0.119\",\"0.151\",\"3.695\"";
        let expected = Measured { ops_per_s: 39215.69, p50_ms: 0.063, p99_ms: 0.151 };
        assert_eq!(read(&[NAMES, row]), Some(expected));
        assert_eq!(read(&["\"rps\",\"p99_latency_ms\",\"p50_latency_ms\"", "\"1\",\"3\",\"2\""]).unwrap().p99_ms, 3.0);
    }

    #[test]
    fn what_is_no_table_is_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[NAMES]), None);
        assert_eq!(read(&[NAMES, "\"GET\",\"fast\""]), None);
        assert_eq!(read(&["Error from server: OOM", "and more"]), None);
    }
}
