//! `yonder doctor`: what this machine can do for far memory, what is missing, and the command that mends it.
//!
//! [`Machine`] is what the machine says about itself, most of it in files; [`yonder_uffd::Abilities`] is what the
//! kernel allowed when it was tried, and [`Disk`] the same for far memory in a file. [`examine`] turns the three into a
//! [`Report`] without touching the machine, so every verdict is tested with made-up machines. A report is text or JSON
//! Lines; [`Report::is_ready`] decides the exit code.
//!
//! Neighbours: `edge/cli` prints the report; `sys/uffd` and `sys/ring` do the probing.

#![forbid(unsafe_code)]

mod checks;
mod disk;
mod machine;
mod report;
mod secrets;

pub use checks::examine;
pub use disk::Disk;
pub use machine::{KernelVersion, Machine, MemlockLimit, SharedHugePages};
pub use report::{Check, Report, Status};

use std::path::Path;

/// Reads this machine, tries what paging needs and what far memory in a file in `store` needs, and judges that.
#[must_use]
pub fn examine_this_machine(store: &Path) -> Report {
    examine(&Machine::read(), &yonder_uffd::probe(), &Disk::probe(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_gets_a_verdict_on_everything() {
        let report = examine_this_machine(Path::new("."));
        assert_eq!(report.to_json_lines().lines().count(), report.checks.len());
        assert!(report.checks.iter().all(|check| !check.detail.is_empty()));
    }
}
