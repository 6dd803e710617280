//! [`Window`]: stage histograms of the last seconds, from histograms that grow since the start.
//!
//! A few past histograms are kept; the difference to the right one of them is what is recent. Pure: time is passed in.

use std::collections::VecDeque;
use std::time::Duration;

use yonder::StageHistogram;

/// How far back percentiles look, when scrapes are frequent enough; else they look back to the scrape before.
pub(crate) const SPAN: Duration = Duration::from_secs(10);
/// Past histograms kept within [`SPAN`].
const KEPT_MAX: u32 = 10;

/// The histograms of past scrapes, oldest first; the oldest is what recent times are counted from.
#[derive(Debug, Default)]
pub(crate) struct Window {
    past: VecDeque<(Duration, Vec<StageHistogram>)>,
}

impl Window {
    /// What `stages`, the histograms at `now`, recorded over the last [`SPAN`]: all of it at the first call. Calls come
    /// with `now` in order.
    pub(crate) fn recent(&mut self, now: Duration, stages: Vec<StageHistogram>) -> Vec<StageHistogram> {
        while self.past.get(1).is_some_and(|(then, _)| now.saturating_sub(*then) >= SPAN) {
            self.past.pop_front();
        }
        if self.past.front().is_some_and(|(_, earlier)| !has_grown(earlier, &stages)) {
            self.past.clear();
        }
        let recent = match self.past.front() {
            Some((_, earlier)) => stages.iter().zip(earlier).map(|(later, earlier)| later.since(earlier)).collect(),
            None => stages.clone(),
        };
        if self.past.back().is_none_or(|(then, _)| now.saturating_sub(*then) >= SPAN / KEPT_MAX) {
            self.past.push_back((now, stages));
        }
        recent
    }
}

/// Whether `later` can have come from `earlier` by counting: not so when the source has started afresh.
fn has_grown(earlier: &[StageHistogram], later: &[StageHistogram]) -> bool {
    let counts = |stages: &[StageHistogram]| stages.iter().flat_map(|stage| stage.buckets).collect::<Vec<_>>();
    earlier.len() == later.len() && counts(earlier).iter().zip(counts(later)).all(|(earlier, later)| *earlier <= later)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn with_count(count: u64) -> Vec<StageHistogram> {
        let mut stage = StageHistogram::default();
        stage.buckets[40] = count;
        vec![stage]
    }

    #[test]
    fn frequent_scrapes_look_back_over_the_span() {
        let mut window = Window::default();
        for second in 0..60u32 {
            // One time is recorded each second, the first before the first scrape.
            let recent = window.recent(SECOND * second, with_count(u64::from(second) + 1));
            let expected = if second == 0 { 1 } else { second.min(10) };
            assert_eq!(recent[0].count(), u64::from(expected), "second {second}");
        }
        assert!(window.past.len() <= KEPT_MAX as usize + 1);
    }

    #[test]
    fn rare_scrapes_look_back_to_the_one_before() {
        let mut window = Window::default();
        window.recent(SECOND, with_count(5));
        assert_eq!(window.recent(SECOND * 61, with_count(12))[0].count(), 7);
        assert_eq!(window.recent(SECOND * 121, with_count(13))[0].count(), 1);
    }

    #[test]
    fn scrapes_in_quick_succession_are_not_all_kept() {
        let mut window = Window::default();
        (0..1000).for_each(|millis| drop(window.recent(Duration::from_millis(millis * 5), with_count(millis))));
        assert!(window.past.len() <= 6, "{}", window.past.len());
    }

    #[test]
    fn a_source_that_starts_afresh_is_counted_from_zero() {
        let mut window = Window::default();
        window.recent(SECOND, with_count(500));
        assert_eq!(window.recent(SECOND * 2, with_count(3))[0].count(), 3);
        assert_eq!(window.recent(SECOND * 3, with_count(4))[0].count(), 1);
    }
}
