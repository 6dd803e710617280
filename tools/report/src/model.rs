//! What reports have in common. Plain data; all texts are free and are escaped where they are shown.

use serde::Serialize;

/// Share of the offered load that must be achieved for a point not to count as saturated. Poisson arrivals over a few
/// seconds are themselves within about a percent.
const KEPT_UP_SHARE: f64 = 0.97;

/// Whether far memory was another machine's or modelled in this process.
#[derive(Clone, PartialEq, Debug)]
pub enum FarMemory {
    /// Modelled; the text says how, such as `2.5 us, 100 Gbit/s`. Reports label it prominently.
    Emulated(String),
    /// Reached over a link; the text says which.
    Remote(String),
}

/// The machine that was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Machine {
    /// CPUs that the processes could use.
    pub cpus: usize,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Anything else worth knowing, such as the CPU's model and the size of memory.
    pub text: String,
}

impl Machine {
    /// What there is to say of it, each with its name.
    pub(crate) fn pairs(&self) -> [(String, String); 3] {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        [pair("CPUs", &self.cpus.to_string()), pair("kernel", &self.kernel), pair("machine", &self.text)]
    }
}

/// A setting and its value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
}

impl Setting {
    /// Its name and its value.
    pub(crate) fn pair(&self) -> (String, String) {
        (self.name.clone(), self.value.clone())
    }
}

/// One run at one load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Requests planned per second.
    pub offered_per_s: f64,
    /// Requests answered per second.
    pub achieved_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// 99.9th percentile of latency.
    pub p999_us: f64,
    /// Requests dropped.
    pub dropped: u64,
}

impl Point {
    /// Whether the server did not keep up with the load: its latency then shows the length of a queue.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.dropped > 0 || self.achieved_per_s < KEPT_UP_SHARE * self.offered_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturation_is_drops_or_falling_behind() {
        let is_saturated = |achieved_per_s, dropped| {
            Point { offered_per_s: 100e3, achieved_per_s, p50_us: 1.0, p99_us: 1.0, p999_us: 1.0, dropped }
                .is_saturated()
        };
        assert!(!is_saturated(99e3, 0));
        assert!(is_saturated(96e3, 0));
        assert!(is_saturated(100e3, 1));
    }
}
