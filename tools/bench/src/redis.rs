//! `bench redis`: how fast a Redis server under `yonder run` answers the queries of DiLOS (sections 6.2 and 6.3), by
//! how much of its data is local and by what is fetched ahead.
//!
//! [`Bench`] makes one trial after another: a server is started, filled, asked by `redis-benchmark`, and ended. For
//! each query a trial that is not limited finds how much memory the data takes ([`Bench::filled`]). Then, for each
//! local memory, the ways of fetching ahead take turns ([`Bench::row`]), and medians count.
//!
//! Faults and bytes are those of the queries alone: the server's figures are read from the board of its run while it
//! runs, before and after them, so no second trial without queries is needed. A quarter as many requests come before,
//! to warm up. Before them, and after all, a sample of the data is compared with what was written.

mod asking;
mod data;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use yonder::units::{LocalSize, parse_bytes};
use yonder_load::Protocol;
use yonder_preload_protocol::SharedStats;

use crate::children::not_installed;
use crate::comparison::{self, Ended, take_turns};
use crate::flags::{BENCHMARK, FAR, positive_count};
use crate::policies::name_of;
use crate::redis_server::Server;
use crate::stock;
use crate::{BenchError, Counts};
use asking::{Asking, Measured};
use data::Data;

/// A run's figures are put up ten times a second: after this they are those of everything before.
pub(crate) const FIGURES_TIME: Duration = Duration::from_millis(250);
/// For so many requests one warms up.
const REQUESTS_PER_WARMING: usize = 4;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
pub enum Query {
    /// Values of 4 KiB, at random
    #[serde(rename = "get-4k")]
    #[value(name = "get-4k")]
    Get4k,
    /// Values of 64 KiB
    #[serde(rename = "get-64k")]
    #[value(name = "get-64k")]
    Get64k,
    /// Values of 4, 8, 16, 32, 64 and 128 KiB, equally
    #[serde(rename = "get-mixed")]
    GetMixed,
    /// The first 100 elements of a list of about 200
    #[serde(rename = "lrange")]
    Lrange,
}

/// How memory is fetched before it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Ahead {
    /// Not at all
    None,
    /// The pages behind neighbours that were touched
    Readahead,
    /// The pages at the distance that most of the last touches had
    Trend,
    /// What the guide for Redis says, and readahead
    Guide,
}

/// What `yonder bench redis --help` ends with.
const AFTER_HELP: &str = "\
What a guide that knows Redis gains for lists, with little local memory, over three runs:
  yonder bench redis --queries lrange --local 12.5% --ahead readahead,guide --runs 3

It needs redis-server and redis-benchmark; --ahead guide needs the guide 'redis' beside what yonder run
preloads.";

/// What is measured.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the server's process
    #[arg(long, value_name = "URL", default_value = FAR)]
    pub far: String,
    /// Local memory, with commas between: sizes, or percentages of what the data takes, as Redis tells
    #[arg(long, value_name = "SIZE|PCT", default_value = "100%,50%,25%,12.5%", value_delimiter = ',')]
    pub local: Vec<LocalSize>,
    /// Far memory of the server, which is also the local memory of the trial that is not limited
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// What is asked, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "get-4k,get-64k,get-mixed,lrange", value_delimiter = ',')]
    pub queries: Vec<Query>,
    /// How memory is fetched ahead, with commas between; the ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "none,readahead,trend,guide", value_delimiter = ',')]
    pub ahead: Vec<Ahead>,
    /// Values that the server is filled with
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "96MiB", value_parser = parse_bytes)]
    pub data: u64,
    /// Requests that are measured in each run; a quarter as many come before, to warm up
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10_000, value_parser = positive_count)]
    pub requests: usize,
    /// Connections, with a request under way on each
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 4, value_parser = positive_count)]
    pub clients: usize,
    /// Runs of each query in each way; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub runs: usize,
    /// Where the server runs; nothing is left there
    #[arg(skip)]
    pub folder: PathBuf,
}

/// How a server is run.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'a> {
    /// How its memory is fetched ahead.
    pub ahead: Ahead,
    /// Limit of its local memory.
    pub local_bytes: u64,
    /// The file that has the run's figures, which does not exist yet.
    pub board: &'a Path,
}

/// What is typed before a server's own words.
pub type Prefix<'a> = dyn Fn(&Variant<'_>) -> Command + 'a;

/// Data for a query, and how much memory a server takes for it.
pub struct Filled {
    query: Query,
    data: Data,
    used_bytes: u64,
}

