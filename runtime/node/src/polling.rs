//! [`Polling`]: what a data thread does while there is nothing to do; [`Waiting`] is one thread that does it.

use std::time::Duration;

use yonder_fabric::AdaptiveSpin;

/// What a data thread does while there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// It asks for more for so long at most, if that has helped before, and then sleeps; see [`AdaptiveSpin`].
    Adaptive(Duration),
    /// It asks for more, again and again: the shortest latency, for a CPU of its own.
    Busy,
}

impl Default for Polling {
    fn default() -> Self {
        Self::Adaptive(AdaptiveSpin::LONGEST_DEFAULT)
    }
}

/// A data thread's waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// None for one that never sleeps.
    timeout: Option<AdaptiveSpin>,
}

impl Waiting {
    pub(crate) fn new(polling: Polling) -> Self {
        let timeout = match polling {
            Polling::Adaptive(longest) => Some(AdaptiveSpin::new(longest)),
            Polling::Busy => None,
        };
        let mut waiting = Self { timeout };
        waiting.begin();
        waiting
    }

    /// Everything that was there has been done.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if let Some(timeout) = &mut self.timeout {
            timeout.begin(yonder_clock::now());
        }
    }

    /// Whether the thread asks again; else it sleeps until there is something.
    #[inline]
    pub(crate) fn asks_again(&mut self) -> bool {
        self.timeout.as_mut().is_none_or(|timeout| timeout.asks_again(yonder_clock::now()))
    }

    /// Nothing was there.
    #[inline]
    pub(crate) fn pause(&self) {
        match self.timeout {
            Some(_) => AdaptiveSpin::pause(),
            None => std::hint::spin_loop(),
        }
    }

    /// There is something.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(timeout) = &mut self.timeout {
            timeout.end(yonder_clock::now());
        }
    }
}
