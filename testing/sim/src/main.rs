//! The command `cargo xtask sim` runs: one seed of a simulator, told event by event if wanted, or many on all
//! processors.
//!
//! [`Arguments`] are the command line, [`Simulator`] says which simulator a seed is of. The exit code is 1 if a seed
//! failed, 2 if the command line was not understood.

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::{Parser, ValueEnum};
use yonder_sim::{MoveSabotage, Sabotage, simulate, simulate_moves, simulate_order};
use yonder_simulation::{Counts, Failure, Trace};
use yonder_units::Nanos;

/// Which simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Simulator {
    /// Clients and nodes under a network with faults.
    Node,
    /// One process, and the order between its lanes.
    Order,
    /// Moves of regions between nodes.
    Moves,
    /// The pager on a model of the kernel, over a hostile far side.
    Pager,
}

/// Runs seeds of a simulator: all the usual ones on all processors, if none are named.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Arguments {
    #[arg(default_value = "node")]
    simulator: Simulator,
    /// These seeds, on all processors.
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// This seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Tells every event of the seed, from a time in nanoseconds on; not of order.
    #[arg(long, value_name = "NS", num_args = 0..=1, default_missing_value = "0", requires = "seed")]
    trace: Option<Nanos>,
    /// Breaks something of the pager on purpose; list tells the names.
    #[arg(long, value_name = "NAME")]
    sabotage: Option<String>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no seed"));
    let (from, to) = text.split_once("..").ok_or(format!("'{text}' is no range of seeds"))?;
    Ok(seed(from)?..seed(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let name = arguments.simulator.to_possible_value().expect("none is hidden").get_name().to_owned();
    let ended = match arguments.simulator {
        Simulator::Node => run::<Sabotage, _>(&arguments, 0..10_000, &[], |seed, by, trace| {
            simulate(seed, by, trace).map(|run| run.counts)
        }),
        Simulator::Order => run(&arguments, 0..2_000, &[], |seed, by, _| simulate_order(seed, by)),
        Simulator::Moves => run::<MoveSabotage, _>(&arguments, 0..2_000, &[], simulate_moves),
        Simulator::Pager => {
            let sabotages: Vec<_> = yonder_pager_sim::Sabotage::all().collect();
            run(&arguments, 0..20_000, &sabotages, yonder_pager_sim::simulate)
        }
    };
    match ended {
        Ok(Ok(text)) => {
            println!("sim {name}: {text}");
            ExitCode::SUCCESS
        }
        Ok(Err(Failure { seed, cause })) => {
            println!("seed {seed} fails: {cause}");
            println!("type cargo xtask sim {name} --seed {seed} --trace");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("sim {name}: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Runs what the arguments say, of a simulator with so many seeds in which `sabotages` can be broken: what it has done,
/// or which seed failed first. The error says what was not understood.
fn run<S: Copy + Debug + Sync, K: Ord + Copy + Debug + Send>(
    arguments: &Arguments,
    usual: Range<u64>,
    sabotages: &[S],
    simulate: impl Fn(u64, Option<S>, Trace) -> Result<Counts<K>, Failure> + Sync,
) -> Result<Result<String, Failure>, String> {
    let named = |name: &str| sabotages.iter().copied().find(|sabotage| format!("{sabotage:?}") == name);
    let by = match arguments.sabotage.as_deref() {
        None => None,
        Some("list") => {
            let names: Vec<String> = sabotages.iter().map(|sabotage| format!("{sabotage:?}")).collect();
            return Ok(Ok(format!("can be broken:\n{}", names.join("\n"))));
        }
        Some(name) => Some(named(name).ok_or(format!("'{name}' is nothing that can be broken"))?),
    };
    let Some(seed) = arguments.seed else {
        let seeds = arguments.seeds.clone().unwrap_or(usual);
        return Ok(many(seeds, |seed| simulate(seed, by, Trace::Silent)));
    };
    let trace = arguments.trace.map_or(Trace::Silent, Trace::Printed);
    Ok(simulate(seed, by, trace).map(|counts| format!("seed {seed} holds: {counts:?}")))
}

/// Runs all seeds, or those before the first that fails, on all processors.
fn many<K: Ord + Copy + Debug + Send>(
    seeds: Range<u64>,
    simulate: impl Fn(u64) -> Result<Counts<K>, Failure> + Sync,
) -> Result<String, Failure> {
    // A panic is told once, with its seed.
    std::panic::set_hook(Box::new(|_| ()));
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (has_failed, total) = (AtomicBool::new(false), Mutex::new((Counts::default(), None::<Failure>)));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let ended = simulate(seed);
            let mut total = total.lock().expect("no worker panics while it holds the lock");
            match ended {
                Ok(counts) => total.0.merge(&counts),
                Err(failure) => {
                    has_failed.store(true, Ordering::Relaxed);
                    let first = total.1.take().filter(|first| first.seed < seed);
                    total.1 = Some(first.unwrap_or(failure));
                }
            }
            show_progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| _ = scope.spawn(work)));
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

    /// The simulator, its seeds or its seed, and from when on events are told.
    type Parsed = (Simulator, Option<Range<u64>>, Option<u64>, Option<Nanos>);

    fn parse(arguments: &[&str]) -> Option<Parsed> {
        let arguments = Arguments::try_parse_from(["sim"].iter().chain(arguments)).ok()?;
        let Arguments { simulator, seeds, seed, trace, .. } = arguments;
        Some((simulator, seeds, seed, trace))
    }

    #[test]
    fn command_lines_are_read() {
        assert_eq!(parse(&[]), Some((Simulator::Node, None, None, None)));
        assert_eq!(parse(&["--seeds", "5..9"]), Some((Simulator::Node, Some(5..9), None, None)));
        assert_eq!(parse(&["node", "--seed", "7"]), Some((Simulator::Node, None, Some(7), None)));
        for told in [&["--seed", "7", "--trace"], &["--trace", "--seed", "7"]] {
            assert_eq!(parse(told), Some((Simulator::Node, None, Some(7), Some(0))));
        }
        assert_eq!(parse(&["moves"]), Some((Simulator::Moves, None, None, None)));
        assert_eq!(parse(&["order", "--seed", "3"]), Some((Simulator::Order, None, Some(3), None)));
        let pager = parse(&["pager", "--seed", "7", "--trace", "9"]);
        assert_eq!(pager, Some((Simulator::Pager, None, Some(7), Some(9))));
        let wrong = [&["--seed"][..], &["--seed", "x"], &["--seeds", "5"], &["7"], &["clocks"], &["--trace"]];
        for wrong in wrong {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_can_be_broken_is_listed_and_nothing_else_is() {
        let sabotaged = |name: &str| {
            let arguments = Arguments::try_parse_from(["sim", "--seed", "1", "--sabotage", name]).unwrap();
            run(&arguments, 0..1, &['a', 'b'], |_, by, _| {
                assert_eq!(by, Some('b'));
                Ok(Counts::<u8>::default())
            })
        };
        assert_eq!(sabotaged("list"), Ok(Ok("can be broken:\n'a'\n'b'".into())));
        assert!(sabotaged("'b'").is_ok_and(|ended| ended.is_ok()) && sabotaged("c").is_err());
    }

    #[test]
    fn the_first_seed_that_fails_is_told() {
        let fails_from = |first| {
            move |seed| {
                if seed < first { Ok(Counts::<u8>::default()) } else { Err(Failure { seed, cause: "broken".into() }) }
            }
        };
        assert!(many(0..50, fails_from(50)).unwrap().starts_with("50 seeds hold"));
        let failure = many(0..50, fails_from(7)).unwrap_err();
        assert!((7..9).contains(&failure.seed), "{failure:?}");
    }
}
