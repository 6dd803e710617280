//! [`Place`]: folders for the programs of one benchmark; [`Trial`]: one run of one program's work, checked.
//!
//! The first run of a batch program leaves its output as what every later run is compared with. A server's client knows
//! what is right itself. What is timed is the whole run of a batch program, but of one that tells the time of its work
//! itself that time, and the client's work with a server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use yonder_load::{LatencyRecorder, Protocol};

use super::Scale;
use super::catalogue::{Output, Program, Work};
use super::servers::{self, Load};
use crate::BenchError;
use crate::children::{Launch, connect, folder, free_address};
use crate::process::{End, Ended, Running, stopped};
use crate::stock::{self, Client};
use tempfile::TempDir;

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// One language, one order of hashes, one thread in libraries: the same output, and times that can be compared.
const ENVIRONMENT: [(&str, &str); 4] =
    [("LC_ALL", "C"), ("PYTHONHASHSEED", "0"), ("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")];

/// A folder of a program's files.
#[derive(Debug)]
pub(super) struct Place {
    folder: TempDir,
}

/// A program's work and what its output should be.
#[derive(Debug)]
pub(super) struct Task {
    place: Place,
    work: Work,
}

/// What runs a task.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) launch: &'a dyn Launch,
    /// What comes before the program's own command.
    pub(super) prefix: &'a [OsString],
    /// How long it may take.
    pub(super) time_max: Duration,
    /// Becomes true when the user wants to stop.
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// What one run has come to.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) seconds: f64,
    /// Of a batch program: of the whole run, what comes before the work included.
    pub(super) wall_seconds: f64,
    pub(super) peak_bytes: u64,
    /// Values of a server, or outputs, that were wrong.
    pub(super) wrong: u64,
    /// What a server's client saw of its gets, and in how many seconds.
    pub(super) gets: Option<(LatencyRecorder, f64)>,
    /// How the program ended; its figures count if it ended well.
    pub(super) end: End,
}

impl Place {
    fn new() -> Result<Self, BenchError> {
        Ok(Self { folder: folder("programs")? })
    }

