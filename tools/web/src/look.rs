//! [`Looker`]: one look at a server and at all processes, as the JSON that the page reads, and changes of settings.
//!
//! ```text
//! { "server": { "address": "127.0.0.1:9185", "text": "yonder_...", "trouble": null } or null,
//!   "processes": [ { "id": "...", "pid": 12, "command": "...", "far": "...", "answers": true,
//!                    "stats": { "major_faults": 7, ... },
//!                    "settings": [ { "name": "quota", "value": "64MiB", "unit": "bytes" } ] } ] }
//! ```
//!
//! Everything here waits for others, so it is called where waiting costs nobody anything. A process that does not
//! answer is asked again later, and later each time, so that one that is stopped does not slow the others' figures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap as _};
use yonder_control::{AskError, Folder, ask};
use yonder_metrics::top::Target;
use yonder_settings::{Datum, Request, Row, parse_assignment};

/// How long a process may take to answer a look.
const LOOK_TIMEOUT: Duration = Duration::from_millis(100);
/// How long it may take to change a setting.
const SET_TIMEOUT: Duration = Duration::from_secs(5);
/// How old a look may be that is told again.
const FRESH: Duration = Duration::from_millis(250);
/// When a process is asked again that did not answer, at first and at most.
const LATER: Duration = Duration::from_secs(1);
const LATER_MAX: Duration = Duration::from_secs(60);
/// Processes that are shown.
const PROCESSES_MAX: usize = 64;

/// Where processes are asked, now.
pub type Folders = Box<dyn Fn() -> Vec<Folder> + Send + Sync>;

/// The server that is looked at.
pub type WatchedServer = Target;

/// See the head of this file.
pub(crate) struct Looker {
    server: Option<WatchedServer>,
    folders: Folders,
    silent: BTreeMap<String, Silence>,
    last: Option<(Instant, String)>,
}

/// A process that has not answered.
struct Silence {
    until: Instant,
    pause: Duration,
}

/// A change that is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    id: String,
    name: String,
    value: String,
}

/// What was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Changed {
    name: String,
    value: String,
}

#[derive(Serialize)]
struct Look {
    server: Option<ServerLook>,
    processes: Vec<ProcessLook>,
}

#[derive(Serialize)]
struct ServerLook {
    address: String,
    text: Option<String>,
    trouble: Option<String>,
}

#[derive(Serialize)]
struct ProcessLook {
    id: String,
    pid: u32,
    command: String,
    far: String,
    answers: bool,
    stats: Fields,
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    name: String,
    value: String,
    unit: String,
}

/// A row as an object.
struct Fields(Row);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, datum) in self.0.fields() {
            match datum {
                Datum::Nothing => object.serialize_entry(name, &())?,
                Datum::Number(number) => object.serialize_entry(name, number)?,
                Datum::Text(text) => object.serialize_entry(name, text)?,
            }
        }
        object.end()
    }
}

impl Looker {
    pub(crate) fn new(server: Option<WatchedServer>, folders: Folders) -> Self {
        Self { server, folders, silent: BTreeMap::new(), last: None }
    }

    /// A look, as JSON. One that was made just now is told again.
    pub(crate) fn look(&mut self) -> String {
        if let Some((_, text)) = self.last.as_ref().filter(|(then, _)| then.elapsed() < FRESH) {
            return text.clone();
        }
        let server = self.server.as_ref().map(|server| {
            let (text, trouble) = match server.text() {
                Ok(text) => (Some(text), None),
                Err(error) => (None, Some(error.to_string())),
            };
            ServerLook { address: server.typed().to_owned(), text, trouble }
        });
        let look = Look { server, processes: self.processes() };
        let text = serde_json::to_string(&look).expect("names are texts");
        self.last = Some((Instant::now(), text.clone()));
        text
    }

    /// Makes a change. An error is one line for who asked.
    pub(crate) fn set(&mut self, change: &Change) -> Result<Changed, String> {
        let (name, value) = parse_assignment(&format!("{}={}", change.name, change.value))?;
        let found = self.all().into_iter().find(|(id, ..)| *id == change.id);
        let (_, folder, pid) = found.ok_or("the process is over: choose another one")?;
        // What is shown next has the change.
        self.last = None;
        let rows = ask(&folder, pid, Request::Set(name, value), SET_TIMEOUT).map_err(|error| error.to_string())?;
        let text = |field| rows.first().and_then(|row| row.text(field)).unwrap_or_default().to_owned();
        Ok(Changed { name: text("name"), value: text("value") })
    }

    /// All processes: what tells each from others, where it is asked, and its number.
    fn all(&self) -> Vec<(String, Folder, u32)> {
        let in_folder = |folder: Folder| {
            let pids = folder.processes().unwrap_or_default();
            pids.into_iter().map(move |pid| (folder.socket(pid).display().to_string(), folder.clone(), pid))
        };
        (self.folders)().into_iter().flat_map(in_folder).take(PROCESSES_MAX).collect()
    }

    fn processes(&mut self) -> Vec<ProcessLook> {
        let all = self.all();
        self.silent.retain(|id, _| all.iter().any(|(other, ..)| other == id));
        let mut looks = Vec::new();
        for (id, folder, pid) in all {
            let waits = self.silent.get(&id).is_some_and(|silence| Instant::now() < silence.until);
            let asked = if waits { Ok(None) } else { ask_all(&folder, pid) };
            match asked {
                Ok(Some((about, stats, settings))) => {
                    self.silent.remove(&id);
                    looks.push(ProcessLook::new(id, pid, &about, stats, &settings));
                }
                // It has just ended.
                Err(AskError::Absent(_)) => {}
                Ok(None) => looks.push(ProcessLook::silent(id, pid)),
                Err(error) => {
                    tracing::debug!(pid, %error, "a process is left alone for a moment");
                    let pause = self.silent.get(&id).map_or(LATER, |silence| (2 * silence.pause).min(LATER_MAX));
                    self.silent.insert(id.clone(), Silence { until: Instant::now() + pause, pause });
                    looks.push(ProcessLook::silent(id, pid));
                }
            }
        }
        looks
    }
}

/// What a process says of itself, its counters, and its settings.
fn ask_all(folder: &Folder, pid: u32) -> Result<Option<(Row, Row, Vec<Row>)>, AskError> {
    let rows = |request| ask(folder, pid, request, LOOK_TIMEOUT);
    let one = |request| Ok::<Row, AskError>(rows(request)?.into_iter().next().unwrap_or_default());
    Ok(Some((one(Request::About)?, one(Request::Stats)?, rows(Request::Get(None))?)))
}

impl ProcessLook {
    fn new(id: String, pid: u32, about: &Row, stats: Row, settings: &[Row]) -> Self {
        let text = |row: &Row, name| row.text(name).unwrap_or_default().to_owned();
        let setting =
            |row: &Row| Setting { name: text(row, "name"), value: text(row, "value"), unit: text(row, "unit") };
        Self {
            id,
            pid,
            command: text(about, "command"),
            far: text(about, "far"),
            answers: true,
            stats: Fields(stats),
            settings: settings.iter().map(setting).collect(),
        }
    }

    fn silent(id: String, pid: u32) -> Self {
        Self { answers: false, ..Self::new(id, pid, &Row::new(), Row::new(), &[]) }
    }
}
