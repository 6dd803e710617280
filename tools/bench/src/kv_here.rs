//! A key-value server inside this process, for benchmarks that reach into it: into its handler, its store and its far
//! memory.
//!
//! Neighbours: `errors` damages its memory, `poster` makes its requests wait; `ycsb` runs `yonder kv` as a process of
//! its own.

use std::net::SocketAddr;
use std::sync::Arc;

use yonder::sched::{Handler, SchedConfig, SchedStats, serve};
use yonder::{FarMemory, Region};
use yonder_kv::{KvConfig, KvHandler, KvReply, KvRequest, KvServer, Store, runtime_stats};
use yonder_load::LoadError;

use crate::BenchError;

/// Far memory with room for a store.
pub(crate) struct KvHere<'a> {
    pub(crate) far: &'a FarMemory,
    pub(crate) region: &'a Arc<Region>,
    /// Items that are expected.
    pub(crate) items: u64,
    pub(crate) sched: &'a SchedConfig,
}

impl KvHere<'_> {
    /// Serves with what `wrap` makes of the handler while `work` runs, which gets the address and the store.
    pub(crate) fn serve<H, T>(
        &self,
        wrap: impl FnOnce(KvHandler<Arc<Region>>) -> H,
        work: impl FnOnce(SocketAddr, &Store<Arc<Region>>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError>
    where
        H: Handler<Request = KvRequest, Reply = KvReply>,
    {
        // Before a client waits for somebody who does not serve.
        self.sched.validate().map_err(yonder::sched::SchedError::from)?;
        let config = KvConfig { items: Some(self.items), ..KvConfig::new(SocketAddr::from(([127, 0, 0, 1], 0))) };
        let server =
            KvServer::bind(config, Arc::clone(self.region)).map_err(|error| BenchError::Settings(error.to_string()))?;
        let (address, shutdown) = (server.tcp_address().expect("it listens for TCP"), server.shutdown());
        let (mut frontend, handler) = server.into_parts();
        let requests = Arc::<SchedStats>::default();
        frontend.extra_stats(runtime_stats(self.far.clone(), Arc::clone(&requests)));
        let store = Arc::clone(handler.store());
        let handler = Arc::new(wrap(handler));
        std::thread::scope(|scope| {
            let serving = scope.spawn(move || serve(self.sched, self.far, &handler, &mut frontend, &requests));
            let done = work(address, &store);
            shutdown.request();
            serving.join().expect("the server does not panic")?;
            done
        })
    }
}

/// What the failure of a load is for a benchmark.
pub(crate) fn load_failed(error: LoadError) -> BenchError {
    match error {
        LoadError::Setting(setting) => BenchError::Settings(setting.to_string()),
        other => BenchError::Child(other.to_string()),
    }
}
