//! What a page of results is made of: sections, each of one experiment, simulated or measured. Plain data; all texts
//! are free and are escaped where they are shown.
//!
//! Neighbours: `results_page` lays it out as HTML, `results_words` as Markdown; `yonder report` in `edge/cli` fills it
//! in.

use serde::Serialize;

use crate::bars::Bars;
use crate::model::{Machine, Setting};
use crate::picture::Picture;
use crate::table::Table;

/// Everything that one page of results shows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Results {
    /// The page's headline.
    pub title: String,
    /// What was run and how to read it, one string for each paragraph.
    pub words: Vec<String>,
    /// The command that makes this page again.
    pub command: String,
    /// The machine that all of it ran on.
    pub machine: Machine,
    /// What else was in force: the build, seeds.
    pub settings: Vec<Setting>,
    /// The experiments, in the order of reading.
    pub sections: Vec<Section>,
}

/// One experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Section {
    /// Its name, one word of letters, digits and hyphens; no two sections have the same.
    pub name: String,
    /// Whose experiment it is: `Adios, Figure 7`.
    pub source: String,
    /// What it shows.
    pub title: String,
    /// How its numbers came about.
    pub origin: Origin,
    /// How to read it, one string for each paragraph.
    pub words: Vec<String>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// Curves to look at.
    pub pictures: Vec<Picture>,
    /// Bars to look at.
    pub bars: Vec<Bars>,
    /// The paper's numbers beside ours.
    pub comparisons: Vec<Comparison>,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// How numbers came about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// By a simulation: CPUs, links and memory nodes were modelled.
    Simulated,
    /// On this machine, with emulated far memory; the text says of which kind.
    Emulated(String),
    /// On this machine, without far memory.
    Measured,
}

/// A paper's number beside ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// What is compared: `peak throughput, Adios / DiLOS`.
    pub what: String,
    /// The paper's number.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// When ours is as it should be.
    pub aim: Aim,
    /// Why they are apart, where that is known, or how ours came about; nothing if there is nothing to say.
    pub why: String,
}

/// When our number is as it should be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// Within so many percent of the paper's, on both sides.
    WithinPercent(f64),
    /// At least the paper's: more is better.
    AtLeast,
    /// At most the paper's: less is better.
    AtMost,
    /// An input of the simulation fixes ours, so that it says nothing of the model and does not count.
    Calibration,
    /// The paper's is there to be read beside ours, and says nothing about it.
    None,
}

impl Comparison {
    /// How far ours is above the paper's (below: negative), in percent of the paper's.
    #[must_use]
    pub fn deviation_percent(&self) -> f64 {
        (self.ours / self.paper - 1.0) * 100.0
    }

    /// Whether ours is as it should be; none if nothing is asked of it.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        match self.aim {
            Aim::WithinPercent(percent) => Some(self.deviation_percent().abs() <= percent),
            Aim::AtLeast => Some(self.ours >= self.paper),
            Aim::AtMost => Some(self.ours <= self.paper),
            Aim::Calibration | Aim::None => None,
        }
    }
}

/// How many comparisons of some sections are met, of those that something is asked of.
pub(crate) fn all_met(sections: &[Section]) -> (usize, usize) {
    let verdicts = sections.iter().flat_map(|section| &section.comparisons).filter_map(Comparison::is_met);
    verdicts.fold((0, 0), |(met, all), is_met| (met + usize::from(is_met), all + 1))
}

