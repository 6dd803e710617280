//! [`run`]: one program's workload, alone and under `yonder run`, and what became of it.
//!
//! Each time it has a folder with its files, made anew, and the steps that prepare it. A program that is run to its end
//! answers on its standard output. A server is asked by its clients, once it is ready, and ended by a signal: the
//! answer is what the clients write. Alone it is measured how much memory the program takes; then it has
//! [`local_bytes`] of that, and must answer the same.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::catalogue::{Expected, Program, Service, User, Work};
use super::process::{self, Started};

/// Far memory, emulated: the latency is that of a fast network.
pub(super) const FAR: &str = "emu://?latency=2.5us";
/// Local memory, as a part of what the program takes alone, and at least.
const LOCAL_PART: u64 = 4;
const LOCAL_BYTES_MIN: u64 = 16 << 20;
/// How long a program may take alone, and each of the steps that prepare it.
const TIME_MAX: Duration = Duration::from_secs(180);
/// How long it may take with far memory, as a multiple of its time alone, and at least.
const TIMES_LONGER_MAX: u32 = 30;
const FAR_TIME_MAX_LEAST: Duration = Duration::from_secs(120);
/// How long a client that asks whether a server is ready may take.
const ASK_TIME_MAX: Duration = Duration::from_secs(20);
/// How long the figures of a run may come after its end.
const SUMMARY_TIME_MAX: Duration = Duration::from_secs(10);
/// The exit code of `yonder run` that refuses a program.
const REFUSED: i32 = 2;
/// The user that servers run as which refuse root: the system's own for that.
const NOBODY: u32 = 65534;

/// What the trials use.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) yonder: PathBuf,
    pub(super) library: PathBuf,
    /// The environment of Python's packages.
    pub(super) packages: PathBuf,
}

/// Where a program runs.
pub(super) struct Place<'a> {
    pub(super) tools: &'a Tools,
    pub(super) folder: PathBuf,
}

/// An installed program: the words of it that the catalogue leaves open.
pub(super) struct Installed {
    program: String,
    pub(super) version: String,
}

/// What became of a program.
pub(super) struct Trial {
    pub(super) version: Option<String>,
    pub(super) alone: Option<Ran>,
    pub(super) far: Option<FarRan>,
    pub(super) verdict: Verdict,
}

/// How it was alone.
pub(super) struct Ran {
    answer: String,
    pub(super) time: Duration,
    pub(super) peak_bytes: u64,
}

/// How it was with far memory, by the figures of `yonder run`.
pub(super) struct FarRan {
    pub(super) time: Duration,
    pub(super) local_bytes: u64,
    pub(super) peak_far_bytes: u64,
    pub(super) peak_uncovered_bytes: u64,
}

/// What is said of it; each with the line that says why, where there is something to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It answers as it does alone.
    Right,
    /// The same, and none of its memory was far.
    Local(String),
    /// `yonder run` does not run it.
    Refused(String),
    /// It does not answer as it does alone.
    Wrong(String),
    /// It is not here.
    Skipped(String),
}

/// How a run failed.
enum Failure {
    Refused(String),
    Failed(String),
}

impl From<String> for Failure {
    fn from(cause: String) -> Self {
        Self::Failed(cause)
    }
}

/// What a program may use of local memory: a quarter of what it takes alone, in whole MiB.
pub(super) fn local_bytes(peak_bytes: u64) -> u64 {
    (peak_bytes / LOCAL_PART).max(LOCAL_BYTES_MIN).next_multiple_of(1 << 20)
}

