//! [`GetsAndScans`]: the workload of the paper, of rows at random.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_load::RequestSource;

use crate::{Found, Request, Rows};

/// Kinds of requests.
const GET: usize = 0;
const SCAN: usize = 1;

/// GETs, and some SCANs, of rows that are all as popular (Adios, section 5.2: 1 % SCANs of 100 rows).
pub struct GetsAndScans {
    rows: Rows,
    scans: f64,
    scan_rows: u32,
    random: SmallRng,
}

impl GetsAndScans {
    /// Of `rows`, with a share of SCANs, 0 to 1, of `scan_rows` rows each.
    #[must_use]
    pub fn new(rows: Rows, (scans, scan_rows): (f64, u32), seed: u64) -> Self {
        Self { rows, scans, scan_rows, random: SmallRng::seed_from_u64(seed) }
    }
}

impl RequestSource for GetsAndScans {
    type Request = Request;
    type Answer = Found;
    const KINDS: &'static [&'static str] = &["get", "scan"];

    fn next_request(&mut self) -> Request {
        let key = self.rows.key(self.random.random_range(0..self.rows.count));
        if self.random.random_bool(self.scans) { Request::Scan(key, self.scan_rows) } else { Request::Get(key) }
    }

    fn verify(&self, found: &Found) -> Option<usize> {
        // Every key that is asked for is there, and says which rows belong to it.
        let first = self.rows.number(&found.first()?.0)?;
        let kind = if found.len() == 1 { GET } else { SCAN };
        let asked = if kind == GET { 1 } else { u64::from(self.scan_rows) };
        self.rows.are(first, asked, found).then_some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_mixed_as_told_and_answers_are_judged_by_what_they_are() {
        let rows = Rows { count: 1000 };
        let mut source = GetsAndScans::new(rows, (0.25, 7), 3);
        let scans = (0..4000).filter(|_| matches!(source.next_request(), Request::Scan(_, 7))).count();
        assert!((850..1150).contains(&scans), "{scans} of 4000");
        let found = |numbers: std::ops::Range<u64>| -> Found {
            numbers.map(|number| (rows.key(number).to_vec(), rows.value(number))).collect()
        };
        assert_eq!(source.verify(&found(5..6)), Some(GET));
        assert_eq!(source.verify(&found(5..12)), Some(SCAN));
        assert_eq!(source.verify(&found(995..1000)), Some(SCAN), "there are no more");
        assert_eq!(source.verify(&found(5..11)), None, "one is missing");
        assert_eq!(source.verify(&Found::new()), None, "every key is there");
    }
}
