//! The papers' experiments, simulated: policies of `core` with modelled CPUs, queue pairs, links and memory nodes.
//!
//! A [`Figure`] is one experiment of a paper. [`Figure::run`] simulates it and returns tables, pictures and [`Check`]s:
//! the paper's own numbers beside ours. Every cost is a parameter of the one table in [`costs`], with where it comes
//! from; no figure has a cost of its own.
//!
//! Files: `figure` is what a figure is and gives, `costs` the table of parameters; the rest are the experiments, a
//! folder for each paper (docs/design/simulator.md).
//!
//! Invariants: no clock, no threads, no randomness but the seed's and no order of a hash map, so that the same seed
//! gives the same bytes; and a figure that drifts from what it showed fails a test.

#![forbid(unsafe_code)]

mod adios;
mod clio;
pub mod costs;
mod dilos;
mod figure;
mod hydra;
mod lightswap;

pub use figure::{Cell, Check, Column, Figure, Outcome, Run, Table};

/// Every figure, in the order of the papers.
pub const FIGURES: &[Figure] = &[
    costs::FIGURE,
    adios::TABLE1,
    adios::FIG2,
    adios::FIG7,
    adios::FIG8,
    adios::FIG9,
    adios::FIG10E,
    adios::FIG11,
    adios::SCALE,
    adios::HYBRID,
    dilos::FIG1,
    dilos::FIG6,
    dilos::TABLES,
    lightswap::TABLE1,
    lightswap::FIG10,
    lightswap::FIG11,
    clio::FIG4,
    clio::FIG5,
    clio::FIG8,
    clio::FIG13,
    clio::NODES,
    hydra::FIGURE,
];

/// The figure of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_for_a_command_line_and_no_two_are_one() {
        for (index, figure) in FIGURES.iter().enumerate() {
            let fit =
                |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
            assert!(!figure.name.is_empty() && figure.name.chars().all(fit), "{}", figure.name);
            assert_eq!(FIGURES.iter().position(|other| other.name == figure.name), Some(index), "{}", figure.name);
            assert_eq!(find(figure.name).map(|found| found.title), Some(figure.title));
        }
        assert!(find("no such figure").is_none());
    }
}
