//! [`spawn`] and [`JoinHandle`]: how a light thread begins, and what becomes of its result.
//!
//! A thread ends in two steps. On its own stack it leaves its result, or drops it if the handle is gone: dropping may
//! touch far memory. Then its worker gives the stack back, and only after that tells the one that joins: so a thread
//! that has been joined leaves its place to another.
//!
//! Neighbours: `run` has the queue of those that have not started, `worker` calls [`Job`].

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::guarded::Guarded;
use super::local::Local;
use super::parker::{Wait, Waiter};
use super::run::Run;

/// What a light thread runs, whatever its types.
pub(super) trait Job: Send {
    /// Runs it, on its own stack. Does not panic.
    fn run(&mut self);
    /// Tells who joins that it is over. Called when the stack has been given back.
    fn end(&self);
}

/// The payload of a light thread's unithread.
pub(super) struct Task {
    pub(super) job: Box<dyn Job>,
}

struct Call<F, T> {
    function: Option<F>,
    packet: Arc<Packet<T>>,
}

impl<F: FnOnce() -> T + Send, T: Send> Job for Call<F, T> {
    fn run(&mut self) {
        let function = self.function.take().expect("a light thread runs once");
        let result = catch_unwind(AssertUnwindSafe(function));
        let unwanted = self.packet.state.with(|state| match state.is_detached {
            true => Some(result),
            false => {
                state.result = Some(result);
                None
            }
        });
        // A drop that panics has been reported by the panic's hook, and there is no caller to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unwanted)));
    }

    fn end(&self) {
        let joiner = self.packet.state.with(|state| {
            state.is_over = true;
            state.joiner.take()
        });
        if let Some(joiner) = joiner {
            assert!(joiner.grant(), "who joins waits for this alone");
        }
    }
}

/// What a light thread and its handle share.
struct Packet<T> {
    state: Guarded<PacketState<T>>,
}

struct PacketState<T> {
    result: Option<Result<T, Box<dyn Any + Send>>>,
    /// Its stack has been given back.
    is_over: bool,
    is_detached: bool,
    joiner: Option<Waiter>,
}

/// Owns the result of a light thread. Dropping it detaches the thread, which goes on; [`run`](super::run) waits for its
/// end all the same.
#[must_use = "dropping the handle detaches the light thread"]
pub struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end and returns its result, or what it panicked with. Only the calling light thread
    /// waits, its worker runs others; an ordinary thread blocks.
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        let wait = Wait::begin();
        let is_over = self.packet.state.with(|state| {
            if !state.is_over {
                state.joiner = Some(wait.waiter());
            }
            state.is_over
        });
        if !is_over {
            wait.park();
        }
        self.packet.state.with(|state| state.result.take()).expect("a light thread that is over has left its result")
    }

    /// Whether the thread has ended, so that [`join`](Self::join) would not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.state.with(|state| state.is_over)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let result = self.packet.state.with(|state| {
            state.is_detached = true;
            state.result.take()
        });
        drop(result);
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// Why a light thread was not spawned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpawnError {
    /// There are as many as there may be.
    #[error("all {0} light threads are in use: raise `light_threads`, or join some first")]
    AllInUse(usize),
    /// The caller is not a light thread.
    #[error("light threads are spawned by light threads: call it within `threads::run`")]
    NotALightThread,
}

/// Spawns a light thread. Any worker may start it; from then on it stays with that worker.
///
/// # Panics
/// If the caller is not a light thread, or as many are in use as the [`Config`](super::Config) allows.
pub fn spawn<F, T>(function: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    try_spawn(function).unwrap_or_else(|error| panic!("{error}"))
}

/// Spawns a light thread if there is room for one.
///
/// # Errors
/// If the caller is not a light thread, or as many are in use as the [`Config`](super::Config) allows. The function is
/// dropped then.
pub fn try_spawn<F, T>(function: F) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let local = Local::current().ok_or(SpawnError::NotALightThread)?;
    spawn_in(&local.run, function)
}

/// Spawns a light thread in `run`.
pub(super) fn spawn_in<F, T>(run: &Run, function: F) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let state = PacketState { result: None, is_over: false, is_detached: false, joiner: None };
    let packet = Arc::new(Packet { state: Guarded::new(state) });
    let call = Call { function: Some(function), packet: Arc::clone(&packet) };
    run.start_soon(Task { job: Box::new(call) })?;
    Ok(JoinHandle { packet })
}
