//! `bench del-get`: what guided paging saves of a Redis server most of whose values were deleted (DiLOS, section 6.3).
//!
//! A server under `yonder run` is filled, a share of its keys is deleted at random, and what is left is asked for at random and
//! checked. Then pages are full of holes. The same is done with whole pages and with live bytes only; runs without the gets tell
//! what these alone have fetched.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;
use serde_json::Value;

use crate::BenchError;
use crate::children::Child;

/// Requests under way at a time.
const DEPTH: usize = 32;
/// How long a server may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// How a server is started under `yonder run`: words before its own, in which `{transfer}` stands for `live` or `pages`, and
    /// `{summary}` for the file that the summary is written to.
    pub prefix: Vec<String>,
    /// Keys.
    pub keys: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of the keys that is deleted, in percent.
    pub deleted_percent: usize,
    /// Where summaries are written.
    pub folder: PathBuf,
}

/// What of a page is transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transfer {
    /// All of it.
    Pages,
    /// What is live of it.
    Live,
}

/// One way of transferring.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DelGetResult {
    /// Always `del-get`.
    pub bench: &'static str,
    /// What of a page was transferred.
    pub transfer: Transfer,
    /// Keys at first.
    pub keys: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of the keys that was deleted, in percent.
    pub deleted_percent: usize,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Bytes that the gets have fetched.
    pub get_fetched_bytes: u64,
    /// Bytes fetched and written until then: by sets and deletes.
    pub before_bytes: u64,
    /// Gets a second.
    pub ops_per_s: f64,
    /// Values that were not what they should be.
    pub errors: u64,
}

/// Measures both ways. `tell` learns what is done and how much of all that is done.
pub fn run(settings: &Settings, tell: &mut dyn FnMut(&str, f64)) -> Result<[DelGetResult; 2], BenchError> {
    let mut share = 0.0;
    let mut leg = |transfer, gets| {
        tell("del-get", share);
        share += 0.25;
        Leg::run(settings, transfer, gets)
    };
    let mut both = |transfer| -> Result<DelGetResult, BenchError> {
        let (before, whole) = (leg(transfer, Gets::None)?, leg(transfer, Gets::All)?);
        Ok(DelGetResult {
            bench: "del-get",
            transfer,
            keys: settings.keys,
            value_bytes: settings.value_bytes,
            deleted_percent: settings.deleted_percent,
            local_bytes: whole.local_bytes,
            get_fetched_bytes: whole.fetched_bytes.saturating_sub(before.fetched_bytes),
            before_bytes: before.fetched_bytes + before.written_bytes,
            ops_per_s: whole.gets as f64 / whole.get_time.as_secs_f64(),
            errors: whole.wrong,
        })
    };
    Ok([both(Transfer::Pages)?, both(Transfer::Live)?])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    None,
    All,
}

/// One server's life.
struct Leg {
    local_bytes: u64,
    fetched_bytes: u64,
    written_bytes: u64,
    gets: u64,
    get_time: Duration,
    wrong: u64,
}

impl Leg {
    fn run(settings: &Settings, transfer: Transfer, gets: Gets) -> Result<Self, BenchError> {
        let summary = settings.folder.join("summary.json");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let transfer = if transfer == Transfer::Live { "live" } else { "pages" };
        let mut words = settings
            .prefix
            .iter()
            .map(|word| word.replace("{transfer}", transfer).replace("{summary}", &summary.to_string_lossy()));
        let mut command = Command::new(words.next().ok_or_else(|| BenchError::Child("nothing to run".to_owned()))?);
        command.args(words).args(["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]);
        let mut server = Child::start(&mut command, "redis-server")?;
        let mut client = Client::new(server.connect((Ipv4Addr::LOCALHOST, port).into())?, settings.value_bytes)?;

        let mut random = SmallRng::seed_from_u64(5);
        let mut keys: Vec<usize> = (0..settings.keys).collect();
        client.all(&keys, Client::set, |client, _| client.line().map(|line| line == "+OK"))?;
        keys.shuffle(&mut random);
        let left = keys.split_off(keys.len() * settings.deleted_percent / 100);
        client.all(&keys, Client::del, |client, _| client.line().map(|line| line == ":1"))?;
        let begun = Instant::now();
        let asked: &[usize] = if gets == Gets::All { &left } else { &[] };
        let wrong = client.all(asked, Client::get, Client::is_value)?;
        let get_time = begun.elapsed();
        client.stream.write_all(b"SHUTDOWN NOSAVE\r\n")?;
        let give_up = Instant::now() + END_TIME_MAX;
        while server.is_running() {
            if Instant::now() > give_up {
                return Err(BenchError::Child("redis-server does not end".to_owned()));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        let text = std::fs::read_to_string(&summary)?;
        let told: Value =
            serde_json::from_str(&text).map_err(|error| BenchError::Child(format!("'{text}': {error}")))?;
        let number = |name: &str| {
            told[name].as_u64().ok_or_else(|| BenchError::Child(format!("yonder run tells no {name}: {text}")))
        };
        Ok(Self {
            local_bytes: number("local_bytes")?,
            fetched_bytes: number("fetched_bytes")?,
            written_bytes: number("written_bytes")?,
            gets: asked.len() as u64,
            get_time,
            wrong,
        })
    }
}

/// A connection to the server.
struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    value_bytes: usize,
    text: String,
}

impl Client {
    fn new(stream: TcpStream, value_bytes: usize) -> Result<Self, BenchError> {
        let replies = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, replies, value_bytes, text: String::new() })
    }

    /// Asks `ask` of each key, and returns for how many `is_right` has found the answer wrong.
    fn all(
        &mut self,
        keys: &[usize],
        ask: fn(&Self, usize) -> String,
        is_right: fn(&mut Self, usize) -> Result<bool, BenchError>,
    ) -> Result<u64, BenchError> {
        let mut wrong = 0;
        for keys in keys.chunks(DEPTH) {
            let requests: String = keys.iter().map(|key| ask(self, *key)).collect();
            self.stream.write_all(requests.as_bytes())?;
            for key in keys {
                wrong += u64::from(!is_right(self, *key)?);
            }
        }
        Ok(wrong)
    }

    fn set(&self, key: usize) -> String {
        let (key, value) = (name(key), value(key, self.value_bytes));
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len())
    }

    fn del(&self, key: usize) -> String {
        let key = name(key);
        format!("*2\r\n$3\r\nDEL\r\n${}\r\n{key}\r\n", key.len())
    }

    fn get(&self, key: usize) -> String {
        let key = name(key);
        format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
    }

    fn is_value(&mut self, key: usize) -> Result<bool, BenchError> {
        let expected = value(key, self.value_bytes);
        if self.line()? != format!("${}", expected.len()) {
            return Ok(false);
        }
        let mut bytes = vec![0; expected.len() + 2];
        self.replies.read_exact(&mut bytes)?;
        Ok(bytes.strip_suffix(b"\r\n") == Some(expected.as_bytes()))
    }

    fn line(&mut self) -> Result<&str, BenchError> {
        self.text.clear();
        self.replies.read_line(&mut self.text)?;
        Ok(self.text.trim_end())
    }
}

fn name(key: usize) -> String {
    format!("key:{key:010}")
}

/// A value that no other key has.
fn value(key: usize, bytes: usize) -> String {
    format!("{key:016x}").chars().cycle().take(bytes).collect()
}
