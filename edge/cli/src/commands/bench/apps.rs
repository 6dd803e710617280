//! The applications on a memory node, and `bench migrate`: flags in, tables or JSON out.

use serde::Serialize;
use serde_json::Value;
use yonder_bench::migrate::{self, MigrateResult, Progress};
use yonder_bench::{NodeChoice, Target};
use yonder_clio::AppError;
use yonder_clio::frame::FrameSettings;
use yonder_clio::image::ImageSettings;
use yonder_clio::objects::ObjectsSettings;
use yonder_clio::tree::TreeSettings;

use super::launch::Launcher;
use super::pictures;
use crate::args::{FrameArgs, ImageArgs, ObjectsArgs, Pictured, TreeArgs};
use crate::commands::drawn;
use crate::output::{Bar, json_line, line};

/// Memory of a node that is started for an application.
const MEMORY: u64 = 4 << 30;

/// Columns of every application's table, behind its own.
const COSTS: [(&str, &str); 4] =
    [("ops/s", "/ops_per_s"), ("p50 us", "/p50_us"), ("p99 us", "/p99_us"), ("round trips", "/round_trips")];

pub(super) fn run_image(args: &ImageArgs) -> anyhow::Result<()> {
    let columns = [("clients", "/clients"), ("photos/s", "/photos_per_s"), ("bytes", "/compressed_bytes")];
    run_app("bench image", &args.target, args.json, &columns, |node, progress| {
        let settings = ImageSettings {
            clients: args.clients.0.clone(),
            photos: args.photos,
            side: args.side,
            files: args.files.clone(),
            ..ImageSettings::new(node)
        };
        yonder_clio::image::run(&settings, progress)
    })
}

pub(super) fn run_tree(args: &TreeArgs) -> anyhow::Result<()> {
    let columns = [("way", "/way"), ("trips/op", "/round_trips_per_op"), ("faster", "/times_faster_than_reads")];
    run_app("bench tree", &args.target, args.json, &columns, |node, progress| {
        let settings = TreeSettings {
            words: args.words.clone(),
            keys: args.keys,
            clients: args.clients,
            searches: args.searches,
            ..TreeSettings::new(node)
        };
        yonder_clio::tree::run(&settings, progress)
    })
}

pub(super) fn run_objects(args: &ObjectsArgs) -> anyhow::Result<()> {
    let columns = [("store", "/store"), ("mix", "/mix"), ("keys", "/distribution")];
    run_app("bench objects", &args.target, args.json, &columns, |node, progress| {
        let (clients, operations) = (args.clients, args.operations);
        let settings = ObjectsSettings { clients, operations, ..ObjectsSettings::new(node) };
        yonder_clio::objects::run(&settings, progress)
    })
}

pub(super) fn run_frame(args: &FrameArgs) -> anyhow::Result<()> {
    let columns = [("query", "/query"), ("place", "/place"), ("matched", "/matched"), ("fewer", "/times_fewer_bytes")];
    run_app("bench frame", &args.target, args.json, &columns, |node, progress| {
        let (file, rows, rounds) = (args.file.clone(), args.rows, args.rounds);
        yonder_clio::frame::run(&FrameSettings { file, rows, rounds, ..FrameSettings::new(node) }, progress)
    })
}

pub(super) fn run_migrate(args: &Pictured<migrate::Settings>) -> anyhow::Result<()> {
    struct Shown(Bar);

    impl Progress for Shown {
        fn stage(&self, what: &str) {
            self.0.show(what, 0.5);
        }
    }

    let (settings, json, out) = args.parts();
    let result = migrate::run(settings, &Shown(Bar::new("bench migrate")))?;
    if json { json_line(&result) } else { print_migrate(&result) }?;
    drawn::write(pictures::migrate(&result), out)
}

fn print_migrate(result: &MigrateResult) -> anyhow::Result<()> {
    line(&format!(
        "{} regions, {:.0} MiB moved in {:.2} s; nothing lost in {} pages\n\
         a region paused for {:.1} ms (median; longest {:.1} ms), of which the source held it up {:.1} ms at most\n\
         {:.0} operations/s before, a median of {:.0} us; one client made {:.0}/s before, and {:.0}/s while others paused",
        result.regions,
        result.moved_bytes as f64 / f64::from(1 << 20),
        result.drain_seconds,
        result.pages_checked,
        result.pause_median_us / 1e3,
        result.pause_max_us / 1e3,
        result.held_up_max_us / 1e3,
        result.ops_per_s,
        result.p50_us,
        result.ops_per_s_of_one,
        result.ops_per_s_beside_pauses,
    ))
}

/// Runs an application against a node, which is started if none is named, and shows its results.
fn run_app<R: Serialize>(
    title: &str,
    target: &NodeChoice,
    json: bool,
    columns: &[(&str, &str)],
    run: impl FnOnce(String, &mut dyn FnMut(&str, f64)) -> Result<Vec<R>, AppError>,
) -> anyhow::Result<()> {
    let target = Target::new(target, &Launcher::new()?, MEMORY, None)?;
    let bar = Bar::new(title);
    let results = run(target.url().to_owned(), &mut |what, share| bar.show(what, share))?;
    drop(bar);
    if json {
        return results.iter().try_for_each(json_line);
    }
    let columns: Vec<_> = columns.iter().chain(&COSTS).collect();
    line(&columns.iter().map(|(name, _)| format!("{name:>14}")).collect::<String>())?;
    for result in &results {
        let value = serde_json::to_value(result)?;
        line(&columns.iter().map(|(_, path)| format!("{:>14}", cell(value.pointer(path)))).collect::<String>())?;
    }
    Ok(())
}

/// A value as a table shows it.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(number) if number.fract() != 0.0 => format!("{number:.1}"),
            _ => number.to_string(),
        },
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_short() {
        let value = json!({"a": 1.25, "b": 7, "c": "way", "d": null});
        let shown: Vec<String> = ["/a", "/b", "/c", "/d", "/e"].map(|path| cell(value.pointer(path))).to_vec();
        assert_eq!(shown, ["1.2", "7", "way", "-", "-"]);
    }
}
