//! What a hostile tenant does: one path at a time, or all of them.

use std::fmt;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use yonder_client::{Operation, Outcome};
use yonder_fabric::lane::Lane;
use yonder_offload::chase::STEPS_MAX;
use yonder_wire::{DISCARD_BYTES_MAX, Kind};

use super::errand::Errand;
use super::{MEMORY_BYTES, Memory, Ready, Scene, Settings, drive, reads};
use crate::BenchError;

/// Operations that an attacking lane has under way.
const DEPTH: usize = 64;
/// What one step of niceness makes of a thread's weight.
const WEIGHT_OF_STEP: f64 = 1.25;
const NICE_MAX: i32 = 19;
/// Connections that one thread keeps open.
const CONNECTIONS: usize = 64;
/// Longest that one connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(200);

/// What the other tenant does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Attack {
    /// What the victim does
    Twin,
    /// Many long reads
    Reads,
    /// Many long writes
    Writes,
    /// Discards of all its memory, again and again
    Discards,
    /// Address spaces made and ended
    Spaces,
    /// Offloads that take long
    Calls,
    /// Connections that are made, and say nothing or nonsense
    Connections,
    /// All of these at once
    All,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Twin,
        Self::Reads,
        Self::Writes,
        Self::Discards,
        Self::Spaces,
        Self::Calls,
        Self::Connections,
        Self::All,
    ];

    /// What threads do, and their numbers.
    pub(super) fn threads(self, attackers: usize) -> Vec<(Self, usize)> {
        let kinds: Vec<Self> = match self {
            Self::Twin => return vec![(Self::Twin, 0)],
            Self::All => Self::ALL[1..7].to_vec(),
            kind => vec![kind],
        };
        (0..attackers).flat_map(|number| kinds.iter().map(move |kind| (*kind, number))).collect()
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.to_possible_value().expect("none is skipped").get_name())
    }
}

/// How nice each of so many threads must be to weigh as much as one of the others all together.
pub(super) fn nice_of(threads: usize) -> i32 {
    let steps = (threads.max(1) as f64).log(WEIGHT_OF_STEP).round();
    #[expect(clippy::cast_possible_truncation, reason = "some steps")]
    (steps as i32).min(NICE_MAX)
}

/// Makes this thread so nice. Where that is not to be changed, the attack is heavier than it should be.
pub(super) fn be_nice(nice: i32) {
    let _ = setpriority_process(Some(gettid()), nice);
}

/// Attacks until it is told to stop, and counts what it gets done.
pub(super) fn run(
    attack: Attack,
    number: usize,
    scene: &Scene,
    Settings { depth, size, work, .. }: &Settings,
    ready: Ready<'_>,
    (stop, done): (&AtomicBool, &AtomicU64),
) -> Result<(), BenchError> {
    if attack == Attack::Connections {
        drop(ready);
        connections(scene, number, stop, done);
        return Ok(());
    }
    let (depth, size) = (if attack == Attack::Twin { *depth } else { DEPTH }, *size);
    let mut lane = scene.lane(&scene.other, depth)?;
    let memory = scene.memory(&mut lane)?;
    drop(ready);
    let mut count = |_, _, outcome| {
        done.fetch_add(u64::from(outcome == Outcome::Done), Ordering::Relaxed);
        !stop.load(Ordering::Relaxed)
    };
    match attack {
        Attack::Twin => match work.errand(&mut lane, memory)? {
            None => drive(&mut lane, depth, &mut reads(memory, size), &mut count),
            Some(errand) => again(&errand, &mut lane, stop, done),
        },
        Attack::Reads => drive(&mut lane, depth, &mut reads(memory, 4096), &mut count),
        Attack::Writes => {
            let mut reads = reads(memory, 4096);
            drive(&mut lane, depth, &mut |number| Operation { kind: Kind::Write, ..reads(number) }, &mut count);
        }
        Attack::Discards => {
            // A few bytes less than pages have: all of it is written with zeros in place.
            let bytes = DISCARD_BYTES_MAX - 64;
            let mut next = |number: u64| {
                let address = memory.address + 32 + number * DISCARD_BYTES_MAX % (MEMORY_BYTES - DISCARD_BYTES_MAX);
                operation(Kind::Discard, memory, address, bytes)
            };
            drive(&mut lane, depth, &mut next, &mut count);
        }
        Attack::Spaces => again(&Errand::Space, &mut lane, stop, done),
        // As long as one call may be.
        Attack::Calls => again(&Errand::walk(&mut lane, memory, STEPS_MAX)?, &mut lane, stop, done),
        Attack::Connections | Attack::All => unreachable!("{attack} is another thing, or several"),
    }
    Ok(())
}

pub(super) fn operation(
    kind: Kind,
    Memory { pid, capability, .. }: Memory,
    address: u64,
    length: u64,
) -> Operation<'static> {
    Operation { kind, pid, capability, address, length, body: &[], deadline: 0, token: 0 }
}

/// Asks for the same again and again.
fn again(errand: &Errand, lane: &mut Lane, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        done.fetch_add(errand.run(lane).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// Makes connections as fast as it can: to where sessions are made, and to where streams are served. Some say nothing,
/// some begin a handshake, some say nonsense.
fn connections(scene: &Scene, number: usize, stop: &AtomicBool, done: &AtomicU64) {
    let Ok(address) = scene.address().parse() else { return };
    let mut open = std::collections::VecDeque::new();
    let says: [&[u8]; 3] = [&[], &[0x16, 3, 1, 2, 0], &[0xff; 64]];
    for words in says.iter().cycle().skip(number) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut stream) = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
            let _ = stream.write_all(words);
            open.push_back(stream);
            done.fetch_add(1, Ordering::Relaxed);
        }
        if open.len() > CONNECTIONS {
            open.pop_front();
        }
    }
}
