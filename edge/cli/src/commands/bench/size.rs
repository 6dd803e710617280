//! `yonder bench size`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::programs::size::{self, Settings, SizeResult};

use super::launch::{Launcher, stop_on_ctrl_c};
use crate::args::Json;
use crate::output::Bar;
use crate::table::{Column, Printer};

const COLUMNS: &[Column<SizeResult>] = &[
    Column("program", 17, |result| result.program.to_owned()),
    Column("local", 10, |result| format_bytes(result.local_bytes)),
    Column("predicted s", 11, |result| format!("{:.2}", result.predicted_seconds)),
    Column("took s", 8, |result| format!("{:.2}", result.seconds)),
    Column("off", 6, |result| format!("{:+.0}%", 100.0 * result.error)),
    Column("predicted pages", 15, |result| result.predicted_pages.to_string()),
    Column("fetched pages", 13, |result| result.fetched_pages.to_string()),
    Column("wrong", 5, |result| result.wrong.to_string()),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let program = launcher.program().to_string_lossy().into_owned();
    let words = |words: &[&str]| [&[program.as_str()], words].concat().into_iter().map(str::to_owned).collect();
    let shared = ["--far", "{far}", "--memory", "{memory}", "--summary", "{summary}"];
    let settings = Settings {
        size_prefix: words(&[&["size"], &shared[..], &["--points", "{points}", "--"]].concat()),
        run_prefix: words(&[&["run"], &shared[..], &["--local", "{local}", "--"]].concat()),
        stop: stop_on_ctrl_c()?,
        ..args.bench.clone()
    };
    let (bar, mut printer) = (Bar::new("bench size"), Printer::new(args.json, COLUMNS));
    let mut printed = Ok(());
    let skip = |program: &str, why: &str| eprintln!("SKIP {program}: {why}");
    size::run(&settings, &launcher, &mut |what, share| bar.show(what, share), skip, |result| {
        let print = || printed = std::mem::replace(&mut printed, Ok(())).and_then(|()| printer.print(&result));
        bar.beside(print);
    })?;
    printed
}