/// One way of fetching ahead for a query with a local memory; the fields are a contract with scripts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RedisResult {
    /// Always `redis`.
    pub bench: &'static str,
    /// What was asked.
    pub query: Query,
    /// How memory was fetched ahead.
    pub ahead: Ahead,
    /// What the data takes, as Redis tells (`used_memory`).
    pub used_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Keys.
    pub keys: usize,
    /// Requests in each run.
    pub requests: usize,
    /// Connections, with a request under way on each.
    pub clients: usize,
    /// Runs that ended well. What follows is the median of them.
    pub runs: usize,
    /// Requests a second.
    pub ops_per_s: Option<f64>,
    /// Of the slowest and of the fastest run.
    pub ops_per_s_spread: Option<[f64; 2]>,
    /// Median time of a request.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Faults that needed a fetch, for each request.
    pub major_faults_per_request: Option<f64>,
    /// Faults that needed none.
    pub minor_faults_per_request: Option<f64>,
    /// Bytes that were fetched for each request.
    pub fetched_bytes_per_request: Option<f64>,
    /// Bytes that were written.
    pub written_bytes_per_request: Option<f64>,
    /// With a guide: requests a second as a multiple of the best way without.
    pub ratio_to_general: Option<f64>,
    /// Values or lists of a sample that were not what was written, in all runs.
    pub errors: u64,
    /// How a run failed; there are no more then.
    pub failed: Option<String>,
}

/// One server's life.
struct Trial {
    measured: Measured,
    /// What was done for the queries.
    counts: Counts,
    wrong: u64,
}

type Series = comparison::Series<Ahead, Trial>;

/// Does the trials.
pub struct Bench<'a> {
    settings: &'a Settings,
    prefix: &'a Prefix<'a>,
    done: usize,
}

impl Settings {
    /// Servers that are started in all.
    fn trials(&self) -> usize {
        self.queries.len() * (1 + self.local.len() * self.ahead.len() * self.runs)
    }
}

impl Query {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Get4k, Self::Get64k, Self::GetMixed, Self::Lrange];

    /// Its name, where it is typed and shown.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }
}

impl Ahead {
    /// Its name, where it is shown.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }
}

/// What is not installed, and what to type.
#[must_use]
pub fn missing() -> Option<String> {
    stock::missing(Protocol::Redis).or_else(|| not_installed(asking::PROGRAM, "redis-tools"))
}

impl<'a> Bench<'a> {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(settings: &'a Settings, prefix: &'a Prefix<'a>) -> Self {
        Self { settings, prefix, done: 0 }
    }

    /// Finds how much memory the data for a query takes.
    pub fn filled(&mut self, query: Query, tell: &mut dyn FnMut(&str, f64)) -> Result<Filled, BenchError> {
        tell(&format!("{}: size", query.name()), self.done as f64 / self.settings.trials().max(1) as f64);
        self.done += 1;
        let data = Data::new(query, self.settings.data);
        let board = self.settings.folder.join("board");
        let way = Variant { ahead: Ahead::Readahead, local_bytes: self.settings.memory, board: &board };
        let (server, mut client) = Server::start(self.command(&way))?;
        data.fill(&mut client).map_err(|error| server.complaint(&error))?;
        let used_bytes = client.info("memory", "used_memory")?;
        server.shut_down(client)?;
        remove(&board)?;
        Ok(Filled { query, data, used_bytes })
    }

    /// Measures each way of fetching ahead with one local memory.
    pub fn row(
        &mut self,
        filled: &Filled,
        local: LocalSize,
        tell: &mut dyn FnMut(&str, f64),
    ) -> Result<Vec<RedisResult>, BenchError> {
        let local_bytes = local.resolve(filled.used_bytes);
        let mut all: Vec<Series> = self.settings.ahead.iter().copied().map(Series::new).collect();
        let (begun, trials) = (self.done as f64, all.len() * self.settings.runs);
        let mut tell = |what: &str, share: f64| {
            tell(what, (begun + share * trials as f64) / self.settings.trials().max(1) as f64);
        };
        let (query, local) = (filled.query.name(), yonder::units::format_bytes(local_bytes));
        let label = |ahead: &Ahead| format!("{query}, {local}, {}", ahead.name());
        take_turns(&mut all, self.settings.runs, &mut tell, label, |ahead, turn| {
            let trial = self.trial(filled, *ahead, local_bytes, turn as u64);
            remove(&self.settings.folder.join("board"))?;
            Ok::<_, BenchError>(trial.map_or_else(|error| Ended::Badly(error.to_string()), Ended::Well))
        })?;
        self.done += trials;
        let mut results: Vec<_> = all.iter().map(|series| self.result(filled, local_bytes, series)).collect();
        compare(&mut results);
        Ok(results)
    }

