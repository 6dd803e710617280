//! `bench del-get`: what guided paging saves of a Redis server most of whose values were deleted (DiLOS, section 6.3).
//!
//! A server under `yonder run` is filled, a share of its keys is deleted at random, and what is left is asked for at
//! random and checked. Then pages are full of holes. The same is done with whole pages and with live bytes only, in
//! turn; what the gets alone have fetched is read from the board of the run, before they begin and when they are done.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use clap::Args;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;
use yonder::units::parse_bytes;
use yonder_load::Protocol;
use yonder_preload_protocol::SharedStats;

use crate::comparison::{Ended, Series, take_turns};
use crate::flags::{BENCHMARK, count_to, positive_count};
use crate::policies::name_of;
use crate::redis::FIGURES_TIME;
use crate::redis_server::{DEPTH, Server};
use crate::stock::{self, Client};
use crate::{BenchError, OnProgress};

/// What is measured.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct Settings {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the server's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us")]
    pub far: String,
    /// Local memory of the server
    #[arg(long, value_name = "SIZE", default_value = "12MiB", value_parser = parse_bytes)]
    pub local: u64,
    /// Far memory of the server
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Keys
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 500_000, value_parser = positive_count)]
    pub keys: usize,
    /// Bytes of a value
    #[arg(long = "value-size", help_heading = BENCHMARK, value_name = "B", default_value_t = 128, value_parser = positive_count)]
    pub value_bytes: usize,
    /// Share of the keys that is deleted, in percent
    #[arg(long = "deleted", help_heading = BENCHMARK, value_name = "PCT", default_value_t = 70, value_parser = count_to(99))]
    pub deleted_percent: usize,
    /// Runs of each way, of which the median is told; the ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub runs: usize,
    /// How a server is started under `yonder run`: words before its own, in which `{transfer}` stands for `live` or
    /// `pages`, and `{board}` for the file that has the run's figures
    #[arg(skip)]
    pub prefix: Vec<String>,
    /// Where the server runs; nothing is left there
    #[arg(skip)]
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
    /// Runs. What follows is the median of them.
    pub runs: usize,
    /// Bytes that the gets have fetched.
    pub get_fetched_bytes: u64,
    /// Of the run with the fewest and of that with the most.
    pub get_fetched_bytes_spread: [u64; 2],
    /// Bytes fetched and written until then: by sets and deletes.
    pub before_bytes: u64,
    /// Gets a second.
    pub ops_per_s: f64,
    /// Values that were not what they should be.
    pub errors: u64,
}

/// Measures both ways in turn. `tell` learns what is done and how much of all that is done.
pub fn run(settings: &Settings, tell: OnProgress<'_>) -> Result<[DelGetResult; 2], BenchError> {
    if let Some(missing) = stock::missing(Protocol::Redis) {
        return Err(BenchError::Child(missing));
    }
    let mut both = [Transfer::Pages, Transfer::Live].map(Series::new);
    let label = |transfer: &Transfer| transfer.name();
    take_turns(&mut both, settings.runs, tell, label, |transfer, _| Trial::run(settings, *transfer).map(Ended::Well))?;
    Ok(both.map(|series| settings.result(&series)))
}

impl Transfer {
    fn name(self) -> String {
        name_of(self)
    }
}

impl Settings {
    fn result(&self, series: &Series<Transfer, Trial>) -> DelGetResult {
        let median = |figure: fn(&Trial) -> f64| series.median(figure).unwrap_or(0.0);
        let fetched = |trial: &Trial| trial.get_fetched_bytes as f64;
        DelGetResult {
            bench: "del-get",
            transfer: series.variant,
            keys: self.keys,
            value_bytes: self.value_bytes,
            deleted_percent: self.deleted_percent,
            local_bytes: self.local,
            runs: series.trials.len(),
            get_fetched_bytes: median(fetched) as u64,
            get_fetched_bytes_spread: series.spread(fetched).unwrap_or_default().map(|bytes| bytes as u64),
            before_bytes: median(|trial| trial.before_bytes as f64) as u64,
            ops_per_s: median(|trial| trial.ops_per_s),
            errors: series.sum(|trial| trial.wrong),
        }
    }
}

/// One server's life.
struct Trial {
    get_fetched_bytes: u64,
    before_bytes: u64,
    ops_per_s: f64,
    wrong: u64,
}

impl Trial {
    fn run(settings: &Settings, transfer: Transfer) -> Result<Self, BenchError> {
        let board = settings.folder.join("board");
        let mut words = settings
            .prefix
            .iter()
            .map(|word| word.replace("{transfer}", &transfer.name()).replace("{board}", &board.to_string_lossy()));
        let mut command = Command::new(words.next().ok_or_else(|| BenchError::Child("nothing to run".to_owned()))?);
        command.args(words).current_dir(&settings.folder);
        let (server, mut client) = Server::start(command)?;
        let figures = SharedStats::open(&board)?;

        let mut random = SmallRng::seed_from_u64(5);
        let mut keys: Vec<usize> = (0..settings.keys).collect();
        let set = |client: &mut Client, key| {
            let value = value(key, settings.value_bytes);
            client.set(&name(key), value.len(), |to| to.extend_from_slice(value.as_bytes()));
        };
        client.all(DEPTH, keys.iter().copied(), set, |client, _| client.is_stored())?;
        keys.shuffle(&mut random);
        let left = keys.split_off(keys.len() * settings.deleted_percent / 100);
        let del = |client: &mut Client, key| client.command(&[b"DEL", name(key).as_bytes()]);
        client.all(DEPTH, keys.iter().copied(), del, |client, _| client.count().map(|count| count == 1))?;
        std::thread::sleep(FIGURES_TIME);
        let before = figures.figures();
        let begun = Instant::now();
        let is_value = |client: &mut Client, key| {
            let expected = value(key, settings.value_bytes);
            client.is_value(|value| value == expected.as_bytes())
        };
        let wrong = client.all(DEPTH, left.iter().copied(), |client, key| client.get(&name(key)), is_value)?;
        let ops_per_s = left.len() as f64 / begun.elapsed().as_secs_f64();
        std::thread::sleep(FIGURES_TIME);
        let after = figures.figures();
        server.shut_down(client)?;
        std::fs::remove_file(&board)?;
        Ok(Self {
            get_fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            before_bytes: before.fetched_bytes + before.written_bytes,
            ops_per_s,
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
