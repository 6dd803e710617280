//! Light threads: `yonder_threads_run`, `yonder_spawn` and their kin of `yonder_threads.h`.
//!
//! UNSAFETY: it exports functions that read C's pointers, and hands out boxes as pointers.

use std::ffi::{c_int, c_void};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{Idle, SchedError};
use yonder::threads::{self, Config, JoinHandle, SpawnError};

use crate::arguments::{Out, reference};
use crate::failure::{Failure, answer};
use crate::memory::{not_open, with_open};

/// `yonder_threads_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct YonderThreadsConfig {
    /// Bytes of the struct.
    pub size: u64,
    /// Worker threads.
    pub workers: u64,
    /// Most light threads at a time.
    pub light_threads: u64,
    /// Bytes of a light thread's stack.
    pub stack_bytes: u64,
    /// Nanoseconds for which a worker without anything to do spins before it sleeps.
    pub spin_ns: u64,
}

const _: () = assert!(size_of::<YonderThreadsConfig>() == 40);

/// YONDER_THREADS_CONFIG_DEFAULT. Code in C is used to large stacks, and prints.
const DEFAULT: YonderThreadsConfig = YonderThreadsConfig {
    size: size_of::<YonderThreadsConfig>() as u64,
    workers: 1,
    light_threads: 4096,
    stack_bytes: 128 << 10,
    spin_ns: 100_000,
};

/// `yonder_light_function`.
pub type YonderLightFunction = extern "C" fn(argument: *mut c_void) -> *mut c_void;

/// `yonder_light_thread`.
pub struct YonderLightThread {
    /// The result is the address of C's pointer.
    handle: JoinHandle<usize>,
}

impl From<SchedError> for Failure {
    fn from(error: SchedError) -> Self {
        match error {
            SchedError::Far(error) => error.into(),
            SchedError::Os(ref why) if why.kind() == ErrorKind::InvalidInput => Self::invalid(error.to_string()),
            SchedError::Os(_) => Self::new(libc::ENOMEM, error.to_string()),
            SchedError::Config(_) | SchedError::ThreadsConfig(_) => Self::invalid(error.to_string()),
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::AllInUse(_) => Self::new(libc::EAGAIN, error.to_string()),
            SpawnError::NotALightThread => {
                Self::new(libc::EPERM, "only a light thread spawns others: call it from within yonder_threads_run()")
            }
        }
    }
}

/// What `config` asks for.
///
/// # Safety
/// `config` is NULL or points to a `yonder_threads_config`.
unsafe fn threads_config(config: *const YonderThreadsConfig) -> Result<Config, Failure> {
    // SAFETY: if it is not NULL its first field is there, which every version of the struct has.
    let size = unsafe { config.cast::<u64>().as_ref() }.copied();
    let YonderThreadsConfig { workers, light_threads, stack_bytes, spin_ns, .. } = match size {
        None => DEFAULT,
        // SAFETY: it has the size of the version that this library knows.
        Some(size) if size == DEFAULT.size => unsafe { config.read() },
        Some(size) => {
            let message = format!(
                "this library knows no yonder_threads_config of {size} bytes: begin with \
                 YONDER_THREADS_CONFIG_DEFAULT, and build with its header"
            );
            return Err(Failure::invalid(message));
        }
    };
    // What is out of bounds for a number here is out of bounds there.
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Ok(Config {
        workers: number(workers),
        light_threads: number(light_threads),
        stack_bytes: number(stack_bytes),
        idle: Idle::SleepAfter(Duration::from_nanos(spin_ns)),
        ..Config::default()
    })
}

/// What a light thread does that runs `function`.
fn body(function: YonderLightFunction, argument: *mut c_void) -> impl FnOnce() -> usize + Send + 'static {
    let argument = argument.expose_provenance();
    move || function(std::ptr::with_exposed_provenance_mut(argument)).expose_provenance()
}

fn given(function: Option<YonderLightFunction>) -> Result<YonderLightFunction, Failure> {
    function.ok_or_else(|| Failure::invalid("the argument 'function' is NULL"))
}

/// Refuses what would wait for others and stop the worker that may have to run them.
pub(crate) fn may_wait() -> Result<(), Failure> {
    if threads::blocks_worker() {
        return Err(Failure::new(
            libc::EDEADLK,
            "a light thread waits for others on its own stack only, and is on another",
        ));
    }
    Ok(())
}

/// `yonder_threads_run` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_threads_run(
    config: *const YonderThreadsConfig,
    function: Option<YonderLightFunction>,
    argument: *mut c_void,
    result: *mut *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (config, out) = unsafe { (threads_config(config)?, Out::optional(result)) };
        let function = given(function)?;
        if threads::is_light_thread() {
            return Err(Failure::new(libc::EPERM, "a light thread cannot run others this way: call yonder_spawn()"));
        }
        // The memory stays open until all have ended.
        let heap = with_open(Arc::clone).ok_or_else(not_open)?;
        let value = threads::run(&config, heap.region().far(), body(function, argument))?;
        out.set(std::ptr::with_exposed_provenance_mut(value));
        Ok(0)
    })
}

/// `yonder_spawn` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_spawn(
    function: Option<YonderLightFunction>,
    argument: *mut c_void,
    thread: *mut *mut YonderLightThread,
) -> c_int {
    answer(|| {
        let handle = threads::try_spawn(body(given(function)?, argument))?;
        if !thread.is_null() {
            // SAFETY: as the caller promises.
            unsafe { Out::optional(thread) }.set(Box::into_raw(Box::new(YonderLightThread { handle })));
        }
        Ok(0)
    })
}

/// `yonder_join` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_join(thread: *mut YonderLightThread, result: *mut *mut c_void) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let out = unsafe {
            if !reference(thread, "thread")?.handle.is_finished() {
                may_wait()?;
            }
            Out::optional(result)
        };
        // SAFETY: it came from a box, and the caller gives it up.
        let thread = unsafe { Box::from_raw(thread) };
        let value = thread.handle.join().expect("a function of C does not panic");
        out.set(std::ptr::with_exposed_provenance_mut(value));
        Ok(0)
    })
}

/// `yonder_detach` of `yonder_threads.h`.
///
/// # Safety
/// `thread` is NULL, or was spawned and neither joined nor detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_detach(thread: *mut YonderLightThread) {
    if !thread.is_null() {
        // SAFETY: it came from a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(thread) });
    }
}

/// `yonder_is_light_thread` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_is_light_thread() -> c_int {
    threads::is_light_thread().into()
}

/// `yonder_yield` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_yield() {
    threads::yield_now();
}

/// `yonder_sleep` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_sleep(nanoseconds: u64) {
    threads::sleep(Duration::from_nanos(nanoseconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_settings_of_the_library() {
        let header = include_str!("../include/yonder_threads.h");
        let YonderThreadsConfig { workers, light_threads, stack_bytes, spin_ns, .. } = DEFAULT;
        let default = format!(
            "YONDER_THREADS_CONFIG_DEFAULT {{ sizeof(yonder_threads_config), {workers}, {light_threads}, {stack_bytes}, \
             {spin_ns} }}\n"
        );
        assert!(header.contains(&default), "{default}");
        // SAFETY: there is no config.
        let config = unsafe { threads_config(std::ptr::null()) }.unwrap();
        assert_eq!(config, Config { stack_bytes: 128 << 10, ..Config::default() });
    }
}
