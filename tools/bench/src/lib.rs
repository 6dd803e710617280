//! The benchmarks behind `yonder bench`.
//!
//! Each module runs one benchmark: its `Settings` are the flags that the command line is parsed into, and its
//! serialisable results have fields that scripts rely on. `array` is the random-index microbenchmark of Adios (sections
//! 2 and 5.1), `switch` the cost of a context switch, `notify` the time from a fault to its handler, `fault` the
//! latency of faults by kind, `fault_breakdown` where the time of a major one goes, `reclaim` the rate and CPU cost of
//! reclaim, `soak` checks losslessness under everything at once, `seq` compares prefetchers, `victims` policies of what
//! leaves, `store` the fabrics below.
//! `programs` runs other people's programs, which know nothing of far memory; `del_get` and `redis` ask one of them, a
//! Redis server, what DiLOS (section 6) asks it. `ycsb` asks `yonder kv` what LightSwap (section 5.4) asks memcached,
//! beside the kernel's swap; `poster` what the poster asks Redis. `peers` puts all of it side by side. `kv`, `rocksdb`,
//! `tpcc` and `vector` are the applications of Adios (section 5.2), requested within the process; `app` is what they
//! share with `array`.
//!
//! What is compared takes turns by `comparison`; `flags` and `policies` are what settings have in common, `counts` what
//! results have.
//!
//! Neighbours: `edge/cli` parses and prints; `apps/load` has the arrivals and histograms.

#![forbid(unsafe_code)]

pub mod app;
pub mod array;
mod children;
pub mod comparison;
pub mod costs;
mod counts;
pub mod del_get;
pub mod errors;
pub mod fault;
pub mod fault_breakdown;
pub mod flags;
mod flow;
mod generator;
#[cfg(test)]
mod in_process;
mod kernel_swap;
pub mod kv;
mod kv_here;
mod limited_server;
pub mod migrate;
pub mod notify;
mod parking;
pub mod peers;
pub mod peers_get;
pub mod policies;
pub mod poster;
mod process;
pub mod programs;
pub mod ralloc;
pub mod reclaim;
pub mod redis;
mod redis_server;
pub mod rocksdb;
pub mod rread;
pub mod scale_clients;
pub mod scale_pages;
pub mod seq;
pub mod soak;
mod stock;
pub mod store;
pub mod switch;
mod target;
pub mod tenants;
pub mod threads;
pub mod tpcc;
pub mod vector;
pub mod victims;
pub mod ycsb;

pub use children::Launch;
pub use comparison::Summary;
pub use counts::{Counts, WireBytes};
pub use kernel_swap::SwapOn;
pub use target::{NodeChoice, NodeTask, Target, Transport};

/// Progress of a run: what is done, and which share of it.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, f64);

/// Why a benchmark could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Far memory could not be set up, or a page could not be had.
    #[error(transparent)]
    Far(#[from] yonder::FarError),
    /// The server could not be run.
    #[error(transparent)]
    Sched(#[from] yonder::sched::SchedError),
    /// A remote address space could not be used.
    #[error(transparent)]
    Clib(#[from] yonder::clib::ClibError),
    /// There is no database to ask: RocksDB is missing, for one.
    #[error(transparent)]
    Rocks(#[from] yonder_rocksdb::FillError),
    /// A process that the benchmark needs does not do what it should.
    #[error("{0}")]
    Child(String),
    /// The machine refused threads, stacks or memory.
    #[error("{0}")]
    Os(#[from] std::io::Error),
    /// The benchmark's own settings cannot work.
    #[error("{0}")]
    Settings(String),
    /// Requests panicked: what they would have shown is not known.
    #[error("{0} requests panicked; please report this with the command that was run")]
    Panicked(u64),
    /// The benchmark saw a wrong value: far memory lost or mixed up a page.
    #[error("{0} values were wrong: far memory is damaged; please report this with the command that was run")]
    WrongValues(u64),
    /// The tables of TPC-C contradict one another.
    #[error("{0}: transactions or far memory are broken; please report this with the command that was run")]
    Inconsistent(String),
    /// A table could not be filled.
    #[error(transparent)]
    Oltp(#[from] yonder_oltp::OltpError),
    /// There is no index to search: Faiss is missing, for one.
    #[error(transparent)]
    Faiss(#[from] yonder_faiss::FaissError),
}

impl From<yonder::PagingError> for BenchError {
    fn from(error: yonder::PagingError) -> Self {
        Self::Far(error.into())
    }
}
