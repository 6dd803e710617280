//! The flags of `yonder report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::papers::DepthArgs;

/// What `yonder report --help` ends with.
const AFTER_HELP: &str = "\
Everything, about ten minutes; the simulations alone; and a glance at two sets:
  yonder report --out results
  yonder report --sets sim --seed 7
  yonder report --sets array,switch --quick
The same, and the figures of README.md in this folder; then once more, to see which of them can be had again:
  yonder report --readme
  yonder report --readme --again
What is measured runs on this machine, with far memory that is emulated in the process; what is simulated runs anywhere.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ReportArgs {
    /// Folder that report.html, report.json and RESULTS.md are written to, made if it is not there
    #[arg(long, value_name = "DIR", default_value = "yonder-report")]
    pub(crate) out: PathBuf,
    /// What to run, with commas between
    #[arg(
        long,
        value_name = "SETS",
        value_delimiter = ',',
        default_value = "sim,array,local,dispatch,breakdown,switch"
    )]
    sets: Vec<ReportSet>,
    /// Where the checks and tables are written to as Markdown, instead of RESULTS.md in the folder
    #[arg(long, value_name = "FILE")]
    pub(crate) results: Option<PathBuf>,
    /// Measure the figures of a README too, and put them between its marks; RESULTS.md is written to docs/perf beside
    /// it
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "README.md")]
    pub(crate) readme: Option<PathBuf>,
    /// Quote README's figures that have moved by more than a fifth since its present table as ranges of both runs
    #[arg(long, requires = "readme")]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) depth: DepthArgs,
}

/// What a report may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ReportSet {
    /// The papers' experiments, simulated: all that `yonder papers` has
    Sim,
    /// Latency and throughput by load, faults that yield and that busy-wait (Adios, Figure 7)
    Array,
    /// The same by how much memory is local (Adios, Figure 8)
    Local,
    /// Tail latency by dispatch policy (Adios, Figure 10e)
    Dispatch,
    /// The steps of a major fault (LightSwap, Figure 11)
    Breakdown,
    /// Switches between user-level threads (Adios, Table 1)
    Switch,
}

impl ReportSet {
    /// What a user types.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl ReportArgs {
    /// The sets, each once, in the order in which they were typed.
    pub(crate) fn sets(&self) -> Vec<ReportSet> {
        super::each_once(&self.sets)
    }

    /// The command that runs the same again, wherever it writes to.
    pub(crate) fn command(&self) -> String {
        let sets: Vec<String> = self.sets().into_iter().map(ReportSet::name).collect();
        let quick = if self.depth.quick { " --quick" } else { "" };
        let readme = if self.readme.is_some() { " --readme" } else { "" };
        let again = if self.again { " --again" } else { "" };
        format!("yonder report --sets {} --seed {}{quick}{readme}{again}", sets.join(","), self.depth.seed)
    }

    /// Where the Markdown goes.
    pub(crate) fn results_path(&self) -> PathBuf {
        let beside_readme = || Some(self.readme.as_ref()?.parent()?.join("docs/perf/RESULTS.md"));
        self.results.clone().or_else(beside_readme).unwrap_or_else(|| self.out.join("RESULTS.md"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(words: &str) -> Result<ReportArgs, String> {
        let words = ["yonder", "report"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Report(args)) => Ok(args),
            other => panic!("another command: {other:?}"),
        }
    }

    #[test]
    fn sets_are_a_list_and_all_of_them_without_one() {
        assert_eq!(parsed("").unwrap().sets(), ReportSet::value_variants());
        assert_eq!(parsed("--sets switch,sim,switch").unwrap().sets(), [ReportSet::Switch, ReportSet::Sim]);
        let message = parsed("--sets sim,everything").unwrap_err();
        assert!(message.contains("'everything'") && message.contains("dispatch, breakdown, switch"), "{message}");
    }

    #[test]
    fn the_document_goes_beside_the_page_unless_it_has_a_place() {
        assert_eq!(parsed("--out x").unwrap().results_path(), PathBuf::from("x/RESULTS.md"));
        assert_eq!(parsed("--readme").unwrap().results_path(), PathBuf::from("docs/perf/RESULTS.md"));
        assert_eq!(parsed("--readme a/README.md").unwrap().results_path(), PathBuf::from("a/docs/perf/RESULTS.md"));
        let named = parsed("--out x --results docs/perf/RESULTS.md").unwrap();
        assert_eq!((named.results_path(), named.out), (PathBuf::from("docs/perf/RESULTS.md"), PathBuf::from("x")));
    }

    #[test]
    fn the_command_runs_the_same_again() {
        let first = parsed("--sets local,sim --seed 9 --quick --readme --again --out elsewhere").unwrap();
        assert_eq!(first.command(), "yonder report --sets local,sim --seed 9 --quick --readme --again");
        let again = parsed(first.command().strip_prefix("yonder report").unwrap()).unwrap();
        assert_eq!((again.sets(), again.depth.seed, again.depth.quick, again.again), (first.sets(), 9, true, true));
        assert!(parsed("--again").unwrap_err().contains("--readme"));
    }
}
