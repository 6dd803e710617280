//! `yonder top`: a live view of a server that was started with `--metrics`, or of all processes with far memory; on the
//! terminal, or in a browser.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Instant;

use rustix::process::geteuid;
use yonder::units::format_bytes;
use yonder_metrics::Shows;
use yonder_metrics::top::{Target, TopSettings};
use yonder_settings::Row;
use yonder_web::WebSettings;

use super::processes::{Id, Process, Processes, folders, percent};
use crate::args::TopArgs;
use crate::output::line;
use crate::table::{aligned, titled};

/// The terminal begins anew.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Counters that rates are made of.
const COUNTERS: [&str; 5] = ["worked_ns", "stalled_ns", "major_faults", "fetched_bytes", "written_bytes"];
/// What a process has counted of them.
type Counted = [u64; COUNTERS.len()];
/// What of a process needs no rate: its number, sizes, and command.
type Cells = [String; 6];
const TITLES: [&str; 10] =
    ["PID", "FAR", "LOCAL", "LIMIT", "SOFT LIMIT", "SLOWER", "MISSES/S", "IN/S", "OUT/S", "COMMAND"];

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    if let Some(address) = &args.web {
        return web(args, address);
    }
    if args.processes {
        return processes(args);
    }
    let settings =
        TopSettings { address: args.attach.clone(), shows: shows(args)?, interval: args.interval, once: args.once };
    yonder_metrics::top::run(&settings)?;
    Ok(ExitCode::SUCCESS)
}

/// What is shown to a server that asks who looks.
fn shows(args: &TopArgs) -> anyhow::Result<Shows> {
    Ok(match args.credential.of_client()? {
        None => Shows::Nothing,
        Some(credential) if args.credential.is_typed() => Shows::Typed(credential),
        Some(credential) => Shows::IfAsked(credential),
    })
}

/// Serves the page until it is interrupted.
fn web(args: &TopArgs, address: &str) -> anyhow::Result<ExitCode> {
    args.open.check([address])?;
    let server = if args.processes { None } else { Some(Target::new(&args.attach, shows(args)?)?) };
    let all_users = geteuid().is_root();
    let settings = WebSettings { address: address.to_owned(), server, folders: Box::new(move || folders(all_users)) };
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let page = yonder_web::serve(settings)?;
    eprintln!("yonder top: open {} in a browser; Ctrl-C ends it", page.url());
    stopped.recv()?;
    Ok(ExitCode::SUCCESS)
}

fn processes(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let lives = std::io::stdout().is_terminal() && !args.once;
    let mut processes = Processes::new(geteuid().is_root());
    let mut before = look(&mut processes).0;
    loop {
        let began = Instant::now();
        std::thread::sleep(args.interval);
        let (now, rows) = look(&mut processes);
        let seconds = began.elapsed().as_secs_f64();
        let cells = rows.into_iter().map(|(id, cells)| with_rates(cells, before.get(&id), now[&id], seconds));
        let table = aligned(&titled(&TITLES, cells)).join("\n");
        if !lives {
            line(&table)?;
            return Ok(ExitCode::SUCCESS);
        }
        line(&format!("{CLEAR}{table}"))?;
        before = now;
    }
}

/// What all processes have counted, and the cells of each that need no rate.
fn look(processes: &mut Processes) -> (BTreeMap<Id, Counted>, Vec<(Id, Cells)>) {
    let found = processes.look();
    let counted = |process: &Process| {
        let counter = |name| process.stats.number(name).unwrap_or_default();
        (process.id, COUNTERS.map(counter))
    };
    let cells = |process: &Process| {
        let size = |row: &Row, name| row.number(name).map_or_else(|| "-".to_owned(), format_bytes);
        let [far, local, limit, soft] = ["touched_bytes", "charged_bytes", "local_bytes", "soft_limit_bytes"]
            .map(|name| size(&process.stats, name));
        let command = &process.command;
        let command = if process.answers { command.clone() } else { format!("{command} (does not answer)") };
        (process.id, [process.pid.to_string(), far, local, limit, soft, command])
    };
    (found.iter().map(counted).collect(), found.iter().map(cells).collect())
}

fn with_rates(
    [pid, far, local, limit, soft, command]: Cells,
    before: Option<&Counted>,
    now: Counted,
    seconds: f64,
) -> Vec<String> {
    let since: [f64; COUNTERS.len()] = std::array::from_fn(|index| {
        now[index].saturating_sub(before.map_or(now[index], |before| before[index])) as f64
    });
    let [worked, stalled, misses, fetched, written] = since;
    let slower = if worked + stalled > 0.0 { percent(stalled / worked.max(1.0)) } else { "-".to_owned() };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
    let rate = |bytes: f64| format_bytes((bytes / seconds) as u64);
    let misses = format!("{:.0}", misses / seconds);
    vec![pid, far, local, limit, soft, slower, misses, rate(fetched), rate(written), command]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_was_counted_since_the_last_look() {
        let cells = || ["7", "1 MiB", "1 MiB", "4 MiB", "-", "sort"].map(str::to_owned);
        let row = with_rates(cells(), Some(&[0, 0, 10, 0, 0]), [2_000, 100, 30, 8_192, 0], 2.0);
        assert_eq!(row[5..], ["5.0%", "10", "4 KiB", "0 B", "sort"].map(str::to_owned));
        let row = with_rates(cells(), None, [2_000, 100, 30, 8_192, 0], 2.0);
        assert_eq!(row[5..], ["-", "0", "0 B", "0 B", "sort"].map(str::to_owned));
    }
}