/// Runs a program in both ways.
pub(super) fn run(program: &Program, place: &Place<'_>) -> Trial {
    let mut trial = Trial { version: None, alone: None, far: None, verdict: Verdict::Right };
    let Some(installed) = place.find(program) else {
        let packages: Vec<String> = program.packages.iter().map(ToString::to_string).collect();
        trial.verdict = Verdict::Skipped(format!("not installed: {}", packages.join(", ")));
        return trial;
    };
    trial.version = Some(installed.version.clone());
    let task = Task { program, installed: &installed, place };
    let alone = match task.run(&[], TIME_MAX) {
        Ok(ran) => ran,
        Err(Failure::Failed(cause) | Failure::Refused(cause)) => {
            trial.verdict = Verdict::Skipped(format!("it fails alone: {cause}"));
            return trial;
        }
    };
    let local_bytes = local_bytes(alone.peak_bytes);
    let ran = task.run_far(local_bytes, (alone.time * TIMES_LONGER_MAX).max(FAR_TIME_MAX_LEAST));
    trial.verdict = match ran {
        Ok((far, answer, complaint)) => {
            let verdict = verdict(&alone.answer, &answer, &far, complaint);
            trial.far = Some(far);
            verdict
        }
        // The folder has another name each time.
        Err(Failure::Refused(line)) => Verdict::Refused(line.replace(&place.folder.display().to_string(), "FOLDER")),
        Err(Failure::Failed(cause)) => Verdict::Wrong(cause),
    };
    trial.alone = Some(alone);
    trial
}

fn verdict(expected: &str, answer: &str, far: &FarRan, complaint: Option<String>) -> Verdict {
    if expected != answer {
        let differs = |(ours, theirs): &(&str, &str)| ours != theirs;
        let line = answer.lines().chain([""]).zip(expected.lines().chain([""])).find(differs);
        let (ours, theirs) = line.unwrap_or_default();
        return Verdict::Wrong(format!("it says '{ours}' in the place of '{theirs}'"));
    }
    if far.peak_far_bytes == 0 {
        return Verdict::Local(complaint.unwrap_or_else(|| "too little memory to be far".to_owned()));
    }
    Verdict::Right
}

impl Expected {
    /// Whether this is what has become of a program.
    pub(super) fn is(&self, trial: &Trial) -> bool {
        match (self, &trial.verdict) {
            (Self::Right, Verdict::Right) | (Self::MostlyLocal(_), Verdict::Right | Verdict::Local(_)) => true,
            (Self::Local(why), Verdict::Local(line))
            | (Self::Refused(why), Verdict::Refused(line))
            | (Self::Wrong(why), Verdict::Wrong(line)) => line.contains(why),
            _ => false,
        }
    }
}

impl Tools {
    /// The interpreter of the environment.
    pub(super) fn python(&self) -> PathBuf {
        self.packages.join("bin/python3")
    }

    /// The same, with copies of what was built, which other users may run, and which no other build replaces.
    pub(super) fn copied_to(&self, folder: &Path) -> Result<Self, String> {
        let copy = |from: &Path| {
            let to = folder.join(from.file_name().unwrap_or_default());
            fs::copy(from, &to).map_err(|error| format!("'{}' cannot be copied: {error}", from.display()))?;
            Ok::<_, String>(to)
        };
        Ok(Self { yonder: copy(&self.yonder)?, library: copy(&self.library)?, packages: self.packages.clone() })
    }

    /// Where the environment has its packages.
    fn site_packages(&self) -> PathBuf {
        let folders = fs::read_dir(self.packages.join("lib")).into_iter().flatten().flatten();
        let found = folders.map(|entry| entry.path().join("site-packages")).find(|path| path.is_dir());
        found.unwrap_or_else(|| self.packages.clone())
    }
}

impl Place<'_> {
    /// The first of a program's commands that succeeds.
    pub(super) fn find(&self, program: &Program) -> Option<Installed> {
        program.installed.iter().find_map(|words| {
            let words: Vec<String> = words.iter().map(|word| self.filled(word, "")).collect();
            let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output().ok()?;
            let said = [output.stdout, output.stderr].concat();
            let version = version(&String::from_utf8_lossy(&said));
            output.status.success().then(|| Installed { program: words[0].clone(), version })
        })
    }

    /// A word or a text of the catalogue, with what is known here in the place of names in braces.
    fn filled(&self, word: &str, program: &str) -> String {
        let folder_of = || fs::canonicalize(program).ok()?.parent().map(|folder| folder.display().to_string());
        let mut filled = word.to_owned();
        for (name, value) in [
            ("{folder}", self.folder.display().to_string()),
            ("{python}", self.tools.python().display().to_string()),
            ("{packages}", self.tools.site_packages().display().to_string()),
            ("{beside}", folder_of().unwrap_or_default()),
            ("{program}", program.to_owned()),
        ] {
            filled = filled.replace(name, &value);
        }
        filled
    }
}

