//! `phases`: records of a table of `size` bytes are updated, in turn among all of them and among a tenth, another one
//! each time. Which are next is drawn for as many together as a page has.
//!
//! How much memory such a program needs depends on when it is asked: a limit that is enough for all of the time is too
//! much for half of it. With an odd seed it begins with a tenth, so two of them can trade phases.

use rand::Rng;

use crate::checksum::Checksum;
use crate::random::{Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Times that all is worked on, and then a part.
const ROUNDS: usize = 2;
/// One of so many parts.
const PARTS: usize = 10;
/// Updates for each record of the table. Those of a part are quick, as caches have it.
const UPDATES_OF_ALL: usize = 256;
const UPDATES_OF_PART: usize = 1024;
/// Records that are updated one after the other.
const RUN: usize = 64;

#[derive(Clone, Copy)]
struct Record {
    updates: u64,
    value: u64,
    payload: [u64; 6],
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    fn update(&mut self, with: u64) {
        self.updates += 1;
        self.value = self.value.rotate_left(5) ^ with ^ self.payload[with as usize % 6];
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let records = settings.count_of(size_of::<Record>() as u64, PARTS as u64)?;
    let mut values = generator(settings.seed, Use::Values);
    let record = |_| Record { updates: 0, value: 0, payload: values.random() };
    let (mut table, setup_seconds) = timed(|| (0..records).map(record).collect::<Vec<Record>>());
    let mut order = generator(settings.seed, Use::Order);
    let (mut all_seconds, mut part_seconds) = (0.0, 0.0);
    let part = records / PARTS;
    for phase in 0..2 * ROUNDS {
        if phase % 2 == (settings.seed % 2) as usize {
            let ((), seconds) = timed(|| update(&mut table, records * UPDATES_OF_ALL, &mut order));
            all_seconds += seconds;
        } else {
            // Parts that lie apart.
            let part = &mut table[phase / 2 * 3 % PARTS * part..][..part];
            let ((), seconds) = timed(|| update(part, records * UPDATES_OF_PART, &mut order));
            part_seconds += seconds;
        }
    }
    let updates: u64 = table.iter().map(|record| record.updates).sum();
    require(|| updates == (ROUNDS * records * (UPDATES_OF_ALL + UPDATES_OF_PART)) as u64, "updates are missing")?;
    let folded = table.iter().fold(0_u64, |folded, record| folded.rotate_left(7) ^ record.value);
    Ok(Outcome {
        bytes: (records * size_of::<Record>()) as u64,
        seconds: all_seconds + part_seconds,
        setup_seconds,
        check: Checksum::of([updates, folded]).text(),
        details: Details::Phases { records, all_seconds, part_seconds },
    })
}

/// So many updates, of records behind one another from one that is drawn on.
fn update(records: &mut [Record], updates: usize, order: &mut impl Rng) {
    let runs = records.len().div_ceil(RUN);
    let mut left = updates;
    while left > 0 {
        let with = order.random::<u64>();
        let which = (((with >> 32) * runs as u64) >> 32) as usize * RUN;
        let end = (which + left.min(RUN)).min(records.len());
        records[which..end].iter_mut().for_each(|record| record.update(with));
        left -= end - which;
    }
}
