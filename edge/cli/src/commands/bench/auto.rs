//! `yonder bench auto`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::programs::auto::{self, AutoResult, Settings};

use super::launch::{Launcher, stop_on_ctrl_c};
use crate::args::Json;
use crate::output::Bar;
use crate::table::{Column, Printer};

const COLUMNS: &[Column<AutoResult>] = &[
    Column("program", 17, |result| result.program.to_owned()),
    Column("all local s", 11, |result| format!("{:.2}", result.seconds)),
    Column("allowed", 7, |result| format!("{:.1}%", 100.0 * result.allowed)),
    Column("slower", 7, |result| format!("{:+.1}%", 100.0 * result.slowdown)),
    Column("spread", 16, |result| {
        let [least, most] = result.slowdown_spread;
        format!("{:+.1}% to {:+.1}%", 100.0 * least, 100.0 * most)
    }),
    Column("in faults", 9, |result| format!("{:.1}%", 100.0 * result.stalled)),
    Column("more work", 9, |result| format!("{:+.1}%", 100.0 * result.worked_more)),
    Column("peak", 10, |result| format_bytes(result.peak_bytes)),
    Column("local of all", 12, |result| format_bytes(result.all_local_bytes)),
    Column("local", 10, |result| format_bytes(result.average_local_bytes)),
    Column("fetched", 10, |result| format_bytes(result.fetched_bytes)),
    Column("wrong", 5, |result| result.wrong.to_string()),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let program = launcher.program().to_string_lossy().into_owned();
    let words = |local: &[&str]| {
        let shared = ["run", "--far", "{far}", "--memory", "{memory}", "--summary", "{summary}"];
        [&[program.as_str()], &shared[..], local, &["--"]].concat().into_iter().map(str::to_owned).collect()
    };
    let settings = Settings {
        all_prefix: words(&["--local", "100%"]),
        auto_prefix: words(&["--local", "auto", "--slowdown", "{slowdown}"]),
        stop: stop_on_ctrl_c()?,
        ..args.bench.clone()
    };
    let (bar, mut printer) = (Bar::new("bench auto"), Printer::new(args.json, COLUMNS));
    let mut printed = Ok(());
    let skip = |program: &str, why: &str| eprintln!("SKIP {program}: {why}");
    auto::run(&settings, &launcher, &mut |what, share| bar.show(what, share), skip, |result| {
        let print = || printed = std::mem::replace(&mut printed, Ok(())).and_then(|()| printer.print(&result));
        bar.beside(print);
    })?;
    printed
}