    /// A folder for one run, empty.
    fn run(&self) -> Result<PathBuf, BenchError> {
        let folder = self.folder.path().join("run");
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => std::fs::create_dir(&folder)?,
        }
        Ok(folder)
    }

    /// The output of the first run that ended well.
    fn expected(&self) -> PathBuf {
        self.folder.path().join("expected")
    }

    /// The output of a run that may become the first.
    fn first(&self) -> PathBuf {
        self.folder.path().join("first")
    }

    /// Whether an output is what is expected. While nothing is expected yet, it is kept, and right.
    fn is_right(&self, output: &mut impl Read) -> Result<bool, BenchError> {
        match File::open(self.expected()) {
            Ok(mut expected) => Ok(is_same(output, &mut expected)?),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                std::io::copy(output, &mut File::create(self.first())?)?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// From now on the output of the run that ended well is expected, if nothing was before.
    fn keep_first(&self) -> Result<(), BenchError> {
        if !self.expected().exists() {
            std::fs::rename(self.first(), self.expected())?;
        }
        Ok(())
    }
}

impl Task {
    /// Prepares a program's work; `None` if the program is not installed.
    pub(super) fn prepare(program: &Program, scale: Scale) -> Result<Option<Self>, BenchError> {
        let place = Place::new()?;
        let work = program.work(place.folder.path(), scale)?;
        Ok(work.map(|work| Self { place, work }))
    }

    /// A program of the user's, which is run where he is, and reads `input` if there is any.
    pub(super) fn own(command: &[OsString], input: Option<&Path>) -> Result<Self, BenchError> {
        let work = Work::Own { command: command.to_vec(), input: input.map(Path::to_owned) };
        Ok(Self { place: Place::new()?, work })
    }

    /// What it is.
    pub(super) fn work(&self) -> &Work {
        &self.work
    }

    /// Runs it once. A program that fails is no error; a user who wants to stop is one.
    pub(super) fn run(&self, runner: Runner<'_>) -> Result<Trial, BenchError> {
        let trial = match &self.work {
            Work::Batch { command, output, seconds } => self.run_batch(runner, command, *output, *seconds),
            Work::Own { command, input } => self.run_own(runner, command, input.as_deref()),
            Work::Serve { protocol, loads } => self.serve(runner, *protocol, loads),
        }?;
        if trial.end == End::Stopped { Err(stopped()) } else { Ok(trial) }
    }

    fn run_batch(
        &self,
        runner: Runner<'_>,
        command: &[OsString],
        output: Output,
        seconds: Option<&str>,
    ) -> Result<Trial, BenchError> {
        let folder = self.place.run()?;
        let start = Instant::now();
        let mut running = runner.start(command, &folder)?;
        let mut text = running.output();
        let is_right = match output {
            Output::Standard => self.place.is_right(&mut text)?,
            Output::File(_) => std::io::copy(&mut text, &mut std::io::sink())? == 0,
        };
        let Ended { end, peak_bytes } = running.wait()?;
        let wall_seconds = start.elapsed().as_secs_f64();
        let seconds = match seconds {
            Some(name) if end == End::Well => seconds_in(&folder.join(name))?,
            _ => wall_seconds,
        };
        let is_right = match output {
            Output::File(name) if end == End::Well => {
                is_right && self.place.is_right(&mut File::open(folder.join(name))?)?
            }
            _ => is_right,
        };
        if end == End::Well {
            self.place.keep_first()?;
        }
        Ok(Trial { seconds, wall_seconds, peak_bytes, wrong: u64::from(!is_right), gets: None, end })
    }

    fn run_own(&self, runner: Runner<'_>, command: &[OsString], input: Option<&Path>) -> Result<Trial, BenchError> {
        let input = match input {
            Some(path) => File::open(path)?.into(),
            None => Stdio::null(),
        };
        let start = Instant::now();
        let mut running = Running::start_with(&mut runner.command(command), input, runner.time_max, runner.stop)?;
        let is_right = self.place.is_right(&mut running.output())?;
        let Ended { end, peak_bytes } = running.wait()?;
        let seconds = start.elapsed().as_secs_f64();
        if end == End::Well {
            self.place.keep_first()?;
        }
        Ok(Trial { seconds, wall_seconds: seconds, peak_bytes, wrong: u64::from(!is_right), gets: None, end })
    }

    fn serve(&self, runner: Runner<'_>, protocol: Protocol, loads: &[Load]) -> Result<Trial, BenchError> {
        let address = free_address()?;
        let mut running = runner.start(&stock::command(protocol, address.port()), &self.place.run()?)?;
        let drain = drain(running.output())?;
        let stream = connect(address, || !running.is_over())
            .map_err(|error| BenchError::Child(format!("the server does not listen: {error}")));
        let client = stream.and_then(|stream| Client::new(protocol, stream, Duration::ZERO));
        let work = client.and_then(|mut client| servers::work(&mut client, loads));
        let Ended { end, peak_bytes } = running.end()?;
        drain.join().expect("reading does not panic");
        let seconds = work.as_ref().map_or(0.0, |work| work.seconds);
        let trial = Trial { seconds, wall_seconds: seconds, peak_bytes, wrong: 0, gets: None, end };
        match work {
            Ok(work) => Ok(Trial { wrong: work.wrong, gets: Some((work.latency, work.get_seconds)), ..trial }),
            // It ended well only because it was asked to, after its client had failed.
            Err(error) if trial.end == End::Well => Ok(Trial { end: End::Badly(error.to_string()), ..trial }),
            Err(_) => Ok(trial),
        }
    }
}

impl Runner<'_> {
    /// Starts a program's own command behind the prefix, in a folder of its own.
    fn start(&self, command: &[OsString], folder: &Path) -> Result<Running, BenchError> {
        let mut command = self.command(command);
        command.current_dir(folder).env("TMPDIR", folder).envs(ENVIRONMENT);
        Running::start(&mut command, self.time_max, self.stop)
    }

    /// A program's own command behind the prefix.
    fn command(&self, command: &[OsString]) -> Command {
        let words: Vec<&OsString> = self.prefix.iter().chain(command).collect();
        let (program, arguments) = words.split_first().expect("a command has a program");
        let mut command = self.launch.guarded(Path::new(program));
        command.args(arguments);
        command
    }
}

/// The seconds that a program has written to a file.
fn seconds_in(path: &Path) -> Result<f64, BenchError> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| BenchError::Child(format!("'{text}' is no time of the program's work")))
}

/// Reads what nobody wants, so that its writer never waits.
fn drain(mut stream: impl Read + Send + 'static) -> Result<std::thread::JoinHandle<()>, BenchError> {
    let read = move || drop(std::io::copy(&mut stream, &mut std::io::sink()));
    Ok(std::thread::Builder::new().name("yonder-drain".to_owned()).spawn(read)?)
}

