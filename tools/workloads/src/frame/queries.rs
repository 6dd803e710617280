//! The queries of `frame`: a filter and a group-by, a count, a sort, a join.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::rides::{BOROUGHS, DAY_SECONDS, HOUR_SECONDS, Rides, ZONES, Zone};

/// The shortest ride and the longest that are selected for means by the hour.
const SELECTED_METRES_MIN: u32 = 1000;
const SELECTED_SECONDS_MAX: u32 = 2 * HOUR_SECONDS;
/// The most passengers of such a ride.
const SELECTED_PASSENGERS_MAX: u8 = 4;

/// Sums over the selected rides that began in one hour of the day.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct HourOfDay {
    pub(super) rides: u64,
    fares_cents: u64,
    metres: u64,
}

impl HourOfDay {
    /// Mean fare, in cents; 0 without rides.
    pub(super) fn mean_fare_cents(&self) -> f64 {
        self.fares_cents as f64 / self.rides.max(1) as f64
    }

    /// Mean distance, in metres; 0 without rides.
    pub(super) fn mean_metres(&self) -> f64 {
        self.metres as f64 / self.rides.max(1) as f64
    }
}

/// Sums over the rides from one borough to another.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Flow {
    pub(super) rides: u64,
    pub(super) fares_cents: u64,
}

/// By the borough where rides begin, then by that where they end.
pub(super) type Flows = [[Flow; BOROUGHS]; BOROUGHS];

/// Selects the longer rides without crowds and delays, and adds them up by the hour in which they began.
pub(super) fn by_hour(rides: &Rides) -> [HourOfDay; 24] {
    let mut hours = [HourOfDay::default(); 24];
    let is_selected = |ride: &usize| {
        rides.distances_m[*ride] >= SELECTED_METRES_MIN
            && rides.durations_s[*ride] <= SELECTED_SECONDS_MAX
            && rides.passengers[*ride] <= SELECTED_PASSENGERS_MAX
    };
    for ride in (0..rides.len()).filter(is_selected) {
        let hour = &mut hours[(rides.begins[ride] % DAY_SECONDS / HOUR_SECONDS) as usize];
        hour.rides += 1;
        hour.fares_cents += u64::from(rides.fares_cents[ride]);
        hour.metres += u64::from(rides.distances_m[ride]);
    }
    hours
}

/// The zones in which most rides begin, with how many do; most first, and the lower number first where they are equal.
pub(super) fn top_zones(rides: &Rides, count: usize) -> Vec<(u16, u64)> {
    let mut counts = [0_u64; ZONES as usize];
    for zone in &rides.from_zones {
        counts[usize::from(*zone)] += 1;
    }
    let mut zones: Vec<(u16, u64)> = (0..ZONES).zip(counts).collect();
    zones.sort_unstable_by_key(|(zone, rides)| (Reverse(*rides), *zone));
    zones.truncate(count);
    zones
}

/// The numbers of all rides, the dearest first, and the earlier row first where they are equal.
pub(super) fn dearest_first(rides: &Rides) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rides.len()).map(|ride| ride as u32).collect();
    order.sort_unstable_by_key(|ride| (Reverse(rides.fares_cents[*ride as usize]), *ride));
    order
}

/// Joins both ends of each ride with their zones, which makes two new columns, and adds up by these.
pub(super) fn flows(rides: &Rides, zones: &[Zone]) -> Flows {
    let boroughs: HashMap<u16, u8> = zones.iter().map(|zone| (zone.zone, zone.borough)).collect();
    let join = |column: &[u16]| column.iter().map(|zone| boroughs[zone]).collect::<Vec<u8>>();
    let [from, to] = [&rides.from_zones, &rides.to_zones].map(|column| join(column));
    let mut flows = Flows::default();
    for ((from, to), fare) in from.into_iter().zip(to).zip(&rides.fares_cents) {
        let flow = &mut flows[usize::from(from)][usize::from(to)];
        flow.rides += 1;
        flow.fares_cents += u64::from(*fare);
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::super::rides::draw_zones;
    use super::*;

    fn rides() -> Rides {
        Rides::draw(2000, 7)
    }

    #[test]
    fn hours_are_those_of_a_loop_for_each() {
        let rides = rides();
        let mut selected = 0;
        for (hour, found) in by_hour(&rides).iter().enumerate() {
            let (mut count, mut fares, mut metres) = (0, 0, 0);
            for ride in 0..rides.len() {
                let is_long = rides.distances_m[ride] >= 1000;
                let is_quick = rides.durations_s[ride] <= 7200;
                let began = rides.begins[ride] as usize / 3600 % 24;
                if is_long && is_quick && rides.passengers[ride] <= 4 && began == hour {
                    count += 1;
                    fares += u64::from(rides.fares_cents[ride]);
                    metres += u64::from(rides.distances_m[ride]);
                }
            }
            assert_eq!(*found, HourOfDay { rides: count, fares_cents: fares, metres }, "hour {hour}");
            assert_eq!(found.mean_fare_cents(), if count > 0 { fares as f64 / count as f64 } else { 0.0 });
            assert_eq!(found.mean_metres(), if count > 0 { metres as f64 / count as f64 } else { 0.0 });
            selected += count;
        }
        assert!((500..1900).contains(&selected), "{selected} selected of 2000");
    }

    #[test]
    fn top_zones_are_found_again_by_counting_each() {
        let rides = rides();
        let top = top_zones(&rides, 10);
        let count = |zone: u16| rides.from_zones.iter().filter(|from| **from == zone).count() as u64;
        assert!(top.iter().all(|(zone, rides)| count(*zone) == *rides));
        assert!(top.is_sorted_by(|one, next| (one.1, next.0) > (next.1, one.0)), "{top:?}");
        let others = (0..ZONES).filter(|zone| top.iter().all(|(other, _)| other != zone));
        assert!(top.len() == 10 && others.into_iter().all(|zone| count(zone) <= top[9].1));
    }

    #[test]
    fn rides_by_fare_are_as_a_stable_sort_has_them() {
        let rides = rides();
        let mut model: Vec<(u32, usize)> = rides.fares_cents.iter().copied().zip(0..).collect();
        model.sort_by_key(|(fare, _)| Reverse(*fare));
        assert!(model.windows(2).any(|two| two[0].0 == two[1].0), "no equal fares, nothing is tested of them");
        let model: Vec<u32> = model.into_iter().map(|(_, row)| row as u32).collect();
        assert_eq!(dearest_first(&rides), model);
    }

    #[test]
    fn flows_are_those_of_a_nested_loop_join() {
        let (rides, zones) = (rides(), draw_zones(7));
        let mut model = Flows::default();
        for ride in 0..rides.len() {
            for from in zones.iter().filter(|zone| zone.zone == rides.from_zones[ride]) {
                for to in zones.iter().filter(|zone| zone.zone == rides.to_zones[ride]) {
                    let flow = &mut model[usize::from(from.borough)][usize::from(to.borough)];
                    flow.rides += 1;
                    flow.fares_cents += u64::from(rides.fares_cents[ride]);
                }
            }
        }
        assert_eq!(flows(&rides, &zones), model);
    }
}
