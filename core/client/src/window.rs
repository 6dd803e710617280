//! [`Window`]: how many requests a lane of datagrams may have unanswered (Clio, section 4.4, after Swift).
//!
//! Additive increase while answers come within the target delay, multiplicative decrease when they do not or when none
//! comes. The target is the same for all lanes, so that those of one queue get the same of it: if the shortest round
//! trip of each came on top, lanes that begin where others have filled a queue would take it for the way, and starve
//! these.
//!
//! The window may fall below one packet: then packets are sent one at a time, each a multiple of the round trip after
//! the last, because with many clients even one packet each can be too much for a node's link.

use yonder_units::Nanos;

use crate::config::WindowConfig;
use crate::event::event;

/// The longest pause between two packets: a node that is far, or answers late because it is busy, is asked rarely, and
/// not hardly ever.
const PAUSE_MAX: Nanos = 10_000_000;

/// A congestion window.
#[derive(Debug)]
pub(crate) struct Window {
    config: WindowConfig,
    packets: f64,
    /// When the window last shrank.
    shrank: Option<Nanos>,
    /// When the last packet was sent.
    sent: Option<Nanos>,
}

/// Whether a packet may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Now.
    Open,
    /// Not before an answer has come or been given up.
    Full,
    /// Not before this time.
    Later(Nanos),
}

impl Window {
    pub(crate) fn new(config: WindowConfig) -> Self {
        Self { config, packets: config.packets_initial, shrank: None, sent: None }
    }

    pub(crate) fn packets(&self) -> f64 {
        self.packets
    }

