//! [`Processes`]: all processes with far memory of this user, or of all, looked at again and again.
//!
//! What a process says of itself may be wrong, on purpose too: whoever may make a folder for sockets may have anything
//! answer there. So a process is known by its folder and its number, counts as no more memory than the kernel says it
//! has, and what its command line says reaches no terminal as it is.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use yonder::units::PAGE_BYTES;
use yonder_control::{AskError, Folder, ask};
use yonder_settings::{Name, Request, Row, Value};

use super::ctl::control_folder;

/// How long one may take to answer. It has threads of its own for that.
const TIMEOUT: Duration = Duration::from_millis(100);
/// When one is asked again that did not answer, at first and at most.
const LATER: Duration = Duration::from_secs(1);
const LATER_MAX: Duration = Duration::from_secs(60);
/// How often all are looked for, and asked what hardly changes.
const LOOK_FOR_EVERY: Duration = Duration::from_millis(250);
const ASK_ABOUT_EVERY: Duration = Duration::from_secs(1);
/// How often one is asked to take the most that it may have again.
const LAST_TRIES: u32 = 3;
/// So many of those that did not answer are asked again at one look, and so many are known of one folder.
const SILENT_ASKED_MAX: usize = 1;
const OF_FOLDER_MAX: usize = 256;
/// Where the session's folders of all users are.
const SESSIONS: &str = "/run/user";
/// And the others.
const TEMPORARY: (&str, &str) = ("/tmp", "yonder-");

/// See the head of this file.
pub(crate) struct Processes {
    all_users: bool,
    known: BTreeMap<Id, Known>,
    ids: BTreeMap<(PathBuf, u32), Id>,
    next_id: Id,
    looked_for: Option<Instant>,
}

/// Tells processes apart, also those of equal numbers in several containers.
pub(crate) type Id = u32;

struct Known {
    folder: Folder,
    pid: u32,
    about: Row,
    asked_about: Option<Instant>,
    stats: Option<Row>,
    /// When it is asked again, and how much later it is then, if it does not answer.
    silent_until: Option<Instant>,
    pause: Duration,
}

/// A process, as it has answered last.
pub(crate) struct Process {
    pub(crate) id: Id,
    pub(crate) pid: u32,
    pub(crate) about: Row,
    pub(crate) stats: Row,
    /// What it was started with, as a terminal may have it.
    pub(crate) command: String,
    /// Memory that the kernel says it has, if it is a process of the folder's owner here.
    pub(crate) resident_bytes: Option<u64>,
    /// Whether that was just now.
    pub(crate) answers: bool,
}

impl Processes {
    /// Those of this user, or of all users.
    pub(crate) fn new(all_users: bool) -> Self {
        Self { all_users, known: BTreeMap::new(), ids: BTreeMap::new(), next_id: 0, looked_for: None }
    }

    /// Asks all of them.
    pub(crate) fn look(&mut self) -> Vec<Process> {
        if self.looked_for.is_none_or(|before| before.elapsed() >= LOOK_FOR_EVERY) {
            self.look_for();
        }
        let (mut gone, mut silent_asked) = (Vec::new(), 0);
        for (id, known) in &mut self.known {
            let was_silent = known.silent_until.is_some();
            let is_due = known.silent_until.is_none_or(|until| Instant::now() >= until);
            if !is_due || was_silent && silent_asked >= SILENT_ASKED_MAX {
                continue;
            }
            silent_asked += usize::from(was_silent);
            if known.ask().is_none() {
                gone.push(*id);
            }
        }
        for id in gone {
            self.known.remove(&id);
            self.ids.retain(|_, other| *other != id);
        }
        self.known.iter().filter_map(|(id, known)| known.as_process(*id)).collect()
    }

    /// Whether a process is still there, as far as is known.
    pub(crate) fn is_known(&self, id: Id) -> bool {
        self.known.contains_key(&id)
    }

