//! The command `cargo xtask failures` runs: a line of JSON for each turn, and one for all of them.
//!
//! The exit code is 1 if a client noticed anything but time, or the measurement failed, and 2 if the command line was
//! not understood.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum as _};
use serde::Serialize;
use yonder_failures::{Fault, Load, Protection, Until, Wish, measure};
use yonder_units::{parse_bytes, parse_duration};

/// Measures what a server with pages on several nodes notices when a node fails.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask failures")]
struct Arguments {
    /// At how many nodes pages are, as behind yonder://CONTROLLER?
    #[arg(long, value_name = "QUERY", default_value = "copies=2")]
    protection: Protection,
    /// What happens, in turns if several are named with commas between [default: kill, and all for a soak]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fault: Vec<Fault>,
    /// Load the server in a closed loop, with nothing amiss for as long as --each says, and then kill a node: what does
    /// it cost that its pages get new places? Give it some --memory, or that is over before it is seen
    #[arg(long, conflicts_with = "soak")]
    rebuild: bool,
    /// How many turns there are
    #[arg(long, value_name = "N", default_value_t = 20)]
    times: usize,
    /// As many turns as there are in this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "times")]
    soak: Option<Duration>,
    /// How long a turn lasts, at least
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "8s")]
    each: Duration,
    /// Memory of the server, of which an eighth is local
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB")]
    memory: u64,
}

fn main() -> ExitCode {
    let Arguments { protection, fault: named, rebuild, times, soak, each, memory } = Arguments::parse();
    let all = || vec![Fault::Kill, Fault::Stop, Fault::Loss, Fault::Slow, Fault::KillBoth, Fault::Controller];
    let usual = if soak.is_some() { all() } else { vec![Fault::Kill] };
    let faults = if named.is_empty() { usual } else { named };
    if let Some(message) = faults.iter().find_map(|fault| cannot_rebuild(*fault).filter(|_| rebuild)) {
        eprintln!("failures: {message}");
        return ExitCode::from(2);
    }
    let wish = Wish {
        protection,
        faults,
        load: if rebuild { Load::Closed } else { Load::Open },
        until: soak.map_or(Until::Turns(times), Until::Time),
        each,
        memory_bytes: memory,
        peak_for: Duration::from_secs(5),
    };
    match measure(&wish, print) {
        Ok(summary) => {
            print(&summary);
            ExitCode::from(u8::from(summary.noticed() > 0))
        }
        Err(message) => {
            eprintln!("failures: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Why a fault shows nothing of pages that get new places; `None` if it takes a node away.
fn cannot_rebuild(fault: Fault) -> Option<String> {
    if matches!(fault, Fault::Kill | Fault::Stop | Fault::KillBoth) {
        return None;
    }
    let value = fault.to_possible_value()?;
    let name = value.get_name();
    Some(format!("'{name}' takes no node away, so --rebuild measures nothing: type --fault kill, stop or kill-both"))
}

fn print(object: &impl Serialize) {
    let line = serde_json::to_string(object).expect("figures have names");
    // Who does not read any more does not want to know.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_that_take_a_node_away_are_rebuilt_from() {
        for fault in Fault::value_variants() {
            let takes_node = matches!(fault, Fault::Kill | Fault::Stop | Fault::KillBoth);
            assert_eq!(cannot_rebuild(*fault).is_none(), takes_node, "{fault:?}");
        }
        assert!(cannot_rebuild(Fault::Controller).is_some_and(|told| told.contains("type --fault kill, stop or")));
    }
}
