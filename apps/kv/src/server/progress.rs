//! [`Progress`]: when a client last got on with what it has begun.
//!
//! A byte now and then is no progress: a client that wants to hold memory or a connection for nothing could send that.

use yonder_units::Nanos;

use super::buffers::IDLE_BYTES_MAX;

/// How long a client may get on with nothing before what it holds is taken for others that need it.
pub(super) const SILENT_NS: Nanos = 1_000_000_000;
/// Bytes that are progress when no command is completed by them: as many as every client may hold at any time.
const PROGRESS_BYTES: usize = IDLE_BYTES_MAX;

/// The last progress of one client.
#[derive(Debug)]
pub(super) struct Progress {
    made_at: Nanos,
    /// Bytes since then.
    moved_bytes: usize,
    /// Whether the client has ever sent or taken a byte.
    has_begun: bool,
}

impl Progress {
    pub(super) fn new(now: Nanos) -> Self {
        Self { made_at: now, moved_bytes: 0, has_begun: false }
    }

    /// The client has completed something.
    pub(super) fn made(&mut self, now: Nanos) {
        *self = Self { has_begun: self.has_begun, ..Self::new(now) };
    }

    /// Whether the client has ever sent or taken a byte.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The client has sent or taken bytes that the server waits for.
    pub(super) fn moved(&mut self, bytes: usize, now: Nanos) {
        self.has_begun |= bytes > 0;
        self.moved_bytes += bytes;
        if self.moved_bytes >= PROGRESS_BYTES {
            self.made(now);
        }
    }

    /// How long there has been none.
    pub(super) fn silent_ns(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.made_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dripping_is_silence_and_moving_is_not() {
        let mut progress = Progress::new(5);
        progress.moved(PROGRESS_BYTES - 1, 10);
        assert_eq!(progress.silent_ns(11), 6);
        progress.moved(1, 20);
        assert_eq!(progress.silent_ns(21), 1);
        progress.moved(PROGRESS_BYTES - 1, 30);
        progress.made(40);
        progress.moved(PROGRESS_BYTES - 1, 50);
        assert_eq!((progress.silent_ns(50), progress.silent_ns(39)), (10, 0));
    }
}
