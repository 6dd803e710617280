//! [`Pictured`]: a benchmark's flags, and the one that asks for pictures.

use std::path::{Path, PathBuf};

use clap::Args;

use super::BENCHMARK;

/// A benchmark whose results can be drawn.
#[derive(Debug, Args)]
pub(crate) struct Pictured<A: Args> {
    #[command(flatten)]
    bench: A,
    /// Folder that pictures of the results are written to as SVG, made if it is not there
    #[arg(long, help_heading = BENCHMARK, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl<A: Args> Pictured<A> {
    /// What the benchmark does, and the folder for its pictures.
    pub(crate) fn parts(&self) -> (&A, Option<&Path>) {
        (&self.bench, self.out.as_deref())
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
        let Command::Bench(BenchArgs { what: BenchWhat::ScalePages(args) }) =
            Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        let (bench, out) = args.parts();
        assert_eq!((bench.entries.0.as_slice(), out), (&[1, 2][..], Some(Path::new("pictures"))));
        let help = Cli::try_parse_from(["yonder", "bench", "rread", "--help"]).unwrap_err().to_string();
        assert!(help.contains("--out <DIR>") && help.contains("Latency by size alone"), "{help}");
    }
}
