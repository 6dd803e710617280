//! `yonder run --report`: the faults of a run as a picture, from the records that its processes have kept.
//!
//! Neighbours: `yonder-preload-protocol` has the records, `symbols` names addresses, `yonder-report` draws.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use yonder::units::format_bytes;
use yonder_preload_protocol::{Faults, Figures, Record, Tally};
use yonder_report::{FarMemory, FaultMap, FaultReport, FaultSite, FaultsOfTime, fault_page, fault_svg};

use super::symbols::{Symbols, program_name};

/// What a file's name can end with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Svg,
    Html,
}

/// The file that somebody wants.
#[derive(Debug)]
pub(super) struct ReportFile<'a> {
    path: &'a Path,
    format: Format,
}

impl<'a> ReportFile<'a> {
    /// Says what cannot work before anything is started.
    pub(super) fn check(path: &'a Path, faults: Faults) -> anyhow::Result<Self> {
        let shown = path.display();
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Format::Svg,
            Some("html") => Format::Html,
            _ => bail!("--report writes an SVG or a page: name a file that ends with .svg or .html, not {shown}"),
        };
        ensure!(
            faults == Faults::Inline,
            "threads that watch for faults do not know where they come from: --report needs --faults inline"
        );
        let is_new = !path.exists();
        let written = File::options().append(true).create(true).open(path);
        written.with_context(|| format!("--report cannot be written to {shown}"))?;
        if is_new {
            // It comes when there is something in it.
            let _ = std::fs::remove_file(path);
        }
        Ok(Self { path, format })
    }

    /// Writes what the processes have recorded into a folder.
    pub(super) fn write(&self, records: &Path, summary: &RunSummary<'_>) -> anyhow::Result<PathBuf> {
        let records = Record::read_all(records).context("the records of the run cannot be read")?;
        let report = report(&records, summary);
        let text = match self.format {
            Format::Svg => fault_svg(&report)?,
            Format::Html => fault_page(&report)?,
        };
        std::fs::write(self.path, text).with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self.path.to_owned())
    }
}

/// What is known of a run beside its records.
pub(super) struct RunSummary<'a> {
    pub(super) title: String,
    pub(super) far: &'a str,
    pub(super) totals: String,
    pub(super) figures: &'a Figures,
}

fn report(records: &[Record], summary: &RunSummary<'_>) -> FaultReport {
    let time = Record::over_time(records);
    FaultReport {
        title: summary.title.clone(),
        far_memory: match summary.far.strip_prefix("emu://") {
            Some(how) => FarMemory::Emulated(how.trim_start_matches('?').replace('&', ", ")),
            // A layer over it, or a tier of it.
            None if summary.far.contains("emu://") => FarMemory::Emulated(summary.far.to_owned()),
            None => FarMemory::Remote(summary.far.to_owned()),
        },
        totals: summary.totals.clone(),
        part_seconds: seconds(time.width),
        over_time: time.slots.iter().map(faults).collect(),
        map: map(records),
        sites: sites(records),
        notes: notes(records, summary.figures),
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn faults(tally: &Tally) -> FaultsOfTime {
    let Tally { major_faults, minor_faults, waited_ns } = *tally;
    FaultsOfTime { major_faults, minor_faults, waited_seconds: seconds(waited_ns) }
}

/// The map of the process with the most major faults: others use the same addresses for something else.
fn map(records: &[Record]) -> FaultMap {
    let Some(record) = records.iter().max_by_key(|record| record.total().major_faults) else {
        return FaultMap::default();
    };
    let map = record.map();
    let whose = if records.len() > 1 {
        format!(" Of {}, process {}.", program_name(&record.modules), record.modules.process)
    } else {
        String::new()
    };
    FaultMap {
        caption: format!("Far memory from its first byte; darker: more, by logarithm.{whose}"),
        part_seconds: seconds(map.time_ns),
        part_bytes: map.bytes,
        faults: map.faults,
    }
}

/// All call sites by name, those that waited longest first. Processes of one program share them.
fn sites(records: &[Record]) -> Vec<FaultSite> {
    let mut symbols = Symbols::default();
    let mut sums: HashMap<_, (Tally, BTreeSet<u32>)> = HashMap::new();
    for record in records {
        let program = program_name(&record.modules);
        for (address, tally) in &record.sites {
            let (sum, processes) = sums.entry((symbols.name(&record.modules, *address), program.clone())).or_default();
            *sum += *tally;
            processes.insert(record.modules.process);
        }
    }
    let mut sites: Vec<FaultSite> = sums
        .into_iter()
        .map(|((named, program), (tally, processes))| FaultSite {
            name: named.name,
            line: named.line,
            process: match processes.first() {
                Some(process) if processes.len() == 1 => format!("{program} {process}"),
                _ => format!("{program}, {} processes", processes.len()),
            },
            faults: faults(&tally),
        })
        .collect();
    let others: Tally = records.iter().map(|record| record.others).sum();
    if others != Tally::default() {
        let (name, line, process) = ("others, for which there was no room".to_owned(), String::new(), String::new());
        sites.push(FaultSite { name, line, process, faults: faults(&others) });
    }
    sites.sort_by(|one, other| {
        let longest = other.faults.waited_seconds.total_cmp(&one.faults.waited_seconds);
        longest.then_with(|| one.name.cmp(&other.name))
    });
    sites
}

fn notes(records: &[Record], figures: &Figures) -> Vec<String> {
    let recorded: Tally = records.iter().map(Record::total).sum();
    let mut notes = vec![
        format!(
            "{} major and {} minor faults were recorded, with the instruction that had each; at most {} of the program's memory \
             was far. Pages that were brought for a system call without a fault are not among them.",
            recorded.major_faults,
            recorded.minor_faults,
            format_bytes(figures.peak_far_bytes)
        ),
        "Functions of libyonder_preload.so are Yonder's own: they copy buffers for system calls, and objects that are resized."
            .to_owned(),
        "An instruction without a name is of a program whose names were removed: the first number is where its function begins."
            .to_owned(),
    ];
    let without = figures.processes.saturating_sub(records.len() as u64);
    if without > 0 {
        notes.push(format!("{without} more processes used far memory and have no record."));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path, faults: Faults) -> String {
        format!("{:#}", ReportFile::check(path, faults).unwrap_err())
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["report", "report.png", "svg", ".svg"] {
            assert!(refusal(&folder.path().join(name), Faults::Inline).contains(".svg or .html"), "{name}");
        }
        let path = folder.path().join("report.svg");
        assert!(refusal(&path, Faults::Monitor).contains("--faults inline"));
        assert!(refusal(&folder.path().join("no/report.html"), Faults::Inline).contains("cannot be written to"));
        assert_eq!(ReportFile::check(&path, Faults::Inline).unwrap().format, Format::Svg);
        assert!(!path.exists(), "a file without a report was left");
        std::fs::write(&path, "old").unwrap();
        ReportFile::check(&path, Faults::Inline).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old", "a report was destroyed before there was another");
    }

    #[test]
    fn a_run_without_records_has_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let (path, records) = (folder.path().join("report.html"), folder.path().join("records"));
        std::fs::create_dir(&records).unwrap();
        let figures = Figures { processes: 2, ..Figures::default() };
        let summary = RunSummary { title: "a <b>".into(), far: "tcp://c:1", totals: "none".into(), figures: &figures };
        ReportFile::check(&path, Faults::Inline).unwrap().write(&records, &summary).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains("a &lt;b&gt;") && page.contains("2 more processes used far memory"), "{page}");
    }
}
