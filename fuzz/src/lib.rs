//! Fuzz targets: bytes become what a hostile or unlucky peer could send, and a small model says what must come of it.
//!
//! A [`Target`] is a function of bytes that panics if it finds a fault. The same bytes always do the same. [`TARGETS`]
//! are all of them: `wire` and `stream` take bytes apart, `board` is a memory node among clients, `client` the client
//! of a node that answers anything, `offloads` calls with any arguments, `controller` what nodes and clients tell one,
//! `settings` what a process is asked at its socket, and answers, `session` protected messages and what is made of
//! them, [`handshake`] what a stranger says first. [`driver`] invents inputs, keeps those that reach something new, and
//! makes those that fail small.
//!
//! A target notes in a [`Trail`] what an input has reached, so that the driver is guided without a compiler's help; the
//! binary `libfuzzer` (feature of the same name) runs the same targets under libFuzzer, guided by coverage.
//!
//! Invariant: targets read no clock, no file and no random numbers. Under `handshake` is a library that does: its
//! module says what for.

mod board;
mod client;
mod controller;
pub mod driver;
pub mod handshake;
mod offloads;
mod script;
mod session;
mod settings;
mod stream;
mod trail;
mod wire;

pub use script::Step;
pub use trail::Trail;

/// Something that takes bytes, and panics if it finds a fault.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called on the command line; its corpus is in a folder of this name.
    pub name: &'static str,
    /// Inputs are made of pieces of so many bytes, which are best left whole.
    pub step_bytes: usize,
    /// Longest input in bytes.
    pub bytes_max: usize,
    /// What it does.
    pub run: fn(&[u8], &mut Trail),
}

/// All targets, in the order in which they are run.
pub const TARGETS: [Target; 9] = [
    wire::TARGET,
    stream::TARGET,
    board::TARGET,
    client::TARGET,
    offloads::TARGET,
    controller::TARGET,
    settings::TARGET,
    session::TARGET,
    handshake::TARGET,
];

/// The target with this name.
///
/// # Errors
/// One line with all names if there is none.
pub fn target(name: &str) -> Result<&'static Target, String> {
    let names = || TARGETS.map(|target| target.name).join(", ");
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| format!("'{name}' is no fuzz target: type one of {}", names()))
}
