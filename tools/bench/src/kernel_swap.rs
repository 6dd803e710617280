//! The kernel's own way to have more memory than there is: a control group that limits a program, and swap for the
//! rest.
//!
//! [`KernelSwap`] is both, ready to be used; `cgroup` makes groups and leaves them their memory, `zram` swaps to
//! compressed memory, `file` to a disk. What was set up here is undone when its guard is dropped; swap that was there
//! before is never touched.
//!
//! Neighbours: `programs`, `ycsb` and `peers` compare far memory with it.

mod cgroup;
mod file;
mod zram;

use std::fmt::Debug;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use cgroup::Group;

use cgroup::Hierarchy;

/// What is said of a run that was killed each time.
pub(crate) const OUT_OF_MEMORY: &str = "out of memory: the kernel killed it";
/// Memory of a group, beside the local one, until it is known what its processes take before they have data.
const START_BYTES: u64 = 256 << 20;
/// In front of whatever swap there is: the kernel's highest priority.
const PRIORITY: i32 = 32_767;

/// Where the kernel swaps to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapOn {
    /// Compressed memory.
    Zram,
    /// A file, which must not be there yet.
    File {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

/// Limited groups, and swap. Dropping it undoes what was set up.
#[derive(Debug)]
pub(crate) struct KernelSwap {
    hierarchy: Hierarchy,
    /// What undoes the swap that was set up here, if any was.
    _swap: Option<Box<dyn Debug>>,
    /// How results call the swap.
    pub(crate) name: String,
}

impl KernelSwap {
    /// Sets up what is missing; else says why that cannot be and how to mend it.
    pub(crate) fn ready(on: &SwapOn) -> Result<Self, String> {
        let hierarchy = Hierarchy::find()?;
        let (name, swap): (_, Box<dyn Debug>) = match on {
            SwapOn::Zram => {
                let guard = zram::Swap::ready()?;
                (guard.name.clone(), Box::new(guard))
            }
            SwapOn::File { path, bytes } => {
                let guard = file::SwapFile::set_up(path, *bytes)?;
                (format!("file {}{}", path.display(), pages_at_a_time()), Box::new(guard))
            }
        };
        Ok(Self { hierarchy, _swap: Some(swap), name })
    }

    /// Limited groups alone, for processes whose memory is a file's: the kernel drops its pages, and swaps nothing.
    pub(crate) fn without_swap() -> Result<Self, String> {
        Ok(Self { hierarchy: Hierarchy::find()?, _swap: None, name: "none".to_owned() })
    }

    /// A group for processes that are to have `local_bytes` of data in memory, and that start: [`Group::leave`] leaves
    /// them that.
    pub(crate) fn group_to_start(&self, local_bytes: u64) -> Result<Group, String> {
        self.group(local_bytes + START_BYTES)
    }

    /// A group whose processes have at most `bytes` of memory together.
    pub(crate) fn group(&self, bytes: u64) -> Result<Group, String> {
        self.hierarchy.group(bytes)
    }
}

/// How many pages the kernel reads from swap at a time, as an end of a name.
fn pages_at_a_time() -> String {
    let cluster = std::fs::read_to_string("/proc/sys/vm/page-cluster").ok().and_then(|text| text.trim().parse().ok());
    let pages = cluster.and_then(|cluster: u32| 1_u64.checked_shl(cluster));
    pages.map_or_else(String::new, |pages| format!(", {pages} pages at a time"))
}

/// What is swapped to, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Used<'a> {
    path: &'a str,
    priority: i32,
}

fn read_swaps() -> Result<String, String> {
    std::fs::read_to_string("/proc/swaps").map_err(|error| format!("/proc/swaps: {error}"))
}

/// What the kernel swaps to first, by its table.
fn first_swap(swaps: &str) -> Option<Used<'_>> {
    let used = |line: &'_ str| {
        let priority = line.split_whitespace().next_back()?.parse().ok()?;
        Some((line.find(char::is_whitespace)?, priority))
    };
    let all = swaps.lines().skip(1).filter_map(|line| {
        let (end, priority) = used(line)?;
        Some(Used { path: &line[..end], priority })
    });
    all.max_by_key(|used| used.priority)
}

/// Begins to swap to a device or a file.
fn swap_on(path: &Path) -> Result<(), String> {
    call(Command::new("mkswap").arg(path))?;
    call(Command::new("swapon").args(["--priority", &PRIORITY.to_string()]).arg(path))
}

/// Ends it, once everything is read back.
fn swap_off(path: &Path) -> Result<(), String> {
    call(Command::new("swapoff").arg(path))
}

/// Runs a command that says nothing if it succeeds. A group of its own keeps Ctrl-C from it, which would leave swap
/// half undone.
fn call(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.stdin(Stdio::null()).process_group(0).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}: type `apt-get install util-linux mount` as root")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swap_that_is_used_first_is_found() {
        const HEAD: &str = "Filename\tType\tSize\tUsed\tPriority\n";
        assert_eq!(first_swap(HEAD), None);
        let swaps = format!("{HEAD}/dev/vdb partition 1 0 -2\n/dev/zram1 partition 1 0 100\n/swap file 1 0 5\n");
        assert_eq!(first_swap(&swaps), Some(Used { path: "/dev/zram1", priority: 100 }));
    }

    #[test]
    fn a_command_that_fails_says_why() {
        assert_eq!(call(&mut Command::new("true")), Ok(()));
        let error = call(Command::new("sh").args(["-c", "echo not so >&2; exit 1"])).unwrap_err();
        assert_eq!(error, "sh: not so");
        assert!(call(&mut Command::new("/nowhere/at-all")).unwrap_err().contains("apt-get install"));
    }
}
