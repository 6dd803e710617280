//! `yonder ctl`: settings of running processes, shown and changed.
//!
//! What was typed is checked before anybody is asked; `show` makes tables and JSON of what is answered.

mod show;

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use yonder::FarMemory;
use yonder_control::{AskError, ControlServer, FarControl, Folder, ask, folder_of};
use yonder_settings::{Name, Refusal, Request, Row, parse_assignment};

use self::show::{Shown, show_processes};
use crate::args::{CtlArgs, CtlListArgs, CtlProcessArgs, CtlWhat, CtlWordsArgs, UserArgs};
use crate::output::OutputClosed;

/// How long a process may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code of what a user has typed wrong.
const USAGE: u8 = 2;

/// Why nothing was done.
enum CtlError {
    /// Something else can be typed. One line.
    Usage(String),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for CtlError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<AskError> for CtlError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Absent(_) => Self::Usage(format!("{error}: type one that `yonder ctl list` shows")),
            AskError::Refused(Refusal::Refused(why)) => Self::Usage(why),
            other => Self::Failed(other.into()),
        }
    }
}

pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let done = match &args.what {
        CtlWhat::List(args) => list(args),
        CtlWhat::Get(args) => get(args),
        CtlWhat::Set(args) => set(args),
        CtlWhat::Stats(args) => show(args, Request::Stats),
        CtlWhat::Regions(args) => show(args, Request::Regions),
        CtlWhat::Cold(args) => show(args, Request::Cold),
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(CtlError::Usage(why)) => {
            eprintln!("yonder: {why}");
            Ok(ExitCode::from(USAGE))
        }
        Err(CtlError::Failed(error)) => Err(error),
    }
}

/// Where the processes of this user are asked.
pub(super) fn control_folder() -> PathBuf {
    folder_of(runtime_dir().as_deref())
}

fn runtime_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

/// Where a server is asked that has become another user's: the environment may have the folder of the one who has
/// started it.
fn control_folder_of_other() -> PathBuf {
    let is_own = |folder: &PathBuf| folder.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw());
    folder_of(runtime_dir().filter(is_own).as_deref())
}

/// Lets `yonder ctl` ask this server for `far`, until the result is dropped. If it cannot, that is all that is wrong.
pub(crate) fn serve_settings(far: &FarMemory, user: &UserArgs) -> Option<ControlServer> {
    let folder = if user.user.is_some() { control_folder_of_other() } else { control_folder() };
    let server = ControlServer::start(&folder, Arc::new(FarControl::new(far.clone())));
    server.inspect_err(|error| tracing::warn!("yonder ctl will not find this process: {error}")).ok()
}

/// The folder for the sockets of programs that are run, if there can be one.
pub(crate) fn folder_for_programs() -> Option<PathBuf> {
    let made = Folder::make(&control_folder());
    let made = made.inspect_err(|error| tracing::warn!("yonder ctl will not find this program: {error}"));
    made.ok().map(|folder| folder.path().to_owned())
}

fn folder() -> Result<Option<Folder>, CtlError> {
    Folder::open(&control_folder()).map_err(|error| CtlError::Failed(error.into()))
}

fn processes(folder: &Folder) -> Result<Vec<u32>, CtlError> {
    folder.processes().map_err(|error| CtlError::Failed(error.into()))
}

fn list(args: &CtlListArgs) -> Result<(), CtlError> {
    let mut found = Vec::new();
    if let Some(folder) = folder()? {
        for pid in processes(&folder)? {
            match ask(&folder, pid, Request::About, TIMEOUT) {
                Ok(rows) => found.extend(rows.into_iter().map(|row| (pid, row))),
                // It has just ended.
                Err(AskError::Absent(_)) => {}
                Err(error) => eprintln!("yonder ctl: {error}"),
            }
        }
    }
    if found.is_empty() {
        eprintln!("yonder ctl: {}", nobody());
    }
    Ok(show_processes(&found, args.json)?)
}

fn nobody() -> String {
    "no process of this user has far memory: start one with `yonder kv` or `yonder run`".to_owned()
}

/// A process to ask: the one that is named, or the only one.
fn choose(named: Option<u32>, typed: &str) -> Result<(Folder, u32), CtlError> {
    let Some(folder) = folder()? else {
        return Err(named.map_or_else(|| CtlError::Usage(nobody()), |pid| AskError::Absent(pid).into()));
    };
    if let Some(pid) = named {
        return Ok((folder, pid));
    }
    let found = processes(&folder)?;
    match found.as_slice() {
        [] => Err(CtlError::Usage(nobody())),
        [pid] => Ok((folder, *pid)),
        [first, ..] => {
            let all = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let which = format!("type which, such as `yonder ctl {typed} {first}`");
            Err(CtlError::Usage(format!("{} processes have far memory ({all}): {which}", found.len())))
        }
    }
}

/// Takes the process's number off the words, if the first is one.
fn split_pid(words: &[String]) -> Result<(Option<u32>, &[String]), CtlError> {
    match words {
        [first, rest @ ..] if first.bytes().all(|byte| byte.is_ascii_digit()) => match first.parse() {
            Ok(pid) => Ok((Some(pid), rest)),
            Err(_) => {
                Err(CtlError::Usage(format!("'{first}' is no process: type a number that `yonder ctl list` shows")))
            }
        },
        _ => Ok((None, words)),
    }
}

fn get(args: &CtlWordsArgs) -> Result<(), CtlError> {
    let (pid, rest) = split_pid(&args.words)?;
    let name = match rest {
        [] => None,
        [name] => Some(name.parse::<Name>().map_err(CtlError::Usage)?),
        [first, ..] => return Err(not_a_pid(first)),
    };
    let shown = if name.is_some() { Shown::Value } else { Shown::Settings };
    ask_and_show(pid, "get", Request::Get(name), shown, args.json)
}

fn set(args: &CtlWordsArgs) -> Result<(), CtlError> {
    let (pid, rest) = split_pid(&args.words)?;
    let (name, value) = match rest {
        [] => {
            return Err(CtlError::Usage(
                "nothing to set: type NAME=VALUE, such as `yonder ctl set quota=64MiB`".to_owned(),
            ));
        }
        [assignment] => parse_assignment(assignment).map_err(CtlError::Usage)?,
        [first, ..] => return Err(not_a_pid(first)),
    };
    ask_and_show(pid, "set", Request::Set(name, value), Shown::Settings, args.json)
}

fn not_a_pid(word: &str) -> CtlError {
    let word = word.escape_debug();
    CtlError::Usage(format!("'{word}' is no process: type a number that `yonder ctl list` shows, and one setting"))
}

fn show(args: &CtlProcessArgs, request: Request) -> Result<(), CtlError> {
    let (typed, shown) = match request {
        Request::Regions => ("regions", Shown::Regions),
        Request::Cold => ("cold", Shown::Cold),
        Request::Stats | Request::About | Request::Get(_) | Request::Set(..) => ("stats", Shown::Stats),
    };
    ask_and_show(args.pid, typed, request, shown, args.json)
}

fn ask_and_show(pid: Option<u32>, typed: &str, request: Request, shown: Shown, json: bool) -> Result<(), CtlError> {
    let (folder, pid) = choose(pid, typed)?;
    let rows: Vec<Row> = ask(&folder, pid, request, TIMEOUT)?;
    match shown.show(pid, &rows, json) {
        Err(error) if error.is::<OutputClosed>() => Ok(()),
        result => Ok(result?),
    }
}
