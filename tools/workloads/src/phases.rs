//! `phases`: a table of `size` bytes, all of which is worked on in turn with a tenth of it, another one each time.
//!
//! How much memory such a program needs depends on when it is asked: a limit that is enough for all of the time is too
//! much for most of it.

use rand::Rng as _;

use crate::checksum::Checksum;
use crate::random::{Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Times that all is worked on, and then a part.
const ROUNDS: usize = 4;
/// One of so many parts.
const PARTS: usize = 10;
/// Updates of the part for each record of the table, and passes over all of it.
const UPDATES: usize = 36;
const PASSES: usize = 4;

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
    for round in 0..ROUNDS {
        let ((), seconds) = timed(|| {
            for pass in 0..PASSES {
                table.iter_mut().for_each(|record| record.update(pass as u64));
            }
        });
        all_seconds += seconds;
        let part = records / PARTS;
        // Parts that lie apart.
        let part = &mut table[round * 3 % PARTS * part..][..part];
        let ((), seconds) = timed(|| {
            for _ in 0..records * UPDATES {
                let with = order.random::<u64>();
                let which = ((with >> 32) * part.len() as u64) >> 32;
                part[which as usize].update(with);
            }
        });
        part_seconds += seconds;
    }
    let updates: u64 = table.iter().map(|record| record.updates).sum();
    require(|| updates == (ROUNDS * records * (PASSES + UPDATES)) as u64, "updates are missing")?;
    let folded = table.iter().fold(0_u64, |folded, record| folded.rotate_left(7) ^ record.value);
    Ok(Outcome {
        bytes: (records * size_of::<Record>()) as u64,
        seconds: all_seconds + part_seconds,
        setup_seconds,
        check: Checksum::of([updates, folded]).text(),
        details: Details::Phases { records, all_seconds, part_seconds },
    })
}
