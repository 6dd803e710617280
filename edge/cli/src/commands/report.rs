//! `yonder report`: the papers' experiments, simulated and measured, as one page.
//!
//! `report.html` is to be looked at, `report.json` has everything that is on it, and `RESULTS.md` is for a repository.
//! Nothing in them tells the time, so that a report of simulations alone is the same each time it is made.
//!
//! With `--readme` the table of figures in README is made anew by the same command (`readme`).
//!
//! Files: `simulated` are all figures of `yonder papers`; `loads`, `local`, `dispatch`, `steps` and `switches` measure
//! on this machine, `trial` has what the first three share.

mod dispatch;
mod loads;
mod local;
mod readme;
mod scale;
mod simulated;
mod steps;
mod switches;
mod trial;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use yonder_report::{Results, Section, Setting, results_markdown, results_page};

use self::scale::Scale;
use super::machine::{ensure_ready, machine, make_folder};
use crate::args::{ReportArgs, ReportSet};
use crate::output::line;

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let sets = args.sets();
    if args.readme.is_some() || sets.iter().any(|set| *set != ReportSet::Sim) {
        ensure_ready(&args.command())?;
    }
    make_folder(&args.out)?;
    make_room(&args.results_path())?;
    let mut sections = Vec::new();
    for set in &sets {
        sections.extend(sections_of(*set, args)?);
    }
    let results = results(args, sections);
    tell(&results.sections)?;
    let json = serde_json::to_string_pretty(&results)? + "\n";
    write(&args.out.join("report.html"), &results_page(&results)?)?;
    write(&args.out.join("report.json"), &json)?;
    write(&args.results_path(), &results_markdown(&results))?;
    if let Some(readme) = &args.readme {
        readme::run(readme, args.again, Scale::of(args.depth.quick), &args.command())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn sections_of(set: ReportSet, args: &ReportArgs) -> anyhow::Result<Vec<Section>> {
    let scale = Scale::of(args.depth.quick);
    Ok(match set {
        ReportSet::Sim => simulated::run(args.depth.seed, args.depth.effort()),
        ReportSet::Array => vec![loads::run(scale)?],
        ReportSet::Local => vec![local::run(scale)?],
        ReportSet::Dispatch => vec![dispatch::run(scale)?],
        ReportSet::Breakdown => vec![steps::run(scale)?],
        ReportSet::Switch => vec![switches::run(scale)?],
    })
}

fn results(args: &ReportArgs, sections: Vec<Section>) -> Results {
    let setting = |name: &str, value: String| Setting { name: name.to_owned(), value };
    let depth = if args.depth.quick { "a glance: a twentieth of the requests, single short runs" } else { "full" };
    Results {
        title: "The papers' experiments".to_owned(),
        words: vec![
            "Experiments of the papers behind Yonder, with the papers' own numbers beside ours. Simulations have modelled CPUs, \
             links and memory nodes, with Yonder's policies; every cost is in the table of parameters. Measurements are this \
             machine's, with far memory emulated behind a modelled link."
                .to_owned(),
            "A simulation is asked to come near the paper's number. A measurement is on another machine with another network, so \
             the paper's number is a reference: it is met where ours is at least as good."
                .to_owned(),
        ],
        command: args.command(),
        machine: machine(),
        settings: vec![
            setting("version", env!("CARGO_PKG_VERSION").to_owned()),
            setting("commit", env!("YONDER_COMMIT").to_owned()),
            setting("build", if cfg!(debug_assertions) { "debug: its times mean nothing" } else { "release" }.to_owned()),
            setting("seed", args.depth.seed.to_string()),
            setting("depth", depth.to_owned()),
        ],
        sections,
    }
}

/// A line for each experiment: how many of its checks are met.
fn tell(sections: &[Section]) -> anyhow::Result<()> {
    let width = sections.iter().map(|section| section.name.len()).max().unwrap_or(0);
    sections.iter().try_for_each(|section| {
        let counted = match section.met() {
            (_, 0) => "no checks".to_owned(),
            (met, all) => format!("{met} of {all} met"),
        };
        line(&format!("{:width$}  {counted:>14}  {}", section.name, section.title))
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| refused(path))?;
    eprintln!("report: {}", path.display());
    Ok(())
}

/// Makes the folder of a file that is to be written in the end: what cannot be written should not be found out then.
fn make_room(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), std::fs::create_dir_all).with_context(|| refused(path))
}

fn refused(path: &Path) -> String {
    format!("cannot write {}: give another place with --out or --results", path.display())
}
