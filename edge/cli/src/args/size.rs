//! The flags of `yonder size`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use yonder::Prefetch;
use yonder::units::parse_bytes;
use yonder_bench::policies::choice;

use super::CredentialArgs;

/// What `yonder size --help` ends with.
const AFTER_HELP: &str = "\
The program runs once, with all of its memory local, while a sample of its pages is watched. What it would miss with
less local memory is replayed, and what that costs is measured on this machine:
  yonder size -- sort --buffer-size=1G words.txt
  yonder size --slowdown 20% --far tcp://127.0.0.1:7000 --picture size.svg -- redis-server --save ''
Then run it with what is enough:
  yonder run --local 412MiB -- sort --buffer-size=1G words.txt";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SizeArgs {
    /// Far memory that the program could have: as of yonder run. May be given several times
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: Vec<String>,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
    /// Predict for the kernel's swap on zram as well, which is set up for a moment to be measured: needs root
    #[arg(long)]
    pub(crate) zram: bool,
    /// How much longer the program may take than with all of its memory local
    #[arg(long, value_name = "PCT", default_value = "5%", value_parser = slowdown)]
    pub(crate) slowdown: f64,
    /// Memory that each process may use; more is refused to it
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// What would be fetched before it is touched
    #[arg(long, value_name = "HOW", default_value = "readahead", value_parser = choice::<Prefetch>())]
    pub(crate) prefetch: Prefetch,
    /// Sizes of local memory that are predicted, from the smallest to all of it in equal steps
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(2..=256))]
    pub(crate) points: u64,
    /// Write what is predicted to this file, as a JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// Draw local memory against expected time into this file, an SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A share, typed as a percentage.
pub(crate) fn slowdown(text: &str) -> Result<f64, String> {
    let share = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()).map(|percent| percent / 100.0);
    let share = share.filter(|share| share.is_finite() && *share > 0.0);
    share.ok_or_else(|| format!("'{text}' is no slowdown: type a percentage above 0, such as 5%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_is_a_percentage() {
        assert_eq!(slowdown("5%"), Ok(0.05));
        assert_eq!(slowdown("150%"), Ok(1.5));
        for text in ["5", "0%", "-1%", "%", "inf%", "NaN%", "much"] {
            assert!(slowdown(text).unwrap_err().contains("such as 5%"), "{text}");
        }
    }
}
