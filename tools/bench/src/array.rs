//! `bench array`: the random-index microbenchmark (Adios, sections 2 and 5.1).
//!
//! An array larger than local memory is filled and sealed. Requests carry a random index; the handler reads the value
//! there and the dispatcher checks it. Where faults are predicted, an index is known by its page. Requests are made
//! inside the dispatcher thread (by the `generator`), in an open loop with Poisson arrivals or in a closed loop, so
//! that no network hides what paging costs.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::sched::{Handler, SchedConfig, checkpoint};
use yonder::units::{LocalSize, PAGE_BYTES};
use yonder::{Access, Config, FarMemory, PagingError, Region};
use yonder_load::{Distribution, KeyChooser, Rate, RequestSource};

use crate::app::{App, AppMemory, AppResult, AppRun};
use crate::{BenchError, OnProgress};

/// Words of a page that are read: the first words of its first 60 cache lines.
pub(crate) const LINES: u64 = 60;

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct ArraySettings {
    /// Size of the array in bytes.
    pub memory: u64,
    /// Fabric.
    pub far: String,
    /// Limit of local memory, watermarks, deadlines.
    pub paging: Config,
    /// Threads and policies. The benchmark itself decides how they idle and how long their queues are.
    pub sched: SchedConfig,
    /// Whether the handler looks at the page table before it touches the page.
    pub access: Access,
    /// How popular pages are; the words of a page are equally so.
    pub distribution: Distribution,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
}

impl ArraySettings {
    /// An array of `memory` bytes, `local` of them local, on one worker that yields, in a closed loop of five seconds.
    #[must_use]
    pub fn new(far: String, memory: u64, local: LocalSize) -> Self {
        let placement = yonder::place(1);
        Self {
            memory,
            far,
            paging: Config { reclaimer_cpu: placement.reclaimer, ..Config::with_local(local.resolve(memory)) },
            sched: SchedConfig {
                max_inflight: 32,
                reclaim: placement.reclaim(),
                cpus: placement.cpus,
                ..SchedConfig::default()
            },
            access: Access::Trap,
            distribution: Distribution::Uniform,
            rate: Rate::Max,
            duration: Duration::from_secs(5),
        }
    }
}

/// What is the array's own of a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ArrayDetails {
    /// Whether residency was probed.
    pub probe: bool,
    /// How popular pages are: `uniform` or `zipf:` and its exponent.
    pub dist: Distribution,
}

/// One run's result.
pub type ArrayResult = AppResult<ArrayDetails>;

/// A filled, sealed array that runs are made on, so that a sweep fills it once.
pub struct Array {
    app: App<ReadHandler>,
    pages: u64,
}

impl Array {
    /// Fills an array of `settings.memory` bytes and seals it.
    pub fn prepare(settings: &ArraySettings, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let pages = yonder::units::pages_for(settings.memory);
        let data = pages * PAGE_BYTES as u64;
        let far = FarMemory::open(&settings.far, settings.paging)?;
        let mut region = far.region(data)?.with_access(settings.access);
        for page in 0..pages {
            for line in 0..LINES {
                let offset = page * PAGE_BYTES as u64 + line * 64;
                region.write_u64(offset, value_at(offset))?;
            }
            if page % 8192 == 0 {
                progress("filling", page as f64 / pages as f64);
            }
        }
        region.seal()?;
        let memory = AppMemory { data, far: settings.far.clone(), paging: settings.paging };
        let handler = ReadHandler { region: Arc::new(region) };
        Ok(Self { app: App::new("array", memory, far, (handler, settings.sched.stack_bytes)), pages })
    }

    /// The far memory that it is in.
    #[must_use]
    pub fn far(&self) -> &FarMemory {
        self.app.far()
    }

    /// Runs requests under `settings`; its memory, far, paging and access are those of the preparation.
    pub fn run(&self, settings: &ArraySettings, progress: OnProgress<'_>) -> Result<ArrayResult, BenchError> {
        let ArraySettings { access, distribution: dist, rate, duration, .. } = *settings;
        let source = |seed: u64| Indices {
            pages: KeyChooser::new(self.pages, dist, seed),
            random: SmallRng::seed_from_u64(!seed),
        };
        let details = || ArrayDetails { probe: access == Access::Probe, dist };
        self.app.run(&AppRun { sched: settings.sched.clone(), rate, duration }, source, details, progress)
    }
}

/// What the array holds at `offset`.
pub(crate) fn value_at(offset: u64) -> u64 {
    (offset ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Random words of the array.
struct Indices {
    pages: KeyChooser,
    /// Chooses the word of a page.
    random: SmallRng,
}

impl RequestSource for Indices {
    /// Where to read.
    type Request = u64;
    type Answer = Value;
    const KINDS: &'static [&'static str] = &["read"];

    fn next_request(&mut self) -> u64 {
        let (page, line) = (self.pages.next_key(), self.random.random_range(0..LINES));
        page * PAGE_BYTES as u64 + line * 64
    }

    fn verify(&self, answer: &Value) -> Option<usize> {
        (answer.value == value_at(answer.offset)).then_some(0)
    }
}

/// What was where.
struct Value {
    offset: u64,
    value: u64,
}

struct ReadHandler {
    region: Arc<Region>,
}

impl Handler for ReadHandler {
    type Request = u64;
    type Reply = Result<Value, PagingError>;

    fn handle(&self, offset: u64) -> Self::Reply {
        checkpoint();
        let value = self.region.read_u64(offset);
        checkpoint();
        Ok(Value { offset, value: value? })
    }

    fn key(&self, offset: &u64) -> Option<u64> {
        Some(offset / PAGE_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_does_not_find_what_the_run_before_it_has_fetched() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        // A run asks for some hundred pages, and a quarter of all, which are 2,048, is local.
        let settings = ArraySettings {
            rate: Rate::PerSecond(2000.0),
            duration: Duration::from_millis(200),
            ..ArraySettings::new("emu://?latency=2.5us".to_owned(), 32 << 20, LocalSize::Percent(25.0))
        };
        let array = Array::prepare(&settings, &mut |_, _| ()).unwrap();
        for run in 0..3 {
            let result = array.run(&settings, &mut |_, _| ()).unwrap();
            let reads = result.main_kind.1.count;
            assert!(reads > 0 && 2 * result.hits < reads, "run {run}: {} of {reads} reads were local", result.hits);
        }
    }
}
