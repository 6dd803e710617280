//! Runs of servers: stock ones under `yonder run`, or in a limited group with the kernel's swap, and `yonder kv`; each
//! is filled and asked anew.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use yonder_load::Protocol;
use yonder_preload_protocol::SharedStats;

use super::contenders::{Contender, Variant};
use super::{Bench, Trial};
use crate::BenchError;
use crate::children::free_address;
use crate::comparison::Ended;
use crate::limited_server::{Asked, Server, Start};
use crate::redis::{FIGURES_TIME, remove};
use crate::stock;

/// Connections beside those of the load, for its questions.
const MORE_CONNECTIONS: usize = 16;

impl Bench<'_> {
    /// One run of a server.
    pub(super) fn ask_server(
        &self,
        protocol: Protocol,
        contender: &Contender,
        round: usize,
    ) -> Result<Ended<Trial>, BenchError> {
        let (settings, board) = (self.settings, self.folder.path().join("board"));
        let local_bytes = settings.local_bytes();
        let kernel = match self.kernel(&contender.variant) {
            Ok(kernel) => kernel,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let group = kernel.as_ref().map(|kernel| kernel.group_to_start(local_bytes)).transpose();
        let address = free_address()?;
        let words = match contender.variant {
            Variant::Run => [self.run_words(&board), stock::command(protocol, address.port())].concat(),
            Variant::Kv => self.kv_words(address, "yield"),
            Variant::KvBusy => self.kv_words(address, "busy"),
            _ => stock::command(protocol, address.port()),
        };
        // Whoever keeps the figures of a run makes the file.
        remove(&board)?;
        let (launch, temporary, stop) = (self.launch, self.folder.path(), &settings.stop);
        let look = |server: &Server| {
            server.kernel_counts().or_else(|| {
                // What a run has just done is on its board a moment later.
                std::thread::sleep(FIGURES_TIME);
                SharedStats::open(&board).ok().map(|board| board.figures().into())
            })
        };
        let load = settings.load(address.to_string(), protocol, round);
        let swap = kernel.as_ref().map(|kernel| kernel.name.clone());
        let start = Start { launch, words, address, group, local_bytes, temporary, stop };
        start.ask(load, (contender.rate, settings.duration), &look, |Asked { warm, result, measured }| {
            // Values that were not there are errors, and so is what went wrong while the server warmed up.
            let more = result.misses + warm.errors + warm.wrong_values + warm.misses;
            Trial { measured: measured.with_errors(more), swap }
        })
    }

    /// What to type before a server's own words, so that its memory is far.
    fn run_words(&self, board: &Path) -> Vec<OsString> {
        let settings = self.settings;
        let (local, memory) = (settings.local_bytes().to_string(), settings.room_bytes().to_string());
        let words = ["run", "--far", &settings.far, "--local", &local, "--memory", &memory, "--board"];
        let first = std::iter::once(settings.yonder.clone()).chain(words.map(OsString::from));
        first.chain([board.into(), "--".into()]).collect()
    }

    /// What to type for a `kv` that does this about faults. Its workers map their pages, as of the array: with the
    /// dispatcher's CPU, faults that yield would have another one than those that busy-wait.
    fn kv_words(&self, address: SocketAddr, faults: &str) -> Vec<OsString> {
        let settings = self.settings;
        let (local, memory) = (settings.local_bytes().to_string(), settings.room_bytes().to_string());
        let (connections, listen) = ((settings.connections + MORE_CONNECTIONS).to_string(), address.to_string());
        let flags = ["kv", "--far", &settings.far, "--local", &local, "--memory", &memory, "--faults", faults];
        let of_server = ["--listen", &listen, "--connections", &connections, "--install-delegation", "off"];
        std::iter::once(settings.yonder.clone()).chain(flags.into_iter().chain(of_server).map(OsString::from)).collect()
    }
}
