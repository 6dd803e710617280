//! What a report is made of. Plain data; all texts are free and are escaped where they are shown.

use serde::{Deserialize, Serialize};

/// Share of the offered load that must be achieved for a point not to count as saturated. Poisson arrivals over a few
/// seconds are themselves within about a percent.
const KEPT_UP_SHARE: f64 = 0.97;

/// Everything that one report shows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The page's headline.
    pub title: String,
    /// What was run and how to read it, one string for each paragraph.
    pub explanation: Vec<String>,
    /// The command that makes this report again; empty if there is none.
    pub command: String,
    /// How far the memory really was.
    pub far_memory: FarMemory,
    /// The machine that was measured.
    pub machine: Machine,
    /// The settings in force.
    pub settings: Vec<Setting>,
    /// One chart for each thing that was measured, in the order of reading.
    pub charts: Vec<Chart>,
    /// The measured ratios, the most important first.
    pub ratios: Vec<Ratio>,
    /// Remarks, one string for each.
    pub notes: Vec<String>,
}

/// Whether far memory was another machine's or modelled in this process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum FarMemory {
    /// Modelled; the text says how, such as `2.5 us, 100 Gbit/s`. Reports label it prominently.
    Emulated(String),
    /// Reached over a link; the text says which.
    Remote(String),
}

impl FarMemory {
    /// How it was modelled, or over which link it was reached.
    pub(crate) fn how(&self) -> &str {
        match self {
            Self::Emulated(how) | Self::Remote(how) => how,
        }
    }
}

/// The machine that was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

/// Modes that were measured under the same conditions, and are compared on the same axes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Chart {
    /// What was measured, as a heading.
    pub title: String,
    /// How it was measured and how to read it, one paragraph; empty if the title says enough.
    pub explanation: String,
    /// The link to far memory in this chart, such as `2.5 us, 100 Gbit/s`; empty if the report's says enough. Whether
    /// it is emulated, the report's [`FarMemory`] says.
    pub far_memory: String,
    /// One curve for each mode. A curve's place decides its colour, so a mode has the same place in all charts.
    pub curves: Vec<Curve>,
}

impl Chart {
    /// Whether any run of it was measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.curves.iter().any(|curve| !curve.points.is_empty())
    }
}

/// The measurements of one mode at rising loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The mode.
    pub name: String,
    /// In the order in which lines connect them.
    pub points: Vec<Point>,
}

/// One run at one load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
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

/// A measured ratio beside a published one. Larger is better.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// What is divided by what.
    pub what: String,
    /// The ratio as measured here.
    pub ours: f64,
    /// The ratio that was published.
    pub paper: Option<f64>,
    /// Where it was published.
    pub paper_source: String,
    /// What it was measured under, such as `with 97 % of 2 CPUs`, or nothing.
    pub condition: String,
    /// A remark, or nothing.
    pub note: String,
}

#[cfg(test)]
pub(crate) mod samples {
    //! Reports for the tests.

    use super::*;

    pub(crate) fn point(offered: f64, achieved: f64, p50_us: f64, p99_us: f64, p999_us: f64, dropped: u64) -> Point {
        Point { offered_per_s: offered, achieved_per_s: achieved, p50_us, p99_us, p999_us, dropped }
    }

    pub(crate) fn report() -> Report {
        let setting = |name: &str, value: &str| Setting { name: name.into(), value: value.into() };
        Report {
            title: "A fault that yields".into(),
            explanation: vec!["One server, two ways to wait for a page.".into()],
            command: "yonder demo --out demo-report".into(),
            far_memory: FarMemory::Emulated("2.5 us, 100 Gbit/s".into()),
            machine: Machine { cpus: 2, kernel: "Linux 6.18".into(), text: "4 GiB of memory".into() },
            settings: vec![setting("memory", "256 MiB"), setting("local", "20 %")],
            charts: vec![array(), server()],
            ratios: vec![
                Ratio {
                    what: "peak throughput, yield / busy-wait".into(),
                    ours: 1.7149,
                    paper: Some(1.58),
                    paper_source: "Adios, figure 7(d)".into(),
                    condition: "with 97 % of 2 CPUs".into(),
                    note: String::new(),
                },
                Ratio {
                    what: "P99.9, busy-wait / yield, where busy-wait saturates".into(),
                    ours: 8.2,
                    paper: Some(10.89),
                    paper_source: "Adios, Memcached, 128-byte values".into(),
                    condition: "with 52 % of 2 CPUs".into(),
                    note: "the load generator shares the CPUs".into(),
                },
                Ratio {
                    what: "major faults per request".into(),
                    ours: 0.8,
                    paper: None,
                    paper_source: String::new(),
                    condition: String::new(),
                    note: String::new(),
                },
            ],
            notes: vec!["Latency counts from the intended start of each request.".into()],
        }
    }

    fn array() -> Chart {
        let busy = vec![
            point(50e3, 49_912.0, 8.21, 31.4, 77.0, 0),
            point(120e3, 119_800.0, 14.04, 96.25, 410.5, 0),
            point(200e3, 138_204.0, 7_312.0, 9_120.0, 10_004.0, 123_456),
        ];
        let yielding = vec![point(50e3, 50_020.0, 7.93, 19.2, 33.1, 0), point(1.2e6, 1.199e6, 12.5, 40.75, 88.0, 0)];
        Chart {
            title: "Random reads of an array (no network)".into(),
            explanation: "Each request reads eight bytes.".into(),
            far_memory: "2.5 us, 100 Gbit/s".into(),
            curves: curves(busy, yielding),
        }
    }

    fn server() -> Chart {
        let busy =
            vec![point(10e3, 10_010.0, 61.0, 180.0, 350.0, 0), point(20e3, 18_100.0, 900.0, 2_100.0, 2_900.0, 0)];
        let yielding = vec![point(10e3, 9_990.0, 55.0, 120.0, 210.0, 0), point(20e3, 20_020.0, 58.0, 150.0, 260.0, 0)];
        Chart {
            title: "A memcached server over loopback".into(),
            explanation: "A client reads and writes values through TCP.".into(),
            far_memory: "25 us, 100 Gbit/s".into(),
            curves: curves(busy, yielding),
        }
    }

    fn curves(busy: Vec<Point>, yielding: Vec<Point>) -> Vec<Curve> {
        vec![Curve { name: "busy-wait".into(), points: busy }, Curve { name: "yield".into(), points: yielding }]
    }

    /// A report with nothing measured.
    pub(crate) fn empty() -> Report {
        Report { charts: vec![], ratios: vec![], notes: vec![], settings: vec![], explanation: vec![], ..report() }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{point, report};
    use super::*;

    #[test]
    fn saturation_is_drops_or_falling_behind() {
        assert!(!point(100e3, 99e3, 1.0, 1.0, 1.0, 0).is_saturated());
        assert!(point(100e3, 96e3, 1.0, 1.0, 1.0, 0).is_saturated());
        assert!(point(100e3, 100e3, 1.0, 1.0, 1.0, 1).is_saturated());
    }

    #[test]
    fn reports_survive_json() {
        let report = report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