/// The first number with dots in what a program says of itself, or the first number.
fn version(said: &str) -> String {
    let is_inside = |letter: char| letter.is_ascii_digit() || letter == '.';
    let numbers = || {
        let parts = said.split(|letter: char| !is_inside(letter)).map(|part| part.trim_matches('.'));
        parts.filter(|part| !part.is_empty())
    };
    numbers().find(|number| number.contains('.')).or_else(|| numbers().next()).unwrap_or("").to_owned()
}

/// A program in its place.
struct Task<'a> {
    program: &'a Program,
    installed: &'a Installed,
    place: &'a Place<'a>,
}

impl Task<'_> {
    /// Runs it under `yonder run`. Returns its answer, and what the library has complained of.
    fn run_far(&self, local_bytes: u64, time_max: Duration) -> Result<(FarRan, String, Option<String>), Failure> {
        let yonder = self.place.tools.yonder.display().to_string();
        let path = self.place.folder.join("summary.json");
        let (local, summary) = (local_bytes.to_string(), path.display().to_string());
        let words = [&*yonder, "run", "--far", FAR, "--local", &local, "--summary", &summary, "--"];
        let ran = self.run(&words, time_max)?;
        let figures = figures(&path)?;
        let bytes = |name: &str| figures[name].as_u64().unwrap_or(0);
        let (peak_local_bytes, uncovered) = (bytes("peak_local_bytes"), bytes("peak_uncovered_bytes"));
        if peak_local_bytes > local_bytes {
            return Err(format!("{peak_local_bytes} bytes were local, of {local_bytes} that are allowed").into());
        }
        let complaints = fs::read(self.place.folder.join("work.err")).unwrap_or_default();
        let complaints = String::from_utf8_lossy(&complaints);
        // What it has come to is said last, and begins with its time.
        let lines = complaints.lines().filter_map(|line| line.strip_prefix("yonder run: "));
        let complaint = lines.map(str::to_owned).find(|line| !line.starts_with(|first: char| first.is_ascii_digit()));
        let far = FarRan {
            time: ran.time,
            local_bytes,
            peak_far_bytes: bytes("peak_far_bytes"),
            peak_uncovered_bytes: uncovered,
        };
        Ok((far, ran.answer, complaint))
    }

    /// Prepares it in a folder of its own, and runs it with `words` before its command.
    fn run(&self, words: &[&str], time_max: Duration) -> Result<Ran, Failure> {
        self.prepare()?;
        let began = Instant::now();
        let deadline = began + time_max;
        let (answer, peak_bytes) = match &self.program.work {
            Work::Batch(command) => {
                let mut started = self.start(words, command, "work")?;
                started.end_by(deadline, None).map_err(|cause| refusal(&started, cause))?;
                (started.said(), started.peak_bytes())
            }
            Work::Serve(service) => self.serve(service, words, deadline)?,
        };
        Ok(Ran { answer, time: began.elapsed(), peak_bytes })
    }

    /// Makes the folder and its files, and takes the first steps.
    fn prepare(&self) -> Result<(), String> {
        let folder = &self.place.folder;
        // It may be there from the run before.
        let _ = fs::remove_dir_all(folder);
        let problem = |error| format!("'{}' cannot be filled: {error}", folder.display());
        fs::create_dir(folder).map_err(problem)?;
        for (name, content) in self.program.files {
            // Braces of programs in other languages are no names.
            let content = if name.ends_with(".conf") { self.filled(content) } else { (*content).to_owned() };
            fs::write(folder.join(name), content).map_err(problem)?;
        }
        if let Some(user) = self.user() {
            chown(folder, Some(user), Some(user)).map_err(problem)?;
        }
        for (index, command) in self.program.prepare.iter().enumerate() {
            let mut started = self.start(&[], command, &format!("prepare-{index}"))?;
            let ended = started.end_by(Instant::now() + TIME_MAX, None);
            ended.map_err(|cause| format!("'{}': {cause}", command.join(" ")))?;
        }
        Ok(())
    }

    /// Runs a server while its clients ask it. Returns their answers, and how much memory the server took.
    fn serve(&self, service: &Service, words: &[&str], deadline: Instant) -> Result<(String, u64), Failure> {
        let mut server = self.start(words, service.server, "work")?;
        loop {
            let mut asks = self.start(&[], service.is_ready, "ready")?;
            if asks.end_by(deadline.min(Instant::now() + ASK_TIME_MAX), Some(&mut server)).is_ok() {
                break;
            }
            if server.is_over() || Instant::now() > deadline {
                let ended = server.end_by(deadline, None).err();
                return Err(refusal(&server, ended.unwrap_or_else(|| "it ends, and serves nothing".to_owned())));
            }
            process::pause();
        }
        let mut answers = String::new();
        for (index, command) in service.asked.iter().enumerate() {
            let mut client = self.start(&[], command, &format!("asked-{index}"))?;
            if let Err(cause) = client.end_by(deadline, Some(&mut server)) {
                let last = server.complaints().pop().unwrap_or_default();
                return Err(format!("a client fails: {cause}; the server's last words: {last}").into());
            }
            answers += &client.said();
        }
        server.ask_to_end(service.end);
        server.end_by(deadline, None).map_err(|cause| format!("it does not end well: {cause}"))?;
        Ok((answers, server.peak_bytes()))
    }

    /// Starts a command of the catalogue, with words before it.
    fn start(&self, words: &[&str], command: &[&str], name: &str) -> Result<Started, String> {
        let filled = command.iter().map(|word| self.filled(word));
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(filled).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.place.folder).env("LC_ALL", "C").env("PYTHONHASHSEED", "0");
        if let Some(user) = self.user() {
            command.uid(user).gid(user).env("HOME", &self.place.folder);
        }
        Started::start(&mut command, &self.place.folder, name)
    }

    fn filled(&self, word: &str) -> String {
        self.place.filled(word, &self.installed.program)
    }

    /// The user that it must run as, if this one is root.
    fn user(&self) -> Option<u32> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0);
        (is_root && self.program.user == User::Nobody).then_some(NOBODY)
    }
}