    /// Whether a packet may be sent while `in_flight` others are unanswered.
    #[inline]
    pub(crate) fn admit(&self, in_flight: usize, round_trip: Nanos, now: Nanos) -> Admission {
        if self.packets >= 1.0 {
            return if (in_flight + 1) as f64 <= self.packets { Admission::Open } else { Admission::Full };
        }
        if in_flight > 0 {
            return Admission::Full;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` rounds down, and a time beyond all numbers is the largest"
        )]
        let pause = (round_trip as f64 / self.packets) as Nanos;
        match self.sent.map(|sent| sent.saturating_add(pause.min(PAUSE_MAX))) {
            Some(due) if due > now => Admission::Later(due),
            _ => Admission::Open,
        }
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, now: Nanos) {
        self.sent = Some(now);
    }

    /// An answer came `rtt` after its request, while `in_flight` requests were unanswered, itself among them.
    #[inline]
    pub(crate) fn on_answer(&mut self, rtt: Nanos, in_flight: usize, round_trip: Nanos, now: Nanos) {
        let target = self.config.delay_target;
        if rtt > target {
            let excess = (rtt - target) as f64 / rtt as f64;
            self.shrink(self.config.decrease * excess, round_trip, now);
        } else if (2 * in_flight) as f64 >= self.packets {
            // A window that is not used says nothing about what the network bears, so it does not grow.
            let grown = self.packets + self.config.increase / self.packets.max(1.0);
            self.packets = grown.min(self.config.packets_max);
        }
    }

    /// No answer came in time.
    pub(crate) fn on_loss(&mut self, round_trip: Nanos, now: Nanos) {
        self.shrink(self.config.decrease, round_trip, now);
    }

    /// Once in a round trip: all answers of one have met the same queue.
    fn shrink(&mut self, share: f64, round_trip: Nanos, now: Nanos) {
        if self.shrank.is_some_and(|shrank| now.saturating_sub(shrank) < round_trip) {
            return;
        }
        self.shrank = Some(now);
        let before = self.packets;
        self.packets = (before * (1.0 - share)).max(self.config.packets_min);
        if before >= 1.0 && self.packets < 1.0 {
            event!(
                debug,
                before,
                packets = self.packets,
                round_trip,
                "the congestion window collapses below one packet"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = 100;

    fn window(packets: f64) -> Window {
        Window::new(WindowConfig {
            packets_initial: packets,
            packets_min: 0.01,
            packets_max: 8.0,
            delay_target: 1000,
            increase: 1.0,
            decrease: 0.5,
        })
    }

    #[test]
    fn it_grows_by_one_packet_in_a_round_trip_and_no_further_than_its_limit() {
        let mut window = window(4.0);
        (0..4).for_each(|_| window.on_answer(500, 4, ROUND_TRIP, 0));
        assert!((4.9..5.0).contains(&window.packets()), "{}", window.packets());
        (0..1000).for_each(|_| window.on_answer(500, 8, ROUND_TRIP, 0));
        assert!((8.0..8.001).contains(&window.packets()));
        assert_eq!(window.admit(7, ROUND_TRIP, 0), Admission::Open);
        assert_eq!(window.admit(8, ROUND_TRIP, 0), Admission::Full);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = window(4.0);
        window.on_answer(500, 1, ROUND_TRIP, 0);
        assert!((4.0..4.001).contains(&window.packets()));
    }

    #[test]
    fn it_shrinks_with_the_excess_of_the_delay_and_once_in_a_round_trip() {
        let mut window = window(4.0);
        window.on_answer(2000, 4, ROUND_TRIP, 1000);
        assert!((2.99..3.01).contains(&window.packets()), "{}", window.packets());
        window.on_loss(ROUND_TRIP, 1000 + ROUND_TRIP - 1);
        assert!((2.99..3.01).contains(&window.packets()));
        window.on_loss(ROUND_TRIP, 1000 + ROUND_TRIP);
        assert!((1.49..1.51).contains(&window.packets()));
    }

    #[test]
    fn below_one_packet_it_paces_and_it_never_closes() {
        let mut window = window(0.5);
        assert_eq!(window.admit(0, ROUND_TRIP, 0), Admission::Open);
        window.on_sent(1000);
        assert_eq!(window.admit(1, ROUND_TRIP, 1100), Admission::Full);
        assert_eq!(window.admit(0, ROUND_TRIP, 1199), Admission::Later(1200));
        assert_eq!(window.admit(0, ROUND_TRIP, 1200), Admission::Open);
        (0..100).for_each(|at| window.on_loss(ROUND_TRIP, at * ROUND_TRIP));
        assert!((0.01..0.011).contains(&window.packets()));
        window.on_answer(500, 1, ROUND_TRIP, 0);
        assert!(window.packets() > 1.0, "one answer within the target opens it again");
    }

    #[test]
    fn whoever_is_answered_late_asks_all_the_same() {
        let mut window = window(0.01);
        window.on_sent(1000);
        assert_eq!(window.admit(0, 50 * PAUSE_MAX, 1001), Admission::Later(1000 + PAUSE_MAX));
    }

    /// Many lanes to one node that serves one packet at a time, each of which always wants to send, and begins a while
    /// after the last.
    #[test]
    fn many_lanes_share_a_node_and_keep_its_queue_short() {
        const LANES: usize = 50;
        const SERVICE: Nanos = 10_000;
        const WAY: Nanos = 50_000;
        let config = WindowConfig { packets_initial: 1.0, ..WindowConfig::default() };
        let mut windows: Vec<Window> = (0..LANES).map(|_| Window::new(config)).collect();
        let mut in_flight = [0; LANES];
        let mut round_trips = [100_000; LANES];
        // What happens when: an answer to a packet of then, or a lane that may send again.
        let mut events: std::collections::BinaryHeap<_> =
            (0..LANES).map(|lane| std::cmp::Reverse((lane as Nanos * 100_000_000, lane, None))).collect();
        let (mut free_at, mut longest, mut answers) = (0, 0, [0; LANES]);
        while let Some(std::cmp::Reverse((now, lane, sent))) = events.pop() {
            if now > 30_000_000_000 {
                break;
            }
            if let Some(sent) = sent {
                let rtt = now - sent;
                round_trips[lane] = round_trips[lane] - round_trips[lane] / 8 + rtt / 8;
                windows[lane].on_answer(rtt, in_flight[lane], round_trips[lane], now);
                in_flight[lane] -= 1;
                if now > 10_000_000_000 {
                    longest = longest.max(rtt);
                    answers[lane] += 1;
                }
            }
            loop {
                match windows[lane].admit(in_flight[lane], round_trips[lane], now) {
                    Admission::Open => {
                        windows[lane].on_sent(now);
                        in_flight[lane] += 1;
                        free_at = free_at.max(now + WAY) + SERVICE;
                        events.push(std::cmp::Reverse((free_at + WAY, lane, Some(now))));
                    }
                    Admission::Later(at) => break events.push(std::cmp::Reverse((at, lane, None))),
                    Admission::Full => break,
                }
            }
        }
        let bound = 4 * config.delay_target;
        assert!(longest < bound, "an answer took {longest} ns");
        let (least, most) = (answers.iter().min().unwrap(), answers.iter().max().unwrap());
        assert!(most < &(4 * least), "{answers:?}");
    }
}
