//! Critical sections, as `rlock` and `runlock` are made: test-and-set with back-off, a word that the lock guards is
//! read and written one higher, a fence, and 0 is stored to the lock.
//!
//! Judged by [`LockTruth`]: nobody enters while another is inside, and whoever enters reads what the last one wrote.
//! Invariant: a section in which something went wrong leaves its lock *spoilt*, and nothing is judged by it any more.

use rand::Rng;
use yonder_simulation::encoded;
use yonder_units::Nanos;
use yonder_wire::{AtomicOperation, ErrorCode, Kind};

use crate::history::{Asked, End};
use crate::sabotage::Sabotage;
use crate::settings::MICROSECOND;
use crate::workload::{Lock, Purpose, Script};
use crate::world::{Phase, World};

/// Bytes from one lock to the next. What it guards lies half way.
const LOCK_BYTES: u64 = 128;
/// Locks of a region.
const LOCKS: u64 = 2;
/// Attempts before a lane gives a lock up.
const TRIES_MAX: u32 = 20;

/// What is known of a lock.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LockTruth {
    holder: Option<usize>,
    guarded: u64,
    is_spoilt: bool,
}

impl World {
    /// Begins a critical section, if the lane is in none.
    pub(crate) fn enter(&mut self, index: usize, number: usize) {
        if self.lanes[index].script != Script::Idle {
            return;
        }
        let word = self.regions[number].address + LOCK_BYTES * self.rng.random_range(0..LOCKS);
        self.lanes[index].script_number += 1;
        self.take(index, Lock { region: number, word, guarded: word + LOCK_BYTES / 2, tries: 0 });
    }

    /// Tries again if it is time to.
    pub(crate) fn continue_script(&mut self, index: usize) {
        let lane = &self.lanes[index];
        if let Script::Waiting(lock, until) = lane.script
            && until <= self.events.now()
            && lane.client.has_room()
        {
            if self.phase == Phase::Storm && lock.tries < TRIES_MAX {
                self.take(index, lock);
            } else {
                self.lanes[index].script = Script::Idle;
            }
        }
    }

    fn take(&mut self, index: usize, lock: Lock) {
        let lock = Lock { tries: lock.tries + 1, ..lock };
        self.lanes[index].script = Script::Taking(lock);
        self.step(index, lock, Kind::Atomic, lock.word, encoded(&AtomicOperation::TestAndSet), Vec::new());
    }

    fn step(&mut self, lane: usize, lock: Lock, kind: Kind, address: u64, body: Vec<u8>, data: Vec<u8>) {
        let region = &self.regions[lock.region];
        let capability = region.capabilities[1];
        let asked = Asked { data, ..self.asked(lane, region, kind, address, 8) };
        let purpose = Purpose::Script(self.lanes[lane].script_number);
        self.submit(asked, capability, body, Nanos::MAX, purpose);
    }

    /// A step of the lane's critical section has ended.
    pub(crate) fn script_step(&mut self, index: usize, token: u64, end: End) -> Result<(), String> {
        let script = self.lanes[index].script;
        let (Script::Taking(lock) | Script::Reading(lock) | Script::Releasing(lock)) = script else { return Ok(()) };
        let End::Done(old) = end else {
            // A lock that was not taken is as it was, unless nobody knows.
            let is_certain = matches!(end, End::Refused(code) if code != ErrorCode::TooOld);
            self.truth(lock).is_spoilt |= !is_certain || !matches!(script, Script::Taking(_));
            self.lanes[index].script = Script::Idle;
            return Ok(());
        };
        match script {
            Script::Taking(_) => self.taken(index, lock, old.unwrap_or(0)),
            Script::Reading(_) => {
                let bytes = self.history.received(token).try_into().map_err(|_| "a word has 8 bytes")?;
                self.change_and_release(index, lock, u64::from_le_bytes(bytes))
            }
            // Of the write and the release, the release is the last.
            _ if old.is_some() => {
                self.lanes[index].script = Script::Idle;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn taken(&mut self, index: usize, lock: Lock, old: u64) -> Result<(), String> {
        let is_broken = self.sabotage == Some(Sabotage::BrokenLocks) && self.rng.random_bool(0.3);
        if old != 0 && !is_broken {
            let until = self.events.now() + self.rng.random_range(5..50) * u64::from(lock.tries) * MICROSECOND;
            self.lanes[index].script = Script::Waiting(lock, until);
            self.lanes[index].idle_until = self.lanes[index].idle_until.max(until);
            return Ok(());
        }
        let truth = self.truth(lock);
        if let Some(holder) = truth.holder.filter(|_| !truth.is_spoilt) {
            return Err(format!("lanes {holder} and {index} hold the lock at {:#x}", lock.word));
        }
        truth.holder = Some(index);
        self.lanes[index].script = Script::Reading(lock);
        self.step(index, lock, Kind::Read, lock.guarded, Vec::new(), Vec::new());
        Ok(())
    }

    fn change_and_release(&mut self, index: usize, lock: Lock, value: u64) -> Result<(), String> {
        let truth = self.truth(lock);
        if value != truth.guarded && !truth.is_spoilt {
            return Err(format!(
                "lane {index} entered the lock at {:#x} and read {value}, not {}",
                lock.word, truth.guarded
            ));
        }
        truth.guarded = value + 1;
        truth.holder = None;
        self.lanes[index].script = Script::Releasing(lock);
        self.step(index, lock, Kind::Write, lock.guarded, Vec::new(), (value + 1).to_le_bytes().to_vec());
        self.fence(index)?;
        self.step(index, lock, Kind::Atomic, lock.word, encoded(&AtomicOperation::Store(0)), Vec::new());
        Ok(())
    }

    fn truth(&mut self, lock: Lock) -> &mut LockTruth {
        self.locks.entry((lock.region, lock.word)).or_default()
    }
}
