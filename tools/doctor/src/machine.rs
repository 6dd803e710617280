//! [`Machine`]: what the machine says about itself, read from the files of `/proc` and `/sys`, from one socket, and
//! from the kernel.
//!
//! A value that cannot be read is absent, never a guess; the checks say so. The files are found below a root folder, so
//! that tests can lay out a machine of their own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};

/// A kernel's major and minor version, in that order of weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion {
    /// The 6 of 6.18.
    pub major: u32,
    /// The 18 of 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// Reads the first two numbers of a release name such as `6.18.44-cloud`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

/// How much memory a process of this user may lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemlockLimit {
    /// At most this many bytes.
    Bytes(u64),
    /// As much as there is.
    Unlimited,
}

/// When the kernel backs memory that is shared by descriptor with huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedHugePages {
    /// Where it was asked to, or more often.
    OnRequest,
    /// Never.
    Never,
}

/// What the machine says about itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Machine {
    /// The processor architecture this program was built for, such as `x86_64`.
    pub architecture: String,
    /// The kernel's release name, such as `6.18.44-cloud`; empty if unknown.
    pub kernel_release: String,
    /// Whether `/dev/userfaultfd` is there, whoever may open it.
    pub has_userfaultfd_device: bool,
    /// Whether this looks like the inside of a container.
    pub is_container: bool,
    /// CPUs that this process may use; 0 if unknown.
    pub cpus: usize,
    /// Memory that can be had without swapping, within the limit of the control group.
    pub memory_available_bytes: Option<u64>,
    /// Memory mappings that a process may have.
    pub map_count_max: Option<u64>,
    /// Memory that a process may lock.
    pub memlock: Option<MemlockLimit>,
    /// Most bytes that a socket may hold for its reader, as far as the reader asks for them.
    pub receive_buffer_max_bytes: Option<u64>,
    /// Most bytes that a socket may hold for the network.
    pub send_buffer_max_bytes: Option<u64>,
    /// Whether several sockets may have one port, so that the kernel spreads datagrams over threads.
    pub has_shared_ports: bool,
    /// Whether a filter can send system calls back to the thread that makes them.
    pub has_trapping_filters: bool,
    /// Whether a process may be held to a list of system calls.
    pub has_filters: bool,
    /// The version of the rules for files and ports that a process may give itself; none if there are none.
    pub landlock_version: Option<u32>,
    /// What the administrator has said of io_uring: 0 for everybody, 1 for some, 2 for nobody.
    pub io_uring_disabled: Option<u32>,
    /// Huge pages for memory that is shared by descriptor.
    pub shared_huge_pages: Option<SharedHugePages>,
    /// The processor's abilities, by the kernel's names.
    pub cpu_flags: BTreeSet<String>,
}

impl Machine {
    /// Reads the machine this program runs on.
    #[must_use]
    pub fn read() -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            has_shared_ports: shares_ports(),
            has_filters: yonder_process::has_filters(),
            landlock_version: yonder_process::landlock_version(),
            ..Self::read_below(Path::new("/"))
        }
    }

    /// Reads the files below `root` as if it were `/`. CPUs are not counted, and ports and sandboxes not tried: no file
    /// tells of them.
    fn read_below(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let exists = |path: &str| root.join(path).exists();
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            kernel_release: text("proc/sys/kernel/osrelease").trim().to_owned(),
            has_userfaultfd_device: exists("dev/userfaultfd"),
            is_container: exists(".dockerenv") || exists("run/.containerenv"),
            cpus: 0,
            memory_available_bytes: memory_available(&text("proc/meminfo"), &text),
            map_count_max: text("proc/sys/vm/max_map_count").trim().parse().ok(),
            memlock: memlock(&text("proc/self/limits")),
            receive_buffer_max_bytes: text("proc/sys/net/core/rmem_max").trim().parse().ok(),
            send_buffer_max_bytes: text("proc/sys/net/core/wmem_max").trim().parse().ok(),
            has_shared_ports: false,
            has_filters: false,
            landlock_version: None,
            has_trapping_filters: text("proc/sys/kernel/seccomp/actions_avail")
                .split_whitespace()
                .any(|word| word == "trap"),
            io_uring_disabled: text("proc/sys/kernel/io_uring_disabled").trim().parse().ok(),
            shared_huge_pages: shared_huge_pages(&text),
            cpu_flags: cpu_flags(&text("proc/cpuinfo")),
        }
    }
}

/// The smaller of what the machine has left and what the control group has left.
fn memory_available(meminfo: &str, text: &impl Fn(&str) -> String) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limit: Option<u64> = text("sys/fs/cgroup/memory.max").trim().parse().ok();
    let used: u64 = text("sys/fs/cgroup/memory.current").trim().parse().unwrap_or(0);
    let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
    Some(left.min(kibibytes * 1024))
}

/// The soft limit, third column of its line.
fn memlock(limits: &str) -> Option<MemlockLimit> {
    let columns = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match columns.split_whitespace().next()? {
        "unlimited" => Some(MemlockLimit::Unlimited),
        bytes => bytes.parse().ok().map(MemlockLimit::Bytes),
    }
}

/// Whether a socket may be told to share its port.
fn shares_ports() -> bool {
    let tried = socket(AddressFamily::INET, SocketType::DGRAM, None);
    tried.is_ok_and(|socket| sockopt::set_socket_reuseport(&socket, true).is_ok())
}

