//! What `yonder run` and the library that it preloads say to one another.
//!
//! [`Settings`] go down, in the environment of the program, which its children inherit. [`Figures`] come back, on a
//! [`Board`]: a file that every process of the run maps.
//!
//! Neighbours: `edge/cli` is the command, `edge/shim` the library.

#![forbid(unsafe_code)]

mod board;
mod settings;

pub use board::{Board, Figures, PLACES_MAX, Place};
pub use settings::{Faults, Settings, SettingsError, Transfer, WINDOW};
