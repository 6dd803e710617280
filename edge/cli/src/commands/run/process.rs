//! The process that becomes the program, and what its helper knows of it.
//!
//! The two have a pair of sockets. The helper says with which environment to begin, or the exit code of a refusal; what
//! it reads then is the end of the stream, which says that the program is executed.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use yonder_preload_protocol::{ProcessId, Settings, SharedStats};
use yonder_process::{Side, detach};

/// What the helper says first if the program may begin; anything else is an exit code.
const GO: u8 = 0;
/// What stands behind each variable of its environment.
const END: u8 = 0;
/// What the process says if it could not become the program.
const NOT_EXECUTED: u8 = 1;

/// Variables that name a credential's file, with its path; without one those that the program must not have.
pub(super) type CredentialVariables = [(&'static str, Option<PathBuf>); 2];

/// Which of the two this process is.
pub(super) enum Part {
    /// The one that becomes the program.
    Program(Becoming),
    /// The one that helps.
    Helper(Watched),
}

/// This process, before it is the program.
pub(super) struct Becoming {
    helper: UnixStream,
}

/// The program, for its helper.
pub(super) struct Watched {
    id: ProcessId,
    handle: Arc<OwnedFd>,
    link: UnixStream,
    has_begun: Arc<AtomicBool>,
}

/// Leaves a helper behind. To be called before there are threads.
pub(super) fn part() -> anyhow::Result<Part> {
    let id = ProcessId::own();
    let handle = pidfd_open(pid(id.number).context("a process has a number")?, PidfdFlags::empty())?;
    let (helper, link) = UnixStream::pair()?;
    Ok(match detach().context("no helper can be started")? {
        Side::Caller => Part::Program(Becoming { helper }),
        Side::Helper => {
            drop(helper);
            Part::Helper(Watched { id, handle: Arc::new(handle), link, has_begun: Arc::default() })
        }
    })
}

impl Becoming {
    /// Executes the program as soon as the helper says how, or ends as it says.
    pub(super) fn execute(mut self, words: &[OsString]) -> anyhow::Result<ExitCode> {
        let mut answer = Vec::new();
        self.helper.read_to_end(&mut answer).context("the helper has said nothing")?;
        let variables = match answer.split_first() {
            Some((&GO, variables)) => variables,
            // It has told the user why.
            Some((&code, _)) => return Ok(ExitCode::from(code)),
            None => {
                bail!("the helper has ended before the program could begin: look at the kernel's log, or try again")
            }
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for variable in variables.split(|byte| *byte == END).filter(|variable| !variable.is_empty()) {
            match variable.iter().position(|byte| *byte == b'=') {
                Some(at) => command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..])),
                None => command.env_remove(OsStr::from_bytes(variable)),
            };
        }
        let error = command.exec();
        // If there is no helper, nobody watches.
        let _ = self.helper.write_all(&[NOT_EXECUTED]);
        Err(error).with_context(|| format!("cannot start {}", words[0].to_string_lossy()))
    }
}

impl Watched {
    /// Which process it is.
    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// Ends the process with a code, before it is the program.
    pub(super) fn refuse(&mut self, code: u8) {
        // It has ended, if it does not listen.
        let _ = self.link.write_all(&[code]);
    }

    /// From now on the helper ends when the process does before it is the program, as by Ctrl-C. What is returned hears
    /// of the end of the program.
    pub(super) fn watch(&self) -> anyhow::Result<(Sender<()>, Receiver<()>)> {
        let (ends, heard) = channel();
        let (killed, handle, has_begun) = (ends.clone(), self.handle.clone(), self.has_begun.clone());
        let waits = Builder::new().name("yonder-killed".to_owned()).spawn(move || {
            wait_for_end(&handle);
            if !has_begun.load(Ordering::Acquire) {
                std::process::exit(1);
            }
            // The other thread may have been first.
            let _ = killed.send(());
        });
        waits.context("the helper can have no threads")?;
        Ok((ends, heard))
    }

    /// Has the process become the program, with this library, this credential and these settings, whose board tells of
    /// its end. Whether it has.
    pub(super) fn begin(
        &mut self,
        library: &Path,
        credential: &CredentialVariables,
        settings: &Settings,
        board: Arc<SharedStats>,
        ends: Sender<()>,
    ) -> anyhow::Result<bool> {
        board.is_helper();
        // It waits for ever if the program is killed, and goes with this process.
        let waits = Builder::new().name("yonder-ends".to_owned()).spawn(move || {
            board.await_end();
            let _ = ends.send(());
        });
        waits.context("the helper can have no threads")?;
        self.has_begun.store(true, Ordering::Release);
        let is_told = self.link.write_all(&environment(library, credential, settings)).is_ok();
        let is_told = is_told && self.link.shutdown(Shutdown::Write).is_ok();
        Ok(is_told && self.link.read(&mut [0]).is_ok_and(|read| read == 0))
    }

    /// Waits until the program has ended.
    pub(super) fn wait_for_end(&self) {
        wait_for_end(&self.handle);
    }
}

/// What the program's environment has beside this process's: variables with their values, and those that it must not
/// have.
fn environment(library: &Path, credential: &CredentialVariables, settings: &Settings) -> Vec<u8> {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut text = [&[GO], b"LD_PRELOAD=".as_slice(), preload.as_bytes(), &[END]].concat();
    let settings = settings.variables().map(|(name, value)| (name, value.map(OsString::from)));
    let credential = credential.iter().map(|(name, path)| (*name, path.clone().map(PathBuf::into_os_string)));
    for (name, value) in settings.into_iter().chain(credential) {
        text.extend(name.as_bytes());
        if let Some(value) = value {
            text.extend([b"=", value.as_bytes()].concat());
        }
        text.push(END);
    }
    text
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

/// Whether a process is gone for certain; one that nobody has waited for yet is.
pub(super) fn is_gone(process: u32) -> bool {
    let Some(pid) = pid(process) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => has_ended(&handle, Some(&Timespec::default())),
        Err(error) => error == Errno::SRCH,
    }
}

/// Whether a process ends within this time, or ever.
fn has_ended(handle: &OwnedFd, within: Option<&Timespec>) -> bool {
    matches!(poll(&mut [PollFd::new(handle, PollFlags::IN)], within), Ok(1))
}

fn wait_for_end(handle: &OwnedFd) {
    // A wait that a signal ends begins again.
    while !has_ended(handle, None) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended_and_before_anybody_has_waited_for_it() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = child.id();
        let handle = pidfd_open(pid(process).unwrap(), PidfdFlags::empty()).unwrap();
        assert!(!is_gone(process));
        drop(child.stdin.take());
        wait_for_end(&handle);
        assert!(is_gone(process));
        child.wait().unwrap();
        assert!(is_gone(process));
    }
}