/// What a failure is: a refusal has an exit code of its own, and one line.
fn refusal(started: &Started, cause: String) -> Failure {
    let is_refused = cause.starts_with(&format!("exit status: {REFUSED}"));
    let lines = started.complaints();
    match lines.as_slice() {
        [line] if is_refused && line.starts_with("yonder: ") => Failure::Refused(line["yonder: ".len()..].to_owned()),
        _ => Failure::Failed(cause),
    }
}

/// The figures of a run, which may come a moment after its end.
fn figures(path: &Path) -> Result<Value, String> {
    let deadline = Instant::now() + SUMMARY_TIME_MAX;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if let Ok(figures) = serde_json::from_str(&text) {
            return Ok(figures);
        }
        if Instant::now() > deadline {
            return Err("yonder run has told no figures".to_owned());
        }
        process::pause();
    }
}

/// Signals by which servers are asked to end.
pub(super) const TERM: Signal = Signal::TERM;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_memory_is_local() {
        assert_eq!(local_bytes(400 << 20), 100 << 20);
        assert_eq!(local_bytes((400 << 20) + 5), 101 << 20);
        assert_eq!(local_bytes(1 << 20), LOCAL_BYTES_MIN);
    }

    #[test]
    fn versions_are_found_in_what_programs_say() {
        assert_eq!(version("psql (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), "15.18");
        assert_eq!(version("openjdk version \"17.0.15\" 2025-04-15"), "17.0.15");
        assert_eq!(version("v20.20.2\n"), "20.20.2");
        assert_eq!(version("version 7."), "7");
        assert_eq!(version("none"), "");
    }

    #[test]
    fn another_answer_is_wrong_and_one_without_far_memory_local() {
        let far =
            |peak_far_bytes| FarRan { time: Duration::ZERO, local_bytes: 0, peak_far_bytes, peak_uncovered_bytes: 0 };
        assert_eq!(verdict("a\nb\n", "a\nb\n", &far(1), None), Verdict::Right);
        assert_eq!(verdict("a", "a", &far(0), Some("why".to_owned())), Verdict::Local("why".to_owned()));
        let wrong = |line: &str| Verdict::Wrong(line.to_owned());
        assert_eq!(verdict("a\nb\n", "a\nc\n", &far(1), None), wrong("it says 'c' in the place of 'b'"));
        assert_eq!(verdict("a\nb\n", "a\n", &far(1), None), wrong("it says '' in the place of 'b'"));
    }
}
