//! `yonder governor`: how much local memory each of a machine's programs gets.
//!
//! What programs do it asks at their sockets, as `yonder ctl` does, and what they get it sets there. `machine` says how
//! much there is, `yonder_sizing::Governor` who gets what of it.

mod machine;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::geteuid;
use serde::Serialize;
use yonder::units::{PAGE_BYTES, format_bytes};
use yonder_preload_protocol::monotonic_ns;
use yonder_settings::{Name, Row};
use yonder_sizing::{Governor, Moment, Order, SeenProgram, Terms};

use self::machine::{Machine, tells_pressure};
use super::bench::stop_on_ctrl_c;
use super::processes::{Process, Processes};
use crate::args::GovernorArgs;
use crate::output::json_line;
use crate::table::{print, titled};

/// Where a person looks, a table is printed so often.
const SHOW_EVERY: Duration = Duration::from_secs(2);

/// What a program does and gets; the fields are a contract with scripts.
#[derive(Serialize)]
struct Look {
    pid: u32,
    command: String,
    /// Whether it answers: what does not is left alone, and what it has is not given to others.
    answers: bool,
    /// Memory for all programs.
    total_bytes: u64,
    local_bytes: u64,
    wanted_bytes: u64,
    limit_bytes: u64,
    soft_limit_bytes: Option<u64>,
    /// How much it was held up since the last look, as a share of what it worked.
    slowdown: Option<f64>,
}

pub(crate) fn run(args: &GovernorArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_on_ctrl_c()?;
    if args.memory.is_none() && !tells_pressure() {
        tracing::warn!(
            "the kernel does not tell whether others wait for memory (PSI): what is available decides alone"
        );
    }
    ensure!(
        !args.all_users || geteuid().is_root(),
        "only root governs the processes of all users: leave --all-users out, or type sudo before it"
    );
    let mut governed = Governed::new(args);
    let shows = std::io::stdout().is_terminal();
    let mut shown: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let looks = governed.look();
        if args.json {
            looks.iter().try_for_each(json_line)?;
        } else if shows && shown.is_none_or(|shown| shown.elapsed() >= SHOW_EVERY) {
            shown = Some(began);
            print(&table(&looks))?;
        }
        std::thread::sleep(args.interval.saturating_sub(began.elapsed()));
    }
    governed.let_go();
    Ok(ExitCode::SUCCESS)
}

struct Governed<'a> {
    args: &'a GovernorArgs,
    processes: Processes,
    governor: Governor,
    machine: Machine,
    /// What each was told last, and how far it was then.
    told: BTreeMap<u32, (Order, Moment)>,
}

impl<'a> Governed<'a> {
    fn new(args: &'a GovernorArgs) -> Self {
        let (processes, governor, machine) = (Processes::new(args.all_users), Governor::default(), Machine::new());
        Self { args, processes, governor, machine, told: BTreeMap::new() }
    }

    fn look(&mut self) -> Vec<Look> {
        let found = self.processes.look();
        let bytes_of = |process: &Process<'_>| number(process.stats, "charged_bytes");
        let local: u64 = found.iter().map(bytes_of).sum();
        let total = self.args.memory.unwrap_or_else(|| self.machine.room(local, self.args.keep));
        let (mut seen, mut looks, mut theirs) = (BTreeMap::new(), Vec::new(), 0);
        for process in &found {
            let program = seen_program(process, self.args);
            looks.push((process.pid, command_of(process), process.answers, program));
            if process.answers {
                seen.insert(process.pid, program);
            } else {
                // It may take all that it was given.
                theirs += program.limit.max(program.moment.local);
            }
        }
        let orders = self.governor.look((total / PAGE_BYTES as u64).saturating_sub(theirs), &seen);
        if !self.args.dry_run {
            self.tell(&seen, &orders);
        }
        let look = |(pid, command, answers, program): (u32, String, bool, SeenProgram)| {
            let order = orders.get(&pid).copied().unwrap_or(Order { limit: program.limit, ..Order::default() });
            let before = self.told.insert(pid, (order, program.moment)).map(|(_, moment)| moment);
            Look {
                pid,
                command,
                answers,
                total_bytes: total,
                local_bytes: bytes(program.moment.local),
                wanted_bytes: bytes(order.wanted),
                limit_bytes: bytes(order.limit),
                soft_limit_bytes: order.soft_limit.map(bytes),
                slowdown: before.and_then(|before| slowdown(before, program.moment)),
            }
        };
        let looks: Vec<Look> = looks.into_iter().map(look).collect();
        self.told.retain(|pid, _| looks.iter().any(|look| look.pid == *pid));
        looks
    }

