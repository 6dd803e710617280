//! What the flags of benchmarks have in common. Settings of a benchmark are declared once: as the fields of its
//! `Settings`, which the command line is parsed into.

use std::time::Duration;

use clap::Args;
use yonder::units::{LocalSize, parse_bytes, parse_duration};
use yonder_load::Rate;

/// Heading of the flags that come after those of far memory.
pub const BENCHMARK: &str = "Benchmark";
/// Far memory of a benchmark unless another is named.
pub const FAR: &str = "emu://?latency=2.5us&gbps=100";

/// Far memory, and how much of it is local.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Far memory")]
pub struct MemoryArgs {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in this process with this latency and
    /// bandwidth
    #[arg(long, value_name = "URL", default_value = FAR)]
    pub far: String,
    /// Far memory to use: the data set
    #[arg(long = "memory", value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub size: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub local: LocalSize,
}

/// A time of more than nothing.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(time) if time.is_zero() => Err(format!("'{text}' is no time at all: type more than 0, such as 5s")),
        time => time,
    }
}

/// A time, of nothing too.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// A count of at least one.
pub fn positive_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("'{text}' is not a count: type a whole number of at least 1")),
    }
}

/// The same of things that may be more than there are addresses.
pub fn positive_number(text: &str) -> Result<u64, String> {
    positive_count(text).map(|count| count as u64)
}

/// Reads a count from one to `most`.
pub fn count_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("'{text}' is not a count: type a whole number from 1 to {most}")),
    }
}

/// Bytes that fit into an address space.
pub fn byte_count(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("'{text}' is more than there are addresses: type less"))
}

/// Requests per second of an open loop; `None` if the text is none.
pub(crate) fn per_second(text: &str) -> Option<f64> {
    text.parse::<Rate>().ok()?.per_second()
}

/// A list that may be empty, from one flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> std::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> List<T> {
    /// Words with commas between.
    pub fn parse(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        text.split(',').filter(|word| !word.is_empty()).map(parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Counts of at least one.
pub fn counts(text: &str) -> Result<List<usize>, String> {
    List::parse(text, positive_count)
}

/// Leaves each once, where it came first.
pub fn each_once<T: PartialEq>(typed: &mut Vec<T>) {
    let mut once = Vec::new();
    for item in typed.drain(..) {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    *typed = once;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_says_what_to_type() {
        assert_eq!(positive_duration("5ms"), Ok(Duration::from_millis(5)));
        assert!(positive_duration("0s").unwrap_err().contains("such as 5s"));
        assert_eq!((positive_count("3"), count_to(3)("3"), byte_count("2KiB")), (Ok(3), Ok(3), Ok(2048)));
        assert!(positive_count("0").unwrap_err().contains("at least 1"));
        assert!(count_to(3)("4").unwrap_err().contains("from 1 to 3"));
        assert_eq!((per_second("20k"), per_second("max"), per_second("fast")), (Some(20_000.0), None, None));
    }

    #[test]
    fn what_is_typed_twice_counts_once() {
        let mut typed = vec![3, 1, 3, 2, 1];
        each_once(&mut typed);
        assert_eq!(typed, [3, 1, 2]);
    }
}
