//! What becomes of bytes on their way: [`Network`], with its [`Weather`] and its cuts.
//!
//! Datagrams are dropped, delayed, duplicated, overtaken and corrupted. Bytes of a stream keep their order and their
//! content, and are lost only with their connection: [`Wire`] is one direction of it. General: ends are numbers.

use std::ops::Range;

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_units::Nanos;

/// What may happen to each datagram; probabilities are between 0 and 1.
#[derive(Clone, Debug)]
pub struct Weather {
    /// It is lost.
    pub drop: f64,
    /// It arrives once more.
    pub duplicate: f64,
    /// Some of its bits change, or it is cut.
    pub corrupt: f64,
    /// Time on its way.
    pub delay: Range<Nanos>,
    /// It is held up for up to [`Weather::straggle_max`] more.
    pub straggle: f64,
    /// Longest that a datagram is held up.
    pub straggle_max: Nanos,
}

impl Weather {
    /// The same delays, and nothing bad.
    #[must_use]
    pub fn calm(&self) -> Self {
        Self { drop: 0.0, duplicate: 0.0, corrupt: 0.0, straggle: 0.0, ..self.clone() }
    }

    fn delay(&self, rng: &mut SmallRng) -> Nanos {
        let held_up = if rng.random_bool(self.straggle) { rng.random_range(0..=self.straggle_max) } else { 0 };
        rng.random_range(self.delay.clone()) + held_up
    }
}

/// The ways between processes and nodes.
#[derive(Debug)]
pub struct Network {
    /// What happens to datagrams now.
    pub weather: Weather,
    cuts: Vec<(usize, usize)>,
}

impl Network {
    /// A network that is whole.
    #[must_use]
    pub const fn new(weather: Weather) -> Self {
        Self { weather, cuts: Vec::new() }
    }

    /// Nothing passes between process `process` and node `node`, until [`Network::mend`].
    pub fn cut(&mut self, process: usize, node: usize) {
        self.cuts.push((process, node));
    }

    /// The cut is over.
    pub fn mend(&mut self, process: usize, node: usize) {
        self.cuts.retain(|cut| *cut != (process, node));
    }

    /// Whether something passes.
    #[must_use]
    pub fn is_whole(&self, process: usize, node: usize) -> bool {
        !self.cuts.contains(&(process, node))
    }

    /// Calls `arrive` for each copy of `datagram` that arrives, with the time until then.
    pub fn carry(&self, rng: &mut SmallRng, mut datagram: Vec<u8>, mut arrive: impl FnMut(Nanos, Vec<u8>)) {
        if rng.random_bool(self.weather.drop) {
            return;
        }
        while rng.random_bool(self.weather.duplicate) {
            arrive(self.weather.delay(rng), datagram.clone());
        }
        if rng.random_bool(self.weather.corrupt) {
            corrupt(rng, &mut datagram);
        }
        arrive(self.weather.delay(rng), datagram);
    }
}

/// Flips some bits, or cuts the end off.
pub fn corrupt(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() || rng.random_bool(0.1) {
        bytes.truncate(rng.random_range(0..=bytes.len()));
        return;
    }
    for _ in 0..rng.random_range(1..4) {
        let bit = rng.random_range(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// One direction of a stream: nothing overtakes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wire {
    last: Nanos,
}

impl Wire {
    /// When bytes that are sent at `now` arrive.
    pub fn carry(&mut self, rng: &mut SmallRng, weather: &Weather, now: Nanos) -> Nanos {
        self.last = self.last.max(now + weather.delay(rng));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const WEATHER: Weather =
        Weather { drop: 0.2, duplicate: 0.3, corrupt: 0.2, delay: 5..50, straggle: 0.1, straggle_max: 500 };

    fn arrivals(network: &Network, seed: u64) -> Vec<(Nanos, Vec<u8>)> {
        let (mut rng, mut all) = (SmallRng::seed_from_u64(seed), Vec::new());
        (0..1000).for_each(|_| network.carry(&mut rng, vec![7; 20], |after, bytes| all.push((after, bytes))));
        all
    }

    #[test]
    fn everything_bad_happens_and_the_same_again() {
        let network = Network::new(WEATHER);
        let all = arrivals(&network, 3);
        assert_eq!(all, arrivals(&network, 3));
        assert!((1000..1250).contains(&all.len()), "{} copies", all.len());
        assert!(all.iter().any(|(_, bytes)| bytes.len() < 20) && all.iter().any(|(_, bytes)| bytes[..] != [7; 20]));
        assert!(all.iter().any(|(after, _)| *after > 300) && all.iter().all(|(after, _)| (5..=550).contains(after)));
    }

    #[test]
    fn in_calm_weather_everything_arrives_once_and_whole() {
        let all = arrivals(&Network::new(WEATHER.calm()), 3);
        assert!(all.len() == 1000 && all.iter().all(|(after, bytes)| *after < 50 && bytes[..] == [7; 20]));
    }

    #[test]
    fn nothing_overtakes_on_a_wire() {
        let (mut rng, mut wire) = (SmallRng::seed_from_u64(1), Wire::default());
        let times: Vec<_> = (0..100).map(|now| wire.carry(&mut rng, &WEATHER, now)).collect();
        assert!(times.is_sorted() && times[0] >= 5);
    }

    #[test]
    fn a_cut_lasts_until_it_is_mended() {
        let mut network = Network::new(WEATHER);
        network.cut(1, 0);
        assert!(!network.is_whole(1, 0) && network.is_whole(0, 0));
        network.mend(1, 0);
        assert!(network.is_whole(1, 0));
    }
}
