//! [`Rides`]: a table of made-up taxi rides, column by column, and the [`Zone`]s in which they begin and end.
//!
//! Most rides are short, some are long; evenings are busy; some zones are where most rides begin. Whole numbers alone,
//! so that sums do not depend on the order.

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use crate::random::{Random, Use, generator};

/// Zones of the city.
pub(super) const ZONES: u16 = 265;
/// Boroughs of the city.
pub(super) const BOROUGHS: usize = 6;
pub(super) const HOUR_SECONDS: u32 = 3600;
pub(super) const DAY_SECONDS: u32 = 24 * HOUR_SECONDS;
const DAYS: u64 = 31;
/// How many of 128 rides begin in each hour of the day.
const RIDES_BY_HOUR: [u8; 24] = [5, 3, 2, 1, 1, 1, 2, 4, 6, 6, 6, 6, 6, 6, 7, 6, 5, 6, 8, 9, 9, 8, 8, 7];

/// A column for each property, a place in it for each ride.
#[derive(Default)]
pub(super) struct Rides {
    /// Seconds since the month began.
    pub(super) begins: Vec<u32>,
    pub(super) durations_s: Vec<u32>,
    pub(super) distances_m: Vec<u32>,
    pub(super) fares_cents: Vec<u32>,
    pub(super) passengers: Vec<u8>,
    pub(super) from_zones: Vec<u16>,
    pub(super) to_zones: Vec<u16>,
}

impl Rides {
    /// Bytes of a ride in all columns.
    pub(super) const ROW_BYTES: usize = 4 * size_of::<u32>() + size_of::<u8>() + 2 * size_of::<u16>();

    /// Rides of one month, day after day.
    pub(super) fn draw(count: usize, seed: u64) -> Self {
        let mut random = generator(seed, Use::Values);
        let mut rides = Self::default();
        for ride in 0..count {
            let day = (ride as u64 * DAYS / count as u64) as u32;
            rides.push(day, &mut random);
        }
        rides
    }

    pub(super) fn len(&self) -> usize {
        self.begins.len()
    }

    fn push(&mut self, day: u32, random: &mut Random) {
        let draw = random.random_range(0..1000_u64);
        let distance_m = 300 + (draw.pow(4) / 30_000_000) as u32;
        let metres_a_second = random.random_range(3..10);
        let tip_percent = random.random_range(0..30);
        self.begins.push(day * DAY_SECONDS + draw_hour(random) * HOUR_SECONDS + random.random_range(0..HOUR_SECONDS));
        self.durations_s.push(120 + distance_m / metres_a_second);
        self.distances_m.push(distance_m);
        self.fares_cents.push((250 + distance_m * 17 / 100) * (100 + tip_percent) / 100);
        // Half of the rides have one passenger, a quarter has two, and so on.
        self.passengers.push(1 + random.random::<u8>().leading_zeros().min(5) as u8);
        self.from_zones.push(draw_zone(random));
        self.to_zones.push(draw_zone(random));
    }
}

/// A row of the table of zones.
#[derive(Clone, Copy)]
pub(super) struct Zone {
    pub(super) zone: u16,
    pub(super) borough: u8,
}

/// All zones, in no order.
pub(super) fn draw_zones(seed: u64) -> Vec<Zone> {
    let mut random = generator(seed, Use::Order);
    let borough = |random: &mut Random| random.random_range(0..BOROUGHS) as u8;
    let mut zones: Vec<Zone> = (0..ZONES).map(|zone| Zone { zone, borough: borough(&mut random) }).collect();
    zones.shuffle(&mut random);
    zones
}

fn draw_hour(random: &mut Random) -> u32 {
    let mut draw = random.random_range(0..128_u8);
    let hour = RIDES_BY_HOUR.iter().position(|rides| match draw.checked_sub(*rides) {
        Some(rest) => {
            draw = rest;
            false
        }
        None => true,
    });
    hour.expect("the hours have 128 rides together") as u32
}

/// Low numbers more often than high ones.
fn draw_zone(random: &mut Random) -> u16 {
    random.random_range(0..ZONES).min(random.random_range(0..ZONES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rides_are_skewed_and_within_the_month_and_the_city() {
        let rides = Rides::draw(10_000, 1);
        assert_eq!(RIDES_BY_HOUR.iter().map(|rides| u32::from(*rides)).sum::<u32>(), 128);
        let short = rides.distances_m.iter().filter(|distance| **distance < 3000).count();
        assert!((4000..6500).contains(&short), "{short} short rides");
        assert!(rides.distances_m.iter().any(|distance| *distance > 30_000));
        let alone = rides.passengers.iter().filter(|passengers| **passengers == 1).count();
        assert!((4500..5500).contains(&alone), "{alone} passengers alone");
        assert!(rides.passengers.iter().all(|passengers| (1..=6).contains(passengers)));
        assert!(rides.begins.iter().all(|begin| u64::from(*begin) < DAYS * u64::from(DAY_SECONDS)));
        let low = rides.from_zones.iter().filter(|zone| **zone < ZONES / 2).count();
        assert!((7000..8000).contains(&low) && rides.to_zones.iter().all(|zone| *zone < ZONES));
        let evening = rides.begins.iter().filter(|begin| *begin % DAY_SECONDS / HOUR_SECONDS >= 18).count();
        assert!((3500..4200).contains(&evening), "{evening} in the evening");
    }

    #[test]
    fn the_table_of_zones_has_each_once() {
        let mut zones: Vec<u16> = draw_zones(1).iter().map(|zone| zone.zone).collect();
        assert!(!zones.is_sorted());
        zones.sort_unstable();
        assert_eq!(zones, (0..ZONES).collect::<Vec<_>>());
    }
}
