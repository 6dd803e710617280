//! [`Settings`]: what the preloaded library has to know, as words of the environment.

use std::ops::Range;
use std::path::PathBuf;

/// The addresses that far memory of a program lies at, so that it can be told from other memory at a glance, by the kernel's
/// filter too.
pub const WINDOW: Range<usize> = yonder_syscalls::WINDOW.start as usize..yonder_syscalls::WINDOW.end as usize;

const FAR: &str = "YONDER_RUN_FAR";
const LOCAL: &str = "YONDER_RUN_LOCAL";
const MEMORY: &str = "YONDER_RUN_MEMORY";
const BOARD: &str = "YONDER_RUN_BOARD";

/// How a program's memory is far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// URL of the fabric.
    pub far: String,
    /// Limit of local memory of each process, in bytes.
    pub local_bytes: u64,
    /// Far memory of each process, in bytes.
    pub memory_bytes: u64,
    /// The file of the run's [`Board`](crate::Board).
    pub board: PathBuf,
}

/// Settings that somebody else has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    /// The variable that is wrong.
    pub variable: &'static str,
}

impl Settings {
    /// The variables that carry the settings.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            (FAR, self.far.clone()),
            (LOCAL, self.local_bytes.to_string()),
            (MEMORY, self.memory_bytes.to_string()),
            (BOARD, self.board.to_string_lossy().into_owned()),
        ]
    }

    /// The settings that `variable` tells by its name; `None` if the program is not of a run.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let Some(far) = variable(FAR) else { return Ok(None) };
        let bytes = |name: &'static str| {
            let text = variable(name).ok_or(SettingsError { variable: name })?;
            text.parse().map_err(|_| SettingsError { variable: name })
        };
        let board = variable(BOARD).ok_or(SettingsError { variable: BOARD })?.into();
        Ok(Some(Self { far, local_bytes: bytes(LOCAL)?, memory_bytes: bytes(MEMORY)?, board }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn settings_come_out_of_the_environment_as_they_went_in() {
        let settings =
            Settings { far: "emu://".into(), local_bytes: 1 << 22, memory_bytes: 1 << 33, board: "/tmp/board".into() };
        let mut variables: HashMap<_, _> = settings.variables().into();
        assert_eq!(Settings::read(|name| variables.get(name).cloned()), Ok(Some(settings)));
        variables.insert(LOCAL, "many".into());
        assert_eq!(Settings::read(|name| variables.get(name).cloned()), Err(SettingsError { variable: LOCAL }));
        assert_eq!(Settings::read(|_| None), Ok(None));
    }
}
