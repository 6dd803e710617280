//! Forks of a process that pages: what its threads do before, and its child after.
//!
//! What becomes of a child's pages is the pager's (`core/pager`, `forked`). Whoever forks stops all changes first
//! ([`FarMemory::about_to_fork`]), and the child makes a userfaultfd of its own before it goes on
//! ([`Forking::in_child`]).

use yonder_mapping::Inherited;
use yonder_pager::Stopped;
use yonder_uffd::Uffd;

use crate::error::FarError;
use crate::far_memory::FarMemory;
use crate::kernel::Kernel;
use crate::region::Region;

/// Nothing of a far memory changes while this is there.
pub struct Forking<'a> {
    stopped: Stopped<'a, Kernel>,
}

impl FarMemory {
    /// Stops all changes until the process has forked: to be asked for right before `fork`, by the thread that forks,
    /// and to be dropped right after it in the parent.
    #[must_use]
    pub fn about_to_fork(&self, regions: &[&Region]) -> Forking<'_> {
        let stopped = self.pager().stop();
        for region in regions {
            region.core.memory().inherit(Inherited::Copied);
        }
        Forking { stopped }
    }
}

impl Forking<'_> {
    /// Goes on in the parent.
    pub fn in_parent(self, regions: &[&Region]) {
        for region in regions {
            region.core.memory().inherit(Inherited::Missing);
        }
    }

    /// Makes the regions the child's own. After an error they must not be touched.
    pub fn in_child(self, regions: &[&Region]) -> Result<(), FarError> {
        // A child has no thread that could read messages.
        let uffd = Uffd::open()?;
        for region in regions {
            region.core.memory().inherit(Inherited::Missing);
            uffd.register(region.core.memory())?;
        }
        self.stopped.go_on_as_child(uffd);
        Ok(())
    }
}