    /// Whoever gets less is told first.
    fn tell(&mut self, seen: &BTreeMap<u32, SeenProgram>, orders: &BTreeMap<u32, Order>) {
        let (mut fall, mut rise): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (pid, order) in orders {
            if order.limit <= seen[pid].limit { fall.push((*pid, *order)) } else { rise.push((*pid, *order)) }
        }
        for (pid, order) in fall.into_iter().chain(rise) {
            if order.limit != seen[&pid].limit {
                self.processes.set(pid, Name::Local, Some(bytes(order.limit)));
            }
            if self.told.get(&pid).is_none_or(|(before, _)| before.soft_limit != order.soft_limit) {
                self.processes.set(pid, Name::SoftLimit, order.soft_limit.map(bytes));
            }
        }
    }

    /// All have what they were started with again.
    fn let_go(&mut self) {
        if self.args.dry_run {
            return;
        }
        for pid in self.told.keys() {
            self.processes.set(*pid, Name::Local, None);
            self.processes.set(*pid, Name::SoftLimit, None);
        }
    }
}

fn seen_program(process: &Process<'_>, args: &GovernorArgs) -> SeenProgram {
    let stat = |name| number(process.stats, name);
    let moment = Moment {
        at: monotonic_ns(),
        worked: stat("worked_ns"),
        stalled: stat("stalled_ns"),
        local: pages(stat("charged_bytes")),
        touched: pages(stat("touched_bytes")),
    };
    let command = command_of(process);
    let is_meant = |who: &str| who == process.pid.to_string() || who == name_of(&command);
    let weight = args.weight.iter().rev().find(|weight| is_meant(&weight.who)).map_or(1.0, |weight| weight.what.0);
    let is_exempt = args.exempt.iter().any(|who| is_meant(who));
    let terms = Terms { weight, least: pages(args.least), slowdown: args.slowdown, is_exempt };
    let most = pages(number(process.about, "local_bytes_max"));
    SeenProgram { moment, limit: pages(stat("local_bytes")), most, terms }
}

/// What a process was started with.
fn command_of(process: &Process<'_>) -> String {
    process.about.text("command").unwrap_or_default().to_owned()
}

/// The name of the program's file.
fn name_of(command: &str) -> &str {
    let file = command.split(' ').next().unwrap_or_default();
    file.rsplit('/').next().unwrap_or_default()
}

fn number(row: &Row, name: &str) -> u64 {
    row.number(name).unwrap_or_default()
}

fn pages(bytes: u64) -> u64 {
    bytes / PAGE_BYTES as u64
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_BYTES as u64
}

fn slowdown(before: Moment, now: Moment) -> Option<f64> {
    let worked = now.worked.saturating_sub(before.worked);
    (worked > 0).then(|| now.stalled.saturating_sub(before.stalled) as f64 / worked as f64)
}

fn table(looks: &[Look]) -> Vec<Vec<String>> {
    let cells = |look: &Look| {
        let soft = look.soft_limit_bytes.map_or_else(|| "-".to_owned(), format_bytes);
        let slowdown = look.slowdown.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
        let sizes = [look.local_bytes, look.wanted_bytes, look.limit_bytes].map(format_bytes);
        [vec![look.pid.to_string()], sizes.into(), vec![soft, slowdown, look.command.clone()]].concat()
    };
    titled(&["PID", "LOCAL", "WANTED", "LIMIT", "SOFT LIMIT", "SLOWER", "COMMAND"], looks.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_after_their_files() {
        for (command, name) in [("/usr/bin/redis-server *:6379", "redis-server"), ("sort", "sort"), ("", "")] {
            assert_eq!(name_of(command), name);
        }
    }
}
