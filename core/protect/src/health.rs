//! [`Health`]: whether a node answers, as its users see it: one for each node, shared by all queue pairs to it.
//!
//! ```text
//!          SUSPECT_AFTER of silence          GIVE_UP_AFTER, and others are heard
//!      up <------------------------> suspect -----------------------------------> given up
//!           anything is heard           lost: it started anew, refuses, or the controller says so
//! ```
//!
//! Silence is not the time since something was heard. A program that stood still itself has heard nothing either, and
//! must not take that for silence of its nodes. So silence grows only by polls that wait for the node, each by the time
//! since the last poll of any, and by [`STEP_MAX`] at most: a pause of whatever length is one step. And a node is given
//! up by silence only if another is heard meanwhile: where all are silent it is more likely that the program's own link
//! is down.
//!
//! Reads avoid a suspect node and writes do not wait for it, so that it may never be asked again, and neither be heard
//! nor be silent. So one user asks it for something now and then, whatever it is ([`Health::wants_probe`]), and waits
//! for the answer.
//!
//! Who touches what: any queue pair reports, any thread reads the state; one supervisor judges.

use yonder_units::Nanos;

use crate::atomic::{AtomicU64, Ordering};

/// A node that was silent for so long is suspect: reads avoid it, and writes do not wait for it.
pub const SUSPECT_AFTER: Nanos = 150_000_000;
/// A node that was silent for so long is given up.
pub const GIVE_UP_AFTER: Nanos = 1_000_000_000;
/// Silence that one poll can add. A thread that waits for a node polls more often than that.
pub const STEP_MAX: Nanos = 10_000_000;
/// Silence is not added up in smaller pieces, so that polls share no line of memory more often than that.
pub const STEP_MIN: Nanos = 1_000_000;
/// How often a node is probed that is not up.
pub const PROBE_EACH: Nanos = 20_000_000;
const _: () = assert!(STEP_MIN < STEP_MAX && 10 * STEP_MAX <= SUSPECT_AFTER && 2 * SUSPECT_AFTER <= GIVE_UP_AFTER);

/// What a node is to its users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It answers, or has not been asked.
    Up,
    /// It has been silent for a while.
    Suspect,
    /// It was silent for too long.
    Silent,
    /// Its content is lost, or it refuses.
    Lost,
}

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A valid answer of it came, or somebody else says that it is there.
    Heard,
    /// It is judged, after so much silence.
    Judged(Nanos, Others),
    /// It started anew, refuses a right that it gave, or is lost as the controller says.
    Lost,
}

/// Whether other nodes are heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// At least one is.
    Heard,
    /// None is, or there is none.
    Silent,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Health {
    state: AtomicU64,
    /// How long nothing was heard while it was waited for, in nanoseconds.
    silence: AtomicU64,
    /// When a poll added to that last.
    polled: AtomicU64,
    /// When anything was heard last, to [`STEP_MIN`].
    heard: AtomicU64,
    /// When the node was probed last.
    probed: AtomicU64,
}

/// Silence of one lane to a node, which others may hear: it is suspect by itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LaneSilence(Nanos);

impl LaneSilence {
    /// A poll, so long after the one before, has brought nothing that is waited for.
    pub fn wait(&mut self, since: Nanos) {
        self.0 = self.0.saturating_add(since.min(STEP_MAX));
    }

    /// Something has come, or nothing is waited for.
    #[inline]
    pub fn end(&mut self) {
        self.0 = 0;
    }

    /// Whether the lane is asked last, and not waited for.
    #[inline]
    #[must_use]
    pub const fn is_suspect(self) -> bool {
        self.0 >= SUSPECT_AFTER
    }
}

impl State {
    /// What becomes of it.
    #[must_use]
    pub fn on(self, event: Event) -> Self {
        match (self, event) {
            (Self::Lost, _) | (_, Event::Lost) => Self::Lost,
            (Self::Silent, Event::Judged(..)) => Self::Silent,
            // A place that was given up is not asked; one that stayed because it alone has pages is.
            (_, Event::Heard) => Self::Up,
            (_, Event::Judged(silence, Others::Heard)) if silence >= GIVE_UP_AFTER => Self::Silent,
            (_, Event::Judged(silence, _)) if silence >= SUSPECT_AFTER => Self::Suspect,
            // Only what is heard makes it more than suspect.
            (state, Event::Judged(..)) => state,
        }
    }

    /// Whether it is asked like any other.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up)
    }
}

impl Default for Health {
    fn default() -> Self {
        let [silence, polled, heard, probed] = [(); 4].map(|()| AtomicU64::new(0));
        Self { state: AtomicU64::new(Self::encode(State::Up)), silence, polled, heard, probed }
    }
}

