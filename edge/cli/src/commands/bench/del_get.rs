//! `yonder bench del-get`: its table or its JSON.

use anyhow::Context as _;
use yonder::units::format_bytes;
use yonder_bench::del_get::{DelGetResult, Settings, run as measure};

use crate::args::DelGetArgs;
use crate::commands::run::Scratch;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &DelGetArgs) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's file, to start it again")?;
    let program = program.into_os_string().into_string().ok().context("this program's path is not text")?;
    let folder = Scratch::new("del-get")?;
    let (local, memory) = (args.local.to_string(), args.memory.to_string());
    let words = ["run", "--far", &args.far, "--local", &local, "--memory", &memory];
    let more = ["--transfer", "{transfer}", "--board", "{board}", "--"];
    let settings = Settings {
        prefix: std::iter::once(program).chain(words.into_iter().chain(more).map(str::to_owned)).collect(),
        keys: args.keys,
        value_bytes: args.value_size,
        deleted_percent: args.deleted.into(),
        local_bytes: args.local,
        runs: args.runs,
        folder: folder.path().to_owned(),
    };
    let bar = Bar::new("bench del-get");
    let results = measure(&settings, &mut |what, share| bar.show(what, share))?;
    drop(bar);
    if args.json {
        return results.iter().try_for_each(json_line);
    }
    line(&format!(
        "redis-server, {} keys of {} B of which {} % are deleted; {} local, far memory {}; medians of {} runs",
        args.keys,
        args.value_size,
        args.deleted,
        format_bytes(args.local),
        args.far,
        args.runs
    ))?;
    line(&format!(
        "{:>9} {:>13} {:>10} {:>10} {:>18} {:>10} {:>7}",
        "transfer", "gets fetched", "least", "most", "sets, dels moved", "gets/s", "errors"
    ))?;
    results.iter().try_for_each(|result| line(&row(result)))?;
    let [pages, live] = &results;
    let saved = |pages: u64, live: u64| 100.0 * (1.0 - live as f64 / pages as f64);
    line(&format!(
        "guided paging fetches {:.0} % less for gets, and moves {:.0} % less before",
        saved(pages.get_fetched_bytes, live.get_fetched_bytes),
        saved(pages.before_bytes, live.before_bytes)
    ))
}

fn row(result: &DelGetResult) -> String {
    let name = format!("{:?}", result.transfer).to_lowercase();
    format!(
        "{name:>9} {:>13} {:>10} {:>10} {:>18} {:>10.0} {:>7}",
        format_bytes(result.get_fetched_bytes),
        format_bytes(result.get_fetched_bytes_spread[0]),
        format_bytes(result.get_fetched_bytes_spread[1]),
        format_bytes(result.before_bytes),
        result.ops_per_s,
        result.errors
    )
}
