//! [`SwapFile`]: a file that the kernel swaps to, on a disk of the user's choice.
//!
//! The file is made here, reserved in full, so that swapping never allocates, and removed when the guard is dropped. A
//! file that is there already is somebody else's and refused.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use yonder::units::format_bytes;

use super::{PRIORITY, first_swap, read_swaps, swap_off, swap_on};

/// Swap on a file, until it is dropped.
#[derive(Debug)]
pub(super) struct SwapFile {
    path: PathBuf,
    is_on: bool,
}

impl SwapFile {
    /// Makes a file of `bytes` bytes at `path` and swaps to it before anything else; else says why that cannot be.
    pub(super) fn set_up(path: &Path, bytes: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("swap on {} takes root: run this as root", path.display()));
        }
        if let Some(first) = first_swap(&read_swaps()?).filter(|first| first.priority >= PRIORITY) {
            return Err(format!("swap on {0} would be measured: type `swapoff {0}` as root", first.path));
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!("{} is there already: type the path of a new file", path.display()),
            _ => format!("cannot make {}: {error}", path.display()),
        })?;
        // From here on the guard undoes what was done, however far it came.
        let mut guard = Self { path: path.to_owned(), is_on: false };
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(|error| format!("cannot reserve {} in {}: {error}", format_bytes(bytes), path.display()))?;
        drop(file);
        swap_on(path).map_err(|error| {
            format!("this file system does not take swap: {error}: type the path of a file elsewhere")
        })?;
        guard.is_on = true;
        Ok(guard)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let path = self.path.display();
        if self.is_on
            && let Err(error) = swap_off(&self.path)
        {
            eprintln!("swap on {path} stays: {error}: type `swapoff {path} && rm {path}` as root");
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{path} stays: {error}: type `rm {path}`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_used(path: &Path) -> bool {
        read_swaps().unwrap().contains(path.to_str().unwrap())
    }

    #[test]
    fn a_file_is_swapped_to_and_goes_with_its_guard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("on");
        let before = read_swaps().unwrap().lines().count();
        let swap = match SwapFile::set_up(&path, 4 << 20) {
            Ok(swap) => swap,
            Err(missing) => {
                assert!(!path.exists(), "what fails leaves nothing behind");
                return println!("SKIP: {missing}");
            }
        };
        assert!(is_used(&path));
        // Another one would not be in front of this.
        let error = SwapFile::set_up(&folder.path().join("second"), 4 << 20).unwrap_err();
        assert!(error.contains("would be measured: type `swapoff"), "{error}");
        drop(swap);
        assert!(!is_used(&path) && !path.exists());
        assert_eq!(read_swaps().unwrap().lines().count(), before);
    }

    #[test]
    fn files_of_others_are_left_alone() {
        if !rustix::process::geteuid().is_root() {
            return println!("SKIP: swap takes root: run this as root");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs");
        std::fs::write(&path, "theirs").unwrap();
        let error = SwapFile::set_up(&path, 4 << 20).unwrap_err();
        // Swap of the highest priority that somebody else has is refused before.
        assert!(error.contains("type the path of a new file") || error.contains("would be measured"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
        std::fs::remove_file(&path).unwrap();
        let error = SwapFile::set_up(Path::new("/nowhere/at/all"), 4 << 20).unwrap_err();
        assert!(error.contains("cannot make /nowhere/at/all") || error.contains("would be measured"), "{error}");
    }
}
