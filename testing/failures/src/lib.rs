//! What does a server with pages on several nodes notice when a node fails? `cargo xtask failures` measures it.
//!
//! [`measure`] starts a controller, its nodes and `yonder kv` with an eighth of its memory local, and loads that with
//! 80 % gets and 20 % sets of keys that are all equally popular. Every value that comes back is checked.
//!
//! The rule for the load: the peak is measured once, before the first turn, in a closed loop; each turn then is an open
//! loop at 70 % of it. That shows what clients notice; what a [`Rebuild`] costs is seen in turns that are closed loops
//! themselves ([`Load`]). In a turn one [`Fault`] is injected at a known moment, and it is over when everything is at
//! as many nodes as was asked for again, and the node that stood still, if one did, is back. A [`Turn`] says what came
//! of it, a [`Summary`] what came of all.
//!
//! `cluster` has the processes, `impaired_path` the way to a node on which datagrams are lost or late, `rebuild` what
//! the server counts meanwhile, `turn` the figures.

#![forbid(unsafe_code)]

mod cluster;
mod impaired_path;
mod protection;
mod rebuild;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use yonder_load::{Distribution, KvLoad, LoadError, LoadResult, LoadSettings, Mix, Rate, Requests};

use crate::cluster::Cluster;
pub use crate::protection::Protection;
pub use crate::rebuild::Rebuild;
use crate::rebuild::{Watch, mended_bytes};
pub use crate::turn::{Spread, Summary, Turn};

/// Share of the peak at which turns are loaded.
const LOAD_SHARE: f64 = 0.7;
const GET_PERCENT: u8 = 80;
const VALUE_BYTES: usize = 1024;
/// Share of the server's memory that values take; the rest is for what it keeps beside them.
const VALUES_SHARE: f64 = 0.6;
/// Requests that may wait when the server is late: more than a minute's, so that none is dropped.
const BACKLOG: usize = 1 << 20;
/// How long the server runs before the fault, in an open loop.
const LEAD: Duration = Duration::from_secs(2);
/// The longest that a turn may take.
const TURN_MAX: Duration = Duration::from_secs(3_600);

/// What happens to the nodes in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing: what the machine does by itself
    None,
    /// A node is killed, and another one is started
    Kill,
    /// A node stands still until the end of the turn
    Stop,
    /// Of the datagrams from and to a node, 5 % are lost
    Loss,
    /// A node takes 2 ms for an answer, ten times as long as the others, and 1 % of the datagrams are lost
    Slow,
    /// As kill, and the controller is killed at the same moment, and started again with its state a second later
    KillBoth,
    /// The controller stands still for 10 s, more than three times as long as a node may be silent, and goes on
    Controller,
}

/// How the server is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// In an open loop at 70 % of its peak.
    Open,
    /// In a closed loop, which is quiet for as long as a turn lasts at least before something fails.
    Closed,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Wish {
    /// At how many nodes pages are.
    pub protection: Protection,
    /// The faults, which take turns.
    pub faults: Vec<Fault>,
    /// How the server is loaded in them.
    pub load: Load,
    /// How many turns there are.
    pub until: Until,
    /// How long a turn lasts, at least.
    pub each: Duration,
    /// Memory of the server.
    pub memory_bytes: u64,
    /// For how long the peak is measured.
    pub peak_for: Duration,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this many turns.
    Turns(usize),
    /// After this time, at the end of a turn.
    Time(Duration),
}

/// Measures, and hands each turn to `said` as it ends. Progress is on standard error.
///
/// # Errors
/// If the load cannot be run or the server is gone, or a fault is never over.
pub fn measure(wish: &Wish, mut said: impl FnMut(&Turn)) -> Result<Summary, String> {
    let mut cluster = Cluster::start(wish);
    let mut load = KvLoad::new(settings(wish, cluster.server())).map_err(|error| error.to_string())?;
    eprintln!("failures: {} nodes; storing {} values", cluster.nodes(), load.settings().keys);
    load.fill(|_| ()).map_err(|error| error.to_string())?;
    let peak = load.run(Rate::Max, wish.peak_for, |_| ()).map_err(|error| error.to_string())?;
    eprintln!("failures: the peak is {:.0} commands a second", peak.ops_per_s);
    let (rate, lead) = match wish.load {
        Load::Open => (Rate::PerSecond((LOAD_SHARE * peak.ops_per_s).max(1.0)), LEAD),
        Load::Closed => (Rate::Max, wish.each),
    };
    let plan = Plan { rate, lead, each: wish.each };
    let (start, mut turns) = (Instant::now(), Vec::new());
    let mut faults = wish.faults.iter().copied().cycle();
    while !wish.until.is_over(turns.len(), start) {
        let fault = faults.next().ok_or("no fault is named: type --fault kill")?;
        let turn = run_turn(&mut cluster, &mut load, &plan, fault)?;
        let turn = Turn { turn: turns.len() + 1, protection: wish.protection.to_string(), ..turn };
        said(&turn);
        turns.push(turn);
    }
    let summary = Summary::of(&turns, peak.ops_per_s);
    cluster.end()?;
    Ok(summary)
}

impl Until {
    fn is_over(self, turns: usize, start: Instant) -> bool {
        match self {
            Self::Turns(most) => turns >= most,
            Self::Time(longest) => start.elapsed() >= longest,
        }
    }
}

fn settings(wish: &Wish, target: String) -> LoadSettings {
    LoadSettings {
        keys: (VALUES_SHARE * wish.memory_bytes as f64 / VALUE_BYTES as f64) as u64,
        value_size: VALUE_BYTES,
        requests: Requests::Mixed { dist: Distribution::Uniform, mix: Mix::gets(GET_PERCENT) },
        backlog: BACKLOG,
        ..LoadSettings::new(target)
    }
}

/// Ends the load, also when something else fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What all turns have in common.
struct Plan {
    rate: Rate,
    /// How long nothing fails at first.
    lead: Duration,
    /// How long a turn lasts, at least.
    each: Duration,
}

fn run_turn(cluster: &mut Cluster, load: &mut KvLoad, plan: &Plan, fault: Fault) -> Result<Turn, String> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let run = scope.spawn(|| load.run_until(plan.rate, TURN_MAX, &is_over, |_| ()));
        let ends = EndOnDrop(&is_over);
        let watch = Watch::start(cluster.metrics());
        let start = Instant::now();
        pause(plan.lead);
        let failed_at = Instant::now();
        let harm = cluster.inject(fault);
        let protected_at = cluster.protected_again(&harm)?;
        pause(plan.each.saturating_sub(start.elapsed()));
        cluster.mend(harm)?;
        drop(ends);
        let looks = watch.end();
        let rebuild = protected_at.and_then(|at| Rebuild::of(&looks, failed_at, at));
        let result: Result<LoadResult, LoadError> = run.join().expect("a load does not panic");
        let result = result.map_err(|error| error.to_string())?;
        let turn = Turn::of(fault, &result, protected_at.map(|at| at.duration_since(failed_at)));
        // It has killed nobody, so each page that got a new place got it for nothing.
        let is_needless = fault == Fault::Controller;
        let needless_rebuild_bytes = is_needless.then(|| mended_bytes(&looks, failed_at)).flatten();
        Ok(Turn { needless_rebuild_bytes, ..turn.with(rebuild) })
    })
}

/// Lets time pass that belongs to what is measured; nothing is waited for.
fn pause(time: Duration) {
    // tidy: sleep: the moment of a fault is a part of the measurement
    thread::sleep(time);
}
