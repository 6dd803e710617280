//! All figures of `yonder papers`, as sections.

use yonder_figures::{Check, FIGURES, Figure, Outcome};
use yonder_report::{Aim, Comparison, Origin, Section};

use crate::commands::papers::simulate;

pub(super) fn run(seed: u64, effort: f64) -> Vec<Section> {
    FIGURES.iter().map(|figure| section(figure, simulate(figure, seed, effort))).collect()
}

fn section(figure: &Figure, outcome: Outcome) -> Section {
    Section {
        name: figure.name.to_owned(),
        source: figure.source.to_owned(),
        title: figure.title.to_owned(),
        origin: Origin::Simulated,
        words: Vec::new(),
        tables: outcome.tables,
        pictures: outcome.pictures,
        bars: outcome.bars,
        comparisons: outcome.checks.into_iter().map(comparison).collect(),
        notes: outcome.notes,
    }
}

fn comparison(check: Check) -> Comparison {
    Comparison {
        aim: if check.is_calibration { Aim::Calibration } else { Aim::WithinPercent(check.tolerance_percent) },
        paper: check.paper,
        ours: check.simulated,
        why: check.why.unwrap_or_default().to_owned(),
        what: check.what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_the_same_on_the_page() {
        for check in [
            Check::new("near", 2.0, 2.2),
            Check::new("far", 2.0, 3.0).because("It is far."),
            Check::new("so-so", 2.0, 2.5).within(30.0),
        ] {
            let (met, deviation) = (check.is_met(), check.deviation_percent());
            let compared = comparison(check.clone());
            assert_eq!((compared.is_met(), compared.deviation_percent()), (Some(met), deviation));
            assert_eq!(comparison(check.clone().calibration()).is_met(), None, "what an input fixes does not count");
            assert_eq!((compared.what, compared.why.as_str()), (check.what, check.why.unwrap_or("")));
        }
    }

    #[test]
    fn every_figure_is_a_section() {
        let sections = run(1, 0.001);
        assert!(sections.iter().map(|section| section.name.as_str()).eq(FIGURES.iter().map(|figure| figure.name)));
        assert!(sections.iter().any(|section| !section.tables.is_empty()));
    }
}
