//! The demo's second part: the memcached-compatible server under load over loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use yonder_load::{KvLoad, LoadResult, LoadSettings};
use yonder_report::Point;

use super::turns::{LOCAL_PERCENT, SYSTEMS, measure};
use super::{Emit, Part};
use crate::output::Bar;

pub(super) const KEYS: u64 = 40_000;
pub(super) const VALUE_BYTES: usize = 1000;
const MEMORY: &str = "64MiB";
const FAR: &str = "emu://?latency=25us&gbps=100";
const RUN: Duration = Duration::from_millis(400);

pub(super) fn run(deadline: Instant, emit: Emit<'_>) -> anyhow::Result<Part> {
    let mut servers = [Server::start("busy")?, Server::start("yield")?];
    let processes = servers.each_ref().map(|server| server.process.0.id());
    let measured = measure("server", deadline, &processes, |system, rate| {
        let result = servers[system].load.run(rate, RUN, |_| ())?;
        result.verdict()?;
        let mut object = serde_json::to_value(&result)?;
        object["faults"] = SYSTEMS[system].into();
        emit(&object)?;
        Ok(point(&result))
    })?;
    Ok(measured.part(
        "server",
        "A memcached server over loopback",
        "Items, keys and hash chains live in far memory; a client loads the server through TCP and checks every value \
         it reads. The fetch is slower here, as over a plain network, because the sockets of this machine take longer \
         than a fetch over RDMA would.",
        "25 us, 100 Gbit/s",
    ))
}

/// A server that has every key, and its load.
struct Server {
    process: Process,
    load: KvLoad,
}

impl Server {
    /// Starts a server with faults handled as `faults` says, and fills it.
    fn start(faults: &str) -> anyhow::Result<Self> {
        let (process, address) = Process::start(faults)?;
        let settings = LoadSettings { keys: KEYS, value_size: VALUE_BYTES, ..LoadSettings::new(address) };
        let (mut load, bar) = (KvLoad::new(settings)?, Bar::new("server"));
        load.fill(|progress| bar.show("filling", progress.ops as f64 / KEYS as f64))?;
        Ok(Self { process, load })
    }
}

/// A server process, ended with the value.
struct Process(Child);

impl Process {
    /// Starts `yonder kv`, and returns it with its address.
    fn start(faults: &str) -> anyhow::Result<(Self, String)> {
        let program = std::env::current_exe().context("the demo starts this program again as its server")?;
        let local = format!("{LOCAL_PERCENT}%");
        let mut child = Command::new(program)
            .args(["kv", "--listen", "127.0.0.1:0", "--far", FAR, "--memory", MEMORY])
            // Both have one CPU for their faults.
            .args(["--local", &local, "--faults", faults, "--install-delegation", "off"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the demo's server")?;
        let banner = child.stderr.take().context("the server's standard error was asked for")?;
        let process = Self(child);
        let mut line = String::new();
        BufReader::new(banner).read_line(&mut line)?;
        let mut words = line.split_whitespace().map(|word| word.trim_end_matches(','));
        match words.find(|word| word.parse::<std::net::SocketAddr>().is_ok()) {
            Some(address) => Ok((process, address.to_owned())),
            None => bail!("the demo's server did not start: {}", line.trim()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child is this demo's own; a server that has ended already is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn point(result: &LoadResult) -> Point {
    Point {
        offered_per_s: result.offered_per_s,
        achieved_per_s: result.ops_per_s,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        p999_us: result.p999_us,
        dropped: result.dropped,
    }
}
