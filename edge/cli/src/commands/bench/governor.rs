//! `yonder bench governor`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::programs::trade::{self, Settings, TradeResult, Way};

use super::launch::{Launcher, stop_on_ctrl_c};
use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, with_spread};

const COLUMNS: &[Column<TradeResult>] = &[
    Column("way", 14, |result| {
        let way = match result.way {
            Way::AllFixed => "fixed halves",
            Way::LessFixed => "fixed halves",
            Way::LessGoverned => "governed",
        };
        way.to_owned()
    }),
    Column("local", 10, |result| format_bytes(result.local_bytes)),
    Column("s", 22, |result| with_spread(result.seconds, result.seconds_spread, 2, "")),
    Column("x all fixed", 22, |result| with_spread(result.ratio, result.ratio_spread, 2, "")),
    Column("local, average", 14, |result| format_bytes(result.average_local_bytes)),
    Column("fetched", 10, |result| format_bytes(result.fetched_bytes)),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let settings = Settings { program: launcher.program().to_owned(), stop: stop_on_ctrl_c()?, ..args.bench.clone() };
    let results = with_bar("bench governor", |progress| trade::run(&settings, &launcher, progress))?;
    Printer::new(args.json, COLUMNS).all(&results)
}
