//! [`Container`]: a process in a container as Kubernetes and Docker make them, run by `runc`: a root of its own, a user
//! who is nobody else's, no capabilities, and a filter of system calls. Its network is this machine's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::trial::said;

/// How many containers were started.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// What a container is to be.
pub(super) struct Plan<'a> {
    /// Of the container, on this machine; a number is added.
    pub(super) name: String,
    /// Its root, and whether it may write there.
    pub(super) root: &'a Path,
    pub(super) is_written: bool,
    /// Number of its user and of that user's group.
    pub(super) user: u64,
    pub(super) words: Vec<String>,
    /// `NAME=VALUE`.
    pub(super) environment: Vec<String>,
    /// Folders and files of this machine, where they are in the container, and whether it may write there.
    pub(super) binds: Vec<(PathBuf, String, bool)>,
    /// The system calls that it may make, as a file for container engines says; all of them without.
    pub(super) profile: Option<&'a Value>,
}

/// One that runs. It is gone when this is.
pub(super) struct Container {
    name: String,
    child: Child,
    folder: tempfile::TempDir,
}

/// Why containers cannot be tried here, if they cannot.
pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("containers are tried by root only".to_owned());
    }
    said(Command::new("runc").arg("--version")).err().map(|cause| format!("{cause}: type apt-get install runc"))
}

impl Container {
    pub(super) fn start(plan: &Plan<'_>) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?;
        let problem = |error: std::io::Error| format!("{}: {error}", plan.name);
        fs::write(folder.path().join("config.json"), bundle(plan).to_string()).map_err(problem)?;
        let heard = |name: &str| File::create(folder.path().join(name)).map_err(problem);
        // One that was started before may not be gone yet.
        let name = format!("{}-{}", plan.name, STARTED.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("runc");
        command.args(["run", "--bundle"]).arg(folder.path()).arg(&name);
        command.stdin(Stdio::null()).stdout(heard("stdout")?).stderr(heard("stderr")?);
        let child = command.spawn().map_err(problem)?;
        Ok(Self { name, child, folder })
    }

    /// Waits until it ends, and returns what it has said: on standard output, and on standard error.
    pub(super) fn end(mut self) -> Result<(ExitStatus, String, String), String> {
        let status = self.child.wait().map_err(|error| format!("{}: {error}", self.name))?;
        Ok((status, self.heard("stdout"), self.heard("stderr")))
    }

    /// Fails with what it has said if it has ended.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended with {status}: {}", self.name, self.heard("stderr").trim())),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    fn heard(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // One that has ended is not there any more, and whoever is told so has nothing to do.
        let _ = Command::new("runc").args(["delete", "--force", &self.name]).output();
        // It may not have come so far that there was a container.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file system of the kernel's, as [`bundle`] lists it.
fn filesystem(kind: &str, at: &str, options: &[&str]) -> Value {
    json!({ "destination": at, "type": kind, "source": kind, "options": options })
}

/// What `runc` reads: the container in the words of the Open Container Initiative.
fn bundle(plan: &Plan<'_>) -> Value {
    let mut mounts = vec![
        filesystem("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        filesystem("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755"]),
        filesystem("tmpfs", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777"]),
    ];
    mounts.extend(plan.binds.iter().map(|(from, at, is_written)| {
        let access = if *is_written { "rw" } else { "ro" };
        json!({ "destination": at, "type": "bind", "source": from, "options": ["rbind", access, "nosuid"] })
    }));
    let namespaces: Vec<Value> = ["pid", "mount", "ipc", "uts"].iter().map(|kind| json!({ "type": kind })).collect();
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": plan.user, "gid": plan.user },
            "args": plan.words, "env": plan.environment, "cwd": "/",
            "capabilities": {}, "noNewPrivileges": true,
        },
        "root": { "path": plan.root, "readonly": !plan.is_written },
        "mounts": mounts,
        "linux": { "namespaces": namespaces },
    });
    if let Some(profile) = plan.profile {
        config["linux"]["seccomp"] = profile.clone();
    }
    config
}