impl Health {
    /// What the node is.
    #[must_use]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Up,
            1 => State::Suspect,
            2 => State::Silent,
            _ => State::Lost,
        }
    }

    /// For how long nothing was heard while the node was waited for.
    #[must_use]
    pub fn silence(&self) -> Nanos {
        self.silence.load(Ordering::Acquire)
    }

    /// When anything was heard last: never, if that is zero.
    #[must_use]
    pub fn last_heard(&self) -> Nanos {
        self.heard.load(Ordering::Acquire)
    }

    /// When it was last waited for: never, if that is zero.
    #[must_use]
    pub fn last_waited(&self) -> Nanos {
        self.polled.load(Ordering::Acquire)
    }

    /// A queue pair has heard the node: a valid answer of the incarnation that it knows.
    pub fn hear(&self, now: Nanos) {
        if self.silence.load(Ordering::Relaxed) != 0 {
            self.silence.store(0, Ordering::Release);
        }
        if now.saturating_sub(self.heard.load(Ordering::Relaxed)) >= STEP_MIN {
            self.heard.store(now, Ordering::Release);
        }
        if !self.state().is_up() {
            self.advance(Event::Heard);
        }
    }

    /// Somebody else says that the node is there and has what is to be asked for. That it was silent once does not
    /// count any more, unless it is being waited for.
    pub fn wait_anew(&self, now: Nanos) {
        if now.saturating_sub(self.last_waited()) >= SUSPECT_AFTER {
            self.silence.store(0, Ordering::Release);
            self.advance(Event::Heard);
        }
    }

    /// A queue pair waits for the node, and a poll of it at `now` has brought nothing. It takes what has arrived first,
    /// for its own silence is over then.
    pub fn wait(&self, now: Nanos) {
        let before = self.polled.load(Ordering::Relaxed);
        let step = now.saturating_sub(before);
        if step < STEP_MIN {
            return;
        }
        // Who comes second has waited for the same time.
        if self.polled.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.silence.fetch_add(step.min(STEP_MAX), Ordering::AcqRel);
        }
    }

    /// Whether the node is to be probed, by the one caller who is told so: asked for anything, and waited for.
    pub fn wants_probe(&self, now: Nanos) -> bool {
        if !matches!(self.state(), State::Suspect | State::Silent) {
            return false;
        }
        let before = self.probed.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(before) >= PROBE_EACH;
        is_due && self.probed.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The node's content is lost, or it refuses.
    pub fn lose(&self) -> State {
        self.advance(Event::Lost)
    }

    /// The supervisor decides what the node is.
    pub fn judge(&self, others: Others) -> State {
        self.advance(Event::Judged(self.silence(), others))
    }

    fn advance(&self, event: Event) -> State {
        let mut before = self.state();
        loop {
            let after = before.on(event);
            let (from, to) = (Self::encode(before), Self::encode(after));
            if before == after || self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return after;
            }
            before = self.state();
        }
    }

    const fn encode(state: State) -> u64 {
        match state {
            State::Up => 0,
            State::Suspect => 1,
            State::Silent => 2,
            State::Lost => 3,
        }
    }
}

