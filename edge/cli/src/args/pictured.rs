//! [`Json`] and [`Pictured`]: a benchmark's own flags, and those that say how its results are shown.

use std::path::{Path, PathBuf};

use clap::Args;

use super::BENCHMARK;

/// A benchmark whose results can be printed as JSON.
#[derive(Debug, Args)]
pub(crate) struct Json<A: Args> {
    #[command(flatten)]
    pub(crate) bench: A,
    /// One JSON object for each result on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

/// A benchmark whose results can be drawn too.
#[derive(Debug, Args)]
pub(crate) struct Pictured<A: Args> {
    #[command(flatten)]
    shown: Json<A>,
    /// Folder that pictures of the results are written to as SVG, made if it is not there
    #[arg(long, help_heading = BENCHMARK, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl<A: Args> Pictured<A> {
    /// What the benchmark does, whether it prints JSON, and the folder for its pictures.
    pub(crate) fn parts(&self) -> (&A, bool, Option<&Path>) {
        (&self.shown.bench, self.shown.json, self.out.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    #[test]
    fn pictures_are_asked_for_beside_the_flags_of_the_benchmark() {
        let words = ["yonder", "bench", "scale-pages", "--entries", "1,2", "--out", "pictures"];
        let Some(Command::Bench(BenchArgs { what: BenchWhat::ScalePages(args) })) =
            Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        let (bench, _, out) = args.parts();
        assert_eq!((bench.entries.0.as_slice(), out), (&[1, 2][..], Some(Path::new("pictures"))));
        let help = Cli::try_parse_from(["yonder", "bench", "rread", "--help"]).unwrap_err().to_string();
        assert!(help.contains("--out <DIR>") && help.contains("Latency by size alone"), "{help}");
    }
}
