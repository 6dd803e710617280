//! `yonder governor`: how much local memory each of a machine's programs gets.
//!
//! What programs do it asks at their sockets, as `yonder ctl` does, and what they get it sets there. `machine` says how
//! much there is, `yonder_sizing::Governor` who gets what of it.

mod machine;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::Serialize;
use yonder::units::{PAGE_BYTES, format_bytes};
use yonder_preload_protocol::monotonic_ns;
use yonder_settings::{Name, Row};
use yonder_sizing::{Governor, Moment, Order, SeenProgram, Terms};

use self::machine::{Machine, tells_pressure};
use super::bench::stop_on_ctrl_c;
use super::ctl::folder_for_programs;
use super::processes::{Id, Process, Processes, percent};
use crate::args::GovernorArgs;
use crate::output::json_line;
use crate::table::{print, titled};

/// More than any machine has: what others say is cut to that.
const BYTES_MAX: u64 = 1 << 45;
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
    let _alone = alone()?;
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
        let interval = if governed.governor.is_short() { args.interval * 2 / 5 } else { args.interval };
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps another governor from giving the same memory to others, until it is dropped.
fn alone() -> anyhow::Result<Option<File>> {
    let Some(folder) = folder_for_programs() else { return Ok(None) };
    let path = folder.join("governor.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => bail!("another governor runs: stop it first, or leave it to that one"),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

struct Governed<'a> {
    args: &'a GovernorArgs,
    processes: Processes,
    governor: Governor,
    machine: Machine,
    /// How far each was at the last look. Those that are here have limits of ours.
    before: BTreeMap<Id, Moment>,
}

impl<'a> Governed<'a> {
    fn new(args: &'a GovernorArgs) -> Self {
        let (processes, governor, machine) = (Processes::new(args.all_users), Governor::default(), Machine::new());
        Self { args, processes, governor, machine, before: BTreeMap::new() }
    }

    fn look(&mut self) -> Vec<Look> {
        let found = self.processes.look();
        let total = self.args.memory.unwrap_or_else(|| {
            // What only the process says is not given to others.
            let local = found.iter().map(|process| local_bytes(process).min(process.resident_bytes.unwrap_or(0)));
            self.machine.room(local.fold(0, u64::saturating_add), self.args.keep)
        });
        let programs: BTreeMap<Id, SeenProgram> =
            found.iter().map(|process| (process.id, seen_program(process, self.args))).collect();
        let (seen, silent): (BTreeMap<_, _>, BTreeMap<_, _>) =
            programs.iter().partition(|(id, _)| found.iter().any(|process| process.id == **id && process.answers));
        // They may take all that they were given.
        let theirs =
            silent.values().map(|program: &&SeenProgram| program.limit.max(program.moment.local).min(pages(total)));
        let theirs = theirs.fold(0, u64::saturating_add);
        let seen = seen.into_iter().map(|(id, program)| (*id, *program)).collect();
        self.governor.retain(|id| self.processes.is_known(id));
        let orders = self.governor.look(pages(total).saturating_sub(theirs), &seen);
        if !self.args.dry_run {
            self.tell(&found, &seen, &orders);
        }
        self.before.retain(|id, _| self.processes.is_known(*id));
        let look = |process: Process| {
            let program = programs[&process.id];
            let order = orders.get(&process.id).copied();
            let order = order.unwrap_or(Order { limit: program.limit, ..Order::default() });
            let before = self.before.insert(process.id, program.moment);
            Look {
                pid: process.pid,
                command: process.command,
                answers: process.answers,
                total_bytes: total,
                local_bytes: bytes(program.moment.local),
                wanted_bytes: bytes(order.wanted),
                limit_bytes: bytes(order.limit),
                soft_limit_bytes: order.soft_limit.map(bytes),
                slowdown: before.and_then(|before| slowdown(before, program.moment)),
            }
        };
        found.into_iter().map(look).collect()
    }

    /// Whoever gets less is told first. What is told is what differs from what they say they have, whoever has changed
    /// that.
    fn tell(&mut self, found: &[Process], seen: &BTreeMap<Id, SeenProgram>, orders: &BTreeMap<Id, Order>) {
        let (fall, rise): (Vec<_>, Vec<_>) =
            orders.iter().partition(|(id, order): &(&Id, &Order)| order.limit <= seen[id].limit);
        for (id, order) in fall.into_iter().chain(rise) {
            if order.limit != seen[id].limit {
                self.processes.set(*id, Name::Local, Some(bytes(order.limit)));
            }
            let process = found.iter().find(|process| process.id == *id);
            let has = process.and_then(|process| process.stats.number("soft_limit_bytes"));
            if seen[id].finds_out.is_none() && has != order.soft_limit.map(bytes) {
                self.processes.set(*id, Name::SoftLimit, order.soft_limit.map(bytes));
            }
        }
    }
}

/// All have what they were started with again, however it ends.
impl Drop for Governed<'_> {
    fn drop(&mut self) {
        if self.args.dry_run {
            return;
        }
        for process in self.processes.look().iter().filter(|process| self.before.contains_key(&process.id)) {
            self.processes.let_go(process.id, Name::Local);
            if !finds_out(process) {
                self.processes.let_go(process.id, Name::SoftLimit);
            }
        }
    }
}

