//! The `yonder` command: flags, files and JSON around the libraries.
//!
//! `args` is every flag, `setup` what the paging flags mean, `commands` has a file for each subcommand, `output` keeps
//! standard output for results and standard error for progress. An error is one line: what is wrong and what to type.

#![forbid(unsafe_code)]

mod args;
mod commands;
#[cfg(test)]
mod monitoring;
mod output;
#[cfg(test)]
mod services;
mod setup;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{Cli, Command};
use crate::output::OutputClosed;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    start_log();
    let Some(command) = cli.command else { return ended(commands::next_steps::run()) };
    ended(match command {
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Node(args) => commands::node::run(&args),
        Command::Controller(args) => commands::controller::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Try(args) => commands::trying::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Size(args) => commands::run::size::run(&args),
        Command::Kv(args) => commands::kv::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Papers(args) => commands::papers::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Governor(args) => commands::governor::run(&args),
        Command::Ctl(args) => commands::ctl::run(&args),
        Command::Workload(args) => commands::workload::run(&args),
        Command::Reference(args) => commands::reference::run(&args),
    })
}

/// The exit code of a command, whose error is one line.
fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if error.is::<OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("yonder: {}", one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error; `YONDER_LOG` chooses what, as in `YONDER_LOG=debug`.
fn start_log() {
    let chosen = std::env::var("YONDER_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    let filter = chosen.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// Help and version are what was asked for; anything else is one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A closed pipe is no reason to complain.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    eprintln!("yonder: {}", usage_line(&error.render().to_string(), &words));
    ExitCode::from(2)
}

/// The first paragraph of a usage error and its tip, as one line that ends with what to type. `words` is what was
/// typed.
fn usage_line(rendered: &str, words: &[String]) -> String {
    let paragraph: Vec<&str> = rendered.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let what = paragraph.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    match rendered.lines().map(str::trim).find_map(|line| line.strip_prefix("tip: ")) {
        Some(tip) => format!("{what}: {tip}"),
        None if what.contains("type ") => what.to_owned(),
        None => format!("{what}: type `{} --help` for what is possible", command_of(words)),
    }
}

/// The longest subcommand that `words` begin with, as it is typed.
fn command_of(words: &[String]) -> String {
    let mut command = Cli::command();
    let mut typed = "yonder".to_owned();
    for word in words {
        let Some(found) = command.find_subcommand(word).cloned() else { break };
        typed = format!("{typed} {word}");
        command = found;
    }
    typed
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(arguments: &[&str]) -> String {
        let error = Cli::try_parse_from(std::iter::once(&"yonder").chain(arguments)).unwrap_err();
        let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        usage_line(&error.render().to_string(), &words)
    }

    #[test]
    fn bad_flags_are_one_line_that_says_what_to_type() {
        for arguments in [
            &["kv", "--memory", "64mb"][..],
            &["bench", "array", "--local", "120%"],
            &["bench", "array", "--faults", "lazy"],
            &["bench", "arry"],
            &["load", "kv", "--target", "x", "--rate", "fast"],
            &["load", "kv", "--mix", "get=95"],
            &["load", "kv", "--workload", "ycsb-z"],
            &["load", "kv", "--workload", "ycsb-a", "--mix", "get=95,set=5"],
            &["load", "kv", "--dist", "uniform", "--workload", "ycsb-a"],
            &["node", "--listen", "http://x"],
            &["demo", "--quickly"],
            &["papers", "adios-fig77x"],
            &["report", "--sets", "everything"],
            &["workload", "bogosort"],
            &["frobnicate"],
        ] {
            let line = complaint(arguments);
            assert!(!line.contains('\n') && !line.starts_with("error"), "{line}");
            let helps = ["type", "tip", "possible values", "similar"].iter().any(|word| line.contains(word));
            assert!(helps, "{arguments:?}: {line}");
        }
    }

    #[test]
    fn the_hint_names_the_command_that_was_typed() {
        assert!(
            complaint(&["kv", "--udp", "127.0.0.1:99999"]).ends_with("type `yonder kv --help` for what is possible")
        );
    }

    #[test]
    fn the_whole_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
