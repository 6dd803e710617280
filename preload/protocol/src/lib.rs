//! What `yonder run` and the library that it preloads say to one another.
//!
//! [`Settings`] go down, in the environment of the program, which its children inherit. [`Figures`] come back, on a
//! [`SharedStats`]: a file that every process of the run maps. If somebody wants a report, a process keeps a record of
//! its faults as well ([`Recorder`]), and says where its code is ([`Modules`]); if somebody wants to replay what it
//! touched, a trace ([`Tracer`]), or a sample of one ([`Sampler`]).
//!
//! Neighbours: `edge/cli` is the command, `preload/library` the library.

#![forbid(unsafe_code)]

mod modules;
mod record;
mod sample;
mod scale;
mod settings;
mod shared_stats;
mod sites;
mod trace;
mod word_log;

pub use modules::{Module, Modules};
pub use record::{FaultMap, RECORDS_MAX, Record, Recorder, monotonic_ns};
pub use sample::{SAMPLE_TOUCHES_MAX, Sampler, read_sample, samples};
pub use scale::Folded;
pub use settings::{Faults, Settings, SettingsError, Transfer, WINDOW};
pub use shared_stats::{
    Figures, PROCESSES_MAX, Process, ProcessId, ProcessSlot, RANGES_MAX, SharedStats, Space, pid_namespace,
};
pub use sites::{SITES, Tally};
pub use trace::{Tracer, read_trace, traces, trim_trace};
