//! [`Schedule`]: when the lease of an address space is renewed next.
//!
//! It decides, and neither waits nor asks nor has a clock: `renewal` tells it the time. The clock is CLOCK_BOOTTIME,
//! which goes on while the machine sleeps, for so does the lease at the controller. A thread that waits does so by the
//! monotonic clock, which stands still meanwhile, so it waits in pieces and looks at the clock between them.

use std::time::Duration;

use yonder_controller::ClientError;
use yonder_placement::SPACE_LEASE_MS_MAX;
use yonder_units::{Nanos, Narrow as _};

/// How often a lease is renewed while it lasts, as at a node: several times may fail.
const RENEWALS_PER_LEASE: u32 = 4;
/// How often the clock is looked at in a lease. The thread may be as late as this after the machine has slept.
const LOOKS_PER_LEASE: u32 = 64;
/// Shortest time between two looks at the clock: a quarter of the shortest lease.
const LOOK_MIN: Duration = Duration::from_millis(250);
/// Longest attempt, however long the lease: one that hangs is worth another connection.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Time for which no connection is kept.
const FAR_OFF: Duration = Duration::from_secs(60);
/// Time after which a renewal that no controller has answered is tried again. It doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Longest time after which it is tried again.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often it is tried again in a lease, at least.
const RETRIES_PER_LEASE: u32 = 16;
/// The lease that an address space gets which was made at a controller of an earlier release, once a later one serves.
const LEASE_OF_OLD: Duration = Duration::from_millis(SPACE_LEASE_MS_MAX as u64);

/// When a lease is renewed.
pub(super) struct Schedule {
    /// The shortest that a controller has told; `None` if none has told any.
    lease: Option<Duration>,
    /// When to ask next.
    due: Nanos,
    /// Attempts since a controller has answered last.
    unanswered: u32,
}

impl Schedule {
    /// For a lease that was asked for at `asked`; `None` if the controller knows none yet.
    pub(super) fn new(lease: Option<Duration>, asked: Nanos) -> Self {
        let mut schedule = Self { lease, due: 0, unanswered: 0 };
        schedule.due = after(asked, schedule.pause());
        schedule
    }

    /// How long to wait until the clock is looked at again; `None` if it is time to ask.
    pub(super) fn wait(&self, now: Nanos) -> Option<Duration> {
        let left = self.due.checked_sub(now).filter(|left| *left > 0)?;
        Some(Duration::from_nanos(left).min((self.lease() / LOOKS_PER_LEASE).max(LOOK_MIN)))
    }

    /// Whether it is so long until the next attempt that a connection is better made anew: a controller ends those on
    /// which nothing is said for five minutes, and has places for so many.
    pub(super) fn is_far_off(&self, now: Nanos) -> bool {
        self.due > after(now, FAR_OFF)
    }

    /// How long an attempt may take: it leaves time for others.
    pub(super) fn attempt_max(&self) -> Duration {
        self.pause().min(ATTEMPT_MAX)
    }

    /// What has become of an attempt that was begun at `asked`, and ended `now`. The lease counts from when it was
    /// asked for: while the answer was on its way the machine may have slept.
    pub(super) fn learn(&mut self, asked: Nanos, now: Nanos, outcome: &Result<Option<Duration>, ClientError>) {
        self.due = match outcome {
            Ok(lease) => {
                self.unanswered = 0;
                // No program asks for another lease later, so one that is longer, or not told, is told by a controller
                // that does not know better, such as one of an earlier release that has taken over. Another one may
                // follow it.
                self.lease = [self.lease, *lease].into_iter().flatten().min();
                after(asked, self.pause())
            }
            // A controller that has too many connections may have fewer soon.
            Err(ClientError::Unreachable { .. } | ClientError::TurnedAway { .. }) => {
                let pause = RETRY_MIN.saturating_mul(2u32.saturating_pow(self.unanswered)).min(RETRY_MAX);
                self.unanswered = self.unanswered.saturating_add(1);
                after(now, pause.min(self.lease() / RETRIES_PER_LEASE))
            }
            // Another attempt soon would end alike. A later one need not: what has said this may be a controller that
            // another one has taken over from.
            Err(_) => {
                self.unanswered = 0;
                after(now, self.pause())
            }
        };
    }

    fn lease(&self) -> Duration {
        self.lease.unwrap_or(LEASE_OF_OLD)
    }

    fn pause(&self) -> Duration {
        self.lease() / RENEWALS_PER_LEASE
    }
}

fn after(time: Nanos, pause: Duration) -> Nanos {
    time.saturating_add(pause.as_nanos().narrow_u64())
}

#[cfg(test)]
mod tests {
    use yonder_placement::{Pid, Refusal};

    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn nanos(duration: Duration) -> Nanos {
        u64::try_from(duration.as_nanos()).unwrap()
    }

    /// Waits as a thread does on a machine that sleeps once: when its monotonic clock is at `asleep_at`, for `sleep`.
    /// Returns the time, by the clock that goes on, when the lease is renewed, and how often the thread has woken up.
    fn wait_on_a_machine_that_sleeps(schedule: &Schedule, asleep_at: Nanos, sleep: Nanos) -> (Nanos, usize) {
        let (mut monotonic, mut wakes) = (0, 0);
        let boottime = |monotonic: Nanos| monotonic + if monotonic > asleep_at { sleep } else { 0 };
        while let Some(wait) = schedule.wait(boottime(monotonic)) {
            (monotonic, wakes) = (monotonic + nanos(wait), wakes + 1);
        }
        (boottime(monotonic), wakes)
    }

