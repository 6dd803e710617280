//! [`Rounds`]: which poll of a queue pair goes to its lanes. Pure: the time comes from outside.
//!
//! To go to a lane takes a system call or two, as long for one message as for twenty, and a page in shares is a message
//! on each of several lanes. So a thread that has other work ([`Posting`]) goes to its lanes in rounds, a while apart:
//! what it has posted meanwhile leaves together, a node is woken once for it and answers it together. One that may wait
//! for what it has posted goes with every poll.
//!
//! Invariants: what is posted leaves with the first poll that comes [`ROUND_MAX`] later, or after [`Posting::AtOnce`]
//! was asked for, and so is heard what has arrived. No write waits, and nothing does that was given up.

use yonder_units::Nanos;

use crate::{ALONE_AGE_MAX, GATHERED_MAX, Posting, TOGETHER_AGE_MAX};

/// The longest time between two rounds.
const ROUND_MAX: Nanos = ALONE_AGE_MAX;
const _: () = assert!(TOGETHER_AGE_MAX <= ROUND_MAX);

/// When lanes are polled.
#[derive(Debug)]
pub(super) struct Rounds {
    posting: Posting,
    /// Messages of a read.
    messages: usize,
    /// Messages that were posted since the last round.
    posted: usize,
    /// Whether something was posted that does not wait for others.
    is_urgent: bool,
    last: Nanos,
}

impl Rounds {
    /// For reads of so many messages.
    pub(super) fn new(messages: u8) -> Self {
        let messages = messages.into();
        Self { posting: Posting::AtOnce, messages, posted: 0, is_urgent: false, last: 0 }
    }

    pub(super) fn set_posting(&mut self, posting: Posting) {
        self.posting = posting;
    }

    /// A message of a read was posted.
    #[inline]
    pub(super) fn add(&mut self) {
        self.posted += 1;
    }

    /// Something is to be sent that does not wait for others.
    #[inline]
    pub(super) fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// Whether the poll of this time is a round; it is made then.
    #[inline]
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        // So much longer is one who posts a read busy with it, if he goes to each lane.
        let apart = (TOGETHER_AGE_MAX * self.messages as Nanos).min(ROUND_MAX);
        let is_due = self.posting == Posting::AtOnce
            || self.is_urgent
            || self.posted >= GATHERED_MAX * self.messages
            || now.saturating_sub(self.last) >= apart;
        if is_due {
            (self.posted, self.is_urgent, self.last) = (0, false, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of reads of some messages, the last at 1000.
    fn rounds(posting: Posting, messages: u8) -> Rounds {
        let mut rounds = Rounds::new(messages);
        assert!(rounds.is_due(1000));
        rounds.set_posting(posting);
        rounds
    }

    #[test]
    fn at_once_is_every_poll() {
        let mut rounds = rounds(Posting::AtOnce, 4);
        assert!(rounds.is_due(1000) && rounds.is_due(1000));
        rounds.set_posting(Posting::Together);
        rounds.add();
        assert!(!rounds.is_due(1001));
        // Who may sleep now has asked for it.
        rounds.set_posting(Posting::AtOnce);
        assert!(rounds.is_due(1001));
    }

    #[test]
    fn a_round_is_a_while_after_the_one_before_whatever_was_posted() {
        for posting in [Posting::Together, Posting::Alone] {
            for (messages, apart) in [(1, 25_000), (2, 50_000), (4, ROUND_MAX), (7, ROUND_MAX)] {
                let mut rounds = rounds(posting, messages);
                assert!(!rounds.is_due(1000 + apart - 1), "{messages} messages");
                assert!(rounds.is_due(1000 + apart), "{messages} messages");
                rounds.add();
                assert!(!rounds.is_due(1000 + 2 * apart - 1) && rounds.is_due(1000 + 2 * apart));
                // After a pause nothing waits.
                rounds.add();
                assert!(rounds.is_due(1000 + 20 * apart));
                // A clock that goes back is no time that has passed.
                assert!(!rounds.is_due(0));
            }
        }
    }

    #[test]
    fn enough_reads_are_a_round() {
        for messages in [1, 4] {
            let mut rounds = rounds(Posting::Together, messages);
            (1..GATHERED_MAX * usize::from(messages)).for_each(|_| rounds.add());
            assert!(!rounds.is_due(1001));
            rounds.add();
            assert!(rounds.is_due(1001) && !rounds.is_due(1001));
        }
    }

    #[test]
    fn what_does_not_wait_for_others_takes_them_along() {
        for posting in [Posting::Together, Posting::Alone] {
            let mut rounds = rounds(posting, 4);
            rounds.add();
            rounds.hurry();
            assert!(rounds.is_due(1001) && !rounds.is_due(1002));
        }
    }
}
