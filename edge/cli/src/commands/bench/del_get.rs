//! `yonder bench del-get`: its table or its JSON.

use anyhow::Context as _;
use tempfile::TempDir;
use yonder::units::format_bytes;
use yonder_bench::del_get::{DelGetResult, Settings, run as measure};

use super::launch::Launcher;
use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number};

const COLUMNS: &[Column<DelGetResult>] = &[
    Column("transfer", 9, |result| format!("{:?}", result.transfer).to_lowercase()),
    Column("gets fetched", 13, |result| format_bytes(result.get_fetched_bytes)),
    Column("least", 10, |result| format_bytes(result.get_fetched_bytes_spread[0])),
    Column("most", 10, |result| format_bytes(result.get_fetched_bytes_spread[1])),
    Column("sets, dels moved", 18, |result| format_bytes(result.before_bytes)),
    Column("gets/s", 10, |result| number(result.ops_per_s, 0)),
    Column("errors", 7, |result| result.errors.to_string()),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let (folder, launcher) = (TempDir::with_prefix("yonder-del-get-")?, Launcher::new()?);
    let program = launcher.program().to_str().context("this program's path is not text")?;
    let Settings { far, keys, value_bytes, deleted_percent, runs, .. } = &args.bench;
    let (local, memory) = (args.bench.local.to_string(), args.bench.memory.to_string());
    let words = [program, "run", "--far", far, "--local", &local, "--memory", &memory];
    let more = ["--transfer", "{transfer}", "--board", "{board}", "--"];
    let settings = Settings {
        prefix: words.into_iter().chain(more).map(str::to_owned).collect(),
        folder: folder.path().to_owned(),
        ..args.bench.clone()
    };
    let results = with_bar("bench del-get", |progress| measure(&settings, progress))?;
    let mut printer = Printer::new(args.json, COLUMNS);
    printer.say(&format!(
        "redis-server, {keys} keys of {value_bytes} B of which {deleted_percent} % are deleted; {} local, far memory {far}; \
         medians of {runs} runs",
        format_bytes(settings.local)
    ))?;
    printer.all(&results)?;
    let [pages, live] = &results;
    let saved = |pages: u64, live: u64| 100.0 * (1.0 - live as f64 / pages as f64);
    printer.say(&format!(
        "guided paging fetches {:.0} % less for gets, and moves {:.0} % less before",
        saved(pages.get_fetched_bytes, live.get_fetched_bytes),
        saved(pages.before_bytes, live.before_bytes)
    ))
}
