//! What a connection waits for: an operation whose reply is due, and what each reply, or piece of one, means for it.
//! Pure.

use super::{Op, Outcome, Request};
use crate::ledger::{Ledger, SetOutcome};
use crate::protocol::{Reply, Verb, is_key_name, key_name};
use crate::value::verify_value;

/// An operation that is not over.
pub(super) struct Outstanding {
    pub(super) request: Request,
    pub(super) due: Due,
}

/// What reply is due.
pub(super) enum Due {
    /// A value of at least this version, or none.
    Value { least: u32 },
    /// Values of consecutive keys.
    Values(Scan),
    /// The end of a set. `missed` says that the get before it found nothing.
    Stored { missed: bool },
}

/// How far the reply to a scan has come.
pub(super) struct Scan {
    /// The least version of each key from the first on.
    least: Vec<u32>,
    /// How many of the keys are behind what has come.
    passed: usize,
    missed: bool,
    wrong: Option<String>,
}

/// What a reply, or a piece of one, means for the operation that is due.
pub(super) enum Step {
    /// More is to come.
    More,
    /// The get of a read-modify-write is answered, or has missed.
    Modify {
        missed: bool,
    },
    End(Outcome),
}

impl Due {
    /// What kind of reply is due.
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Value { .. } => Verb::Get,
            Self::Values(_) => Verb::GetMany,
            Self::Stored { .. } => Verb::Set,
        }
    }
}

impl Outstanding {
    /// Takes the reply that is due, or a piece of it.
    pub(super) fn step(&mut self, reply: Reply<'_>, value_bytes: usize, ledger: &Ledger) -> Step {
        let Request { op, key, .. } = self.request;
        match &mut self.due {
            Due::Stored { missed } => {
                let stored = reply == Reply::Stored;
                ledger.end_set(key, if stored { SetOutcome::Stored } else { SetOutcome::Refused });
                if op == Op::Insert {
                    ledger.keys().end_insert(key);
                }
                Step::End(match reply {
                    Reply::Refused(line) => Outcome::Refused(line),
                    _ if *missed => Outcome::Miss,
                    _ => Outcome::Stored,
                })
            }
            Due::Value { least } => {
                let outcome = match reply {
                    Reply::Refused(line) => Outcome::Refused(line),
                    Reply::Value { key: name, data } => judge(name, data, (key, *least), value_bytes, ledger)
                        .map_or_else(Outcome::Wrong, |()| Outcome::Hit),
                    Reply::End | Reply::Stored | Reply::Count(_) => Outcome::Miss,
                };
                match outcome {
                    Outcome::Hit | Outcome::Miss if op == Op::ReadModifyWrite => {
                        Step::Modify { missed: outcome == Outcome::Miss }
                    }
                    outcome => Step::End(outcome),
                }
            }
            Due::Values(scan) => scan.step(reply, key, value_bytes, ledger),
        }
    }
}

impl Scan {
    /// Of keys whose values must be of at least these versions.
    pub(super) fn new(least: Vec<u32>) -> Self {
        Self { least, passed: 0, missed: false, wrong: None }
    }

    /// Values come in the order of their keys; a key without one is left out.
    fn step(&mut self, reply: Reply<'_>, first: u64, value_bytes: usize, ledger: &Ledger) -> Step {
        let (name, data) = match reply {
            Reply::Value { key, data } => (key, data),
            Reply::Refused(line) => return Step::End(Outcome::Refused(line)),
            Reply::End | Reply::Stored | Reply::Count(_) => {
                let missed = self.missed || self.passed < self.least.len();
                let whole = if missed { Outcome::Miss } else { Outcome::Hit };
                return Step::End(self.wrong.take().map_or(whole, Outcome::Wrong));
            }
        };
        let place = (self.passed..self.least.len()).find(|place| is_named(name, first + *place as u64));
        let verdict = match place {
            Some(place) => {
                self.missed |= place > self.passed;
                self.passed = place + 1;
                judge(name, data, (first + place as u64, self.least[place]), value_bytes, ledger)
            }
            None => Err(format!(
                "{}: the reply to a get of {} keys from there on names '{}'",
                key_name(first),
                self.least.len(),
                name.unwrap_or_default().escape_ascii()
            )),
        };
        if let Err(wrong) = verdict {
            self.wrong.get_or_insert(wrong);
        }
        Step::More
    }
}

/// Whether a reply may be for `key`. Where it names none, the value's own header tells.
fn is_named(name: Option<&[u8]>, key: u64) -> bool {
    name.is_none_or(|name| is_key_name(name, key))
}

/// Whether a value may be what is stored under `key`, of which `least` is the least version; else what is wrong.
fn judge(
    name: Option<&[u8]>,
    data: &[u8],
    (key, least): (u64, u32),
    value_bytes: usize,
    ledger: &Ledger,
) -> Result<(), String> {
    if !is_named(name, key) {
        return Err(format!("{}: the reply names '{}'", key_name(key), name.unwrap_or_default().escape_ascii()));
    }
    let verdict = verify_value(data, key, value_bytes).and_then(|version| ledger.judge(key, version, least));
    verdict.map_err(|wrong| format!("{}: {wrong}", key_name(key)))
}
