//! The two workloads: one client's turns on the key-value store, and on the version store.
//!
//! Neighbours: `ledger` says what may be read. Every object has one writer, the client whose turn its number is.

use crate::{AppError, Meter, Tally};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder_load::KeyChooser;

use crate::objects::ledger::{Ledger, value_of, version_of};
use crate::objects::{KeyValue, ObjectId, PutMode, PutOutcome, Read, Version, Versions};

/// How many of the operations write: YCSB's workloads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub enum Mix {
    /// Half of them.
    A,
    /// One of twenty.
    B,
    /// None.
    C,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// Writes among a hundred operations.
    #[must_use]
    pub const fn write_percent(self) -> u32 {
        match self {
            Self::A => 50,
            Self::B => 5,
            Self::C => 0,
        }
    }
}

/// What one client does.
pub(crate) struct Client<'a> {
    pub(crate) meter: Meter,
    pub(crate) ledger: &'a Ledger,
    pub(crate) chooser: KeyChooser,
    pub(crate) random: SmallRng,
    /// Its number, and how many there are.
    pub(crate) number: u64,
    pub(crate) clients: u64,
    pub(crate) objects: u64,
    pub(crate) value_bytes: usize,
    pub(crate) work: Work,
}

/// What clients have done together.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) tally: Tally,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Values that may not be.
    pub(crate) wrong: u64,
}

impl Work {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.reads += other.reads;
        self.writes += other.writes;
        self.wrong += other.wrong;
    }
}

/// The key with a number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

impl<'a> Client<'a> {
    /// Objects that this client writes.
    fn own(&self) -> impl Iterator<Item = u64> + use<> {
        (self.number..self.objects).step_by(self.clients as usize)
    }

    /// An object that this client writes, near a chosen one.
    fn own_near(&self, chosen: u64) -> u64 {
        let own = chosen - chosen % self.clients + self.number;
        if own < self.objects { own } else { own - self.clients }
    }

    fn is_write(&mut self, mix: Mix) -> bool {
        self.random.random_range(0..100) < mix.write_percent()
    }

    fn judge(&mut self, right: bool) {
        self.work.wrong += u64::from(!right);
    }

    /// Puts its keys for the first time.
    pub(crate) fn fill_pairs(&mut self) -> Result<(), AppError> {
        for object in self.own() {
            let version = self.ledger.begin_write(object);
            let value = value_of(object, version, self.value_bytes);
            let outcome = KeyValue(&mut self.meter).put(&key(object), &value, PutMode::Create)?;
            self.judge(outcome == PutOutcome::Created);
            self.ledger.settle(object, version);
        }
        self.end_filling()
    }

    /// Fails if what was stored first was stored wrongly; what it took does not count.
    fn end_filling(&mut self) -> Result<(), AppError> {
        match std::mem::take(&mut self.work).wrong {
            0 => Ok(()),
            wrong => Err(AppError::WrongValues(wrong)),
        }
    }

    /// Gets and puts.
    pub(crate) fn use_pairs(mut self, mix: Mix, operations: u64) -> Result<Work, AppError> {
        for _ in 0..operations {
            let chosen = self.chooser.next_key();
            if self.is_write(mix) { self.put(self.own_near(chosen))? } else { self.get(chosen)? }
        }
        Ok(self.work)
    }

    fn put(&mut self, object: u64) -> Result<(), AppError> {
        let (key, version) = (key(object), self.ledger.begin_write(object));
        let value = value_of(object, version, self.value_bytes);
        let put = |meter: &mut Meter| KeyValue(meter).put(&key, &value, PutMode::Update);
        let outcome = self.work.tally.time(&mut self.meter, put)?;
        self.judge(outcome == PutOutcome::Replaced);
        self.ledger.settle(object, version);
        self.work.writes += 1;
        Ok(())
    }

    fn get(&mut self, object: u64) -> Result<(), AppError> {
        let (key, oldest) = (key(object), self.ledger.settled(object));
        let value = self.work.tally.time(&mut self.meter, |meter| KeyValue(meter).get(&key))?;
        let version = value.and_then(|value| version_of(object, &value, self.value_bytes));
        self.judge(version.is_some_and(|version| self.ledger.accepts(object, oldest, version)));
        self.work.reads += 1;
        Ok(())
    }

    /// Creates its objects, each with a version.
    pub(crate) fn fill_versions(&mut self, versions_kept: u32) -> Result<Vec<(u64, ObjectId)>, AppError> {
        let mut made = Vec::new();
        for object in self.own() {
            let id = Versions(&mut self.meter).create(versions_kept)?;
            self.append(object, id)?;
            made.push((object, id));
        }
        self.end_filling()?;
        Ok(made)
    }

    /// Appends to and reads any version of the objects, whose names are `ids`; half of each.
    pub(crate) fn use_versions(
        mut self,
        ids: &[ObjectId],
        versions_kept: u32,
        operations: u64,
    ) -> Result<Work, AppError> {
        for _ in 0..operations {
            let chosen = self.chooser.next_key();
            if self.is_write(Mix::A) {
                let own = self.own_near(chosen);
                self.append(own, ids[own as usize])?;
            } else {
                self.read(chosen, ids[chosen as usize], versions_kept)?;
            }
        }
        Ok(self.work)
    }

    fn append(&mut self, object: u64, id: ObjectId) -> Result<(), AppError> {
        let version = self.ledger.begin_write(object);
        let value = value_of(object, version, self.value_bytes);
        let appended = self.work.tally.time(&mut self.meter, |meter| Versions(meter).append(id, &value))?;
        // The store counts from 0.
        self.judge(appended == Some(version - 1));
        self.ledger.settle(object, version);
        self.work.writes += 1;
        Ok(())
    }

    fn read(&mut self, object: u64, id: ObjectId, versions_kept: u32) -> Result<(), AppError> {
        let settled = self.ledger.settled(object);
        let wanted = if self.random.random() {
            Version::Latest
        } else {
            let kept = u64::from(versions_kept).min(settled);
            Version::Number(settled - 1 - self.random.random_range(0..kept))
        };
        let read = self.work.tally.time(&mut self.meter, |meter| Versions(meter).read(id, wanted))?;
        let right = match (read, wanted) {
            (Some(Read::Value { version, value }), wanted) => {
                let told = version_of(object, &value, self.value_bytes);
                told == Some(version + 1)
                    && match wanted {
                        Version::Latest => self.ledger.accepts(object, settled, version + 1),
                        Version::Number(number) => number == version,
                    }
            }
            // It may have been dropped since, but only for as many newer ones as are kept.
            (Some(Read::NoVersion(kept)), Version::Number(number)) => {
                number < kept.oldest
                    && kept.next <= self.ledger.begun(object)
                    && kept.next.checked_sub(kept.oldest) == Some(u64::from(versions_kept))
            }
            _ => false,
        };
        self.judge(right);
        self.work.reads += 1;
        Ok(())
    }
}

/// What client `number` of `clients` begins with.
pub(crate) fn client<'a>(
    meter: Meter,
    ledger: &'a Ledger,
    chooser: KeyChooser,
    (number, clients): (u64, u64),
    (objects, value_bytes): (u64, usize),
) -> Client<'a> {
    let random = SmallRng::seed_from_u64(number);
    Client { meter, ledger, chooser, random, number, clients, objects, value_bytes, work: Work::default() }
}
