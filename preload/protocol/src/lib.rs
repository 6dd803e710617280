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

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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

/// Makes a file of a run that is not there yet, which its user alone may read: what programs touch, and what opens
/// their far memory, is in such files.
fn create_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}
