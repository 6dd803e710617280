//! `cargo xtask ci`: everything that continuous integration runs, in the same order, with the time of each step.
//!
//! [`STEPS`] is the one list. Cheap steps come first, so a slip is found in seconds; tests come last, so the last lines
//! are their result. The first step that fails ends the run. `.ci/run` calls this and then runs the tests itself.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{fuzz, loom, sim, smoke, tidy};

/// One step, by the name that `--skip` takes.
struct Step {
    name: &'static str,
    work: Work,
}

/// What a step does.
enum Work {
    /// Runs cargo with these arguments, and these variables on top of the environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Runs a chore of this program.
    Chore(fn(&Path) -> Result<(), String>),
}

const STEPS: [Step; 11] = [
    Step { name: "format", work: Work::Cargo(&["fmt", "--all", "--check"], &[]) },
    Step { name: "tidy", work: Work::Chore(tidy::run) },
    Step {
        name: "clippy",
        work: Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Step {
        name: "doc",
        work: Work::Cargo(&["doc", "--workspace", "--no-deps", "--lib"], &[("RUSTDOCFLAGS", "-D warnings")]),
    },
    Step { name: "release", work: Work::Cargo(&["build", "--release", "--package", "yonder-cli"], &[]) },
    Step { name: "smoke", work: Work::Chore(smoke::run) },
    Step { name: "loom", work: Work::Chore(loom::run) },
    Step { name: "sim", work: Work::Chore(sim::run) },
    Step { name: "fuzz", work: Work::Chore(fuzz::run) },
    // Events of core, which are not there without their feature.
    Step {
        name: "events",
        work: Work::Cargo(
            &[
                "test",
                "--package=yonder-client",
                "--package=yonder-pager",
                "--features=yonder-client/tracing,yonder-pager/tracing",
                "event",
            ],
            &[],
        ),
    },
    Step { name: "test", work: Work::Cargo(&["test", "--workspace"], &[]) },
];

/// Reads the arguments after `ci`: any number of `--skip STEP`.
pub(crate) fn skipped(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
    let names = || STEPS.map(|step| step.name).join(", ");
    arguments
        .chunks(2)
        .map(|pair| match pair {
            ["--skip", wanted] => match STEPS.iter().find(|step| step.name == *wanted) {
                Some(step) => Ok(step.name),
                None => Err(format!("'{wanted}' is no step: type one of {}", names())),
            },
            [other, ..] => Err(format!("'{other}' is not understood: type --skip and one of {}", names())),
            [] => Err("nothing to skip".to_owned()),
        })
        .collect()
}

/// Runs every step that is not skipped, and stops at the first that fails.
pub(crate) fn run(root: &Path, skipped: &[&str]) -> Result<(), String> {
    let mut times = Vec::new();
    for step in STEPS.iter().filter(|step| !skipped.contains(&step.name)) {
        println!("==> {}", step.name);
        let start = Instant::now();
        let outcome = match step.work {
            Work::Cargo(arguments, variables) => cargo(root, arguments, variables),
            Work::Chore(chore) => chore(root),
        };
        times.push((step.name, start.elapsed()));
        if let Err(cause) = outcome {
            print_times(&times);
            return Err(format!("step {} failed: {cause}", step.name));
        }
    }
    print_times(&times);
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let typed = format!("cargo {}", arguments.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| format!("{typed}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("'{typed}' ended with {status}")) }
}

fn print_times(times: &[(&str, Duration)]) {
    println!("==> times");
    for (name, time) in times {
        println!("{name:>10} {:7.1} s", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:>10} {:7.1} s", "total", total.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_skipped_by_name() {
        assert_eq!(skipped(&[]), Ok(vec![]));
        assert_eq!(skipped(&["--skip", "test", "--skip", "doc"]), Ok(vec!["test", "doc"]));
        let message = skipped(&["--skip", "tests"]).unwrap_err();
        assert_eq!(
            message,
            "'tests' is no step: type one of format, tidy, clippy, doc, release, smoke, loom, sim, fuzz, events, test"
        );
        assert!(skipped(&["--skip"]).is_err() && skipped(&["test", "--skip"]).is_err());
    }

    #[test]
    fn a_step_that_fails_is_an_error() {
        assert!(cargo(&crate::repository_root(), &["--version"], &[]).is_ok());
        let message = cargo(&crate::repository_root(), &["no-such-command-of-cargo"], &[]).unwrap_err();
        assert!(message.starts_with("'cargo no-such-command-of-cargo' ended with"), "{message}");
    }
}
