//! [`Order`]: which goes first at a worker, a request whose page has come or a new one.

use yonder_units::Nanos;

/// In which order a worker runs what waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// By classes (LightSwap, section 4.3): requests whose page has come, then new and preempted ones as in one queue,
    /// then those that yield until others have run. What has been begun is ended first, and holds its frames and locks
    /// for the shortest time.
    #[default]
    Classes,
    /// In the order in which they became ready: the baseline that the classes are measured against.
    Fifo,
}

impl Order {
    /// Whether a request whose page has come at `page_came` runs before a new one that came at `admitted`, which is
    /// asked for only if it matters. Equal times: yes.
    #[inline]
    #[must_use]
    pub fn resumes_first(self, page_came: Nanos, admitted: impl FnOnce() -> Nanos) -> bool {
        match self {
            Self::Classes => true,
            Self::Fifo => page_came <= admitted(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_look_at_no_clock_and_first_in_first_out_at_nothing_else() {
        for (page_came, admitted) in [(1, 2), (2, 2), (3, 2)] {
            assert!(Order::Classes.resumes_first(page_came, || unreachable!("classes look at no clock")));
            assert_eq!(Order::Fifo.resumes_first(page_came, || admitted), page_came <= admitted);
        }
    }
}
