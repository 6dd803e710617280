//! [`InstallDelegate`]: a thread that makes installs which a worker has handed over.
//!
//! What is handed over, and when, is the pager's (`core/pager`, `delegation`): here is the thread's end of it.

use crate::far_memory::FarMemory;

/// A thread that makes installs for one port when it has time. See [`FarMemory::help_install`].
pub struct InstallDelegate {
    far: FarMemory,
    port: u16,
}

impl InstallDelegate {
    pub(crate) fn new(far: FarMemory, port: u16) -> Self {
        far.pager().help_port(port, true);
        Self { far, port }
    }

    /// Whether an install is handed over.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.far.pager().is_install_wanted(self.port)
    }

    /// Makes one install if one is handed over; costs two loads if not. Returns whether it did.
    #[inline]
    pub fn step(&mut self) -> bool {
        /// An order that unwinding drops would leave its waiters parked for good.
        struct AbortOnUnwind;
        impl Drop for AbortOnUnwind {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    std::process::abort();
                }
            }
        }
        if !self.is_wanted() {
            return false;
        }
        let _answers = AbortOnUnwind;
        self.far.pager().install_for(self.port)
    }
}

impl Drop for InstallDelegate {
    fn drop(&mut self) {
        self.far.pager().help_port(self.port, false);
    }
}
