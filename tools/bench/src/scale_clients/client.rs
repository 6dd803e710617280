//! What a client process of `bench scale-clients` does, and how it reports: [`Report`], in lines.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use yonder::clib::{Permission, Process, ProcessConfig, Thread};
use yonder::units::Nanos;

use super::ClientTask;
use super::echo::{self, EchoClient};
use crate::BenchError;
use crate::flow::{check, stamp};

/// Bytes of a client's page.
pub(super) const PAGE_BYTES: u64 = 4 << 10;
/// Latencies in one line: it must be shorter than the 4096 bytes that a pipe keeps whole.
const LATENCIES_PER_LINE: usize = 190;
/// Digits of a latency and the comma behind it, at most.
const LATENCY_BYTES_MAX: usize = 21;
/// Round trips before a client is ready.
const WARM_UP_READS: usize = 20;
/// The item that every page begins with.
const ITEM: u64 = 1;

const _: () = assert!(r#"{"latencies":[]}"#.len() + LATENCIES_PER_LINE * LATENCY_BYTES_MAX < 4096);

/// A line of a client process, in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Report {
    /// It waits for the beginning.
    Ready,
    /// Some latencies, in nanoseconds.
    Latencies(Vec<Nanos>),
    /// It has ended; so many reads have failed.
    Done(u64),
    /// It cannot go on, and why.
    Failed(String),
}

impl Report {
    pub(super) fn parse(line: &str) -> Result<Self, BenchError> {
        match serde_json::from_str(line) {
            Ok(Self::Failed(cause)) => Err(BenchError::Child(format!("a client process failed: {cause}"))),
            Ok(report) => Ok(report),
            Err(_) => Err(BenchError::Child(format!("a client process reports '{line}'"))),
        }
    }

    fn line(&self) -> String {
        serde_json::to_string(self).expect("numbers and words have JSON") + "\n"
    }
}

/// The body of a client process. What goes wrong is reported as well.
pub fn run(task: &ClientTask) -> Result<(), BenchError> {
    // The output is not buffered: each line is one write, which the pipe keeps whole.
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let result = work(task, &mut std::io::stdin(), &mut output);
    if let Err(error) = &result {
        output.write_all(Report::Failed(error.to_string()).line().as_bytes())?;
    }
    result
}

/// Gives a page its content.
pub(super) fn prepare_page(thread: &mut Thread, address: u64) -> Result<(), BenchError> {
    let mut content = [0; 8];
    stamp(ITEM, &mut content);
    Ok(thread.rwrite(address, &content)?)
}

fn work(task: &ClientTask, begin: &mut dyn Read, output: &mut dyn Write) -> Result<(), BenchError> {
    if let Some(address) = task.node.strip_prefix(echo::SCHEME) {
        let mut client = EchoClient::connect(address, task.read_bytes)?;
        return take_part(task, &mut || client.round_trip(), begin, output);
    }
    let config = ProcessConfig { pending_max: 1, ..ProcessConfig::default() };
    let process = match task.shared {
        Some((ticket, _)) => Process::open_with(&task.node, ticket, config)?,
        None => Process::create_with(&task.node, config)?,
    };
    let mut thread = process.thread()?;
    let address = match task.shared {
        Some((_, address)) => address,
        None => {
            let address = thread.ralloc(PAGE_BYTES, Permission::ReadWrite)?;
            prepare_page(&mut thread, address)?;
            address
        }
    };
    let mut buffer = vec![0; task.read_bytes];
    let mut read = || {
        thread.rread(address, &mut buffer)?;
        check(ITEM, &buffer)
    };
    take_part(task, &mut read, begin, output)
}

