//! [`Settings`]: what the preloaded library has to know, as words of the environment.

use std::ops::Range;
use std::path::PathBuf;

use yonder_pager::prefetch::Algorithm as Prefetch;

use crate::ProcessId;

/// The addresses that far memory of a program lies at, so that it can be told from other memory at a glance, by the
/// kernel's filter too.
pub const WINDOW: Range<usize> = yonder_syscalls::WINDOW.start as usize..yonder_syscalls::WINDOW.end as usize;

const FAR: &str = "YONDER_RUN_FAR";
const LOCAL: &str = "YONDER_RUN_LOCAL";
const MEMORY: &str = "YONDER_RUN_MEMORY";
const BOARD: &str = "YONDER_RUN_BOARD";
const PREFETCH: &str = "YONDER_RUN_PREFETCH";
const FAULTS: &str = "YONDER_RUN_FAULTS";
const TRANSFER: &str = "YONDER_RUN_TRANSFER";
const GUIDE: &str = "YONDER_RUN_GUIDE";
const RECORDS: &str = "YONDER_RUN_RECORDS";
const TRACE: &str = "YONDER_RUN_TRACE";
const SAMPLE: &str = "YONDER_RUN_SAMPLE";
const SLOWDOWN: &str = "YONDER_RUN_SLOWDOWN";
const CONTROL: &str = "YONDER_RUN_CONTROL";
const PROCESS: &str = "YONDER_RUN_PROCESS";
/// What stands between a process's number and its namespace.
const IN: char = ':';

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

/// What of a page goes to the node and comes back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transfer {
    /// What the program has allocated and not freed.
    #[default]
    Live,
    /// All of it.
    Pages,
}

/// What is transferred, and its name here.
const TRANSFERS: [(Transfer, &str); 2] = [(Transfer::Live, "live"), (Transfer::Pages, "pages")];

/// How a program's memory is far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// URL of the fabric.
    pub far: String,
    /// Limit of local memory of each process, in bytes.
    pub local_bytes: u64,
    /// How much longer than with all of its memory local it may take, in millionths of its time, if it finds out by
    /// itself how much local memory it needs below the limit.
    pub slowdown: Option<u32>,
    /// Far memory of each process, in bytes.
    pub memory_bytes: u64,
    /// What is fetched before it is touched.
    pub prefetch: Prefetch,
    /// How its faults are handled.
    pub faults: Faults,
    /// What of a page is transferred.
    pub transfer: Transfer,
    /// The file of the run's [`SharedStats`](crate::SharedStats).
    pub board: PathBuf,
    /// The library of the guide that knows the program, if one does.
    pub guide: Option<PathBuf>,
    /// Folder in which every process keeps a record of its faults, if somebody wants one.
    pub records: Option<PathBuf>,
    /// What the traces of its processes are called after, if somebody wants them.
    pub trace: Option<PathBuf>,
    /// What the samples of what its processes touch are called after, if somebody wants them.
    pub sample: Option<PathBuf>,
    /// Folder in which every process has a socket for its settings, if there is one.
    pub control: Option<PathBuf>,
    /// The process whose end is the run's.
    pub process: ProcessId,
}

/// Settings that somebody else has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    /// The variable that is wrong.
    pub variable: &'static str,
}