    /// Changes a setting of one: whether it did.
    pub(crate) fn set(&mut self, id: Id, name: Name, bytes: Option<u64>) -> bool {
        let Some(known) = self.known.get_mut(&id) else { return false };
        match ask(&known.folder, known.pid, Request::Set(name, Value::Size(bytes)), TIMEOUT) {
            Ok(_) => true,
            // It has answered, and will not.
            Err(AskError::Refused(why)) => {
                tracing::debug!(pid = known.pid, why = why.text(), "a limit was refused");
                false
            }
            Err(error) => {
                known.fails(&error);
                false
            }
        }
    }

    /// Gives one the most that it may have again, and waits for its answer longer: there is no next look.
    pub(crate) fn let_go(&self, id: Id, name: Name) {
        let Some(known) = self.known.get(&id) else { return };
        for _ in 0..LAST_TRIES {
            match ask(&known.folder, known.pid, Request::Set(name, Value::Size(None)), LATER) {
                Err(AskError::Silent { .. }) => {}
                Ok(_) | Err(_) => return,
            }
        }
        tracing::warn!(pid = known.pid, "it keeps its {name}: type yonder ctl set {} {name}=none", known.pid);
    }

    fn look_for(&mut self) {
        self.looked_for = Some(Instant::now());
        for folder in folders(self.all_users) {
            for pid in folder.processes().unwrap_or_default().into_iter().take(OF_FOLDER_MAX) {
                let next_id = &mut self.next_id;
                let id = *self.ids.entry((folder.path().to_owned(), pid)).or_insert_with(|| {
                    *next_id += 1;
                    *next_id
                });
                self.known.entry(id).or_insert_with(|| Known::new(folder.clone(), pid));
            }
        }
    }
}

impl Known {
    fn new(folder: Folder, pid: u32) -> Self {
        let about = Row::new();
        Self { folder, pid, about, asked_about: None, stats: None, silent_until: None, pause: LATER }
    }

    /// `None` if it is gone.
    fn ask(&mut self) -> Option<()> {
        let is_old = self.asked_about.is_none_or(|before| before.elapsed() >= ASK_ABOUT_EVERY);
        if is_old {
            match ask(&self.folder, self.pid, Request::About, TIMEOUT) {
                Ok(mut rows) if !rows.is_empty() => {
                    (self.about, self.asked_about) = (rows.remove(0), Some(Instant::now()));
                }
                Ok(_) | Err(AskError::Absent(_)) => return None,
                Err(error) => {
                    self.fails(&error);
                    return Some(());
                }
            }
        }
        match ask(&self.folder, self.pid, Request::Stats, TIMEOUT) {
            Ok(mut rows) if !rows.is_empty() => {
                (self.stats, self.silent_until, self.pause) = (Some(rows.remove(0)), None, LATER);
            }
            Ok(_) | Err(AskError::Absent(_)) => return None,
            Err(error) => self.fails(&error),
        }
        Some(())
    }

    fn fails(&mut self, error: &AskError) {
        tracing::debug!(pid = self.pid, %error, "a process is left alone for a moment");
        self.silent_until = Some(Instant::now() + self.pause);
        self.pause = (2 * self.pause).min(LATER_MAX);
    }

    fn as_process(&self, id: Id) -> Option<Process> {
        let command = self.about.text("command").unwrap_or_default();
        Some(Process {
            id,
            pid: self.pid,
            about: self.about.clone(),
            stats: self.stats.clone()?,
            command: command.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect(),
            resident_bytes: resident_bytes(self.pid, self.folder.owner()),
            answers: self.silent_until.is_none(),
        })
    }
}

/// A share as a person reads it.
pub(crate) fn percent(share: f64) -> String {
    if share > 10.0 { ">1000%".to_owned() } else { format!("{:.1}%", 100.0 * share) }
}

/// Memory that a process of this user has.
fn resident_bytes(pid: u32, owner: u32) -> Option<u64> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    if std::fs::metadata(&folder).ok()?.uid() != owner {
        return None;
    }
    let pages: u64 = std::fs::read_to_string(folder.join("statm")).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(PAGE_BYTES as u64))
}

/// Where processes are: this user's, or everybody's, as far as they may be asked.
pub(crate) fn folders(all_users: bool) -> Vec<Folder> {
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
