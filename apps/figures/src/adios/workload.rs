//! What a request does: computes, touches a page, computes again.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use yonder_units::{Nanos, PageIndex};

use crate::costs::adios as costs;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kind {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Its share of all requests.
    pub(crate) share: f64,
    /// Pages that it touches, one after the other.
    pub(crate) touches: u32,
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
        let kind = Kind { name: "get", share: 1.0, touches: 1, first: half, each: 0, last: hit - half };
        Self { kinds: vec![kind], pages: pages_of(costs::ARRAY.value) }
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
    (bytes / costs::SCALE.value / crate::costs::testbed::PAGE.value) as u32
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn kinds_are_drawn_by_their_shares() {
        let kind = |name, share| Kind { name, share, touches: 1, first: 0, each: 0, last: 0 };
        let workload = Workload { kinds: vec![kind("get", 0.99), kind("scan", 0.01)], pages: 10 };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let scans = (0..100_000).filter(|_| workload.draw(&mut rng) == 1).count();
        assert!((900..1100).contains(&scans), "{scans}");
        assert!((0..1000).all(|_| workload.page(&mut rng).0 < 10));
    }

    #[test]
    fn the_array_is_forty_gigabytes_at_a_sixty_fourth() {
        assert_eq!(Workload::array().pages, 163_840);
    }
}