/// Whether two streams have the same bytes. The first one is read to its end in any case.
fn is_same(output: &mut impl Read, expected: &mut impl Read) -> std::io::Result<bool> {
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    let mut is_same = true;
    loop {
        found.clear();
        wanted.clear();
        output.take(CHUNK_BYTES as u64).read_to_end(&mut found)?;
        expected.take(CHUNK_BYTES as u64).read_to_end(&mut wanted)?;
        is_same &= found == wanted;
        if found.is_empty() {
            return Ok(is_same);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::NoLaunch;
    use crate::programs::catalogue::PROGRAMS;
    use crate::programs::packaged;

    /// The task of a program at the small scale, if it is installed.
    fn task(name: &str) -> Option<Task> {
        let program = PROGRAMS.iter().find(|program| program.name == name).unwrap();
        let task = Task::prepare(program, Scale::Small).unwrap();
        if task.is_none() {
            println!("SKIP: {name} is not installed: type `apt-get install {}`", program.package);
        }
        task
    }

    fn run(task: &Task, prefix: &[&str]) -> Trial {
        let prefix: Vec<OsString> = prefix.iter().map(Into::into).collect();
        let (time_max, stop) = (Duration::from_secs(120), Arc::default());
        task.run(Runner { launch: &NoLaunch, prefix: &prefix, time_max, stop: &stop }).unwrap()
    }

    #[test]
    fn every_program_gives_the_same_output_twice() {
        for task in packaged().into_iter().filter_map(task) {
            for prefix in [&[][..], &["env"]] {
                let trial = run(&task, prefix);
                assert_eq!((&trial.end, trial.wrong), (&End::Well, 0), "{:?}", task.work);
                assert!(trial.seconds > 0.0 && trial.peak_bytes > 1 << 20, "{:?}: {trial:?}", task.work);
                assert_eq!(trial.gets.is_some(), matches!(task.work, Work::Serve { .. }));
            }
            let folder = task.place.folder.path().to_owned();
            assert!(folder.exists());
            drop(task);
            assert!(!folder.exists());
        }
    }

    #[test]
    fn a_wrong_output_is_seen() {
        let Some(sort) = task("sort") else { return };
        // Failing runs leave nothing to compare with.
        let failed = run(&sort, &["sh", "-c", "echo no lines; echo why >&2; exit 3"]);
        assert_eq!(failed.end, End::Badly("exit status: 3: why".to_owned()));
        assert_eq!(run(&sort, &[]).wrong, 0);
        for (damage, wrong) in [("cat", 0), ("sed '$s/.$/!/'", 1), ("sed '$d'", 1), ("cat - /proc/version", 1)] {
            let trial = run(&sort, &["sh", "-c", &format!("\"$@\" | {damage}"), "sh"]);
            assert_eq!((&trial.end, trial.wrong), (&End::Well, wrong), "{damage}");
        }
        let Some(gcc) = task("gcc") else { return };
        assert_eq!(run(&gcc, &[]).wrong, 0);
        assert_eq!(run(&gcc, &["sh", "-c", "\"$@\" && printf x >> source.o", "sh"]).wrong, 1);
    }

    #[test]
    fn the_time_that_a_program_tells_counts() {
        let words = ["sh", "-c", "printf 0.25 > seconds; sleep 0.3; echo done"];
        let command = words.map(OsString::from).to_vec();
        let work = |seconds| Work::Batch { command: command.clone(), output: Output::Standard, seconds };
        let timed = |seconds| run(&Task { place: Place::new().unwrap(), work: work(seconds) }, &[]);
        let (told, whole) = (timed(Some("seconds")), timed(None));
        assert_eq!((&told.end, told.seconds), (&End::Well, 0.25));
        assert!(told.wall_seconds >= 0.3 && whole.seconds >= 0.3, "{told:?}, {whole:?}");
    }

    #[test]
    fn a_server_that_ends_is_said_to() {
        let Some(server) = task("redis-server").or_else(|| task("memcached")) else { return };
        let trial = run(&server, &["sh", "-c", "echo no memory >&2; exit 1"]);
        assert_eq!(trial.end, End::Badly("exit status: 1: no memory".to_owned()));
        let trial = run(&server, &["sh", "-c", "exit 0"]);
        assert!(matches!(&trial.end, End::Badly(why) if why.contains("does not listen")), "{trial:?}");
    }

    #[test]
    fn streams_are_compared_to_their_ends() {
        let long = vec![7; 3 * CHUNK_BYTES + 5];
        let mut other = long.clone();
        *other.last_mut().unwrap() = 8;
        for (one, two, same) in [
            (&long[..], &long[..], true),
            (&long, &other, false),
            (&long, &long[1..], false),
            (&long[1..], &long, false),
            (&[], &[], true),
            (&[], &[1], false),
        ] {
            let mut output = one;
            assert_eq!(is_same(&mut output, &mut &*two).unwrap(), same);
            assert!(output.is_empty());
        }
    }
}
