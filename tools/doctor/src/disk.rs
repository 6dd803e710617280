//! [`Disk`]: what far memory in a file needs, tried: io_uring, and direct reads and writes in a folder.
//!
//! Neither is needed for far memory on a node, so what lacks is a warning.

use std::io;
use std::path::{Path, PathBuf};

use yonder_ring::{DirectFile, OpenError, RingError};

use crate::checks::{ok, warn};
use crate::machine::Machine;
use crate::report::Check;

/// What came of trying.
#[derive(Debug)]
pub struct Disk {
    /// Of setting up io_uring.
    pub ring: Result<(), RingError>,
    /// Where a file was made, and what came of that.
    pub folder: PathBuf,
    /// Of making a file there without a name, for direct access.
    pub file: Result<(), OpenError>,
}

impl Disk {
    /// Tries both, and leaves nothing behind.
    #[must_use]
    pub fn probe(folder: &Path) -> Self {
        let file = if folder.is_dir() {
            DirectFile::open(folder).map(drop)
        } else {
            Err(OpenError::Refused(io::ErrorKind::NotADirectory.into()))
        };
        Self { ring: yonder_ring::probe(), folder: folder.to_owned(), file }
    }

    pub(crate) fn checks(&self, machine: &Machine) -> [Check; 2] {
        [self.io_uring(machine), self.direct_access()]
    }

    fn io_uring(&self, machine: &Machine) -> Check {
        const NAME: &str = "io_uring";
        let error = match &self.ring {
            Ok(()) => return ok(NAME, "works, which far memory in a file (file://) needs"),
            Err(error) => error,
        };
        let cause = match error {
            RingError::Unsupported(cause) => cause.to_string(),
            RingError::Memory(cause) => cause.to_string(),
        };
        let refused = |why: &str| format!("{why} ({cause}): far memory cannot be in a file (file://)");
        match machine.io_uring_disabled {
            Some(1 | 2) => {
                warn(NAME, refused("kernel.io_uring_disabled forbids it"), "sudo sysctl kernel.io_uring_disabled=0")
            }
            _ if machine.is_container => warn(
                NAME,
                refused("the container's sandbox, or its kernel, does not offer it"),
                "start the container with --security-opt seccomp=unconfined",
            ),
            _ => warn(
                NAME,
                refused("this kernel or its sandbox does not offer it"),
                "use Linux 5.11 or later, built with CONFIG_IO_URING, outside a sandbox that filters it",
            ),
        }
    }

    fn direct_access(&self) -> Check {
        const NAME: &str = "direct_access";
        let folder = self.folder.display();
        match &self.file {
            Ok(()) => ok(NAME, format!("{folder} takes files for direct access, which file:// needs")),
            Err(error) => warn(
                NAME,
                format!("a file in {folder} {error}"),
                "yonder doctor --store FOLDER, of a folder on ext4, xfs or btrfs that this user may write to",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Status;

    fn disk(ring: Option<i32>, file: Result<(), OpenError>) -> Disk {
        let refused = |errno| RingError::Unsupported(io::Error::from_raw_os_error(errno));
        Disk { ring: ring.map_or(Ok(()), |errno| Err(refused(errno))), folder: "/var/far".into(), file }
    }

    fn mend(check: &Check) -> &str {
        assert_eq!(check.status == Status::Ok, check.mend.is_none(), "{check:?}");
        assert!(check.status != Status::Missing && !check.detail.contains('\n'), "{check:?}");
        check.mend.as_deref().unwrap_or("")
    }

    #[test]
    fn who_may_not_use_io_uring_is_told_the_command() {
        const EPERM: i32 = 1;
        const ENOSYS: i32 = 38;
        let check = |errno, io_uring_disabled, is_container| {
            let machine = Machine { io_uring_disabled, is_container, ..Machine::default() };
            let [check, _] = disk(errno, Ok(())).checks(&machine);
            (check.status, mend(&check).to_owned())
        };
        assert_eq!(check(None, Some(0), false), (Status::Ok, String::new()));
        assert_eq!(check(None, Some(1), false), (Status::Ok, String::new()), "this user may, as root may");
        for disabled in [1, 2] {
            let sysctl = "sudo sysctl kernel.io_uring_disabled=0".to_owned();
            assert_eq!(check(Some(EPERM), Some(disabled), false), (Status::Warn, sysctl));
        }
        assert!(check(Some(EPERM), Some(0), true).1.contains("--security-opt seccomp=unconfined"));
        assert!(check(Some(ENOSYS), None, false).1.contains("CONFIG_IO_URING"));
    }

    #[test]
    fn a_folder_without_direct_access_is_named_with_the_reason() {
        let check = |file| {
            let [_, check] = disk(None, file).checks(&Machine::default());
            (mend(&check).to_owned(), check.detail)
        };
        assert_eq!(check(Ok(())).0, "");
        for (error, why) in [
            (OpenError::NotDirect, "without direct access"),
            (OpenError::Refused(io::ErrorKind::PermissionDenied.into()), "cannot be opened"),
        ] {
            let (mend, detail) = check(Err(error));
            assert!(mend.starts_with("yonder doctor --store FOLDER"), "{mend}");
            assert!(detail.starts_with("a file in /var/far ") && detail.contains(why), "{detail}");
        }
    }

    #[test]
    fn what_is_tried_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let tried = Disk::probe(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(tried.file, Ok(()) | Err(OpenError::NotDirect)), "{tried:?}");
        let none = folder.path().join("none");
        assert!(matches!(Disk::probe(&none).file, Err(OpenError::Refused(_))));
        assert!(!none.exists());
    }
}
