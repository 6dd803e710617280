//! Tables for the terminal and offline HTML reports: no scripts, no fonts and no images from anywhere.
//!
//! [`Results`] are sections with [`Table`]s, pictures and the papers' numbers beside ours: [`results_page`] is the page
//! of them, [`results_markdown`] the same in words, and [`text_table`] a table for a terminal. A [`Picture`] is one
//! plot of anything, and [`picture_svg`] makes a file of its own of it; [`Bars`] are bars, and [`bars_svg`] does the
//! same. A [`FaultReport`] says when and where a program had faults: [`fault_svg`] draws it, and [`fault_page`] is a
//! page with tables beside.
//!
//! Neighbours: `yonder bench` in `edge/cli` fills in pictures, `yonder run --report` reports of faults, and `yonder
//! demo` and `yonder report` results, also those of `research/figures`.

#![forbid(unsafe_code)]

mod axis;
mod bars;
mod faults;
mod faults_page;
mod html;
mod model;
mod numbers;
mod picture;
mod plot;
mod results;
mod results_page;
mod results_words;
mod table;
mod text;

use std::io;
use std::path::{Path, PathBuf};

pub use bars::{Bar, Bars, bars_svg, write_bars};
pub use faults::{FaultMap, FaultReport, FaultSite, FaultsOfTime, fault_svg};
pub use faults_page::fault_page;
pub use model::{FarMemory, Machine, Point, Setting};
pub use numbers::{percent, significant};
pub use picture::{Line, Picture, Quantity, picture_svg, write_pictures};
pub use results::{Aim, Comparison, Origin, Results, Section};
pub use results_page::results_page;
pub use results_words::{filled, results_markdown};
pub use table::{Cell, Column, Table};
pub use text::text_table;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The page could not be written.
    #[error("cannot write {}: {cause}: name a directory that can be written with --out DIR", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A plot could not be drawn.
    #[error("a plot of the report cannot be drawn: {0}")]
    Plot(String),
}

/// Writes the page as `report.html` into `directory`, which is created if need be, and returns the file's path.
pub fn write_html(results: &Results, directory: &Path) -> Result<PathBuf, ReportError> {
    write_file(directory, "report.html", &results_page(results)?)
}

/// Writes a file into `directory`, which is created if need be, and returns its path.
fn write_file(directory: &Path, name: &str, text: &str) -> Result<PathBuf, ReportError> {
    let path = directory.join(name);
    match std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, text)) {
        Ok(()) => Ok(path),
        Err(cause) => Err(ReportError::Write { path, cause }),
    }
}
