//! Runs of servers: stock ones under `yonder run`, or in a limited group with the kernel's swap, and `yonder kv`; each
//! is filled and asked anew.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use yonder_load::{KvLoad, LoadError, LoadResult, Protocol, Rate};
use yonder_preload_protocol::{Figures, SharedStats};

use super::contenders::{Contender, Variant};
use super::{Bench, Trial};
use crate::BenchError;
use crate::comparison::{Ended, Measured, served};
use crate::kernel_swap::KernelCounts;
use crate::limited_server::{Server, Start, free_address};
use crate::programs::servers::Protocol as Stock;
use crate::redis::FIGURES_TIME;

/// Part of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 4;
/// Connections beside those of the load, for its questions.
const MORE_CONNECTIONS: usize = 16;

/// What is counted of a server's faults.
enum Counts {
    /// By the kernel, in its group.
    Kernel(KernelCounts),
    /// By `yonder run`, on its board.
    Run(Figures),
    /// By nobody but the server itself, or it has ended.
    None,
}

/// The program that speaks a protocol, and its package.
pub(super) fn program(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Memcached => ("memcached", "memcached"),
        Protocol::Redis => ("redis-server", "redis-server"),
    }
}

impl Bench<'_> {
    /// One run of a server.
    pub(super) fn ask_server(
        &self,
        protocol: Protocol,
        contender: &Contender,
        round: usize,
    ) -> Result<Ended<Trial>, BenchError> {
        let (local_bytes, board) = (self.settings.local_bytes(), self.folder.path().join("board"));
        let kernel = match self.kernel(&contender.variant) {
            Ok(kernel) => kernel,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let group = match kernel.as_ref().map(|kernel| kernel.group_to_start(local_bytes)).transpose() {
            Ok(group) => group,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let address = free_address()?;
        let stock = if protocol == Protocol::Redis { Stock::Redis } else { Stock::Memcached };
        let words = match contender.variant {
            Variant::Run => [self.run_words(&board), stock.command(address.port())].concat(),
            Variant::Kv => self.kv_words(address, "yield"),
            Variant::KvBusy => self.kv_words(address, "busy"),
            _ => stock.command(address.port()),
        };
        // Whoever keeps the figures of a run makes the file.
        if let Err(error) = std::fs::remove_file(&board)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error.into());
        }
        let (launch, temporary, stop) = (self.launch, self.folder.path(), &self.settings.stop);
        let server = match Server::start(Start { launch, words, address, group, local_bytes, temporary, stop })? {
            Ok(server) => server,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let measured = self.measure(&server, (protocol, contender.rate), round, &board);
        let was_out_of_memory = server.was_out_of_memory();
        // The swap goes only when the server has ended.
        let (end, swap) = (server.end()?, kernel.map(|kernel| kernel.name.clone()));
        served(measured.map(|measured| Trial { measured, swap }), was_out_of_memory, end)
    }

    /// What to type before a server's own words, so that its memory is far.
    fn run_words(&self, board: &Path) -> Vec<OsString> {
        let settings = self.settings;
        let (local, memory) = (settings.local_bytes().to_string(), settings.room_bytes().to_string());
        let words = ["run", "--far", &settings.far, "--local", &local, "--memory", &memory, "--board"];
        let first = std::iter::once(settings.yonder.clone()).chain(words.map(OsString::from));
        first.chain([board.into(), "--".into()]).collect()
    }

    /// What to type for a `kv` that does this about faults.
    fn kv_words(&self, address: SocketAddr, faults: &str) -> Vec<OsString> {
        let settings = self.settings;
        let (local, memory) = (settings.local_bytes().to_string(), settings.room_bytes().to_string());
        let (connections, listen) = ((settings.connections + MORE_CONNECTIONS).to_string(), address.to_string());
        let flags = ["kv", "--far", &settings.far, "--local", &local, "--memory", &memory, "--faults", faults];
        let of_server = ["--listen", &listen, "--connections", &connections];
        std::iter::once(settings.yonder.clone()).chain(flags.into_iter().chain(of_server).map(OsString::from)).collect()
    }

    /// Fills a server, warms it up and measures it.
    fn measure(
        &self,
        server: &Server,
        (protocol, rate): (Protocol, Rate),
        round: usize,
        board: &Path,
    ) -> Result<Measured, LoadError> {
        let duration = self.settings.duration;
        let mut load = KvLoad::new(self.settings.load(server.address.to_string(), protocol, round))?;
        load.fill(|_| ())?;
        let warm_up = (duration / WARM_UP_SHARE).max(Duration::from_millis(1));
        let warm = load.run(rate, warm_up, |_| ())?;
        let before = Counts::of(server, board);
        let result = load.run(rate, duration, |_| ())?;
        Ok(Counts::of(server, board).since(&before, &result).with_errors(&warm))
    }
}

impl Counts {
    fn of(server: &Server, board: &Path) -> Self {
        if let Some(kernel) = server.kernel_counts() {
            return Self::Kernel(kernel);
        }
        // What a run has just done is on its board a moment later.
        std::thread::sleep(FIGURES_TIME);
        SharedStats::open(board).map_or(Self::None, |board| Self::Run(board.figures()))
    }

    /// What a load has measured, with what was counted since `earlier`.
    fn since(self, earlier: &Self, load: &LoadResult) -> Measured {
        let measured = Measured::of(load).with_misses(load);
        match (self, earlier) {
            (Self::Kernel(now), Self::Kernel(before)) => measured.with_kernel(&now.since(*before)),
            (Self::Run(now), Self::Run(before)) => Measured {
                major_faults: now.major_faults - before.major_faults,
                minor_faults: now.minor_faults - before.minor_faults,
                fetched_bytes: now.fetched_bytes - before.fetched_bytes,
                written_bytes: now.written_bytes - before.written_bytes,
                ..measured
            },
            _ => measured,
        }
    }
}

impl Measured {
    /// The same with values that were not there, which all should be.
    fn with_misses(self, load: &LoadResult) -> Self {
        Self { errors: self.errors + load.misses, ..self }
    }

    /// The same with what was wrong while the server warmed up.
    fn with_errors(self, warm: &LoadResult) -> Self {
        Self { errors: self.errors + Self::of(warm).with_misses(warm).errors, ..self }
    }
}