impl Section {
    /// How many of its comparisons are met, and how many there are that something is asked of.
    #[must_use]
    pub fn met(&self) -> (usize, usize) {
        all_met(std::slice::from_ref(self))
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Results for the tests.

    use super::*;
    use crate::bars::Bar;
    use crate::picture::{Line, Quantity};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    pub(crate) fn comparison(what: &str, paper: f64, ours: f64, aim: Aim, why: &str) -> Comparison {
        Comparison { what: what.to_owned(), paper, ours, aim, why: why.to_owned() }
    }

    pub(crate) fn results() -> Results {
        let setting = |name: &str, value: &str| Setting { name: name.into(), value: value.into() };
        Results {
            title: "The papers' experiments".into(),
            words: texts(&["Numbers of papers & ours."]),
            command: "yonder report --sets sim --seed 7".into(),
            machine: Machine { cpus: 2, kernel: "Linux 6.18".into(), text: "4 GiB of memory".into() },
            settings: vec![setting("commit", "abc123"), setting("seed", "7")],
            sections: vec![simulated(), measured()],
        }
    }

    fn simulated() -> Section {
        let mut table = Table::new("a", "Latency by load", &[("system", 0), ("p99_us", 1), ("ops_per_s", 0)]);
        table.push(vec!["Adios".into(), 12.34.into(), 1_234_567.0.into()]);
        table.push(vec!["Di|LOS <1>".into(), f64::NAN.into(), 780_000.0.into()]);
        let picture = Picture::new(
            "a-fig1-latency",
            ["Latency of both", "P99."],
            [Quantity::Number("K requests/s"), Quantity::Latency],
            vec![Line { name: "Adios".into(), points: vec![(100.0, 5.0), (200.0, 9.0)] }],
        );
        Section {
            name: "a-fig1".into(),
            source: "Adios, Figure 1".into(),
            title: "Latency & throughput".into(),
            origin: Origin::Simulated,
            words: Vec::new(),
            tables: vec![table],
            pictures: vec![picture],
            bars: Vec::new(),
            comparisons: vec![
                comparison("peak, Adios / DiLOS", 1.58, 1.61, Aim::WithinPercent(15.0), ""),
                comparison("P99, DiLOS / Adios", 2.83, 5.0, Aim::WithinPercent(15.0), "The link is <shorter> here."),
            ],
            notes: texts(&["Every request reads one page."]),
        }
    }

    fn measured() -> Section {
        let bars = Bars {
            name: "breakdown".into(),
            title: "Where the time goes".into(),
            caption: "Medians.".into(),
            parts: texts(&["post", "fetch"]),
            bars: vec![Bar { name: "busy".into(), numbers: "3 us".into(), parts: vec![1.0, 2.0] }],
        };
        Section {
            name: "breakdown".into(),
            source: "LightSwap, Figure 11".into(),
            title: "The steps of a fault".into(),
            origin: Origin::Emulated("2.5 us, 100 Gbit/s".into()),
            words: texts(&["One at a time."]),
            tables: Vec::new(),
            pictures: Vec::new(),
            bars: vec![bars],
            comparisons: vec![comparison("software's share, percent", 39.76, 21.5, Aim::None, "")],
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{comparison, results};
    use super::*;

    #[test]
    fn every_aim_has_its_verdict() {
        let met = |ours, aim| comparison("x", 2.0, ours, aim, "").is_met();
        assert_eq!([1.71, 2.29, 2.31].map(|ours| met(ours, Aim::WithinPercent(15.0)).unwrap()), [true, true, false]);
        assert_eq!([1.9, 2.0, 9.0].map(|ours| met(ours, Aim::AtLeast).unwrap()), [false, true, true]);
        assert_eq!([1.9, 2.0, 9.0].map(|ours| met(ours, Aim::AtMost).unwrap()), [true, true, false]);
        for aim in [Aim::WithinPercent(15.0), Aim::AtLeast, Aim::AtMost] {
            assert_eq!(met(f64::NAN, aim), Some(false), "what was not measured is not met: {aim:?}");
        }
        assert_eq!((met(9.0, Aim::None), met(2.0, Aim::Calibration)), (None, None));
        assert!((comparison("x", 2.0, 3.0, Aim::None, "").deviation_percent() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn what_nothing_is_asked_of_is_not_counted() {
        let counts: Vec<_> = results().sections.iter().map(Section::met).collect();
        assert_eq!(counts, [(1, 2), (0, 0)]);
    }

    #[test]
    fn json_has_every_number() {
        let value = serde_json::to_value(results()).unwrap();
        let section = &value["sections"][0];
        assert_eq!(section["tables"][0]["rows"][0]["ops_per_s"], 1_234_567.0);
        assert_eq!(section["pictures"][0]["lines"][0]["points"][1][1], 9.0);
        assert_eq!(section["comparisons"][1]["ours"], 5.0);
        assert_eq!(section["comparisons"][1]["aim"]["within_percent"], 15.0);
        assert_eq!(
            (&section["origin"], &value["sections"][1]["origin"]["emulated"]),
            (&"simulated".into(), &"2.5 us, 100 Gbit/s".into())
        );
        assert_eq!(value["sections"][1]["bars"][0]["bars"][0]["parts"][1], 2.0);
    }
}
