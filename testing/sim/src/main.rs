//! The command `cargo xtask sim` runs: one seed of a simulator, told event by event if wanted, or many on all
//! processors.
//!
//! [`parse`] reads the command line; [`Simulator`] says which simulator a seed is of. The exit code is 1 if a seed
//! failed, 2 if the command line was not understood.

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use yonder_sim::{Counts, Failure, MoveCounts, OrderCounts, Trace, simulate, simulate_moves, simulate_order};

const USAGE: &str = "type one of
  cargo xtask sim [node|order|moves] [--seeds A..B]      many seeds, on all processors
  cargo xtask sim [node|order|moves] --seed N [--trace]  one seed; --trace tells every event, of nodes and moves";

/// Which simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Simulator {
    /// Clients and nodes under a network with faults.
    Node,
    /// One process, and the order between its lanes.
    Order,
    /// Moves of regions between nodes.
    Moves,
}

impl Simulator {
    const ALL: [(&str, Self); 3] = [("node", Self::Node), ("order", Self::Order), ("moves", Self::Moves)];

    /// Seeds that are run if none are named.
    fn seeds(self) -> Range<u64> {
        match self {
            Self::Node => 0..10_000,
            Self::Order | Self::Moves => 0..2_000,
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, named)| *named == self).expect("all have names").0
    }
}

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Command {
    One(u64, Trace),
    Many(Range<u64>),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (simulator, command) = match parse(&arguments) {
        Ok(parsed) => parsed,
        Err(problem) => {
            eprintln!("sim: {problem}: {USAGE}");
            return ExitCode::from(2);
        }
    };
    let ended = match simulator {
        Simulator::Node => run(command, |seed, trace| simulate(seed, None, trace).map(|run| run.counts), Counts::add),
        Simulator::Order => run(command, |seed, _| simulate_order(seed, None), OrderCounts::add),
        Simulator::Moves => run(command, |seed, trace| simulate_moves(seed, None, trace), MoveCounts::add),
    };
    match ended {
        Ok(text) => {
            println!("sim {}: {text}", simulator.name());
            ExitCode::SUCCESS
        }
        Err(Failure { seed, cause }) => {
            println!("seed {seed} fails: {cause}");
            println!("type cargo xtask sim {} --seed {seed} --trace", simulator.name());
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[&str]) -> Result<(Simulator, Command), String> {
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no seed"));
    let named = |name: &str| Simulator::ALL.iter().find(|simulator| simulator.0 == name);
    let (simulator, rest) = match arguments {
        [name, rest @ ..] if named(name).is_some() => (named(name).expect("just found").1, rest),
        rest => (Simulator::Node, rest),
    };
    let command = match rest {
        [] => Command::Many(simulator.seeds()),
        ["--seed", text] => Command::One(seed(text)?, Trace::Silent),
        ["--seed", text, "--trace"] | ["--trace", "--seed", text] => Command::One(seed(text)?, Trace::Printed),
        ["--seeds", text] => {
            let (from, to) = text.split_once("..").ok_or(format!("'{text}' is no range of seeds"))?;
            Command::Many(seed(from)?..seed(to)?)
        }
        other => return Err(format!("'{}' is not understood", other.join(" "))),
    };
    Ok((simulator, command))
}

/// Runs one seed or many, and says what they have done, or which failed first.
fn run<C: Default + Debug + Send>(
    command: Command,
    simulate: impl Fn(u64, Trace) -> Result<C, Failure> + Sync,
    add: fn(&mut C, &C),
) -> Result<String, Failure> {
    match command {
        Command::One(seed, trace) => Ok(format!("seed {seed} holds: {:?}", simulate(seed, trace)?)),
        Command::Many(seeds) => many(seeds, simulate, add),
    }
}

/// Runs all seeds, or those before the first that fails, on all processors.
fn many<C: Default + Debug + Send>(
    seeds: Range<u64>,
    simulate: impl Fn(u64, Trace) -> Result<C, Failure> + Sync,
    add: fn(&mut C, &C),
) -> Result<String, Failure> {
    // A panic is told once, with its seed.
    std::panic::set_hook(Box::new(|_| ()));
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (has_failed, total) = (AtomicBool::new(false), Mutex::new((C::default(), None::<Failure>)));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, done, has_failed, total, end) = (&next, &done, &has_failed, &total, seeds.end);
            let simulate = &simulate;
            scope.spawn(move || {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let ended = simulate(seed, Trace::Silent);
                    let mut total = total.lock().expect("no worker panics while it holds the lock");
                    match ended {
                        Ok(counts) => add(&mut total.0, &counts),
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
    failure.map_or(Ok(format!("{} seeds hold\n{counts:?}", done.into_inner())), Err)
}

fn show_progress(done: u64) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that does not take the line loses a line.
        let _ = write!(terminal, "\r{done} seeds ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read() {
        let node = |command| Ok((Simulator::Node, command));
        assert_eq!(parse(&[]), node(Command::Many(0..10_000)));
        assert_eq!(parse(&["--seeds", "5..9"]), node(Command::Many(5..9)));
        assert_eq!(parse(&["node", "--seed", "7"]), node(Command::One(7, Trace::Silent)));
        assert_eq!(parse(&["--seed", "7", "--trace"]), node(Command::One(7, Trace::Printed)));
        assert_eq!(parse(&["moves"]), Ok((Simulator::Moves, Command::Many(0..2_000))));
        assert_eq!(parse(&["order", "--seed", "3"]), Ok((Simulator::Order, Command::One(3, Trace::Silent))));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--seeds", "5"], &["7"], &["clocks"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_seed_that_fails_is_told() {
        let fails_from = |first| {
            move |seed, _| {
                if seed < first { Ok(()) } else { Err(Failure { seed, cause: "broken".into() }) }
            }
        };
        assert!(many(0..50, fails_from(50), |(), ()| ()).unwrap().starts_with("50 seeds hold"));
        let failure = many(0..50, fails_from(7), |(), ()| ()).unwrap_err();
        assert!((7..9).contains(&failure.seed), "{failure:?}");
    }
}