    /// One server's life: filled, checked, asked, checked again.
    fn trial(&self, filled: &Filled, ahead: Ahead, local_bytes: u64, turn: u64) -> Result<Trial, BenchError> {
        let board = self.settings.folder.join("board");
        let (server, mut client) = Server::start(self.command(&Variant { ahead, local_bytes, board: &board }))?;
        let figures = SharedStats::open(&board)?;
        let complain = |error: BenchError| server.complaint(&error);
        let data = &filled.data;
        data.fill(&mut client).map_err(complain)?;
        let mut wrong = data.wrong(&mut client, turn).map_err(complain)?;
        let requests = self.settings.requests;
        let (query, keys, clients) = (data.query(), data.keys(), self.settings.clients);
        let asking = Asking { port: server.port(), query, keys, requests, clients };
        Asking { requests: requests.div_ceil(REQUESTS_PER_WARMING), ..asking }.run().map_err(complain)?;
        std::thread::sleep(FIGURES_TIME);
        let before = figures.figures();
        let measured = asking.run().map_err(complain)?;
        std::thread::sleep(FIGURES_TIME);
        let after = figures.figures();
        wrong += data.wrong(&mut client, !turn).map_err(complain)?;
        server.shut_down(client)?;
        let counts = Counts::from(after).since(before.into());
        Ok(Trial { measured, counts, wrong })
    }

    fn command(&self, way: &Variant<'_>) -> Command {
        let mut command = (self.prefix)(way);
        command.current_dir(&self.settings.folder);
        command
    }

    fn result(&self, filled: &Filled, local_bytes: u64, series: &Series) -> RedisResult {
        let requests = self.settings.requests;
        let each = |count: fn(&Counts) -> u64| series.median(|trial| count(&trial.counts) as f64 / requests as f64);
        RedisResult {
            bench: "redis",
            query: filled.query,
            ahead: series.variant,
            used_bytes: filled.used_bytes,
            local_bytes,
            keys: filled.data.keys(),
            requests,
            clients: self.settings.clients,
            runs: series.trials.len(),
            ops_per_s: series.median(|trial| trial.measured.ops_per_s),
            ops_per_s_spread: series.spread(|trial| trial.measured.ops_per_s),
            p50_ms: series.median(|trial| trial.measured.p50_ms),
            p99_ms: series.median(|trial| trial.measured.p99_ms),
            major_faults_per_request: each(|counts| counts.major_faults),
            minor_faults_per_request: each(|counts| counts.minor_faults),
            fetched_bytes_per_request: each(|counts| counts.fetched_bytes),
            written_bytes_per_request: each(|counts| counts.written_bytes),
            ratio_to_general: None,
            errors: series.sum(|trial| trial.wrong),
            failed: series.failed.clone(),
        }
    }
}

/// Compares the guide with the best of the others.
fn compare(results: &mut [RedisResult]) {
    let (guided, general): (Vec<_>, Vec<_>) = results.iter_mut().partition(|result| result.ahead == Ahead::Guide);
    let best = general.iter().filter_map(|result| result.ops_per_s).max_by(f64::total_cmp);
    for result in guided {
        result.ratio_to_general = result.ops_per_s.zip(best).map(|(guided, best)| guided / best);
    }
}

