//! Every cost and every size that a simulation uses, with where it comes from: one table serves all figures.
//!
//! A [`Cost`] is a paper's own number ([`Origin::Paper`]), follows from such numbers ([`Origin::Derived`]), was
//! measured with Yonder ([`Origin::Measured`]), or is what no paper tells and one number of the whole fixes
//! ([`Origin::Calibrated`]). A calibrated cost says which number fixed it; it is fixed once and serves all figures.

pub mod adios;
pub mod clio;
pub mod dilos;
pub mod hydra;
pub mod lightswap;
pub mod testbed;
pub mod yonder;

use crate::figure::{Figure, Outcome, Run, Table, row};

/// A parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Its name, with the unit last: `fetch_ns`.
    pub name: &'static str,
    /// Its value, in that unit.
    pub value: f64,
    /// How we know.
    pub origin: Origin,
    /// From where: a paper's section, a measurement, or the number that fixed it.
    pub source: &'static str,
}

/// How a parameter is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A paper says so.
    Paper,
    /// It follows from what a paper says.
    Derived,
    /// `yonder bench` measured it.
    Measured,
    /// No source tells it; one number, named in the source, fixes it.
    Calibrated,
}

impl Origin {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Derived => "derived",
            Self::Measured => "measured",
            Self::Calibrated => "calibrated",
        }
    }
}

impl Cost {
    /// The value as whole nanoseconds.
    #[must_use]
    pub const fn ns(&self) -> u64 {
        self.value as u64
    }
}

/// Declares the costs of a file, and `ALL` of them.
macro_rules! costs {
    ($($name:ident, $key:literal, $value:expr, $origin:ident, $source:literal;)*) => {
        $(
            #[doc = $source]
            pub const $name: $crate::costs::Cost = $crate::costs::Cost {
                name: $key, value: $value, origin: $crate::costs::Origin::$origin, source: $source,
            };
        )*
        /// All of them.
        pub const ALL: &[$crate::costs::Cost] = &[$($name),*];
    };
}
pub(crate) use costs;

/// The files of costs, each with the name that its costs have in the table.
const GROUPS: &[(&str, &[Cost])] = &[
    ("testbed", testbed::ALL),
    ("adios", adios::ALL),
    ("dilos", dilos::ALL),
    ("lightswap", lightswap::ALL),
    ("clio", clio::ALL),
    ("hydra", hydra::ALL),
    ("yonder", yonder::ALL),
];

/// `yonder papers costs`: the table itself.
pub(crate) const FIGURE: Figure = Figure {
    name: "costs",
    source: "all papers, and our own measurements",
    title: "The parameters of every simulation, and where they come from",
    run: table,
};

fn table(_: &mut Run<'_>) -> Outcome {
    let mut table =
        Table::new("costs", "Parameters", &[("of", 0), ("name", 0), ("value", 2), ("origin", 0), ("source", 0)]);
    for (group, costs) in GROUPS {
        for cost in *costs {
            let mut cells = row([group, cost.name, cost.origin.name(), cost.source], []);
            cells.insert(2, cost.value.into());
            table.push(cells);
        }
    }
    Outcome { tables: vec![table], ..Outcome::default() }
}
