//! `cargo xtask ci` and `cargo xtask nightly`: what is checked before each change, and what takes longer, with the time
//! of each step.
//!
//! [`CI`] and [`NIGHTLY`] are the lists. Cheap steps come first, so a slip is found in seconds; tests come last, and
//! seeds of the simulator that they have built. The first step that fails ends the run. `.ci/run` calls this and then
//! runs these two itself.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cargo::{cargo, finish, target_folder};
use crate::{clients, compat, dist, fuzz, lints, loom, miri, python, sim, tidy};

/// One step, by the name that `--skip` takes.
pub(crate) struct Step {
    name: &'static str,
    work: Work,
}

/// What a step does.
enum Work {
    /// Runs cargo with these arguments, and these variables on top of the environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Runs a program of the repository that the tests have built, with these arguments.
    Built(&'static [&'static str]),
    /// Runs a chore of this program.
    Chore(fn(&Path) -> Result<(), String>),
}

/// Before each change. Each crate is compiled for clippy, for its documents and for its tests, and those with models
/// for loom.
pub(crate) const CI: [Step; 10] = [
    Step { name: "format", work: Work::Cargo(&["fmt", "--all", "--check"], &[]) },
    Step { name: "tidy", work: Work::Chore(tidy::run) },
    Step {
        name: "clippy",
        work: Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Step { name: "lints", work: Work::Chore(lints::run) },
    Step {
        name: "doc",
        work: Work::Cargo(&["doc", "--workspace", "--no-deps", "--lib"], &[("RUSTDOCFLAGS", "-D warnings")]),
    },
    // A build of the whole workspace has every feature that tests need, so what is left without them is built alone.
    Step {
        name: "features",
        work: Work::Cargo(&["test", "--package", "yonder-controller", "--no-default-features", "--lib"], &[]),
    },
    Step { name: "loom", work: Work::Chore(loom::run) },
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
    Step { name: "sim", work: Work::Built(&SIM) },
];

/// The seeds of nodes and their clients that hold before each change, in the profile of the tests.
const SIM: [&str; 4] = ["yonder-sim", "node", "--seeds", "0..10000"];

/// Each night: the build that users get, and with it what the tests do for seconds, for minutes.
pub(crate) const NIGHTLY: [Step; 10] = [
    // Each crate of the public interface as whoever gets it alone would build it.
    Step { name: "publish", work: Work::Cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty"], &[]) },
    Step { name: "release", work: Work::Cargo(&["build", "--release"], &[]) },
    Step { name: "sim", work: Work::Chore(sim::run) },
    Step { name: "fuzz", work: Work::Chore(fuzz::run) },
    Step {
        name: "end-to-end",
        work: Work::Cargo(
            &[
                "test",
                "--release",
                "--package=yonder-e2e",
                "--test=e2e",
                "--",
                "soak::",
                "local_limit::",
                "bench",
                "workloads",
                "figures",
                "web::",
            ],
            &[("YONDER_E2E_SECONDS", "60")],
        ),
    },
    Step { name: "dist", work: Work::Chore(dist::run) },
    Step { name: "python", work: Work::Chore(python::run) },
    // Programs that are installed; `cargo xtask compat --install` gets the others.
    Step { name: "compat", work: Work::Chore(compat::run) },
    // Suites that pip and go can get.
    Step { name: "clients", work: Work::Chore(clients::run) },
    // Last, because it takes hours.
    Step { name: "miri", work: Work::Chore(miri::run) },
];

/// Reads the arguments after `ci` or `nightly`: any number of `--skip STEP`.
fn skipped(steps: &[Step], arguments: &[&str]) -> Result<Vec<&'static str>, String> {
    let names = || steps.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    arguments
        .chunks(2)
        .map(|pair| match pair {
            ["--skip", wanted] => match steps.iter().find(|step| step.name == *wanted) {
                Some(step) => Ok(step.name),
                None => Err(format!("'{wanted}' is no step: type one of {}", names())),
            },
            [other, ..] => Err(format!("'{other}' is not understood: type --skip and one of {}", names())),
            [] => Err("nothing to skip".to_owned()),
        })
        .collect()
}

/// Runs the steps that `arguments` do not skip, and stops at the first that fails.
pub(crate) fn run(root: &Path, steps: &[Step], arguments: &[&str]) -> Result<(), String> {
    let skipped = skipped(steps, arguments)?;
    let mut times = Vec::new();
    // What the tests have not built may be an old one.
    let is_skipped = |step: &Step| {
        skipped.contains(&step.name) || (matches!(step.work, Work::Built(_)) && skipped.contains(&"test"))
    };
    for step in steps.iter().filter(|step| !is_skipped(step)) {
        println!("==> {}", step.name);
        let start = Instant::now();
        let outcome = match step.work {
            Work::Cargo(arguments, variables) => finish(cargo(root, arguments).envs(variables.iter().copied())),
            Work::Built(arguments) => {
                finish(Command::new(target_folder(root).join("debug").join(arguments[0])).args(&arguments[1..]))
            }
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
        assert_eq!(skipped(&CI, &[]), Ok(vec![]));
        assert_eq!(skipped(&CI, &["--skip", "test", "--skip", "doc"]), Ok(vec!["test", "doc"]));
        let message = skipped(&CI, &["--skip", "miri"]).unwrap_err();
        assert_eq!(
            message,
            "'miri' is no step: type one of format, tidy, clippy, lints, doc, features, loom, events, test, sim"
        );
        assert_eq!(skipped(&NIGHTLY, &["--skip", "sim"]), Ok(vec!["sim"]));
        assert!(skipped(&CI, &["--skip"]).is_err() && skipped(&CI, &["test", "--skip"]).is_err());
    }

    #[test]
    fn what_continuous_integration_runs_itself_is_what_the_steps_run() {
        let script = std::fs::read_to_string(crate::repository_root().join(".ci/run")).unwrap();
        assert!(script.contains("-- ci --skip test --skip sim\n"), "it runs these two");
        for command in ["cargo test --workspace ", &format!("/debug/{} ", SIM.join(" "))] {
            assert!(script.contains(command), "{command}");
        }
    }
}
