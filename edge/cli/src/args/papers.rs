//! The flags of `yonder papers`, and which figures they mean.

use std::path::PathBuf;

use clap::Args;
use yonder_figures::{FIGURES, Figure};

/// What `yonder papers --help` ends with.
const AFTER_HELP: &str = "\
What there is, one figure with its pictures, and all of them in a moment:
  yonder papers list
  yonder papers costs --out pictures
  yonder papers all --quick
The same seed gives the same output, byte for byte.";

/// Share of the requests that `--quick` simulates.
const QUICK_EFFORT: f64 = 0.05;
/// Seed that is drawn from where none is given.
const SEED: u64 = 1;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PapersArgs {
    /// Figures of the papers, or all; list, or nothing, tells which there are
    #[arg(value_name = "NAME", value_parser = wanted)]
    names: Vec<Wanted>,
    #[command(flatten)]
    pub(crate) depth: DepthArgs,
    /// Folder that pictures are written to as SVG, made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// One JSON object for each row and each check on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How figures are simulated.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DepthArgs {
    /// Seed of all that is random in simulations
    #[arg(long, value_name = "N", default_value_t = SEED)]
    pub(crate) seed: u64,
    /// A twentieth of the requests: a glance, not a result
    #[arg(long)]
    pub(crate) quick: bool,
}

impl DepthArgs {
    /// Share of the requests to simulate.
    pub(crate) fn effort(&self) -> f64 {
        if self.quick { QUICK_EFFORT } else { 1.0 }
    }
}

/// What a name means.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    List,
    All,
    One(&'static Figure),
}

impl PapersArgs {
    /// The figures to simulate, each once, in the order in which they were typed; none if they are to be listed.
    pub(crate) fn figures(&self) -> Option<Vec<&'static Figure>> {
        let mut figures: Vec<&'static Figure> = Vec::new();
        for name in &self.names {
            let named = match name {
                Wanted::List => return None,
                Wanted::All => FIGURES,
                Wanted::One(figure) => std::slice::from_ref(*figure),
            };
            let is_new = |figure: &&Figure| !figures.iter().any(|known| known.name == figure.name);
            let new: Vec<&'static Figure> = named.iter().filter(is_new).collect();
            figures.extend(new);
        }
        (!figures.is_empty()).then_some(figures)
    }
}

fn wanted(text: &str) -> Result<Wanted, String> {
    match text {
        "list" => Ok(Wanted::List),
        "all" => Ok(Wanted::All),
        name => yonder_figures::find(name).map(Wanted::One).ok_or_else(|| no_such_figure(name)),
    }
}

/// What to type instead of a name that no figure has.
fn no_such_figure(name: &str) -> String {
    let names = || FIGURES.iter().map(|figure| figure.name);
    match nearest(name, names().chain(["all", "list"])) {
        Some(near) => {
            format!("no figure has this name: type `yonder papers {near}`, or `yonder papers list` for all of them")
        }
        None => format!("no figure has this name: type one of {}, or all", names().collect::<Vec<_>>().join(", ")),
    }
}

/// The name that is nearest to what was typed, if it is near at all: a letter in three may be another.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = names.map(|name| (distance(typed, name), name)).min()?;
    (distance <= near.len() / 3).then_some(near)
}

/// How many letters are to be changed, added or removed to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let mut before: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.bytes().enumerate() {
        let mut now = vec![row + 1];
        for (column, beside) in other.bytes().enumerate() {
            let changed = before[column] + usize::from(letter != beside);
            now.push(changed.min(before[column + 1] + 1).min(now[column] + 1));
        }
        before = now;
    }
    before[other.len()]
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(words: &[&str]) -> Result<PapersArgs, String> {
        let words = ["yonder", "papers"].iter().chain(words);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Papers(args)) => Ok(args),
            other => panic!("another command: {other:?}"),
        }
    }

    fn names(words: &[&str]) -> Option<Vec<&'static str>> {
        let figures = parsed(words).unwrap().figures()?;
        Some(figures.iter().map(|figure| figure.name).collect())
    }

    #[test]
    fn figures_are_named_each_once() {
        let all: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names(&["costs", "costs"]).unwrap(), ["costs"]);
        assert_eq!(names(&["all"]).unwrap(), all);
        let mut sorted = names(&["costs", "all"]).unwrap();
        assert_eq!((sorted.len(), sorted[0]), (all.len(), "costs"));
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len());
        assert!([&[][..], &["list"], &["costs", "list"]].into_iter().all(|words| names(words).is_none()));
    }

    #[test]
    fn flags_say_how_much_is_simulated() {
        let args = parsed(&["all", "--seed", "7", "--quick", "--out", "x", "--json"]).unwrap();
        assert_eq!((args.depth.seed, args.depth.effort(), args.json), (7, QUICK_EFFORT, true));
        assert_eq!(args.out, Some(PathBuf::from("x")));
        let args = parsed(&["all"]).unwrap();
        assert_eq!((args.depth.seed, args.depth.effort()), (SEED, 1.0));
        assert!(parsed(&["all", "--seed", "-1"]).is_err());
    }

    #[test]
    fn a_name_that_no_figure_has_is_answered_with_the_nearest_or_with_all() {
        let near = parsed(&["cots"]).unwrap_err();
        assert!(near.contains("'cots'") && near.contains("type `yonder papers costs`"), "{near}");
        let far = parsed(&["frobnicate"]).unwrap_err();
        assert!(FIGURES.iter().all(|figure| far.contains(figure.name)) && far.contains("type one of"), "{far}");
    }

    #[test]
    fn distances_are_those_of_single_letters() {
        for (one, other, expected) in
            [("costs", "costs", 0), ("cots", "costs", 1), ("fig7", "fig8", 1), ("", "abc", 3), ("kitten", "sitting", 3)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }
}