/// Whether any of some nodes, without one, is heard: what [`Health::judge`] wants to know.
#[must_use]
pub fn others<'a>(nodes: impl IntoIterator<Item = &'a Health>, without: &Health, now: Nanos) -> Others {
    let is_heard = |node: &Health| {
        let heard = node.last_heard();
        heard > 0 && now.saturating_sub(heard) < SUSPECT_AFTER && node.state().is_up()
    };
    let mut others = nodes.into_iter().filter(|node| !std::ptr::eq(*node, without));
    if others.any(is_heard) { Others::Heard } else { Others::Silent }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    /// Any time but zero.
    const START: Nanos = 1 << 40;

    /// Polls each `step` for `span` without an answer.
    fn wait(health: &Health, from: Nanos, span: Nanos, step: Nanos) -> Nanos {
        let mut now = from;
        while now < from + span {
            now += step;
            health.wait(now);
        }
        now
    }

    #[test]
    fn a_silent_node_becomes_suspect_and_is_given_up() {
        let health = Health::default();
        health.hear(START);
        health.wait(START);
        health.hear(START);
        let now = wait(&health, START, 149 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Up);
        let now = wait(&health, now, 2 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Suspect);
        let now = wait(&health, now, 800 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Suspect);
        wait(&health, now, 60 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Silent);
        assert_eq!(health.judge(Others::Heard), State::Silent);
    }

    #[test]
    fn a_lane_is_suspect_by_itself_and_not_by_a_pause() {
        let mut lane = LaneSilence::default();
        lane.wait(60_000 * MS);
        (0..139).for_each(|_| lane.wait(MS));
        assert!(!lane.is_suspect());
        lane.wait(MS);
        assert!(lane.is_suspect());
        lane.end();
        assert!(!lane.is_suspect());
    }

    #[test]
    fn whatever_is_heard_ends_silence() {
        let health = Health::default();
        let mut now = START;
        for _ in 0..100 {
            now = wait(&health, now, 140 * MS, MS);
            health.hear(now);
            assert_eq!(health.judge(Others::Heard), State::Up);
        }
        now = wait(&health, now, 300 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Suspect);
        health.hear(now);
        assert_eq!((health.state(), health.silence()), (State::Up, 0));
    }

    /// The program is stopped for a minute, again and again, and each time hears its answers later than its first poll.
    #[test]
    fn what_somebody_else_says_is_there_is_waited_for_anew() {
        let health = Health::default();
        let now = wait(&health, START, 1_100 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Silent);
        health.wait_anew(now + 10 * MS);
        assert_eq!(health.judge(Others::Heard), State::Silent, "it is waited for");
        let now = now + 200 * MS;
        health.wait_anew(now);
        assert_eq!((health.judge(Others::Heard), health.silence(), health.last_heard()), (State::Up, 0, 0));
        let now = wait(&health, now, 1_100 * MS, MS);
        assert_eq!(health.judge(Others::Heard), State::Silent);
        health.lose();
        health.wait_anew(now + 200 * MS);
        assert_eq!(health.state(), State::Lost);
    }

    #[test]
    fn who_stood_still_himself_suspects_nothing() {
        let health = Health::default();
        let mut now = START;
        for _ in 0..100 {
            now = wait(&health, now, 20 * MS, MS) + 60_000 * MS;
            for _ in 0..2 {
                health.wait(now);
                assert_eq!(health.judge(Others::Heard), State::Up);
                now += 5 * MS;
            }
            health.hear(now);
        }
    }

    /// Pauses of 200 ms on a busy machine, and nothing heard: it takes longer, and ends all the same.
    #[test]
    fn a_poll_adds_little_however_late_it_is() {
        let health = Health::default();
        wait(&health, START, 2_000 * MS, 200 * MS);
        assert_eq!(health.judge(Others::Heard), State::Up);
        wait(&health, START + 2_000 * MS, 20_000 * MS, 200 * MS);
        assert_eq!(health.judge(Others::Heard), State::Silent);
    }

    #[test]
    fn a_node_that_is_not_waited_for_is_not_silent() {
        let health = Health::default();
        wait(&health, START, 20 * MS, MS);
        health.hear(START + 20 * MS);
        health.wait(START + 3_600_000 * MS);
        assert_eq!((health.judge(Others::Heard), health.silence()), (State::Up, STEP_MAX));
    }

    #[test]
    fn many_who_wait_are_as_one() {
        let health = Health::default();
        for ms in 0..100 {
            (0..50).for_each(|thread| health.wait(START + ms * MS + thread * 1_000));
        }
        assert!(health.silence() <= 110 * MS, "{}", health.silence());
        assert!(health.silence() >= 90 * MS, "{}", health.silence());
    }

    #[test]
    fn polls_that_follow_one_another_closely_write_nothing() {
        let health = Health::default();
        health.wait(START);
        (1..STEP_MIN).step_by(1_000).for_each(|span| health.wait(START + span));
        assert_eq!(health.silence(), STEP_MAX);
        health.wait(START + STEP_MIN);
        assert_eq!(health.silence(), STEP_MAX + STEP_MIN);
    }

    #[test]
    fn where_all_are_silent_none_is_given_up() {
        let nodes: [Health; 3] = Default::default();
        let mut now = START;
        nodes.iter().for_each(|node| node.hear(now));
        for _ in 0..3_000 {
            now += MS;
            nodes.iter().for_each(|node| node.wait(now));
            nodes.iter().for_each(|node| _ = node.judge(others(&nodes, node, now)));
        }
        assert_eq!(nodes.each_ref().map(Health::state), [State::Suspect; 3]);
        nodes[1].hear(now);
        nodes.iter().for_each(|node| _ = node.judge(others(&nodes, node, now)));
        assert_eq!(nodes.each_ref().map(Health::state), [State::Silent, State::Up, State::Silent]);
    }

    #[test]
    fn a_node_that_is_not_up_is_probed_now_and_then() {
        let health = Health::default();
        assert!(!health.wants_probe(START));
        wait(&health, START, 200 * MS, MS);
        health.judge(Others::Heard);
        assert!(health.wants_probe(START) && !health.wants_probe(START + PROBE_EACH - 1));
        assert!(health.wants_probe(START + PROBE_EACH));
        health.hear(START);
        assert!(!health.wants_probe(START + 9 * PROBE_EACH));
        health.lose();
        assert!(!health.wants_probe(START + 9 * PROBE_EACH));
    }

    #[test]
    fn what_is_lost_stays_lost_and_what_was_silent_may_be_heard() {
        let health = Health::default();
        wait(&health, START, 2_000 * MS, MS);
        assert_eq!(health.judge(Others::Silent), State::Suspect);
        assert_eq!(health.judge(Others::Heard), State::Silent);
        health.hear(START);
        assert_eq!(health.state(), State::Up);
        assert_eq!(health.lose(), State::Lost);
        health.hear(START);
        assert_eq!(health.judge(Others::Heard), State::Lost);
    }
}
