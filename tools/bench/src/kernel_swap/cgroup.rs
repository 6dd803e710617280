//! [`Group`]: a control group whose memory is limited, for the processes of one program.
//!
//! Version 1 and version 2 of the kernel's groups are known; whichever has the memory controller is taken. Groups that
//! were there before are never written to: a group of version 1 is made below this process's own group, one of version
//! 2 below the nearest group above this process that hands the controller to its children.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::counts::{Counts, count_in};

/// How long the kernel may take to let go of a group whose processes have ended.
const REMOVE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const REMOVE_PAUSE: Duration = Duration::from_millis(10);
/// What enters a group and becomes another program: the group's file, then the program, are its arguments.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// Where groups can be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hierarchy {
    version: Version,
    /// The group that gets children.
    parent: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

/// A group. Dropping it removes it; its processes have ended by then.
#[derive(Debug)]
pub(crate) struct Group {
    version: Version,
    folder: PathBuf,
    /// Memory that it was left.
    bytes: u64,
}

impl Version {
    /// What it calls the files of a group's limit, of its memory now, and of what has happened to it.
    fn files(self) -> [&'static str; 3] {
        match self {
            Self::One => ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"],
            Self::Two => ["memory.max", "memory.current", "memory.events"],
        }
    }
}

/// A mounted hierarchy of groups, as `/proc/self/mountinfo` tells of it.
struct Mount<'a> {
    /// The group that the mount shows as its root.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl Hierarchy {
    /// The hierarchy with the memory controller; else what is missing and how to mend it.
    pub(super) fn find() -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        Self::of(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
    }

    /// The same by the kernel's two tables.
    fn of(mounts: &str, groups: &str) -> Result<Self, String> {
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let has_memory = |options: &str| options.split(',').any(|option| option == "memory");
        if let Some(mount) = mounts.iter().find(|mount| mount.kind == "cgroup" && has_memory(mount.options)) {
            let parent = mount.folder(own_group(groups, has_memory));
            return Ok(Self { version: Version::One, parent });
        }
        let Some(mount) = mounts.iter().find(|mount| mount.kind == "cgroup2") else {
            return Err(
                "control groups are not mounted: type `mount -t cgroup2 none /sys/fs/cgroup` as root".to_owned()
            );
        };
        let own = mount.folder(own_group(groups, str::is_empty));
        let gives_memory = |folder: &&Path| {
            let given = std::fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            given.split_whitespace().any(|controller| controller == "memory")
        };
        match own.ancestors().take_while(|folder| folder.starts_with(mount.point)).find(gives_memory) {
            Some(parent) => Ok(Self { version: Version::Two, parent: parent.to_owned() }),
            None => Err(format!(
                "no control group limits memory: type `echo +memory > {}/cgroup.subtree_control` as root",
                mount.point
            )),
        }
    }

    /// Makes a group whose processes have at most `bytes` of memory together; what is more goes to swap.
    pub(super) fn group(&self, bytes: u64) -> Result<Group, String> {
        let folder = self.parent.join(format!("yonder-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .map_err(|error| format!("cannot make the control group {}: {error}: run as root", folder.display()))?;
        let group = Group { version: self.version, folder, bytes: 0 };
        group.limit(bytes)?;
        Ok(group)
    }
}

impl Group {
    /// Changes how much memory its processes have together.
    pub(crate) fn limit(&self, bytes: u64) -> Result<(), String> {
        let [limit, ..] = self.version.files().map(|name| self.folder.join(name));
        std::fs::write(&limit, bytes.to_string()).map_err(|error| format!("cannot write {}: {error}", limit.display()))
    }

    /// Memory that its processes have together now, in bytes.
    pub(crate) fn usage(&self) -> Result<u64, String> {
        let [_, usage, _] = self.version.files().map(|name| self.folder.join(name));
        let text = std::fs::read_to_string(&usage).map_err(|error| format!("{}: {error}", usage.display()))?;
        text.trim().parse().map_err(|_| format!("{} says '{}'", usage.display(), text.trim()))
    }

    /// Leaves it the local memory, and what its processes take before they have data, which is now.
    pub(crate) fn leave(&mut self, local_bytes: u64) -> Result<(), String> {
        self.bytes = local_bytes + self.usage()?;
        self.limit(self.bytes)
    }

    /// How much memory it was left.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the kernel has done for its processes so far. Major faults waited for a disk, or for swap of any kind; swap
    /// is counted for the whole machine.
    pub(crate) fn counts(&self) -> Counts {
        let Counts { major_faults, minor_faults, .. } = faults_in(&self.read("memory.stat"));
        Counts { major_faults, minor_faults, ..Counts::swapped() }
    }

    /// What to type before a program, so that it runs in the group.
    pub(crate) fn prefix(&self) -> Vec<OsString> {
        vec!["sh".into(), "-c".into(), ENTER.into(), self.folder.join("cgroup.procs").into()]
    }

    /// Whether the kernel has killed one of its processes because memory was short.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        let [.., events] = self.version.files();
        count_in(&self.read(events), "oom_kill") > 0
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let give_up = Instant::now() + REMOVE_TIME_MAX;
        while std::fs::remove_dir(&self.folder).is_err() && self.folder.exists() {
            if Instant::now() >= give_up {
                eprintln!("the control group {} is in use and stays: type `rmdir` to remove it", self.folder.display());
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

/// Page faults by what `memory.stat` says, in both versions.
fn faults_in(stat: &str) -> Counts {
    let major_faults = count_in(stat, "pgmajfault");
    let minor_faults = count_in(stat, "pgfault").saturating_sub(major_faults);
    Counts { major_faults, minor_faults, ..Counts::default() }
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, behind) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut behind = behind.split(' ');
        let (kind, _, options) = (behind.next()?, behind.next()?, behind.next()?);
        Some(Self { root, point, kind, options })
    }

    /// The folder of a group: the mount's own where the group is outside of what it shows.
    fn folder(&self, group: &str) -> PathBuf {
        let shown = Path::new(group).strip_prefix(self.root).unwrap_or(Path::new(""));
        Path::new(self.point).join(shown)
    }
}

/// This process's group in the hierarchy whose controllers are the right ones.
fn own_group(groups: &str, is_right: impl Fn(&str) -> bool) -> &str {
    let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    lines.find(|(controllers, _)| is_right(controllers)).map_or("/", |(_, group)| group)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const ONE: &str = "25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        26 25 0:23 / /sys/fs/cgroup/cpu rw - cgroup cpu rw,cpu\n\
        27 25 0:24 / /sys/fs/cgroup/memory rw,nosuid - cgroup memory rw,memory\n\
        28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";

    #[test]
    fn version_1_is_taken_where_it_has_the_controller() {
        let groups = "8:pids:/a\n4:memory:/b/c:d\n0::/\n";
        let hierarchy = Hierarchy::of(ONE, groups).unwrap();
        assert_eq!((hierarchy.version, hierarchy.parent), (Version::One, "/sys/fs/cgroup/memory/b/c:d".into()));
        // A container sees part of the hierarchy as all of it, and may be told of a group outside.
        let inside = ONE.replace("0:24 / ", "0:24 /box ");
        for (group, folder) in [("/box/e", "/sys/fs/cgroup/memory/e"), ("/other", "/sys/fs/cgroup/memory/")] {
            let hierarchy = Hierarchy::of(&inside, &format!("4:memory:{group}\n")).unwrap();
            assert_eq!(hierarchy.parent, Path::new(folder), "{group}");
        }
    }

    #[test]
    fn version_2_is_taken_where_a_group_above_hands_memory_down() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        let mounts = format!("28 25 0:25 / {} rw shared:1 - cgroup2 none rw,nsdelegate\n", root.display());
        let error = Hierarchy::of(&mounts, "0::/a/b\n").unwrap_err();
        assert!(error.contains("+memory >"), "{error}");
        std::fs::write(root.join("cgroup.subtree_control"), "cpu memory_like\n").unwrap();
        assert!(Hierarchy::of(&mounts, "0::/a/b\n").is_err());
        std::fs::write(root.join("a/cgroup.subtree_control"), "cpu memory\n").unwrap();
        let hierarchy = Hierarchy::of(&mounts, "0::/a/b\n").unwrap();
        assert_eq!((hierarchy.version, &hierarchy.parent), (Version::Two, &root.join("a")));
        let error = Hierarchy::of("", "0::/\n").unwrap_err();
        assert!(error.contains("mount -t cgroup2"), "{error}");
    }

    #[test]
    fn kills_are_counted() {
        let kills = |events| count_in(events, "oom_kill");
        assert_eq!(kills("low 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 0\n"), 2);
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), 1);
        assert_eq!(kills("oom_kill_disable 5\n"), 0);
    }

    #[test]
    fn faults_are_counted_by_kind() {
        let stat = "anon 7\nrss 1\npgfault 100\npgmajfault 30\ntotal_pgfault 500\ntotal_pgmajfault 400\n";
        assert_eq!(faults_in(stat), Counts { major_faults: 30, minor_faults: 70, ..Counts::default() });
        assert_eq!(faults_in(""), Counts::default());
    }

    #[test]
    fn programs_run_in_the_group_and_it_is_removed() {
        let group = match Hierarchy::find().and_then(|hierarchy| hierarchy.group(64 << 20)) {
            Ok(group) => group,
            Err(missing) => return println!("SKIP: {missing}"),
        };
        let folder = group.folder.clone();
        let limit = std::fs::read_to_string(folder.join("memory.limit_in_bytes"))
            .or_else(|_| std::fs::read_to_string(folder.join("memory.max")))
            .unwrap();
        assert_eq!(limit.trim(), (64 << 20).to_string());
        let [sh, rest @ ..] = &group.prefix()[..] else { unreachable!() };
        let output = Command::new(sh).args(rest).args(["cat", "/proc/self/cgroup"]).output().unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(String::from_utf8_lossy(&output.stdout).contains(&name), "{output:?}");
        assert!(!std::fs::read_to_string("/proc/self/cgroup").unwrap().contains(&name), "only children are limited");
        assert!(!group.was_out_of_memory());
        assert!(group.counts().minor_faults > 0 && group.usage().unwrap() < 64 << 20, "{group:?}");
        group.limit(32 << 20).unwrap();
        drop(group);
        assert!(!folder.exists());
    }
}
