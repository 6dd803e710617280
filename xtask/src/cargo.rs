//! Cargo, as the chores call it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The cargo that has started this program, in the repository, with arguments.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    command
}

/// Runs a command to its end, which is to be good.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{}: {error}", typed(command)))?;
    if status.success() { Ok(()) } else { Err(format!("'{}' ended with {status}", typed(command))) }
}

/// A command as a person would type it.
pub(crate) fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = [program].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// The file with this ending that cargo has made of a target, as it says in the messages of a build.
pub(crate) fn made(messages: &str, target: &str, ending: &str) -> Result<PathBuf, String> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_target = artifacts.filter(|artifact| artifact["target"]["name"] == target);
    let mut files = of_target.flat_map(|artifact| match &artifact["filenames"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(PathBuf::from).collect(),
        _ => Vec::new(),
    });
    let found = files.find(|path| path.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| format!("cargo has made no {target}{ending}"))
}

/// Where cargo builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_an_error() {
        let root = crate::repository_root();
        assert!(finish(&mut cargo(&root, &["--version"])).is_ok());
        let message = finish(&mut cargo(&root, &["no-such-command-of-cargo"])).unwrap_err();
        assert!(message.starts_with("'cargo no-such-command-of-cargo' ended with"), "{message}");
        let message = finish(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(message.starts_with("program: "), "{message}");
    }
}
