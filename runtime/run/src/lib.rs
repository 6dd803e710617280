//! What `yonder run` and the library that it preloads say to one another.
//!
//! [`Settings`] go down, in the environment of the program, which its children inherit. [`Figures`] come back, on a
//! [`Board`]: a file that every process of the run maps. If somebody wants a report, a process keeps a record of its
//! faults as well ([`Recorder`]), and says where its code is ([`Modules`]).
//!
//! Neighbours: `edge/cli` is the command, `edge/shim` the library.

#![forbid(unsafe_code)]

mod board;
mod modules;
mod record;
mod scale;
mod settings;
mod sites;

pub use board::{Board, Figures, PLACES_MAX, Place, Space, pid_namespace};
pub use modules::{Module, Modules};
pub use record::{FaultMap, RECORDS_MAX, Record, Recorder, monotonic_ns};
pub use scale::Folded;
pub use settings::{Faults, Settings, SettingsError, Transfer, WINDOW};
pub use sites::{SITES, Tally};
