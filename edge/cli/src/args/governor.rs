//! The flags of `yonder governor`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use yonder::units::parse_bytes;

use super::positive_duration;
use super::size::slowdown;

/// What `yonder governor --help` ends with.
const AFTER_HELP: &str = "\
Processes are those that yonder ctl list shows. WHO is a process by its number, or
programs by the name of their file:
  yonder governor --memory 4GiB --weight redis-server=3 --exempt sshd
  yonder run --local 4GiB -- redis-server --save ''
  yonder run --local 4GiB -- sort --buffer-size=4G words.txt
Limits go up to what a program was started with (--local). When the governor is stopped, all have that again.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct GovernorArgs {
    /// Govern the processes of all users, as root
    #[arg(long)]
    pub(crate) all_users: bool,
    /// Local memory for all of them together. If not given, what the machine has available, less --keep
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "keep")]
    pub(crate) memory: Option<u64>,
    /// Memory that stays available to others
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    pub(crate) keep: u64,
    /// By how much programs may be slowed down while there is enough for all
    #[arg(long, value_name = "PCT", default_value = "5%", value_parser = slowdown)]
    pub(crate) slowdown: f64,
    /// Of two programs that want more than there is, one with twice the weight gets twice as much; 1 if not given
    #[arg(long, value_name = "WHO=N")]
    pub(crate) weight: Vec<Of<Weight>>,
    /// Programs that have what they want
    #[arg(long, value_name = "WHO")]
    pub(crate) exempt: Vec<String>,
    /// What each program has in any case
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = least)]
    pub(crate) least: u64,
    /// Time between two looks; less than half of it while programs need more than there is
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Show what each would get, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// One JSON object for each process and look on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Something that is laid down for a program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Of<T> {
    pub(crate) who: String,
    pub(crate) what: T,
}

/// How much a program counts among others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Weight(pub(crate) f64);

impl FromStr for Of<Weight> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no weight: type WHO=N, such as redis-server=3");
        let (who, number) = text.rsplit_once('=').ok_or_else(wrong)?;
        let weight = number.parse().ok().filter(|weight: &f64| (WEIGHT_MIN..=WEIGHT_MAX).contains(weight));
        match weight {
            Some(weight) if !who.is_empty() => Ok(Self { who: who.to_owned(), what: Weight(weight) }),
            Some(_) => Err(wrong()),
            None => Err(format!("{}: weights are from {WEIGHT_MIN} to {WEIGHT_MAX}", wrong())),
        }
    }
}

/// As little as local memory can be.
fn least(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if bytes < LEAST_MIN {
        return Err(format!("'{text}' is too little for a program: type at least 2MiB"));
    }
    Ok(bytes)
}

const LEAST_MIN: u64 = 2 << 20;
const WEIGHT_MIN: f64 = 0.01;
const WEIGHT_MAX: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_of_somebody_and_within_limits() {
        let of = |who: &str, weight| Ok(Of { who: who.to_owned(), what: Weight(weight) });
        assert_eq!("redis-server=3".parse(), of("redis-server", 3.0));
        assert_eq!("a=b=0.5".parse(), of("a=b", 0.5));
        for wrong in ["3", "=3", "x=", "x=much", "x=0", "x=-1", "x=inf", "x=NaN", "x=1000"] {
            assert!(wrong.parse::<Of<Weight>>().unwrap_err().contains("such as redis-server=3"), "{wrong}");
        }
    }
}
