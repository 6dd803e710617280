//! [`Told`]: runs of one program's work behind a command of `yonder` that tells a summary.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::ended;
use super::trial::{Runner, Task, Trial};
use crate::BenchError;
use crate::children::Launch;
use crate::comparison::Ended;

/// Where the command writes its summary to, as a word of it.
const SUMMARY: &str = "{summary}";

/// See the head of this file.
pub(super) struct Told<'a> {
    pub(super) launch: &'a dyn Launch,
    pub(super) task: &'a Task,
    pub(super) stop: &'a Arc<AtomicBool>,
}

impl Told<'_> {
    /// Runs the program behind `prefix`, whose words may stand for what `values` says, and reads what was told of it.
    pub(super) fn run<T: DeserializeOwned>(
        &self,
        prefix: &[String],
        values: &[(&str, String)],
        time_max: Duration,
    ) -> Result<(Trial, T), BenchError> {
        let folder = crate::children::folder("told")?;
        let summary = folder.path().join("summary");
        let word = |word: &String| -> OsString {
            let value = || values.iter().find(|(name, _)| name == word).map_or(word, |(_, value)| value).into();
            if word == SUMMARY { summary.clone().into() } else { value() }
        };
        let trial = self.run_behind(&prefix.iter().map(word).collect::<Vec<_>>(), time_max)?;
        Ok((trial, read(&summary)?))
    }

    /// Runs the program by itself.
    pub(super) fn run_alone(&self, time_max: Duration) -> Result<Trial, BenchError> {
        self.run_behind(&[], time_max)
    }

    fn run_behind(&self, prefix: &[OsString], time_max: Duration) -> Result<Trial, BenchError> {
        match ended(self.task.run(Runner { launch: self.launch, prefix, time_max, stop: self.stop })?) {
            Ended::Well(trial) => Ok(trial),
            Ended::Badly(how) => Err(BenchError::Child(how)),
            Ended::OutOfMemory | Ended::Skipped(_) => unreachable!("nothing is limited here"),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    let text = std::fs::read_to_string(path)?;
    serde_json::from_str(&text).map_err(|error| BenchError::Child(format!("'{}' is no summary: {error}", text.trim())))
}
