//! The machine that a report is of, and the folder it is written to.

use std::path::Path;

use anyhow::Context as _;
use yonder_report::Machine;

/// Fails if this machine lacks something that far memory needs, after it has told what. `command` is what was typed.
pub(super) fn ensure_ready(command: &str) -> anyhow::Result<()> {
    let doctor = yonder_doctor::examine_this_machine(Path::new("."));
    if doctor.is_ready() {
        return Ok(());
    }
    eprint!("{}", doctor.to_text());
    anyhow::bail!("this machine lacks something that far memory needs: see the list above, then run `{command}` again")
}

/// Makes a folder for a report, if it is not there.
pub(super) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}: give another with --out", folder.display()))
}

/// What there is to say of this machine.
pub(super) fn machine() -> Machine {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Machine {
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: format!("Linux {}", kernel.trim()),
        text: model.trim_start_matches([' ', '\t', ':']).to_owned(),
    }
}
