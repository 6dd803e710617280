//! What a request does: computes, touches a page, computes again.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use yonder_units::{Nanos, PageIndex};

use crate::costs::{adios as costs, testbed};

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kind {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Its share of all requests.
    pub(crate) share: f64,
    /// Objects that it touches, one after the other.
    pub(crate) objects: u32,
    /// Share of the objects that reach into a second page.
    pub(crate) second_page: f64,
    /// Computing before its first touch.
    pub(crate) first: Nanos,
    /// Computing between two touches.
    pub(crate) each: Nanos,
    /// Computing after the last, until the reply is posted.
    pub(crate) last: Nanos,
}

/// Requests of one or several kinds over one array of pages.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Workload {
    pub(crate) kinds: Vec<Kind>,
    /// Pages of the array, all as likely.
    pub(crate) pages: u32,
}

impl Workload {
    /// Adios' microbenchmark: a random index of an array (section 5.1).
    pub(crate) fn array() -> Self {
        let (hit, half) = (costs::HIT.ns(), costs::HIT.ns() / 2);
        let kind =
            Kind { name: "get", share: 1.0, objects: 1, second_page: 0.0, first: half, each: 0, last: hit - half };
        Self { kinds: vec![kind], pages: pages_of(costs::ARRAY.value) }
    }

    /// GETs of memcached: an item, and a neighbour of it in a list (section 5.2).
    pub(crate) fn memcached() -> Self {
        let part = costs::MEMCACHED_GET.ns() / 3;
        let times = Kind { name: "get", share: 1.0, objects: 2, second_page: 0.0, first: part, each: part, last: part };
        Self { kinds: vec![times], pages: pages_of(costs::ARRAY.value) }
    }

    /// GETs and SCANs of RocksDB: a value, or a hundred (section 5.2). The index is hot, so that it stays here.
    pub(crate) fn rocksdb() -> Self {
        let (half, scans) = (costs::ROCKSDB_GET.ns() / 2, costs::ROCKSDB_SCANS.value);
        let second_page = costs::ROCKSDB_VALUE.value / testbed::PAGE.value;
        let get = Kind { name: "get", share: 1.0 - scans, objects: 1, second_page, first: half, each: 0, last: half };
        let scan = Kind { name: "scan", share: scans, objects: 100, each: costs::ROCKSDB_NEXT.ns(), ..get };
        Self { kinds: vec![get, scan], pages: pages_of(costs::ARRAY.value) }
    }

    /// Draws how many pages a request of a kind touches.
    pub(crate) fn touches(&self, kind: u8, rng: &mut ChaCha8Rng) -> u32 {
        let Kind { objects, second_page, .. } = self.kinds[usize::from(kind)];
        if second_page == 0.0 {
            return objects;
        }
        objects + (0..objects).filter(|_| rng.random::<f64>() < second_page).count() as u32
    }

    /// Draws a kind.
    pub(crate) fn draw(&self, rng: &mut ChaCha8Rng) -> u8 {
        if self.kinds.len() == 1 {
            return 0;
        }
        let mut point = rng.random::<f64>();
        let found = self.kinds.iter().position(|kind| {
            point -= kind.share;
            point < 0.0
        });
        found.unwrap_or(self.kinds.len() - 1) as u8
    }

    /// Draws a page.
    pub(crate) fn page(&self, rng: &mut ChaCha8Rng) -> PageIndex {
        PageIndex(rng.random_range(0..self.pages))
    }
}

/// Pages of so many bytes at the scale of the simulation.
pub(crate) fn pages_of(bytes: f64) -> u32 {
    (bytes / costs::SCALE.value / testbed::PAGE.value) as u32
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn kinds_are_drawn_by_their_shares() {
        let kind = |name, share| Kind { name, share, objects: 4, second_page: 0.25, first: 0, each: 0, last: 0 };
        let workload = Workload { kinds: vec![kind("get", 0.99), kind("scan", 0.01)], pages: 10 };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let scans = (0..100_000).filter(|_| workload.draw(&mut rng) == 1).count();
        assert!((900..1100).contains(&scans), "{scans}");
        assert!((0..1000).all(|_| workload.page(&mut rng).0 < 10));
        let touches: u32 = (0..1000).map(|_| workload.touches(0, &mut rng)).sum();
        assert!((4_900..5_100).contains(&touches), "{touches}");
    }

    #[test]
    fn the_array_is_forty_gigabytes_at_its_scale() {
        assert_eq!(Workload::array().pages, 40_960);
    }
}
