//! [`Own`]: a program of the user, run as `bench programs` runs those of its catalogue, for `yonder try`.
//!
//! It runs where the user is, with his environment, and reads the same each time. What it writes to standard output is
//! compared with what it wrote alone; a program that does not write the same twice is not compared.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::trial::Task;
use super::{Bench, Compared, Figures, NATIVE_TIME_MAX, Series, Settings, TimeLimit, Variant};
use crate::BenchError;
use crate::children::Launch;
use crate::process::End;

/// Somebody waits: a program that is slower than that is slow enough to say so.
const TIME_LIMIT: TimeLimit = TimeLimit { times_longer: 10.0, least: Duration::from_secs(10) };

/// A program of the user.
#[derive(Clone, Debug)]
pub struct Own {
    /// It and its arguments.
    pub command: Vec<OsString>,
    /// The file that it reads as standard input; it reads nothing if not given.
    pub input: Option<PathBuf>,
}

/// What the program has come to; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct OwnResult {
    /// Far memory.
    pub far: String,
    /// The kernel's swap; none if it was not tried.
    pub swap: Option<String>,
    /// Why swap was not tried, and what to type.
    pub no_swap: Option<String>,
    /// Whether it writes the same each time, so that what it wrote could be compared; not looked at while all was the
    /// same.
    pub writes_the_same: bool,
    /// The program alone, and each other variant with each local memory.
    pub variants: Vec<Figures>,
}

impl Own {
    /// Runs the program alone, under Yonder, and with swap on zram where that can be, each with all of
    /// [`Settings::local`]. `progress` gets what runs. Fails if the program fails alone.
    pub fn run(
        &self,
        settings: &Settings,
        launch: &dyn Launch,
        progress: &mut dyn FnMut(&str),
    ) -> Result<OwnResult, BenchError> {
        let name = self.command.first().map_or_else(String::new, |word| {
            Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned()
        });
        let mut bench = Bench::prepare(settings, launch)?;
        let no_swap = bench.kernel.as_ref().err().cloned();
        let shown = [Variant::Native, Variant::Yonder, Variant::Zram];
        let settings = Settings { legs: shown[..if no_swap.is_some() { 2 } else { 3 }].to_vec(), ..settings.clone() };
        bench.settings = &settings;
        let task = Task::own(&self.command, self.input.as_deref())?;
        let compared = bench.compare(&name, &task, TIME_LIMIT, progress)?;
        if let Some(how) = &compared.native.failed {
            return Err(BenchError::Child(format!("'{name}' fails alone: {how}")));
        }
        let differs = compared.all().any(|series| series.sum(|trial| trial.wrong) > 0);
        let writes_the_same = !differs || {
            progress(&format!("{name}: native, to see whether it writes the same"));
            let again = bench.trial(&task, &[], NATIVE_TIME_MAX)?;
            again.end == End::Well && again.wrong == 0
        };
        Ok(OwnResult {
            far: settings.far.clone(),
            swap: bench.kernel.as_ref().ok().map(|kernel| kernel.name.clone()),
            no_swap,
            writes_the_same,
            variants: compared.all().map(|series| figures(series, &compared, writes_the_same)).collect(),
        })
    }
}

/// What the runs of a variant have come to.
fn figures(series: &Series, compared: &Compared, writes_the_same: bool) -> Figures {
    let figures = series.beside(&compared.native, compared.zram_of(series));
    if writes_the_same { figures } else { Figures { is_right: None, errors: 0, ..figures } }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use yonder::units::LocalSize;

    use super::*;
    use crate::in_process::NoLaunch;
    use crate::programs::Scale;

    fn settings(prefix: &[&str]) -> Settings {
        Settings {
            programs: Vec::new(),
            legs: vec![Variant::Native, Variant::Yonder],
            local: vec![LocalSize::Percent(50.0)],
            far: "emu://".to_owned(),
            scale: Scale::Full,
            runs: 1,
            prefix: prefix.iter().map(ToString::to_string).collect(),
            stop: std::sync::Arc::default(),
        }
    }

    fn tried(script: &str, input: Option<&Path>, prefix: &[&str]) -> Result<OwnResult, BenchError> {
        let command = ["sh", "-c", script].map(OsString::from).to_vec();
        Own { command, input: input.map(Path::to_owned) }.run(&settings(prefix), &NoLaunch, &mut |_| {})
    }

    #[test]
    fn it_runs_where_its_user_is_and_reads_the_same_each_time() {
        let mut input = tempfile::NamedTempFile::new().unwrap();
        input.write_all(b"two\none\n").unwrap();
        let here = std::env::current_dir().unwrap();
        let script = format!("[ \"$PWD\" = '{}' ] && sort", here.display());
        let result = tried(&script, Some(input.path()), &["env"]).unwrap();
        let [alone, yonder] = &result.variants[..] else { panic!("{result:?}") };
        assert_eq!((alone.is_right, yonder.is_right, result.writes_the_same), (Some(true), Some(true), true));
        assert_eq!(yonder.local_bytes, alone.native_peak_bytes.map(|bytes| bytes / 2));
        assert_eq!(result.no_swap.as_deref(), Some("not asked for"));
        let nothing = tried("wc -c | grep -qx 0", None, &["env"]).unwrap();
        assert_eq!(nothing.variants[0].is_right, Some(true), "{nothing:?}");
    }

    #[test]
    fn what_differs_is_wrong_unless_it_always_does() {
        let wrong = tried("echo 1", None, &["sh", "-c", "\"$@\" | tr 1 2", "sh"]).unwrap();
        assert_eq!(
            (wrong.writes_the_same, wrong.variants[1].is_right, wrong.variants[1].errors),
            (true, Some(false), 1)
        );
        let varying = tried("echo $$", None, &["env"]).unwrap();
        assert_eq!((varying.writes_the_same, varying.variants[1].is_right), (false, None));
        assert!(varying.variants[1].seconds.is_some());
    }

    #[test]
    fn a_program_that_fails_alone_is_an_error_and_elsewhere_a_result() {
        let error = tried("echo no file >&2; exit 3", None, &["env"]).unwrap_err().to_string();
        assert_eq!(error, "'sh' fails alone: exit status: 3: no file");
        let result = tried("echo 1", None, &["sh", "-c", "echo why >&2; exit 2", "sh"]).unwrap();
        assert_eq!(result.variants[1].failed.as_deref(), Some("exit status: 2: why"));
    }
}
