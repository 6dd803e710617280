//! [`Config`]: the limits of a client, validated once, fixed for its life.

use yonder_units::{Nanos, PAGE_BYTES};
use yonder_wire::{DISCARD_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Most fragments that one client may have under way.
pub const FRAGMENTS_MAX: usize = 1 << 16;
/// Fewest bytes in a fragment. Fragments begin and end at multiples of 64 bytes, so they need more than that.
pub const FRAGMENT_BYTES_MIN: usize = 128;

/// What the lane does with messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// It may lose, repeat and reorder them: answers are asked for again by a timer, and a window follows the delay.
    Datagram,
    /// It keeps them whole and in order until it breaks: requests are sent again after [`reconnected`] alone.
    ///
    /// [`reconnected`]: crate::Client::reconnected
    Stream,
}

/// The congestion window: how many requests may be unanswered on a lane of datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowConfig {
    /// Packets at first.
    pub packets_initial: f64,
    /// Fewest packets: below one, a packet is sent in each of `1 / packets` round trips.
    pub packets_min: f64,
    /// Most packets.
    pub packets_max: f64,
    /// The round trip above which the window shrinks, and below which it grows.
    pub delay_target: Nanos,
    /// Packets that it grows by in a round trip.
    pub increase: f64,
    /// The largest share of itself that it shrinks by, at most once in a round trip.
    pub decrease: f64,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            packets_initial: 16.0,
            packets_min: 0.01,
            packets_max: 1024.0,
            delay_target: 500_000,
            increase: 1.0,
            decrease: 0.5,
        }
    }
}

/// The limits of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the lane does with messages.
    pub transport: Transport,
    /// Most operations that are submitted and not yet over. An operation is over when its completion has been taken
    /// and, if it was given up, the node has answered its abort.
    pub operations_max: usize,
    /// Most fragments that are under way: sent and unanswered, or about to be sent again. A power of two, at most
    /// [`FRAGMENTS_MAX`].
    pub fragments_max: usize,
    /// Most payload bytes of one message; at least [`FRAGMENT_BYTES_MIN`].
    pub fragment_bytes: usize,
    /// Most bytes of one discard: [`DISCARD_BYTES_MAX`], or a page of the node if that has more. A power of two.
    pub discard_bytes: u64,
    /// Bytes of the pages by which dependent operations are found. A power of two.
    pub dependency_page_bytes: u64,
    /// Shortest time after which an answer is asked for again.
    pub timeout_min: Nanos,
    /// Longest time after which an answer is asked for again.
    pub timeout_max: Nanos,
    /// The congestion window of a lane of datagrams.
    pub window: WindowConfig,
    /// The incast window: most bytes of answers that may be on their way to this client, but for a larger answer that
    /// is alone.
    pub incast_bytes: u64,
    /// Where the names of requests begin: a random number below 2^63. No two clients have one.
    pub first_request_id: u64,
}

impl Config {
    /// Limits for page-sized operations over `transport`, with names of requests from `first_request_id`, a random
    /// number below 2^63.
    #[must_use]
    pub fn new(transport: Transport, first_request_id: u64) -> Self {
        Self {
            transport,
            operations_max: 256,
            fragments_max: 1024,
            fragment_bytes: 2 * PAGE_BYTES,
            discard_bytes: DISCARD_BYTES_MAX,
            dependency_page_bytes: PAGE_BYTES as u64,
            timeout_min: 2_000_000,
            timeout_max: 500_000_000,
            window: WindowConfig::default(),
            incast_bytes: 1 << 20,
            first_request_id,
        }
    }

    /// Panics on limits that no client can work with.
    pub(crate) fn validate(&self) {
        let window = &self.window;
        assert!(self.operations_max > 0, "operations_max is 0");
        assert!(
            self.fragments_max.is_power_of_two() && self.fragments_max <= FRAGMENTS_MAX,
            "fragments_max is {}, not a power of two of at most {FRAGMENTS_MAX}",
            self.fragments_max
        );
        assert!(
            (FRAGMENT_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&self.fragment_bytes),
            "fragment_bytes is {}, not in {FRAGMENT_BYTES_MIN}..={PAYLOAD_BYTES_MAX}",
            self.fragment_bytes
        );
        assert!(
            self.discard_bytes.is_power_of_two() && self.discard_bytes <= 1 << 30,
            "discard_bytes is {}, not a power of two of at most 2^30",
            self.discard_bytes
        );
        assert!(self.dependency_page_bytes.is_power_of_two(), "dependency_page_bytes is not a power of two");
        assert!(0 < self.timeout_min && self.timeout_min <= self.timeout_max, "timeout_min is not in 1..=timeout_max");
        assert!(
            0.0 < window.packets_min
                && window.packets_min <= window.packets_initial
                && window.packets_initial <= window.packets_max,
            "the window's packets are not 0 < min <= initial <= max"
        );
        assert!(window.increase > 0.0 && 0.0 < window.decrease && window.decrease < 1.0, "the window cannot change");
        assert!(self.first_request_id < 1 << 63, "first_request_id is not below 2^63");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        Config::new(Transport::Datagram, 0).validate();
        Config::new(Transport::Stream, (1 << 63) - 1).validate();
    }

    #[test]
    #[should_panic(expected = "fragments_max is 48")]
    fn fragments_are_a_power_of_two() {
        Config { fragments_max: 48, ..Config::new(Transport::Stream, 1) }.validate();
    }

    #[test]
    #[should_panic(expected = "first_request_id")]
    fn names_must_not_wrap_around() {
        Config::new(Transport::Stream, 1 << 63).validate();
    }
}
