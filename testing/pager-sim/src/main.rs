//! The command `cargo xtask sim pager` runs: one seed, told event by event if wanted, or many on all processors.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use yonder_pager_sim::{Counts, Failure, Sabotage, Trace, simulate};

/// Seeds that are run if none are named.
const SEEDS: Range<u64> = 0..20_000;
const USAGE: &str = "type one of
  cargo xtask sim pager [--seeds A..B]            many seeds, on all processors; 0..20000 if none are named
  cargo xtask sim pager --seed N [--trace [NS]]   one seed; --trace tells every event, from a time on
Before that, --sabotage NAME breaks something on purpose; --sabotage list tells the names";

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Command {
    One(u64, Trace),
    Many(Range<u64>),
    /// What can be broken.
    List,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let parsed = sabotage(&arguments).and_then(|(by, rest)| Ok((parse(rest)?, by)));
    match parsed {
        Ok((Command::List, _)) => {
            Sabotage::ALL.iter().for_each(|sabotage| println!("{sabotage:?}"));
            ExitCode::SUCCESS
        }
        Ok((Command::One(seed, trace), by)) => match simulate(seed, by, trace) {
            Ok(counts) => {
                println!("seed {seed} holds: {counts:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => report(&failure),
        },
        Ok((Command::Many(seeds), by)) => many(seeds, by),
        Err(problem) => {
            eprintln!("sim pager: {problem}: {USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What is to be broken on purpose, if anything, and the other arguments.
fn sabotage<'a, 'b>(arguments: &'a [&'b str]) -> Result<(Option<Sabotage>, &'a [&'b str]), String> {
    let ["--sabotage", name, rest @ ..] = arguments else { return Ok((None, arguments)) };
    if *name == "list" {
        return Ok((None, &arguments[1..2]));
    }
    let named = Sabotage::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == **name);
    Ok((Some(named.ok_or(format!("'{name}' is nothing that can be broken"))?), rest))
}

fn parse(arguments: &[&str]) -> Result<Command, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no number"));
    match arguments {
        [] => Ok(Command::Many(SEEDS)),
        ["list"] => Ok(Command::List),
        ["--seed", text] => Ok(Command::One(number(text)?, Trace::Silent)),
        ["--seed", text, "--trace"] => Ok(Command::One(number(text)?, Trace::Printed(0))),
        ["--seed", text, "--trace", from] => Ok(Command::One(number(text)?, Trace::Printed(number(from)?))),
        ["--seeds", text] => {
            let (from, to) = text.split_once("..").ok_or(format!("'{text}' is no range of seeds"))?;
            Ok(Command::Many(number(from)?..number(to)?))
        }
        other => Err(format!("'{}' is not understood", other.join(" "))),
    }
}

fn report(Failure { seed, cause }: &Failure) -> ExitCode {
    println!("seed {seed} fails: {cause}");
    println!("type cargo xtask sim pager --seed {seed} --trace");
    ExitCode::FAILURE
}

/// Runs all seeds, or those before the first that fails, on all processors.
fn many(seeds: Range<u64>, by: Option<Sabotage>) -> ExitCode {
    // A panic is told once, with its seed.
    std::panic::set_hook(Box::new(|_| ()));
    let next = AtomicU64::new(seeds.start);
    let (has_failed, total) = (AtomicBool::new(false), Mutex::new((Counts::default(), None::<Failure>)));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let ended = simulate(seed, by, Trace::Silent);
                    let mut total = total.lock().expect("no thread panics while it holds the lock");
                    match ended {
                        Ok(counts) => total.0.add(&counts),
                        Err(failure) => {
                            has_failed.store(true, Ordering::Relaxed);
                            let first = total.1.take().filter(|first| first.seed < failure.seed);
                            total.1 = Some(first.unwrap_or(failure));
                        }
                    }
                }
            });
        }
    });
    let (counts, failure) = total.into_inner().expect("no thread panics while it holds the lock");
    if let Some(failure) = failure {
        return report(&failure);
    }
    println!("sim pager: {} seeds hold", counts.seeds);
    println!(
        "{} loads checked, {} stores, {} accesses failed as they may, {} operations executed, {} steps",
        counts.checked, counts.stored, counts.failed, counts.executed, counts.steps
    );
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read() {
        assert_eq!(parse(&[]), Ok(Command::Many(0..20_000)));
        assert_eq!(parse(&["--seeds", "5..9"]), Ok(Command::Many(5..9)));
        assert_eq!(parse(&["--seed", "7", "--trace", "9"]), Ok(Command::One(7, Trace::Printed(9))));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--seeds", "5"], &["7"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