/// The choice in brackets. Newer kernels have one for each size, which may leave it to the one for all.
fn shared_huge_pages(text: &impl Fn(&str) -> String) -> Option<SharedHugePages> {
    const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";
    let chosen = |path: &str| {
        let choices = text(&format!("{FOLDER}/{path}"));
        let (_, rest) = choices.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    };
    let of_size = chosen("hugepages-2048kB/shmem_enabled").filter(|choice| choice != "inherit");
    match of_size.or_else(|| chosen("shmem_enabled"))?.as_str() {
        "always" | "within_size" | "advise" | "force" => Some(SharedHugePages::OnRequest),
        _ => Some(SharedHugePages::Never),
    }
}

/// The flags of the first CPU; they are the same on all.
fn cpu_flags(cpuinfo: &str) -> BTreeSet<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let flags = line.and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags);
    flags.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn kernel_versions_parse_and_compare() {
        assert_eq!(KernelVersion::parse("6.18.44-fc-v657"), Some(KernelVersion { major: 6, minor: 18 }));
        assert_eq!(KernelVersion::parse("5.4-rc1"), Some(KernelVersion { major: 5, minor: 4 }));
        assert_eq!([KernelVersion::parse(""), KernelVersion::parse("linux")], [None, None]);
        assert!(KernelVersion { major: 6, minor: 1 } > KernelVersion { major: 5, minor: 14 });
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/sys/kernel/osrelease", "6.18.44-test\n");
        write(root, "proc/meminfo", "MemTotal:  8000 kB\nMemAvailable:    4000 kB\n");
        write(root, "proc/sys/vm/max_map_count", "65530\n");
        write(
            root,
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  8388608  unlimited  bytes\n",
        );
        write(
            root,
            "proc/cpuinfo",
            "processor\t: 0\nflags\t\t: fpu avx2 constant_tsc\n\nprocessor\t: 1\nflags\t: fpu\n",
        );
        write(root, "dev/userfaultfd", "");
        write(root, "proc/sys/net/core/rmem_max", "212992\n");
        write(root, "proc/sys/net/core/wmem_max", "4194304\n");
        write(root, "proc/sys/kernel/io_uring_disabled", "2\n");
        write(root, "proc/sys/kernel/seccomp/actions_avail", "kill_process kill_thread trap errno allow\n");
        let machine = Machine::read_below(root);
        assert_eq!(machine.kernel_release, "6.18.44-test");
        assert_eq!(machine.memory_available_bytes, Some(4000 << 10));
        assert_eq!(machine.map_count_max, Some(65530));
        assert_eq!((machine.receive_buffer_max_bytes, machine.send_buffer_max_bytes), (Some(212_992), Some(4 << 20)));
        assert_eq!(machine.memlock, Some(MemlockLimit::Bytes(8 << 20)));
        assert!(machine.cpu_flags.contains("constant_tsc") && machine.has_userfaultfd_device && !machine.is_container);
        assert!(machine.has_trapping_filters);
        assert_eq!(machine.io_uring_disabled, Some(2));

        write(root, "sys/fs/cgroup/memory.max", "3072000\n");
        write(root, "sys/fs/cgroup/memory.current", "1024000\n");
        write(root, "run/.containerenv", "");
        write(root, "proc/self/limits", "Max locked memory  unlimited  unlimited  bytes\n");
        let machine = Machine::read_below(root);
        assert_eq!(machine.memory_available_bytes, Some(2_048_000));
        assert_eq!(machine.memlock, Some(MemlockLimit::Unlimited));
        assert!(machine.is_container);
        write(root, "sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(Machine::read_below(root).memory_available_bytes, Some(4000 << 10));
    }

    #[test]
    fn huge_pages_for_shared_memory_have_a_choice_for_all_sizes_and_one_for_theirs() {
        let root = tempfile::tempdir().unwrap();
        let folder = "sys/kernel/mm/transparent_hugepage";
        let read = || Machine::read_below(root.path()).shared_huge_pages;
        assert_eq!(read(), None);
        let choose = |path: &str, text| write(root.path(), &format!("{folder}/{path}"), text);
        for (text, wanted) in [
            ("always within_size advise [never] deny force\n", SharedHugePages::Never),
            ("always within_size advise never [deny] force\n", SharedHugePages::Never),
            ("always within_size [advise] never deny force\n", SharedHugePages::OnRequest),
            ("[always] within_size advise never deny force\n", SharedHugePages::OnRequest),
        ] {
            choose("shmem_enabled", text);
            assert_eq!(read(), Some(wanted), "{text}");
        }
        choose("hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never\n");
        assert_eq!(read(), Some(SharedHugePages::OnRequest));
        choose("hugepages-2048kB/shmem_enabled", "always inherit within_size advise [never]\n");
        assert_eq!(read(), Some(SharedHugePages::Never));
    }

    #[test]
    fn ports_are_shared_on_linux() {
        assert!(Machine::read().has_shared_ports, "every kernel since 3.9 has SO_REUSEPORT");
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::read_below(root.path());
        assert_eq!(machine.kernel_release, "");
        assert_eq!((machine.memory_available_bytes, machine.map_count_max, machine.memlock), (None, None, None));
        assert_eq!((machine.receive_buffer_max_bytes, machine.send_buffer_max_bytes), (None, None));
        assert!(machine.cpu_flags.is_empty() && !machine.has_userfaultfd_device);
    }
}
