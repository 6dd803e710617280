//! The command `cargo xtask sim` runs: one seed, told event by event if wanted, or many on all processors.
//!
//! [`parse`] reads the command line, [`one`] and [`many`] run. The exit code is 1 if a seed failed, 2 if the command line
//! was not understood.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use yonder_sim::{Counts, Failure, Trace, simulate};

/// Seeds that are run if none are named.
const SEEDS: Range<u64> = 0..10_000;
const USAGE: &str = "type one of
  cargo xtask sim [--seeds A..B]          many seeds, on all processors; 0..10000 if none are named
  cargo xtask sim --seed N [--trace]      one seed; --trace tells every event";

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Command {
    One(u64, Trace),
    Many(Range<u64>),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match parse(&arguments) {
        Ok(Command::One(seed, trace)) => one(seed, trace),
        Ok(Command::Many(seeds)) => many(seeds),
        Err(problem) => {
            eprintln!("sim: {problem}: {USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[&str]) -> Result<Command, String> {
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no seed"));
    match arguments {
        [] => Ok(Command::Many(SEEDS)),
        ["--seed", text] => Ok(Command::One(seed(text)?, Trace::Silent)),
        ["--seed", text, "--trace"] | ["--trace", "--seed", text] => Ok(Command::One(seed(text)?, Trace::Printed)),
        ["--seeds", text] => {
            let (from, to) = text.split_once("..").ok_or(format!("'{text}' is no range of seeds"))?;
            Ok(Command::Many(seed(from)?..seed(to)?))
        }
        other => Err(format!("'{}' is not understood", other.join(" "))),
    }
}

fn one(seed: u64, trace: Trace) -> ExitCode {
    match simulate(seed, None, trace) {
        Ok(outcome) => {
            println!("seed {seed} holds, digest {:016x}", outcome.digest);
            print_counts(&outcome.counts);
            ExitCode::SUCCESS
        }
        Err(failure) => report(&failure),
    }
}

fn report(Failure { seed, cause }: &Failure) -> ExitCode {
    println!("seed {seed} fails: {cause}");
    println!("type cargo xtask sim --seed {seed} --trace");
    ExitCode::FAILURE
}

/// Runs all seeds, or those before the first that fails, on all processors.
fn many(seeds: Range<u64>) -> ExitCode {
    // A panic is told once, with its seed.
    std::panic::set_hook(Box::new(|_| ()));
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (has_failed, total) = (AtomicBool::new(false), Mutex::new((Counts::default(), None::<Failure>)));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, done, has_failed, total, end) = (&next, &done, &has_failed, &total, seeds.end);
            scope.spawn(move || {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let ended = simulate(seed, None, Trace::Silent);
                    let mut total = total.lock().expect("no worker panics while it holds the lock");
                    match ended {
                        Ok(outcome) => total.0.add(&outcome.counts),
                        Err(failure) => {
                            has_failed.store(true, Ordering::Relaxed);
                            let first = total.1.take().filter(|first| first.seed < seed);
                            total.1 = Some(first.unwrap_or(failure));
                        }
                    }
                    drop(total);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if worker == 0 {
                        show_progress(done);
                    }
                }
            });
        }
    });
    let (counts, failure) = total.into_inner().expect("no worker panics while it holds the lock");
    if let Some(failure) = failure {
        return report(&failure);
    }
    println!("sim: {} seeds hold", done.into_inner());
    print_counts(&counts);
    ExitCode::SUCCESS
}

fn show_progress(done: u64) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that does not take the line loses a line.
        let _ = write!(terminal, "\r{done} seeds ");
    }
}

fn print_counts(counts: &Counts) {
    let Counts { done, refused, unknown, cancelled, requests, repeated, aborts, restarts, events, words } = counts;
    println!("operations: {done} done, {unknown} of unknown end, {cancelled} cancelled, refused by code {refused:?}");
    println!("requests: {requests} sent, {repeated} executed before, {aborts} aborts answered");
    println!("{restarts} restarts, {events} events, {words} words with a history of their own");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read() {
        assert_eq!(parse(&[]), Ok(Command::Many(0..10_000)));
        assert_eq!(parse(&["--seeds", "5..9"]), Ok(Command::Many(5..9)));
        assert_eq!(parse(&["--seed", "7"]), Ok(Command::One(7, Trace::Silent)));
        assert_eq!(parse(&["--seed", "7", "--trace"]), Ok(Command::One(7, Trace::Printed)));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--seeds", "5"], &["7"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
