//! [`Crowd`]: whether a thread has served several senders lately, so that none of them may keep it for long.

use yonder_board::Source;
use yonder_units::Nanos;

/// For how long after two senders have met it is crowded.
const TIME: Nanos = 100_000_000;

/// Who was served last, and until when it is crowded.
#[derive(Debug)]
pub(crate) struct Crowd {
    last: Option<Source>,
    until: Nanos,
}

impl Crowd {
    pub(crate) const fn new() -> Self {
        Self { last: None, until: 0 }
    }

    /// A sender was served now.
    #[inline]
    pub(crate) fn meets(&mut self, sender: Source, now: Nanos) {
        if self.last != Some(sender) {
            if self.last.is_some() {
                self.until = now + TIME;
            }
            self.last = Some(sender);
        }
    }

    /// Whether it is crowded.
    #[inline]
    pub(crate) fn is_there(&self, now: Nanos) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_crowded_for_a_while_after_two_have_met() {
        let mut crowd = Crowd::new();
        let mut meets = |sender, now| {
            crowd.meets(Source(sender), now);
            crowd.is_there(now)
        };
        assert!(!meets(1, 5) && !meets(1, 6), "one is no crowd");
        assert!(meets(2, 10) && meets(2, 9 + TIME));
        assert!(!meets(2, 10 + TIME));
        assert!(meets(1, 20 + TIME));
    }
}
