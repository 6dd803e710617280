//! [`Link`]: one direction of a wire, on which frames wait for one another.

use yonder_units::Nanos;

use crate::costs::{Cost, clio::FRAME_OVERHEAD};

/// A direction of a wire. Nothing is ever dropped: Clio's Ethernet is lossless (section 5).
#[derive(Debug)]
pub(super) struct Link {
    nanos_per_byte: f64,
    free_at: Nanos,
}

impl Link {
    /// A wire of `rate` gigabits a second.
    pub(super) fn new(rate: Cost) -> Self {
        Self { nanos_per_byte: 8.0 / rate.value, free_at: 0 }
    }

    /// When the last bit of a message that comes at `now` is through, behind all that came before.
    pub(super) fn carry(&mut self, now: Nanos, message_bytes: usize) -> Nanos {
        let bytes = message_bytes as f64 + FRAME_OVERHEAD.value;
        self.free_at = self.free_at.max(now) + (bytes * self.nanos_per_byte).round() as Nanos;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::clio::BOARD_PORT;

    #[test]
    fn frames_wait_for_one_another_and_an_idle_wire_forgets() {
        let mut link = Link::new(BOARD_PORT);
        let one = link.carry(1000, 1024 - FRAME_OVERHEAD.value as usize) - 1000;
        assert_eq!(one, 819, "1,024 bytes at 10 Gbps");
        assert_eq!(link.carry(1000, 1024 - FRAME_OVERHEAD.value as usize), 1000 + 2 * one);
        assert_eq!(link.carry(9000, 1024 - FRAME_OVERHEAD.value as usize), 9000 + one);
    }
}
