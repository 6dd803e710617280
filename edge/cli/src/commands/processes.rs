//! [`Processes`]: all processes with far memory of this user, or of all, looked at again and again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use yonder_control::{AskError, Folder, ask};
use yonder_settings::{Name, Request, Row, Value};

use super::ctl::control_folder;

/// How long one may take to answer. It has threads of its own for that.
const TIMEOUT: Duration = Duration::from_millis(100);
/// When one is asked again that did not answer, and how often all are looked for and asked what does not change.
const LATER: Duration = Duration::from_secs(1);
/// Where the session's folders of all users are.
const SESSIONS: &str = "/run/user";
/// And the others.
const TEMPORARY: (&str, &str) = ("/tmp", "yonder-");

/// See the head of this file.
pub(crate) struct Processes {
    all_users: bool,
    known: BTreeMap<u32, Known>,
    looked_for: Option<Instant>,
}

struct Known {
    folder: Folder,
    about: Row,
    stats: Option<Row>,
    /// When it is asked again.
    silent_until: Option<Instant>,
}

/// A process, as it has answered last.
pub(crate) struct Process<'a> {
    pub(crate) pid: u32,
    pub(crate) about: &'a Row,
    pub(crate) stats: &'a Row,
    /// Whether that was just now.
    pub(crate) answers: bool,
}

impl Processes {
    /// Those of this user, or of all users.
    pub(crate) fn new(all_users: bool) -> Self {
        Self { all_users, known: BTreeMap::new(), looked_for: None }
    }

    /// Asks all of them. The order is that of their numbers.
    pub(crate) fn look(&mut self) -> Vec<Process<'_>> {
        if self.looked_for.is_none_or(|before| before.elapsed() >= LATER) {
            self.look_for();
        }
        let gone = |(pid, known): (&u32, &mut Known)| known.ask(*pid).is_none().then_some(*pid);
        let gone: Vec<u32> = self.known.iter_mut().filter_map(gone).collect();
        gone.iter().for_each(|pid| _ = self.known.remove(pid));
        let process = |(pid, known): (&u32, &'_ Known)| (*pid, known.silent_until.is_none());
        let found: Vec<(u32, bool)> = self.known.iter().map(process).collect();
        let known = &self.known;
        let process = |(pid, answers): (u32, bool)| {
            let Known { about, stats, .. } = &known[&pid];
            stats.as_ref().map(|stats| Process { pid, about, stats, answers })
        };
        found.into_iter().filter_map(process).collect()
    }

    /// Changes a setting of one: whether it did.
    pub(crate) fn set(&mut self, pid: u32, name: Name, bytes: Option<u64>) -> bool {
        let Some(known) = self.known.get_mut(&pid) else { return false };
        match ask(&known.folder, pid, Request::Set(name, Value::Size(bytes)), TIMEOUT) {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(pid, %error, "a limit was not set");
                known.fails(&error);
                false
            }
        }
    }

    fn look_for(&mut self) {
        self.looked_for = Some(Instant::now());
        for folder in folders(self.all_users) {
            for pid in folder.processes().unwrap_or_default() {
                match (ask(&folder, pid, Request::About, TIMEOUT), self.known.get_mut(&pid)) {
                    (Ok(mut rows), known) if !rows.is_empty() => {
                        let about = rows.remove(0);
                        match known {
                            Some(known) => known.about = about,
                            None => {
                                let folder = folder.clone();
                                self.known.insert(pid, Known { folder, about, stats: None, silent_until: None });
                            }
                        }
                    }
                    // Who has never answered is unknown, and who does not now has what it has.
                    _ => {}
                }
            }
        }
    }
}

impl Known {
    /// `None` if it is gone.
    fn ask(&mut self, pid: u32) -> Option<()> {
        if self.silent_until.is_some_and(|until| Instant::now() < until) {
            return Some(());
        }
        match ask(&self.folder, pid, Request::Stats, TIMEOUT) {
            Ok(mut rows) if !rows.is_empty() => (self.stats, self.silent_until) = (Some(rows.remove(0)), None),
            Ok(_) | Err(AskError::Absent(_)) => return None,
            Err(error) => self.fails(&error),
        }
        Some(())
    }

    fn fails(&mut self, error: &AskError) {
        tracing::debug!(%error, "a process is left alone for a moment");
        self.silent_until = Some(Instant::now() + LATER);
    }
}

/// Where processes are: this user's, or everybody's, as far as they may be asked.
fn folders(all_users: bool) -> Vec<Folder> {
    let mut paths = vec![control_folder()];
    if all_users {
        let entries = |folder: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let (temporary, prefix) = TEMPORARY;
        let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        paths.extend(entries(Path::new(SESSIONS)).iter().map(|session| session.join("yonder")));
        paths.extend(entries(Path::new(temporary)).into_iter().filter(is_ours));
        paths.sort();
        paths.dedup();
    }
    paths.iter().filter_map(|path| Folder::open(path).ok().flatten()).collect()
}
