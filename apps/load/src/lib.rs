//! Load for a key-value server, and the pieces that any load is made of.
//!
//! [`KvLoad`] fills a server that speaks memcached's text protocol, or Redis' ([`Protocol`]), with verifiable values
//! and then loads it: in an open loop ([`Rate::PerSecond`]: Poisson arrivals, latency measured from the *intended*
//! start of each request, so that a slow server cannot hide its own delay) or in a closed loop ([`Rate::Max`]). Every
//! value that comes back is verified against what may be stored at that moment. What is asked for is a mix of gets and
//! sets, or a [`Workload`] of YCSB or of LightSwap, which may insert keys, scan and modify too ([`Requests`]).
//!
//! [`PoissonArrivals`], [`Pace`], [`KeyChooser`] and [`LatencyRecorder`] touch no network and no clock; benchmarks use
//! them too, and the loads of other applications, which are [`RequestSource`].
//!
//! Neighbours: `edge/cli` parses the flags into [`LoadSettings`]; `apps/kv` is the server usually loaded;
//! `tools/report` draws the results.
//!
//! Invariant of every run: `requests == completed + errors + dropped`.

#![forbid(unsafe_code)]

mod arrivals;
mod connection;
mod coordinator;
mod key_space;
mod keys;
mod latency;
mod ledger;
mod pipeline;
mod pool;
mod popularity;
mod protocol;
mod request_source;
mod results;
mod server_stats;
mod settings;
mod tally;
mod value;
mod wake_timer;
mod work;
mod worker;
mod workload;

pub use arrivals::PoissonArrivals;
pub use coordinator::{KvLoad, LoadError};
pub use keys::{Distribution, KEYS_MAX, KeyChooser};
pub use latency::{LatencyRecorder, LatencySummary};
pub use protocol::{NotAReply, Protocol, Reply, Verb};
pub use request_source::RequestSource;
pub use results::{FillResult, LoadResult, Loop, Predicted, Progress};
pub use settings::{LoadSettings, Mix, Rate, SettingError, VALUE_BYTES_MAX, VALUE_BYTES_MIN, Waiting};
pub use wake_timer::WakeTimer;
pub use work::Pace;
pub use workload::{Requests, SCANS_ARE, Workload};