    #[test]
    fn a_machine_that_wakes_up_within_the_lease_renews_it() {
        // As found: asleep from the first second to the 51st, it was renewed in the 65th.
        let (renewed, _) = wait_on_a_machine_that_sleeps(&Schedule::new(Some(MINUTE), 0), SECOND, 50 * SECOND);
        assert!(renewed <= 52 * SECOND, "renewed after {renewed} ns");
        for lease in [1, 2, 10, 60, 3600, 86_400].map(Duration::from_secs) {
            let schedule = Schedule::new(Some(lease), 0);
            let (asleep_at, sleep) = (nanos(lease) / 100, nanos(lease) / 4 * 3 - 1);
            let (renewed, wakes) = wait_on_a_machine_that_sleeps(&schedule, asleep_at, sleep);
            let late = (lease / LOOKS_PER_LEASE).max(LOOK_MIN);
            assert!(renewed <= asleep_at + sleep + nanos(late), "{lease:?} was renewed after {renewed} ns");
            assert!(renewed < nanos(lease));
            assert!(wakes <= 2, "it is overdue when the machine wakes up");
        }
    }

    #[test]
    fn a_lease_is_renewed_after_a_quarter_and_the_thread_wakes_up_seldom() {
        for lease in [1, 60, 86_400].map(Duration::from_secs) {
            let (renewed, wakes) = wait_on_a_machine_that_sleeps(&Schedule::new(Some(lease), 0), Nanos::MAX, 0);
            assert_eq!(renewed, nanos(lease / RENEWALS_PER_LEASE));
            assert!(wakes <= 17, "{wakes} times for {lease:?}");
        }
    }

    #[test]
    fn a_connection_is_kept_for_short_leases_alone() {
        let is_far_off = |lease| Schedule::new(Some(lease), 0).is_far_off(0);
        assert!(!is_far_off(MINUTE) && !is_far_off(4 * MINUTE) && is_far_off(5 * MINUTE) && is_far_off(DAY));
        assert!(!Schedule::new(Some(DAY), 0).is_far_off(nanos(DAY / 4 - MINUTE)));
    }

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for() {
        let mut schedule = Schedule::new(Some(MINUTE), 0);
        schedule.learn(15 * SECOND, 65 * SECOND, &Ok(Some(MINUTE)));
        assert_eq!(schedule.wait(65 * SECOND), None, "the machine slept before the answer was read");
        schedule.learn(65 * SECOND, 65 * SECOND, &Ok(Some(MINUTE)));
        assert!(schedule.wait(80 * SECOND - 1).is_some() && schedule.wait(80 * SECOND).is_none());
    }

    fn unreachable() -> ClientError {
        ClientError::Unreachable { addresses: "there".to_owned(), cause: "nothing answers".to_owned() }
    }

    fn full() -> ClientError {
        let cause = "this controller has 4096 connections already: end some first".to_owned();
        ClientError::TurnedAway { address: "there".to_owned(), cause }
    }

    /// How long it pauses after each of so many attempts that end like this, at once.
    fn pauses(schedule: &mut Schedule, count: usize, error: fn() -> ClientError) -> Vec<Duration> {
        let mut now = 15 * SECOND;
        let mut next = || {
            schedule.learn(now, now, &Err(error()));
            let pause = schedule.due - now;
            now = schedule.due;
            Duration::from_nanos(pause)
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_controller_that_takes_no_more_connections_is_asked_again_soon_and_ever_more_seldom() {
        for error in [full, unreachable] {
            let mut schedule = Schedule::new(Some(MINUTE), 0);
            let expected = [250, 500, 1000, 2000, 3750, 3750].map(Duration::from_millis);
            assert_eq!(pauses(&mut schedule, 6, error), expected);
            schedule.learn(SECOND, SECOND, &Ok(Some(MINUTE)));
            assert_eq!(pauses(&mut schedule, 1, error), expected[..1], "it begins anew");
            let mut long = Schedule::new(Some(DAY), 0);
            assert_eq!(pauses(&mut long, 100, error).last(), Some(&RETRY_MAX));
            let mut short = Schedule::new(Some(Duration::from_secs(1)), 0);
            assert!(pauses(&mut short, 100, error).iter().all(|pause| *pause > Duration::from_millis(50)));
        }
    }

    #[test]
    fn a_controller_that_refuses_is_asked_again_when_the_next_renewal_is_due() {
        let mut schedule = Schedule::new(Some(MINUTE), 0);
        let refused = || Refusal::BadKey { pid: Pid::FIRST }.into();
        assert_eq!(pauses(&mut schedule, 2, refused), [MINUTE / RENEWALS_PER_LEASE; 2]);
    }

    #[test]
    fn a_controller_that_does_not_know_the_lease_makes_it_no_longer() {
        let mut schedule = Schedule::new(Some(MINUTE), 0);
        let mut pause_after = |lease| {
            schedule.learn(SECOND, SECOND, &Ok(lease));
            Duration::from_nanos(schedule.due - SECOND)
        };
        // Of a release that knows no leases; and one that has read what such a one has written.
        assert_eq!(pause_after(None), MINUTE / RENEWALS_PER_LEASE);
        assert_eq!(pause_after(Some(DAY)), MINUTE / RENEWALS_PER_LEASE);
        assert_eq!(pause_after(Some(MINUTE / 2)), MINUTE / 2 / RENEWALS_PER_LEASE);
        let mut old = Schedule::new(None, 0);
        old.learn(SECOND, SECOND, &Ok(Some(MINUTE)));
        assert_eq!(Duration::from_nanos(old.due - SECOND), MINUTE / RENEWALS_PER_LEASE);
    }
}
