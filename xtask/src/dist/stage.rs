//! [`Stage`]: the root of a file system with what packages bring.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo::{finish, typed};
use crate::install::{Built, Places, Use, install, place, read};

use super::archive::gzip;
use super::manifests;

/// Who may open the device that makes userfaultfds, where a sandbox filters the system call.
const DEVICE_RULE: &str = "\
# Members of the group may handle page faults of their own programs also where the system call userfaultfd is filtered.
KERNEL==\"userfaultfd\", GROUP=\"userfaultfd\", MODE=\"0660\"
";
const GROUPS: &str = "g userfaultfd -\n";
/// A dashboard for Grafana and alerts for Prometheus, and where they are.
const MONITORING: (&str, [&str; 2]) = ("edge/cli/monitoring", ["yonder-alerts.yml", "yonder-dashboard.json"]);

/// It is gone when this is.
pub(super) struct Stage(tempfile::TempDir);

impl Stage {
    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Installs below `/usr`, without what only debuggers need, and adds what packages have besides.
    pub(super) fn lay_out(root: &Path, built: &Built, version: &str) -> Result<Self, String> {
        let stage = Self(tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?);
        let below = |path: &str| stage.0.path().join("usr").join(path);
        for path in install(root, built, &Places::below(stage.0.path(), "/usr"), version)? {
            let is_link = path.symlink_metadata().is_ok_and(|about| about.file_type().is_symlink());
            let is_program = path.starts_with(below("bin")) || path.starts_with(below("lib"));
            if is_program && !is_link && read(&path)?.starts_with(b"\x7fELF") {
                strip(&path)?;
            }
        }
        // It is as large as all the rest, and for who builds on the machine that it was made on.
        let archive = below("lib/libyonder.a");
        fs::remove_file(&archive).map_err(|error| format!("'{}': {error}", archive.display()))?;
        made_by(&below("bin/yonder"), "man", &below("share/man/man1"))?;
        pack_pages(&below("share/man/man1"))?;
        let completions = below("share/yonder");
        made_by(&below("bin/yonder"), "completions", &completions)?;
        for (made, to) in [
            ("yonder.bash", "share/bash-completion/completions/yonder"),
            ("_yonder", "share/zsh/site-functions/_yonder"),
            ("yonder.fish", "share/fish/vendor_completions.d/yonder.fish"),
        ] {
            place(&read(&completions.join(made))?, below(to), Use::Read)?;
        }
        fs::remove_dir_all(&completions).map_err(|error| format!("'{}': {error}", completions.display()))?;
        place(DEVICE_RULE.as_bytes(), below("lib/udev/rules.d/70-yonder-userfaultfd.rules"), Use::Read)?;
        place(GROUPS.as_bytes(), below("lib/sysusers.d/yonder.conf"), Use::Read)?;
        for (name, content) in manifests::files(root)? {
            place(&content, below("share/yonder/containers").join(name), Use::Read)?;
        }
        let (folder, names) = MONITORING;
        for name in names {
            let content = read(&root.join(folder).join(name))?;
            place(&content, below("share/yonder/monitoring").join(name), Use::Read)?;
        }
        for (from, to) in [("README.md", "README.md"), ("LICENSE-MIT", "LICENSE-MIT"), ("LICENSE-APACHE", "copyright")]
        {
            place(&read(&root.join(from))?, below("share/doc/yonder").join(to), Use::Read)?;
        }
        Ok(stage)
    }
}

/// Takes out what only debuggers need.
fn strip(path: &Path) -> Result<(), String> {
    finish(Command::new("strip").arg("--strip-debug").arg(path))
        .map_err(|error| format!("{error}: type apt-get install binutils"))
}

/// Has the command write pages or completions.
fn made_by(command: &Path, form: &str, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("'{}' cannot be made: {error}", folder.display()))?;
    let mut command = Command::new(command);
    command.args(["reference", "--form", form]).arg(folder).stdout(Stdio::null());
    finish(&mut command).map_err(|error| format!("{error} ({})", typed(&command)))
}

/// Manual pages are compressed where they are installed.
fn pack_pages(folder: &Path) -> Result<(), String> {
    let problem = |error: std::io::Error| format!("'{}': {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        let name = path.file_name().expect("it is in a folder").to_string_lossy().into_owned();
        place(&gzip(&read(&path)?, 0), folder.join(format!("{name}.gz")), Use::Read)?;
        fs::remove_file(&path).map_err(problem)?;
    }
    Ok(())
}
