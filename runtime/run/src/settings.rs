//! [`Settings`]: what the preloaded library has to know, as words of the environment.

use std::ops::Range;
use std::path::PathBuf;

use yonder_prefetch::Algorithm as Prefetch;

/// The addresses that far memory of a program lies at, so that it can be told from other memory at a glance, by the kernel's
/// filter too.
pub const WINDOW: Range<usize> = yonder_syscalls::WINDOW.start as usize..yonder_syscalls::WINDOW.end as usize;

const FAR: &str = "YONDER_RUN_FAR";
const LOCAL: &str = "YONDER_RUN_LOCAL";
const MEMORY: &str = "YONDER_RUN_MEMORY";
const BOARD: &str = "YONDER_RUN_BOARD";
const PREFETCH: &str = "YONDER_RUN_PREFETCH";
const FAULTS: &str = "YONDER_RUN_FAULTS";

/// What is fetched before it is touched, and its name here.
const ALGORITHMS: [(Prefetch, &str); 3] =
    [(Prefetch::None, "none"), (Prefetch::Readahead, "readahead"), (Prefetch::Trend, "trend")];

/// How the program's faults are handled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Faults {
    /// By the thread that has the fault.
    #[default]
    Inline,
    /// By threads that watch for faults, so that the kernel's own accesses wait too.
    Monitor,
}

/// How faults are handled, and its name here.
const FAULT_MODES: [(Faults, &str); 2] = [(Faults::Inline, "inline"), (Faults::Monitor, "monitor")];

/// How a program's memory is far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// URL of the fabric.
    pub far: String,
    /// Limit of local memory of each process, in bytes.
    pub local_bytes: u64,
    /// Far memory of each process, in bytes.
    pub memory_bytes: u64,
    /// What is fetched before it is touched.
    pub prefetch: Prefetch,
    /// How its faults are handled.
    pub faults: Faults,
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
    pub fn variables(&self) -> [(&'static str, String); 6] {
        let prefetch = ALGORITHMS.iter().find(|(algorithm, _)| *algorithm == self.prefetch);
        let (_, prefetch) = prefetch.expect("every algorithm has a name");
        let faults = FAULT_MODES.iter().find(|(mode, _)| *mode == self.faults);
        let (_, faults) = faults.expect("every mode has a name");
        [
            (FAR, self.far.clone()),
            (LOCAL, self.local_bytes.to_string()),
            (MEMORY, self.memory_bytes.to_string()),
            (PREFETCH, (*prefetch).to_owned()),
            (FAULTS, (*faults).to_owned()),
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
        let prefetch = variable(PREFETCH).unwrap_or_default();
        let prefetch = ALGORITHMS.iter().find(|(_, name)| *name == prefetch);
        let (prefetch, _) = *prefetch.ok_or(SettingsError { variable: PREFETCH })?;
        let faults = variable(FAULTS).unwrap_or_default();
        let faults = FAULT_MODES.iter().find(|(_, name)| *name == faults);
        let (faults, _) = *faults.ok_or(SettingsError { variable: FAULTS })?;
        let board = variable(BOARD).ok_or(SettingsError { variable: BOARD })?.into();
        Ok(Some(Self { far, local_bytes: bytes(LOCAL)?, memory_bytes: bytes(MEMORY)?, prefetch, faults, board }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn settings_come_out_of_the_environment_as_they_went_in() {
        let settings = Settings {
            far: "emu://".into(),
            local_bytes: 1 << 22,
            memory_bytes: 1 << 33,
            prefetch: Prefetch::Trend,
            faults: Faults::Monitor,
            board: "/tmp/board".into(),
        };
        let mut variables: HashMap<_, _> = settings.variables().into();
        assert_eq!(Settings::read(|name| variables.get(name).cloned()), Ok(Some(settings)));
        variables.insert(LOCAL, "many".into());
        assert_eq!(Settings::read(|name| variables.get(name).cloned()), Err(SettingsError { variable: LOCAL }));
        assert_eq!(Settings::read(|_| None), Ok(None));
    }
}
