//! [`Config`]: one validated description of a program's workers and light threads.

use std::time::Duration;

use yonder_paging::FaultPolicy;
use yonder_unithread::POOL_SLOTS_MAX;

use crate::config::{Idle, WORKERS_MAX};

/// A stack for code that was not written for small stacks; what of it is not used costs address space alone.
const STACK_BYTES_DEFAULT: usize = 64 << 10;

/// Workers and light threads of [`run`](super::run).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Worker threads.
    pub workers: usize,
    /// Light threads that have been spawned and have not ended, at most, the first one included.
    pub light_threads: usize,
    /// Stack of a light thread in bytes.
    pub stack_bytes: usize,
    /// What a worker does while a page is on its way.
    pub faults: FaultPolicy,
    /// Run time after which a light thread gives way at its next [`checkpoint`](crate::checkpoint); `None`: never.
    pub preempt: Option<Duration>,
    /// How long a worker without anything to do spins before it sleeps.
    pub idle: Idle,
    /// CPU of each worker. Empty: they are not pinned.
    pub cpus: Vec<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 1,
            light_threads: 4096,
            stack_bytes: STACK_BYTES_DEFAULT,
            faults: FaultPolicy::Yield,
            preempt: None,
            idle: Idle::SleepAfter(Duration::from_micros(100)),
            cpus: Vec::new(),
        }
    }
}

/// A setting that cannot work, and what to set instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No workers, or too many.
    #[error("{0} workers cannot be run: give between 1 and {WORKERS_MAX}")]
    Workers(usize),
    /// No light threads, or too many.
    #[error("{0} light threads cannot be had: give between 1 and {POOL_SLOTS_MAX}")]
    LightThreads(usize),
    /// Not one CPU for each worker.
    #[error("{given} CPUs are named for {workers} workers: name one for each, or none")]
    Cpus {
        /// CPUs named.
        given: usize,
        /// Workers to pin.
        workers: usize,
    },
}

impl Config {
    /// The defaults for `workers` worker threads.
    #[must_use]
    pub fn with_workers(workers: usize) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Checks that the settings can work. The bounds of a stack are the pool's to check.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return Err(ConfigError::Workers(self.workers));
        }
        if self.light_threads == 0 || self.light_threads > POOL_SLOTS_MAX {
            return Err(ConfigError::LightThreads(self.light_threads));
        }
        if !self.cpus.is_empty() && self.cpus.len() != self.workers {
            return Err(ConfigError::Cpus { given: self.cpus.len(), workers: self.workers });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_say_what_to_give() {
        let message = |config: Config| config.validate().unwrap_err().to_string();
        assert!(message(Config { workers: 0, ..Default::default() }).contains("between 1 and 128"));
        assert!(message(Config { light_threads: 0, ..Default::default() }).contains("between 1 and"));
        assert!(message(Config { cpus: vec![0, 1], ..Default::default() }).contains("2 CPUs are named for 1"));
        assert_eq!(Config::default().validate(), Ok(()));
    }
}