/// Waits for the beginning, makes the round trips of `task`, and reports.
fn take_part(
    task: &ClientTask,
    round_trip: &mut dyn FnMut() -> Result<(), BenchError>,
    begin: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<(), BenchError> {
    // The first look at the clock measures it for some milliseconds, which is not to happen when all begin.
    let _ = yonder::clock::now();
    for _ in 0..WARM_UP_READS {
        round_trip()?;
    }
    output.write_all(Report::Ready.line().as_bytes())?;
    begin.read_to_end(&mut Vec::new())?;
    let (latencies, errors) = at_its_pace(task, round_trip);
    for some in latencies.chunks(LATENCIES_PER_LINE) {
        output.write_all(Report::Latencies(some.to_vec()).line().as_bytes())?;
    }
    output.write_all(Report::Done(errors).line().as_bytes())?;
    Ok(())
}

/// Makes the round trips that are due: what those took that count, and how many have failed.
fn at_its_pace(task: &ClientTask, round_trip: &mut dyn FnMut() -> Result<(), BenchError>) -> (Vec<Nanos>, u64) {
    let start = yonder::clock::now();
    let nanos = |time: Duration| time.as_nanos() as Nanos;
    let (counts, until) = (start + nanos(task.first), start + nanos(task.duration));
    let mut due = counts - nanos(task.unmeasured());
    let (mut latencies, mut errors) = (Vec::new(), 0);
    while due < until {
        sleep_until(due);
        let sent = yonder::clock::now();
        let result = round_trip();
        let took = yonder::clock::now() - sent;
        match result {
            Ok(()) if due >= counts => latencies.push(took),
            Ok(()) => {}
            Err(_) => errors += 1,
        }
        due += nanos(task.period).max(1);
    }
    // One that ends disturbs others, which may have reads to make: it began when it was woken, and they may have been
    // woken later, though not by more than all had to settle.
    sleep_until(until + nanos(task.first));
    (latencies, errors)
}

fn sleep_until(time: Nanos) {
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(yonder::clock::now())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::node;
    use crate::scale_clients::echo::EchoServer;

    fn parsed(output: Vec<u8>) -> Vec<Report> {
        String::from_utf8(output).unwrap().lines().map(|line| Report::parse(line).unwrap()).collect()
    }

    fn counted(reports: &[Report]) -> usize {
        reports.iter().map(|report| if let Report::Latencies(some) = report { some.len() } else { 0 }).sum()
    }

    #[test]
    fn reports_survive_their_lines() {
        for report in [Report::Ready, Report::Latencies(vec![1, 22, 333]), Report::Done(7)] {
            assert_eq!(Report::parse(report.line().trim_end()).unwrap(), report);
        }
        let failed = Report::Failed("no node".to_owned()).line();
        for bad in ["", "ready 1", "\"latencies\"", r#"{"latencies":[1,"x"]}"#, "\"done\"", &failed, "\"what\""] {
            assert!(Report::parse(bad).is_err(), "{bad}");
        }
        let longest = Report::Latencies(vec![Nanos::MAX; LATENCIES_PER_LINE]).line();
        assert!(longest.len() < 4096);
    }

    #[test]
    fn a_client_reads_at_its_pace_and_reports() {
        let (_node, url) = node(16 << 20, Some(PAGE_BYTES));
        let task = ClientTask {
            node: url,
            shared: None,
            read_bytes: 16,
            period: Duration::from_micros(20),
            first: Duration::from_micros(5),
            duration: Duration::from_millis(20),
        };
        let mut output = Vec::new();
        work(&task, &mut std::io::empty(), &mut output).unwrap();
        let reports = parsed(output);
        assert_eq!((reports.first(), reports.last()), (Some(&Report::Ready), Some(&Report::Done(0))));
        assert_eq!(counted(&reports), 1000, "every read that is due is made");
    }

    #[test]
    fn a_client_of_the_echo_goes_round_at_its_pace_and_only_what_is_due_counts() {
        let server = EchoServer::start().unwrap();
        let task = ClientTask {
            node: server.url(),
            shared: None,
            read_bytes: 16,
            period: Duration::from_millis(1),
            first: Duration::from_millis(10),
            duration: Duration::from_millis(20),
        };
        let mut round_trips = 0;
        let mut client = EchoClient::connect(task.node.strip_prefix(echo::SCHEME).unwrap(), task.read_bytes).unwrap();
        let mut round_trip = || {
            round_trips += 1;
            // The first of those that count fails.
            if round_trips == WARM_UP_READS + 6 { Err(BenchError::WrongValues(1)) } else { client.round_trip() }
        };
        let mut output = Vec::new();
        let began = yonder::clock::now();
        take_part(&task, &mut round_trip, &mut std::io::empty(), &mut output).unwrap();
        let took = Duration::from_nanos(yonder::clock::now() - began);
        assert!(took >= task.duration + task.first, "it ended while others may still measure");
        let reports = parsed(output);
        assert_eq!((counted(&reports), reports.last()), (9, Some(&Report::Done(1))));
        assert_eq!(round_trips, WARM_UP_READS + 5 + 10, "half of the time before the first that counts is used");
    }
}
