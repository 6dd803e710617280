//! `yonder demo`: the main job on embedded far memory, within a minute.
//!
//! Two comparisons of busy-waiting faults with yielding ones, each at rising loads: random reads of an array, with the
//! requests made in the process, and the memcached-compatible server under load over loopback. Both serve a data set
//! five times larger than local memory. A table goes to the terminal, plots go to `report.html`, and the array's tail
//! latency to `array.svg` too, for documents.
//!
//! A machine with other work is no failure: what was measured stands beside how much of the CPUs the demo had (`cpu`).

mod array_part;
mod cpu;
mod kv_part;
mod turns;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use yonder::units::format_bytes;
use yonder_report::{Chart, FarMemory, Line, Picture, Quantity, Ratio, Report, Setting, text_tables, write_html};

use super::drawn;
use super::machine::{ensure_ready, machine, make_folder};
use crate::args::DemoArgs;
use crate::output::{json_line, line};

/// When the array's turns end, and when the server's do, from the start.
const ARRAY_END: Duration = Duration::from_secs(28);
const SERVER_END: Duration = Duration::from_secs(56);

/// Takes the object of each run.
type Emit<'a> = &'a mut dyn FnMut(&serde_json::Value) -> anyhow::Result<()>;

/// What one part measured.
struct Part {
    chart: Chart,
    ratios: Vec<Ratio>,
    /// What is to be known of how it was measured.
    told: Vec<String>,
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    ensure_ready("yonder demo")?;
    make_folder(&args.out)?;
    eprintln!("yonder demo: an array, then a server, for half a minute each");
    let mut emit = |object: &serde_json::Value| if args.json { json_line(object) } else { Ok(()) };
    let begun = Instant::now();
    let array = array_part::run(begun + ARRAY_END, &mut emit)?;
    let kv = kv_part::run(begun + SERVER_END, &mut emit)?;
    drawn::write(vec![tail_picture(&array.chart)], Some(&args.out))?;
    let told = [&*array.told, &kv.told].concat();
    let report = report(array, kv);
    if args.json {
        told.iter().for_each(|sentence| eprintln!("{sentence}"));
    } else {
        line(&text_tables(&report))?;
        told.iter().try_for_each(|sentence| line(sentence))?;
    }
    let page = write_html(&report, &args.out)?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// The 99.9th percentile of latency by load.
fn tail_picture(chart: &Chart) -> Picture {
    let caption = format!("P99.9 of latency by requests per second; emulated: {}", chart.far_memory);
    let line = |curve: &yonder_report::Curve| Line {
        name: curve.name.clone(),
        points: curve.points.iter().map(|point| (point.offered_per_s, point.p999_us)).collect(),
    };
    let lines = chart.curves.iter().map(line).collect();
    Picture::new("array", [&chart.title, &caption], [Quantity::Rate, Quantity::Latency], lines)
}

fn report(array: Part, kv: Part) -> Report {
    let setting = |name: &str, value: String| Setting { name: name.to_owned(), value };
    Report {
        title: "A page fault that yields".to_owned(),
        explanation: vec![
            "A program whose memory lives on another machine stops whenever it touches a page that is not local. With \
             busy-waiting faults its worker stops too, and every request behind it waits. With yielding faults the \
             worker parks the request that touched the page and serves others until the page has arrived."
                .to_owned(),
            "Each chart offers the same loads to both, in turn: shares of what either can serve, up to more than \
             that. Latency counts from the moment a request was meant to start, so a queue that builds up is seen."
                .to_owned(),
        ],
        command: "yonder demo".to_owned(),
        far_memory: FarMemory::Emulated("in the process, behind a modelled link".to_owned()),
        machine: machine(),
        settings: vec![
            setting("array", format!("{} of 8-byte reads at random places, sealed", format_bytes(array_part::MEMORY))),
            setting("server", format!("{} values of {} bytes, 95 % get, 5 % set", kv_part::KEYS, kv_part::VALUE_BYTES)),
            setting("local memory", format!("{} % of the data set", turns::LOCAL_PERCENT)),
            setting("workers", "1, with a dispatcher that also reclaims where it shares its CPU".to_owned()),
            setting("pages", "mapped by the worker".to_owned()),
        ],
        ratios: array.ratios.into_iter().chain(kv.ratios).collect(),
        charts: vec![array.chart, kv.chart],
        notes: vec![
            "Far memory is emulated inside the process: the link has the latency and the bandwidth named, everything \
             else (traps, page tables, copies, reclaim, scheduling) is real."
                .to_owned(),
            "The server's clients run on the same CPUs, so its chart shows a machine shared between both.".to_owned(),
            "The paper's figures were measured on an 8-worker machine with RDMA and a unikernel.".to_owned(),
        ],
    }
}
