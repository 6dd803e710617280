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
use yonder_report::{Line, Origin, Picture, Point, Quantity, Results, Section, Setting, Table, text_table, write_html};

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
    section: Section,
    /// The medians at rising loads, of each system.
    curves: Vec<(&'static str, Vec<Point>)>,
    /// What is to be known of how it was measured.
    sentences: Vec<String>,
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    ensure_ready("yonder demo")?;
    make_folder(&args.out)?;
    eprintln!("yonder demo: an array, then a server, for half a minute each");
    let mut emit = |object: &serde_json::Value| if args.json { json_line(object) } else { Ok(()) };
    let begun = Instant::now();
    let array = array_part::run(begun + ARRAY_END, &mut emit)?;
    let kv = kv_part::run(begun + SERVER_END, &mut emit)?;
    drawn::write(vec![tail_picture(&array)], Some(&args.out))?;
    let sentences = [&*array.sentences, &kv.sentences].concat();
    let results = results(vec![array.section, kv.section]);
    if args.json {
        sentences.iter().for_each(|sentence| eprintln!("{sentence}"));
    } else {
        line(&tables(&results))?;
        sentences.iter().try_for_each(|sentence| line(sentence))?;
    }
    let page = write_html(&results, &args.out)?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// The 99.9th percentile of latency by load.
fn tail_picture(part: &Part) -> Picture {
    let caption = format!("P99.9 of latency by requests per second; emulated: {}", far_memory(&part.section));
    let line = |(name, points): &(&str, Vec<Point>)| Line {
        name: (*name).to_owned(),
        points: points.iter().map(|point| (point.offered_per_s, point.p999_us)).collect(),
    };
    let lines = part.curves.iter().map(line).collect();
    Picture::new("array", [&part.section.title, &caption], [Quantity::Rate, Quantity::Latency], lines)
}

/// The link to far memory.
fn far_memory(section: &Section) -> &str {
    match &section.origin {
        Origin::Emulated(how) => how,
        Origin::Simulated | Origin::Measured => "none",
    }
}

/// All tables, and the paper's numbers beside ours, for a terminal.
fn tables(results: &Results) -> String {
    let mut out = format!("{}\n", results.title);
    for section in &results.sections {
        out += &format!("\n{}\nfar memory: EMULATED ({})\n\n", section.title, far_memory(section));
        section.tables.iter().for_each(|table| out += &text_table(table));
    }
    out += "\nsaturated: the server did not keep up, and latency shows the length of the queue\n\n";
    let mut ratios = Table::new("ratios", "", &[("ratio", 0), ("here", 2), ("paper", 2)]);
    let compared = || results.sections.iter().flat_map(|section| &section.comparisons);
    compared().for_each(|ratio| ratios.push(vec![ratio.what.as_str().into(), ratio.ours.into(), ratio.paper.into()]));
    out += &format!("{}\n", text_table(&ratios));
    compared().for_each(|ratio| out += &format!("{}: {}\n", ratio.what, ratio.why));
    out
}

fn results(sections: Vec<Section>) -> Results {
    let setting = |name: &str, value: String| Setting { name: name.to_owned(), value };
    Results {
        title: "A page fault that yields".to_owned(),
        words: vec![
            "A program whose memory lives on another machine stops whenever it touches a page that is not local. With \
             busy-waiting faults its worker stops too, and every request behind it waits. With yielding faults the \
             worker parks the request that touched the page and serves others until the page has arrived."
                .to_owned(),
            "Each chart offers the same loads to both, in turn: shares of what either can serve, up to more than \
             that. Latency counts from the moment a request was meant to start, so a queue that builds up is seen."
                .to_owned(),
            "Far memory is emulated inside the process: the link has the latency and the bandwidth named, everything \
             else (traps, page tables, copies, reclaim, scheduling) is real. The server's clients run on the same \
             CPUs, so its chart shows a machine shared between both. The paper's figures were measured on an 8-worker \
             machine with RDMA and a unikernel."
                .to_owned(),
        ],
        command: "yonder demo".to_owned(),
        machine: machine(),
        settings: vec![
            setting("far memory", "emulated in the process, behind a modelled link".to_owned()),
            setting("array", format!("{} of 8-byte reads at random places, sealed", format_bytes(array_part::MEMORY))),
            setting("server", format!("{} values of {} bytes, 95 % get, 5 % set", kv_part::KEYS, kv_part::VALUE_BYTES)),
            setting("local memory", format!("{} % of the data set", turns::LOCAL_PERCENT)),
            setting("workers", "1, with a dispatcher that also reclaims where it shares its CPU".to_owned()),
            setting("pages", "mapped by the worker".to_owned()),
        ],
        sections,
    }
}

#[cfg(test)]
mod tests {
    use yonder_report::{Aim, Comparison};

    use super::*;

    #[test]
    fn the_terminal_has_every_table_and_every_ratio() {
        let mut table = Table::new("loads", "Loads", &[("faults", 0), ("p99_us", 1), ("saturated", 0)]);
        table.push(vec!["yield".into(), 7.25.into(), "yes".into()]);
        let section = Section {
            name: "array".to_owned(),
            source: String::new(),
            title: "Random reads".to_owned(),
            origin: Origin::Emulated("2.5 us".to_owned()),
            words: Vec::new(),
            tables: vec![table],
            pictures: Vec::new(),
            bars: Vec::new(),
            comparisons: vec![Comparison {
                what: "peaks".to_owned(),
                paper: 1.58,
                ours: 1.714,
                aim: Aim::None,
                why: "2 against 1".to_owned(),
            }],
            notes: Vec::new(),
        };
        let text = tables(&results(vec![section]));
        for part in [
            "A page fault that yields\n\nRandom reads\nfar memory: EMULATED (2.5 us)\n\n",
            "yield      7.2  yes\n",
            "peaks  1.71   1.58\n\npeaks: 2 against 1\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
