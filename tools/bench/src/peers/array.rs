//! Runs of the array: `bench array` with far memory, `resident` where the kernel pages; each a process that prints what
//! it has measured.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use yonder_load::Rate;

use super::contenders::{Contender, Variant};
use super::resident::READY;
use super::{Bench, SwapTo, Trial};
use crate::BenchError;
use crate::children::lines_of;
use crate::comparison::{Ended, Measured};
use crate::kernel_swap::Group;
use crate::process::{End, Running, stopped};

/// How long a run may take beside several times its measured time: an array is filled first.
const FILL_TIME_MAX: Duration = Duration::from_secs(900);
/// Measured times in which a run is over once its array is filled.
const TIMES_LONGER_MAX: u32 = 4;
/// What `fstatfs` says of a file system that is memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A file that is removed when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // The process may not have made it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Bench<'_> {
    /// One run of the array.
    pub(super) fn read_array(&self, contender: &Contender) -> Result<Ended<Trial>, BenchError> {
        let kernel = match self.kernel(&contender.variant) {
            Ok(Some(kernel)) => kernel,
            Ok(None) => return self.run_far(contender),
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let file = match contender.variant {
            Variant::Mmap => Some(Removed(self.mapped_file())),
            _ => None,
        };
        if let Some(missing) = file.as_ref().and_then(|file| is_memory(&file.0)) {
            return Ok(Ended::Skipped(missing));
        }
        let group = match kernel.group_to_start(self.settings.local_bytes()) {
            Ok(group) => group,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let mut words = group.prefix();
        words.extend(self.resident_words(contender, file.as_ref().map(|file| file.0.as_path())));
        let swap = matches!(contender.variant, Variant::Swap(_)).then(|| kernel.name.clone());
        self.run_limited(&words, group, swap)
    }

    fn run_far(&self, contender: &Contender) -> Result<Ended<Trial>, BenchError> {
        let mut running = self.start(&self.far_words(contender))?;
        let measured = last_measured(&lines_of(running.output())?);
        ended(running, measured, None)
    }

    /// Runs a process that says when it is ready, and is left its local memory then.
    fn run_limited(
        &self,
        words: &[OsString],
        mut group: Group,
        swap: Option<String>,
    ) -> Result<Ended<Trial>, BenchError> {
        let mut running = self.start(words)?;
        let said = lines_of(running.output())?;
        let input = running.input();
        // What says nothing ends, and tells why.
        if said.recv().is_ok_and(|line| line == READY) {
            if let Err(missing) = group.leave(self.settings.local_bytes()) {
                return Ok(Ended::Skipped(missing));
            }
            answer(input);
        }
        let measured = last_measured(&said).map(|measured| Measured { group_bytes: Some(group.bytes()), ..measured });
        let ended = ended(running, measured, swap)?;
        let is_killed = matches!(ended, Ended::Badly(_)) && group.was_out_of_memory();
        Ok(if is_killed { Ended::OutOfMemory } else { ended })
    }

    fn start(&self, words: &[OsString]) -> Result<Running, BenchError> {
        let (program, arguments) = words.split_first().expect("a process has a program");
        let mut command = self.launch.guarded(Path::new(program));
        command.args(arguments);
        let time_max = FILL_TIME_MAX + self.settings.duration * TIMES_LONGER_MAX;
        Running::start_with(&mut command, Stdio::piped(), time_max, &self.settings.stop)
    }

    /// What to type for a run whose memory is far.
    fn far_words(&self, contender: &Contender) -> Vec<OsString> {
        let settings = self.settings;
        let faults = if contender.variant == Variant::Busy { "busy" } else { "yield" };
        let flags = ["bench", "array", "--json", "--workers", "1", "--faults", faults, "--install-delegation", "off"];
        let mut words = self.words(&flags, contender.rate);
        words.extend(["--far".into(), settings.far.clone().into()]);
        words.extend(["--local".into(), settings.local_bytes().to_string().into()]);
        words.extend((contender.variant == Variant::Probe).then(|| "--probe".into()));
        words
    }

    /// The same where the kernel pages.
    fn resident_words(&self, contender: &Contender, file: Option<&Path>) -> Vec<OsString> {
        let mut words = self.words(&["bench", "resident"], contender.rate);
        words.extend(["--threads".into(), contender.threads.unwrap_or(1).to_string().into()]);
        words.extend(file.into_iter().flat_map(|file| ["--file".into(), file.into()]));
        words
    }

    /// What all runs of the array are told.
    fn words(&self, first: &[&str], rate: Rate) -> Vec<OsString> {
        let settings = self.settings;
        let mut words = vec![settings.yonder.clone()];
        words.extend(first.iter().map(Into::into));
        for (flag, value) in [
            ("--memory", settings.memory.to_string()),
            ("--rate", rate.to_string()),
            ("--duration", format!("{}ns", settings.duration.as_nanos())),
        ] {
            words.extend([flag.into(), value.into()]);
        }
        words
    }

    /// Where the file that is mapped lies: beside a swap file that was named.
    fn mapped_file(&self) -> PathBuf {
        let named = self.settings.swaps.iter().find_map(|swap| match swap {
            SwapTo::File(path) => path.as_ref(),
            SwapTo::Zram => None,
        });
        let Some(path) = named else { return self.folder.path().join("mapped") };
        let mut path = path.clone().into_os_string();
        path.push(".mapped");
        path.into()
    }
}

/// Tells a process to go on.
fn answer(input: Option<ChildStdin>) {
    // A process that has ended is told why below.
    let _ = input.map(|mut input| writeln!(input, "{READY}"));
}

/// What a process prints last, if that is a result. Returns when it has closed its output.
fn last_measured(said: &Receiver<String>) -> Option<Measured> {
    said.iter().filter_map(|line| serde_json::from_str(&line).ok()).last()
}

fn ended(running: Running, measured: Option<Measured>, swap: Option<String>) -> Result<Ended<Trial>, BenchError> {
    let how = match (running.wait()?.end, measured) {
        (End::Well, Some(measured)) => return Ok(Ended::Well(Trial { measured, swap })),
        (End::Well, None) => "it has measured nothing".to_owned(),
        (End::Badly(how), _) => how,
        (End::Killed, _) => "it was killed".to_owned(),
        (End::Late, _) => "it took too long and was stopped".to_owned(),
        (End::Stopped, _) => return Err(stopped()),
    };
    Ok(Ended::Badly(how))
}

/// Why a file would not be on a disk, and what to type.
fn is_memory(file: &Path) -> Option<String> {
    let folder = File::open(file.parent()?).ok()?;
    let kind = rustix::fs::fstatfs(&folder).ok()?.f_type;
    (kind == TMPFS_MAGIC)
        .then(|| format!("{} would be in memory: type --swap file:PATH with a path on a disk", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_no_file_on_a_disk() {
        let shm = Path::new("/dev/shm");
        if File::open(shm).and_then(|file| Ok(rustix::fs::fstatfs(&file)?)).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC) {
            let missing = is_memory(&shm.join("array")).unwrap();
            assert!(missing.contains("type --swap file:PATH"), "{missing}");
        } else {
            println!("SKIP: /dev/shm is not in memory");
        }
        assert_eq!(is_memory(Path::new("/proc/array")), None);
    }

    #[test]
    fn the_last_result_counts_and_other_lines_do_not() {
        let (sender, lines) = std::sync::mpsc::channel();
        let result = |rate: u32| {
            format!(
                r#"{{"bench":"array","ops_per_s":{rate}.5,"p50_us":1.0,"p99_us":2.0,"p999_us":3.0,"major_faults":4,
                   "minor_faults":5,"fetched_bytes":6,"written_bytes":7,"dropped":0,"errors":0}}"#
            )
        };
        for line in ["ready".to_owned(), result(1), result(2), "{}".to_owned()] {
            sender.send(line).unwrap();
        }
        drop(sender);
        let measured = last_measured(&lines).unwrap();
        assert_eq!((measured.ops_per_s, measured.counts.written_bytes, measured.group_bytes), (2.5, 7, None));
        assert_eq!(last_measured(&lines), None);
    }

    #[test]
    fn a_file_goes_with_its_guard_whether_it_is_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        drop(Removed(path.clone()));
        std::fs::write(&path, "content").unwrap();
        drop(Removed(path.clone()));
        assert!(!path.exists());
    }
}
