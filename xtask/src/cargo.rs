//! Cargo, as the chores call it.

use std::path::Path;
use std::process::Command;

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