impl Settings {
    /// The variables that carry the settings; what has no value must not be set, even if it is for this process.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, Option<String>); 14] {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        [
            (FAR, Some(self.far.clone())),
            (LOCAL, Some(self.local_bytes.to_string())),
            (SLOWDOWN, self.slowdown.map(|slowdown| slowdown.to_string())),
            (MEMORY, Some(self.memory_bytes.to_string())),
            (PREFETCH, Some(name_of(&ALGORITHMS, self.prefetch))),
            (FAULTS, Some(name_of(&FAULT_MODES, self.faults))),
            (TRANSFER, Some(name_of(&TRANSFERS, self.transfer))),
            (BOARD, Some(text(&self.board))),
            (GUIDE, self.guide.as_ref().map(text)),
            (RECORDS, self.records.as_ref().map(text)),
            (TRACE, self.trace.as_ref().map(text)),
            (SAMPLE, self.sample.as_ref().map(text)),
            (CONTROL, self.control.as_ref().map(text)),
            (PROCESS, Some(format!("{}{IN}{}", self.process.number, self.process.namespace))),
        ]
    }

    /// The settings that `variable` tells by its name; `None` if the program is not of a run.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let Some(far) = variable(FAR) else { return Ok(None) };
        let bytes = |name: &'static str| {
            let text = variable(name).ok_or(SettingsError { variable: name })?;
            text.parse().map_err(|_| SettingsError { variable: name })
        };
        let (prefetch, faults) = (named(&ALGORITHMS, PREFETCH, &variable)?, named(&FAULT_MODES, FAULTS, &variable)?);
        let transfer = named(&TRANSFERS, TRANSFER, &variable)?;
        let board = variable(BOARD).ok_or(SettingsError { variable: BOARD })?.into();
        let (local_bytes, memory_bytes) = (bytes(LOCAL)?, bytes(MEMORY)?);
        let slowdown = variable(SLOWDOWN).map(|text| text.parse().map_err(|_| SettingsError { variable: SLOWDOWN }));
        let path = |name| variable(name).map(PathBuf::from);
        let [guide, records, trace, sample, control] = [GUIDE, RECORDS, TRACE, SAMPLE, CONTROL].map(path);
        let process = process_of(&variable(PROCESS).unwrap_or_default()).ok_or(SettingsError { variable: PROCESS })?;
        Ok(Some(Self {
            far,
            local_bytes,
            slowdown: slowdown.transpose()?,
            memory_bytes,
            prefetch,
            faults,
            transfer,
            board,
            guide,
            records,
            trace,
            sample,
            control,
            process,
        }))
    }
}

fn process_of(text: &str) -> Option<ProcessId> {
    let (number, namespace) = text.split_once(IN)?;
    Some(ProcessId { number: number.parse().ok()?, namespace: namespace.parse().ok()? })
}

fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: T) -> String {
    let found = names.iter().find(|(named, _)| *named == value);
    found.expect("everything has a name").1.to_owned()
}

/// What the variable's value is the name of.
fn named<T: Copy>(
    names: &[(T, &'static str)],
    name: &'static str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<T, SettingsError> {
    let value = variable(name).unwrap_or_default();
    let found = names.iter().find(|(_, name)| *name == value);
    found.map(|(value, _)| *value).ok_or(SettingsError { variable: name })
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
            slowdown: Some(50_000),
            memory_bytes: 1 << 33,
            prefetch: Prefetch::Trend,
            faults: Faults::Monitor,
            transfer: Transfer::Pages,
            board: "/tmp/board".into(),
            guide: Some("/tmp/guide.so".into()),
            records: Some("/tmp/records".into()),
            trace: Some("/tmp/trace".into()),
            sample: Some("/tmp/sample".into()),
            control: Some("/run/user/0/yonder".into()),
            process: ProcessId { number: 77, namespace: u64::MAX },
        };
        let without = Settings {
            slowdown: None,
            guide: None,
            records: None,
            trace: None,
            sample: None,
            control: None,
            ..settings.clone()
        };
        for settings in [&settings, &without] {
            let variables: HashMap<_, _> = settings.variables().into();
            assert_eq!(Settings::read(|name| variables[name].clone()).as_ref(), Ok(&Some(settings.clone())));
        }
        assert_eq!(without.variables().iter().filter(|(_, value)| value.is_none()).count(), 6);
        let mut variables: HashMap<_, _> = settings.variables().into();
        variables.insert(LOCAL, Some("many".into()));
        assert_eq!(Settings::read(|name| variables[name].clone()), Err(SettingsError { variable: LOCAL }));
        assert_eq!(Settings::read(|_| None), Ok(None));
    }
}
