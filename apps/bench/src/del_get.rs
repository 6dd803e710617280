//! `bench del-get`: what guided paging saves of a Redis server most of whose values were deleted (DiLOS, section 6.3).
//!
//! A server under `yonder run` is filled, a share of its keys is deleted at random, and what is left is asked for at random and
//! checked. Then pages are full of holes. The same is done with whole pages and with live bytes only; runs without the gets tell
//! what these alone have fetched.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;
use serde_json::Value;

use crate::BenchError;
use crate::redis_client::{Client, Server, write_command};

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
        let transfer = if transfer == Transfer::Live { "live" } else { "pages" };
        let mut words = settings
            .prefix
            .iter()
            .map(|word| word.replace("{transfer}", transfer).replace("{summary}", &summary.to_string_lossy()));
        let mut command = Command::new(words.next().ok_or_else(|| BenchError::Child("nothing to run".to_owned()))?);
        command.args(words);
        let (server, mut client) = Server::start(command)?;

        let mut random = SmallRng::seed_from_u64(5);
        let mut keys: Vec<usize> = (0..settings.keys).collect();
        let set = |key, to: &mut Vec<u8>| {
            write_command(&[b"SET", name(key).as_bytes(), value(key, settings.value_bytes).as_bytes()], to);
        };
        client.all(&keys, set, |client, _| client.line().map(|line| line == "+OK"))?;
        keys.shuffle(&mut random);
        let left = keys.split_off(keys.len() * settings.deleted_percent / 100);
        let del = |key, to: &mut Vec<u8>| write_command(&[b"DEL", name(key).as_bytes()], to);
        client.all(&keys, del, |client, _| client.line().map(|line| line == ":1"))?;
        let begun = Instant::now();
        let asked: &[usize] = if gets == Gets::All { &left } else { &[] };
        let get = |key, to: &mut Vec<u8>| write_command(&[b"GET", name(key).as_bytes()], to);
        let is_value =
            |client: &mut Client, key| Ok(client.string()? == Some(value(key, settings.value_bytes).as_bytes()));
        let wrong = client.all(asked, get, is_value)?;
        let get_time = begun.elapsed();
        server.shut_down(client)?;
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

fn name(key: usize) -> String {
    format!("key:{key:010}")
}

/// A value that no other key has.
fn value(key: usize, bytes: usize) -> String {
    format!("{key:016x}").chars().cycle().take(bytes).collect()
}