/// What is local of a process, as it says: no more than it may have.
fn local_bytes(process: &Process) -> u64 {
    number(&process.stats, "charged_bytes").min(number(&process.about, "local_bytes_max")).min(BYTES_MAX)
}

/// Whether a process sets its soft limit itself.
fn finds_out(process: &Process) -> bool {
    number(&process.about, "finds_out") > 0
}

fn seen_program(process: &Process, args: &GovernorArgs) -> SeenProgram {
    let stat = |name| number(&process.stats, name);
    let moment = Moment {
        at: monotonic_ns(),
        worked: stat("worked_ns"),
        stalled: stat("stalled_ns"),
        // What only the process says is not kept for it.
        local: pages(local_bytes(process).min(process.resident_bytes.unwrap_or(u64::MAX))),
        touched: pages(stat("touched_bytes").min(BYTES_MAX)),
        taken: stat("swept_pages").saturating_add(stat("dropped_pages")),
        returned: stat("returned_pages"),
        fetched: stat("fetched_pages"),
        fetching: stat("fetching_ns"),
    };
    let is_meant = |who: &str| who == process.pid.to_string() || who == name_of(&process.command);
    let weight = args.weight.iter().rev().find(|weight| is_meant(&weight.who)).map_or(1.0, |weight| weight.what.0);
    let is_exempt = args.exempt.iter().any(|who| is_meant(who));
    let terms = Terms { weight, least: pages(args.least), slowdown: args.slowdown, is_exempt };
    let most = pages(number(&process.about, "local_bytes_max").min(BYTES_MAX));
    let soft_limit = process.stats.number("soft_limit_bytes").map(|bytes| pages(bytes.min(BYTES_MAX)));
    let finds_out = finds_out(process).then_some(soft_limit);
    SeenProgram { moment, limit: pages(stat("local_bytes").min(BYTES_MAX)), most, terms, finds_out }
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

/// A program that does nothing but wait is slowed down by very much.
fn slowdown(before: Moment, now: Moment) -> Option<f64> {
    let (worked, stalled) = (now.worked.saturating_sub(before.worked), now.stalled.saturating_sub(before.stalled));
    (worked + stalled > 0).then(|| stalled as f64 / worked.max(1) as f64)
}

fn table(looks: &[Look]) -> Vec<Vec<String>> {
    let cells = |look: &Look| {
        let soft = look.soft_limit_bytes.map_or_else(|| "-".to_owned(), format_bytes);
        let slowdown = look.slowdown.map_or_else(|| "-".to_owned(), percent);
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
