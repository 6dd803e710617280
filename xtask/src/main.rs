//! Project chores: `cargo xtask tidy`, `ci`, `nightly`, `clients`, `compat`, `lints`, `loom`, `miri`, `sim`,
//! `failures`, `versions`, `fuzz`, `install`, `dist` and `python`.
//!
//! [`tidy`] checks what the compiler cannot: layers, headers, `unsafe` and documents. [`ci`] runs what continuous
//! integration runs, in the same order, and what is run each night. [`loom`] tries every interleaving of the lock-free
//! types, [`miri`] interprets tests. [`sim`] runs the simulator, [`failures`] measures what is noticed of nodes that
//! fail, [`versions`] mixes releases, [`fuzz`] runs hostile inputs, [`compat`] programs of others, [`clients`] suites
//! of others. [`install`] puts the command and the C library where programs find them, [`dist`] into packages,
//! [`python`] makes Python's. Neighbours: `.ci/run` calls `ci`; the alias `xtask` is in `.cargo/config.toml`.

#![forbid(unsafe_code)]

mod cargo;
mod ci;
mod clients;
mod compat;
mod dist;
mod failures;
mod fuzz;
mod install;
mod lints;
mod loom;
mod miri;
mod python;
mod sim;
mod tidy;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "type one of
  cargo xtask tidy                layers, headers, unsafe, lengths, links
  cargo xtask ci [--skip STEP]    everything that is checked before a change is taken; STEP is a name that it prints
  cargo xtask nightly [--skip STEP]   what takes longer: the release build, and with it soaks, simulations, benchmarks
  cargo xtask compat [NAME...]    programs of others under yonder run: do they answer as they do alone?
                                  --install gets those that are missing, --markdown writes the table of the guide
  cargo xtask clients             suites of others for memcached against yonder kv: pymemcache's, pylibmc, gomemcache's
  cargo xtask lints               clippy's lints of casts, and some pedantic ones, of the libraries of core, sys, runtime
  cargo xtask loom                every interleaving of the models of the lock-free types
  cargo xtask miri                tests of core and of the free list in Miri, where nightly Rust has it
  cargo xtask sim [node|order|moves|pager] [--seeds A..B]   clients and nodes under a network with faults, one process and its
                                  lanes, moves between nodes, the pager on a model of the kernel; all if none is named.
                                  --seed N [--trace] tells one run
  cargo xtask failures [--protection copies=2] [--fault kill|stop|loss|slow|kill-both|controller|none] [--times 20]
                                  what a server with pages on several nodes notices; --soak 1h --each 20s, all faults
                                  in turns; --rebuild --memory 512MiB, what it costs that pages get new places
  cargo xtask versions [--with COMMIT]   clusters of this release and the one before, rolled under load
  cargo xtask fuzz smoke          hostile inputs for every target; fuzz TARGET --seconds N, fuzz replay TARGET FILE
  cargo xtask install --prefix DIR   the command, the C library, its headers and yonder.pc [--from target/release]
  cargo xtask dist [--only tar,deb,rpm,image] [--to DIR] [--from target/release]   packages for other machines
  cargo xtask python [--try]      the wheel of yonder-memory, and pytest on it; SKIP where there is no Python or no pip";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => tidy::run(&repository_root()),
        ["ci", rest @ ..] => ci::run(&repository_root(), &ci::CI, rest),
        ["nightly", rest @ ..] => ci::run(&repository_root(), &ci::NIGHTLY, rest),
        ["compat", rest @ ..] => compat::run_with(&repository_root(), rest),
        ["clients"] => clients::run(&repository_root()),
        ["lints"] => lints::run(&repository_root()),
        ["loom"] => loom::run(&repository_root()),
        ["miri"] => miri::run(&repository_root()),
        ["sim", rest @ ..] => sim::run_with(&repository_root(), rest),
        ["failures", rest @ ..] => failures::run_with(&repository_root(), rest),
        ["versions", rest @ ..] => versions::run_with(&repository_root(), rest),
        ["fuzz", rest @ ..] => fuzz::run_with(&repository_root(), rest),
        ["dist", rest @ ..] => dist::run_with(&repository_root(), rest),
        ["python", rest @ ..] => python::run_with(&repository_root(), rest),
        ["install", rest @ ..] => install::wish(rest).and_then(|wish| install::run(&repository_root(), &wish)),
        [] => Err(format!("a chore is missing: {USAGE}")),
        [other, ..] => Err(format!("'{other}' with these arguments is no chore: {USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The folder that holds the workspace. Cargo sets the variable for `cargo run` and `cargo test` alike.
fn repository_root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().unwrap_or(Path::new(".")).to_path_buf()
}
