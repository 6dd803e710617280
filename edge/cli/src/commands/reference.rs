//! `yonder reference`: the guide's chapters on commands and flags, manual pages and completions of shells, made from
//! the definitions of the flags.
//!
//! [`chapters`] walks clap's [`Command`]; commands and flags that the help does not show are left out. A test compares
//! the chapters of the guide with these. Pages and completions are made for packages, and are in no folder of the
//! repository.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::Shell;
use yonder_report::filled;

use crate::args::{Cli, ReferenceArgs, ReferenceForm};

/// The command whose subcommands have a chapter of their own.
const BENCHMARKS: &str = "bench";

/// The name of a chapter's file, and its text.
type Chapter = (&'static str, String);

pub(crate) fn run(args: &ReferenceArgs) -> anyhow::Result<ExitCode> {
    let problem = || format!("cannot write into {}: name a folder that is there and yours", args.folder.display());
    let folder = &args.folder;
    match args.form {
        ReferenceForm::Chapters => {
            chapters().into_iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
        }
        ReferenceForm::Man => clap_mangen::generate_to(for_readers(), folder),
        ReferenceForm::Completions => {
            [Shell::Bash, Shell::Zsh, Shell::Fish].into_iter().try_for_each(|shell| complete(shell, folder))
        }
    }
    .with_context(problem)?;
    Ok(ExitCode::SUCCESS)
}

/// The command without what the help does not show.
fn for_readers() -> Command {
    let mut yonder = Cli::command();
    // Once the subcommands have their flags: what comes of hidden ones is hidden too.
    yonder.build();
    yonder
}

fn complete(shell: Shell, folder: &Path) -> std::io::Result<()> {
    clap_complete::generate_to(shell, &mut Cli::command(), "yonder", folder).map(drop)
}

fn chapters() -> [Chapter; 2] {
    let mut yonder = Cli::command();
    yonder.build();
    let (benchmarks, others): (Vec<&Command>, Vec<&Command>) =
        shown(&yonder).partition(|command| command.get_name() == BENCHMARKS);
    let chapter = |title: &str, commands: &[&Command]| {
        let mut text = format!("# {title}\n\n<!-- Made by `yonder reference`: change the flags, not this file. -->\n");
        commands.iter().for_each(|command| section(command, &mut text));
        text
    };
    let mut reference = chapter("Reference of commands", &others);
    if let Some(help) = yonder.get_after_help() {
        write!(reference, "\n## All commands\n{}", fenced(help)).expect("text can be written");
    }
    [("reference.md", reference), ("reference-bench.md", chapter("Reference of benchmarks", &benchmarks))]
}

/// The subcommands that the help shows.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|own| !own.is_hide_set() && own.get_name() != "help")
}

/// One command: what it does, how it is typed, its flags, and its subcommands.
fn section(command: &Command, out: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about()).map(prose).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    let usage = usage.join("\n");
    write!(out, "\n## {name}\n\n{}\n\n```text\n{usage}\n```\n", filled("", &about)).expect("text can be written");
    let mut groups: Vec<(&str, Vec<&Arg>)> = Vec::new();
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set() && flag.get_id() != "help") {
        let heading = flag.get_help_heading().unwrap_or("Flags");
        match groups.iter_mut().find(|(own, _)| *own == heading) {
            Some((_, flags)) => flags.push(flag),
            None => groups.push((heading, vec![flag])),
        }
    }
    for (heading, flags) in groups {
        write!(out, "\n| {heading} | unless given | meaning |\n|---|---|---|\n").expect("text can be written");
        for flag in flags {
            writeln!(out, "{}", row(flag)).expect("text can be written");
        }
    }
    if let Some(help) = command.get_after_help() {
        out.push_str(&fenced(help));
    }
    shown(command).for_each(|own| section(own, out));
}

/// A flag as a row: how it is typed, its default, what it means and what can be typed.
fn row(flag: &Arg) -> String {
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let typed: Vec<String> = flag.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    let takes_value = flag.get_action().takes_values();
    let default = if takes_value && !typed.is_empty() { code(&typed.join(",")) } else { String::new() };
    let mut meaning = flag.get_long_help().or_else(|| flag.get_help()).map(prose).unwrap_or_default();
    let values = flag.get_possible_values();
    for value in values.iter().filter(|value| takes_value && !value.is_hide_set()) {
        let help = value.get_help().map(|help| format!(": {}", prose(help))).unwrap_or_default();
        write!(meaning, "<br>{}{help}", code(value.get_name())).expect("text can be written");
    }
    format!("| {} | {default} | {meaning} |", code(&flag.to_string()))
}

/// A help text as one paragraph in which no character has a meaning of its own.
fn prose(help: &StyledStr) -> String {
    let words: Vec<String> = help.to_string().split_whitespace().map(str::to_owned).collect();
    words.join(" ").replace('<', "&lt;").replace('|', "\\|").replace('*', "\\*")
}

fn fenced(help: &StyledStr) -> String {
    format!("\n```text\n{}\n```\n", help.to_string().trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_manual_pages_and_completions_of_what_the_help_shows() {
        let folder = tempfile::tempdir().unwrap();
        for form in [ReferenceForm::Man, ReferenceForm::Completions] {
            run(&ReferenceArgs { folder: folder.path().to_owned(), form }).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("yonder-kv.1").contains("far"), "the page has no flags");
        assert!(read("yonder.1").contains("yonder\\-kv"), "the page names no commands");
        assert!(folder.path().join("yonder-controller-drain.1").exists() && read("yonder.bash").contains("--far"));
        assert!(["_yonder", "yonder.fish"].iter().all(|name| folder.path().join(name).exists()));
        assert!(!folder.path().join("yonder-reference.1").exists(), "the help does not show it");
        let nowhere = ReferenceArgs { folder: folder.path().join("none"), form: ReferenceForm::Man };
        assert!(run(&nowhere).unwrap_err().to_string().contains("name a folder"));
    }

    #[test]
    fn the_guide_has_the_flags_that_there_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src");
        for (name, text) in chapters() {
            let kept = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            let differs = kept.lines().zip(text.lines()).find(|(kept, made)| kept != made);
            assert!(
                kept == text,
                "docs/guide/src/{name} is not what the flags are ({differs:?}): \
                 type `cargo run -- reference docs/guide/src`"
            );
        }
    }

    #[test]
    fn a_command_has_its_flags_by_group_and_its_subcommands() {
        let mut command = Command::new("root").bin_name("root").about("Does it").subcommand(
            Command::new("kv")
                .about("Serves <items>")
                .after_help("Try it.")
                .arg(Arg::new("far").long("far").value_name("A|B").default_value("x").help("Where"))
                .arg(Arg::new("mode").long("mode").value_parser(["a", "b"]).help_heading("Modes"))
                .arg(Arg::new("gone").long("gone").hide(true)),
        );
        command.build();
        let mut text = String::new();
        section(&command, &mut text);
        assert!(text.starts_with("\n## root\n\nDoes it\n\n```text\n"), "{text}");
        let row = "## root kv\n\nServes &lt;items>\n\n```text\nroot kv [OPTIONS]\n```\n\n\
                   | Flags | unless given | meaning |\n|---|---|---|\n| `--far <A\\|B>` | `x` | Where |\n\n\
                   | Modes | unless given | meaning |\n|---|---|---|\n| `--mode <mode>` |  | <br>`a`<br>`b` |\n\n\
                   ```text\nTry it.\n```\n";
        assert!(text.ends_with(row), "{text}");
    }
}
