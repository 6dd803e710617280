//! The flags of `yonder bench notify`.

use clap::Args;
use yonder_bench::notify::{FAULTS_PER_THREAD_MAX, Settings, THREADS_MAX};

use super::{count_to, positive_count};

#[derive(Debug, Args)]
pub(crate) struct NotifyArgs {
    /// Numbers of threads that touch pages, with commas between
    #[arg(long, value_name = "COUNTS", default_value = "1,2,4,8,16,32,64,128", value_delimiter = ',', value_parser = threads)]
    pub(crate) threads: Vec<usize>,
    /// Pages that each thread touches in a run
    #[arg(long, value_name = "N", default_value = "5000", value_parser = faults)]
    pub(crate) faults_per_thread: usize,
    /// Runs of each mechanism with each number of threads, in turn; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each mechanism and number of threads on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    count_to(text, THREADS_MAX)
}

fn faults(text: &str) -> Result<usize, String> {
    count_to(text, FAULTS_PER_THREAD_MAX)
}

impl From<&NotifyArgs> for Settings {
    fn from(args: &NotifyArgs) -> Self {
        Self { threads: args.threads.clone(), faults_per_thread: args.faults_per_thread, runs: args.runs }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    fn parse(words: &[&str]) -> Result<Settings, clap::Error> {
        let words = ["yonder", "bench", "notify"].iter().chain(words);
        let Command::Bench(BenchArgs { what: BenchWhat::Notify(args) }) = Cli::try_parse_from(words)?.command else {
            panic!("another command")
        };
        Ok(Settings::from(&args))
    }

    #[test]
    fn threads_are_a_list_of_counts() {
        let settings = parse(&[]).unwrap();
        assert_eq!((settings.threads.first(), settings.threads.last()), (Some(&1), Some(&128)));
        let settings = parse(&["--threads", "1,64", "--faults-per-thread", "20", "--runs", "3"]).unwrap();
        assert_eq!((settings.threads, settings.faults_per_thread, settings.runs), (vec![1, 64], 20, 3));
        for wrong in [["--threads", "0"], ["--threads", "1,2000"], ["--faults-per-thread", "none"], ["--runs", "0"]] {
            let complaint = parse(&wrong).unwrap_err().to_string();
            assert!(complaint.contains("type a whole number"), "{complaint}");
        }
    }
}