/// Removes the board of a trial, which may not have come so far.
pub(crate) fn remove(board: &Path) -> Result<(), BenchError> {
    match std::fs::remove_file(board) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn settings(folder: &TempDir, ahead: &[Ahead], runs: usize) -> Settings {
        Settings {
            far: "emu://".to_owned(),
            local: vec![LocalSize::Percent(100.0)],
            queries: vec![Query::Get4k],
            ahead: ahead.to_vec(),
            data: 2 << 20,
            memory: 64 << 20,
            requests: 200,
            clients: 2,
            runs,
            folder: folder.path().to_owned(),
        }
    }

    #[test]
    fn each_query_is_answered_and_checked() {
        if let Some(missing) = missing() {
            return println!("SKIP: {missing}");
        }
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder, &[Ahead::None], 1);
        // A server whose memory is not far, and which so has no figures.
        let prefix = |way: &Variant<'_>| {
            SharedStats::create(way.board).unwrap();
            Command::new("env")
        };
        for query in Query::ALL {
            let (mut bench, mut shares) = (Bench::new(&settings, &prefix), Vec::new());
            let filled = bench.filled(query, &mut |_, share| shares.push(share)).unwrap();
            assert!((2 << 20..5 << 20).contains(&filled.used_bytes), "{query:?} takes {}", filled.used_bytes);
            let row = bench.row(&filled, LocalSize::Percent(50.0), &mut |_, share| shares.push(share)).unwrap();
            let [result] = &row[..] else { panic!("{row:?}") };
            assert_eq!((result.query, result.runs, result.errors, &result.failed), (query, 1, 0, &None), "{result:?}");
            assert_eq!(result.local_bytes, filled.used_bytes / 2);
            assert!(result.ops_per_s > Some(0.0) && result.p50_ms <= result.p99_ms, "{result:?}");
            assert_eq!(result.major_faults_per_request, Some(0.0));
            assert_eq!(shares, [0.0, 0.5]);
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn values_that_were_changed_are_found() {
        if let Some(missing) = missing() {
            return println!("SKIP: {missing}");
        }
        let changes: [(Query, &[&[u8]]); 2] = [
            (Query::GetMixed, &[b"SETRANGE", b"key:000000000003", b"9", b"x"]),
            (Query::Lrange, &[b"LSET", b"l:000000000002", b"3", b"x"]),
        ];
        for (query, change) in changes {
            let data = Data::new(query, 1 << 20);
            let (_server, mut client) = Server::start(Command::new("env")).unwrap();
            data.fill(&mut client).unwrap();
            assert_eq!(data.wrong(&mut client, 0).unwrap(), 0);
            client.command(change);
            client.send().unwrap();
            if query == Query::Lrange {
                assert!(client.is_stored().unwrap());
            } else {
                assert!(client.count().unwrap() > 9);
            }
            assert_eq!(data.wrong(&mut client, 0).unwrap(), 1);
        }
    }

    #[test]
    fn a_leg_that_fails_is_told_with_what_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder, &[Ahead::Guide], 2);
        let prefix = |_: &Variant<'_>| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo there is no guide >&2; exit 2"]);
            command
        };
        let mut bench = Bench::new(&settings, &prefix);
        let filled = Filled { query: Query::Get4k, data: Data::new(Query::Get4k, 1 << 20), used_bytes: 1 << 20 };
        let row = bench.row(&filled, LocalSize::Bytes(1 << 20), &mut |_, _| {}).unwrap();
        assert_eq!((row[0].runs, row[0].ops_per_s), (0, None));
        assert!(row[0].failed.as_ref().unwrap().contains("it said: there is no guide"), "{row:?}");
    }

    #[test]
    fn a_guide_is_compared_with_the_best_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder, &[Ahead::None, Ahead::Trend, Ahead::Guide], 1);
        let prefix = |_: &Variant<'_>| Command::new("env");
        let bench = Bench::new(&settings, &prefix);
        let filled = Filled { query: Query::Get4k, data: Data::new(Query::Get4k, 1 << 20), used_bytes: 1 << 20 };
        let trial = |ops_per_s| Trial {
            measured: Measured { ops_per_s, p50_ms: 1.0, p99_ms: 2.0 },
            counts: Counts { major_faults: 300, ..Counts::default() },
            wrong: 1,
        };
        let series = |ahead, rates: &[f64]| {
            let trials = rates.iter().map(|rate| trial(*rate)).collect();
            Series { trials, ..Series::new(ahead) }
        };
        let all = [(Ahead::None, &[1.0][..]), (Ahead::Trend, &[2.0, 8.0, 4.0]), (Ahead::Guide, &[6.0])];
        let mut row: Vec<_> =
            all.iter().map(|(ahead, rates)| bench.result(&filled, 1, &series(*ahead, rates))).collect();
        compare(&mut row);
        assert_eq!((row[1].ops_per_s, row[1].ops_per_s_spread, row[1].errors), (Some(4.0), Some([2.0, 8.0]), 3));
        assert_eq!(row[1].major_faults_per_request, Some(1.5));
        assert_eq!(
            [row[0].ratio_to_general, row[1].ratio_to_general, row[2].ratio_to_general],
            [None, None, Some(1.5)]
        );
        compare(&mut row[2..]);
        assert_eq!(row[2].ratio_to_general, None);
    }
}
