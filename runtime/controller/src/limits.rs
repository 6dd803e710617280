//! [`Limits`]: how many connections there may be, as far as the limit of open files allows, so that none of them takes
//! the descriptor that another, or the store, needs.

use rustix::process::{Resource, getrlimit};
use yonder_units::Narrow as _;

/// Most connections at a time.
pub(crate) const PEERS_MAX: usize = 4096;
/// Most handshakes at a time. One of a host that has fewer than others takes the place of one of theirs.
const HANDSHAKES_MAX: usize = 256;
/// Descriptors for all that is no connection: the listening socket, the store, the process's own.
const OWN_FILES: u64 = 64;
/// Descriptors of a handshake: its place has one, and so have its thread and those that have lost the place before it.
const FILES_PER_HANDSHAKE: usize = 4;
/// Handshakes have a quarter of the descriptors.
const HANDSHAKES_DIVISOR: usize = 4 * FILES_PER_HANDSHAKE;

/// Connections, those that are known and those that begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) peers_max: usize,
    pub(crate) handshakes_max: usize,
}

impl Limits {
    /// What this process may have.
    pub(crate) fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn of(files: u64) -> Self {
        let most = files.saturating_sub(OWN_FILES).min(u64::from(u32::MAX)).narrow_usize();
        let handshakes_max = (most / HANDSHAKES_DIVISOR).clamp(1, HANDSHAKES_MAX);
        let left = most.saturating_sub(FILES_PER_HANDSHAKE * handshakes_max);
        Self { peers_max: left.clamp(1, PEERS_MAX), handshakes_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One host once took all descriptors where the limit is what many systems give: 1,024.
    #[test]
    fn connections_leave_descriptors_for_all_else() {
        assert_eq!(Limits::of(1024), Limits { peers_max: 720, handshakes_max: 60 });
        for most in [Limits::of(65536), Limits::of(u64::MAX)] {
            assert_eq!(most, Limits { peers_max: PEERS_MAX, handshakes_max: HANDSHAKES_MAX });
        }
        for files in [0, 64, 65, 80, 100, 1024, 4096, 5000] {
            let Limits { peers_max, handshakes_max } = Limits::of(files);
            let used = OWN_FILES + (peers_max + FILES_PER_HANDSHAKE * handshakes_max) as u64;
            assert!(used <= files.max(OWN_FILES + 5), "{used} of {files}");
        }
    }
}
