//! [`Server`]: a key-value server in a process of its own, in a limited control group if the kernel is to swap it.
//!
//! [`Start::ask`] is a trial of one: it is started, filled, warmed up, measured and ended.
//!
//! Neighbours: `ycsb` and `peers` start servers, each with words of its own; `kernel_swap` makes the groups.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yonder_load::{KvLoad, LoadError, LoadResult, LoadSettings, Rate};

use crate::children::{Launch, connect};
use crate::comparison::{Ended, Measured, served};
use crate::kernel_swap::Group;
use crate::process::{End, Running, stopped};
use crate::{BenchError, Counts};

/// How long a server may run: longer than any series of requests.
const RUN_TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// A warm-up's share of the measured time.
const WARM_UP_SHARE: u32 = 4;

/// Which server to start.
pub(crate) struct Start<'a> {
    pub(crate) launch: &'a dyn Launch,
    /// What to type.
    pub(crate) words: Vec<OsString>,
    /// Where it is told to listen.
    pub(crate) address: SocketAddr,
    /// The group that it is to run in, from [`crate::kernel_swap::KernelSwap::group_to_start`], if the kernel is to
    /// limit it.
    pub(crate) group: Result<Option<Group>, String>,
    /// Memory of that group, beside what the server takes before it has items.
    pub(crate) local_bytes: u64,
    /// Where its temporary files are, which are gone with that folder, however it ends.
    pub(crate) temporary: &'a Path,
    /// Becomes true when the user wants to stop.
    pub(crate) stop: &'a Arc<AtomicBool>,
}

/// A running server. Its group goes after it.
pub(crate) struct Server {
    running: Running,
    group: Option<Group>,
}

/// What a server has answered.
pub(crate) struct Asked {
    /// While it warmed up.
    pub(crate) warm: LoadResult,
    /// While it was measured.
    pub(crate) result: LoadResult,
    /// That in short, with what was counted of its memory.
    pub(crate) measured: Measured,
}

impl Start<'_> {
    /// Starts the server, fills it, warms it up for a quarter of `duration`, and measures it. `look` tells what is
    /// counted of its memory, where the server does not tell that itself. What is missing on this machine skips it.
    pub(crate) fn ask<T>(
        self,
        load: LoadSettings,
        (rate, duration): (Rate, Duration),
        look: &dyn Fn(&Server) -> Option<Counts>,
        trial: impl FnOnce(Asked) -> T,
    ) -> Result<Ended<T>, BenchError> {
        let stop = self.stop;
        let server = match self.start()? {
            Ok(server) => server,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let asked = server.ask(load, rate, duration, look);
        let was_out_of_memory = server.was_out_of_memory();
        let end = server.end();
        // Who stops the benchmark has killed the server, and that is why the load has failed.
        if stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        served(asked.map(trial), was_out_of_memory, end?)
    }

    /// Starts a server, and returns once it listens; else why the kernel does not limit it.
    fn start(self) -> Result<Result<Server, String>, BenchError> {
        let group = match self.group {
            Ok(group) => group,
            Err(missing) => return Ok(Err(missing)),
        };
        let mut words = group.as_ref().map(Group::prefix).unwrap_or_default();
        words.extend(self.words);
        let (program, arguments) = words.split_first().expect("a server has a program");
        let mut command = self.launch.guarded(Path::new(program));
        command.args(arguments).env("TMPDIR", self.temporary);
        let mut server = Server { running: Running::start(&mut command, RUN_TIME_MAX, self.stop)?, group };
        match connect(self.address, || !server.running.is_over()) {
            Err(error) if !server.running.is_over() => {
                return Err(BenchError::Child(format!("the server does not listen: {error}")));
            }
            _ => {}
        }
        let limited = server.group.as_mut().map_or(Ok(()), |group| group.leave(self.local_bytes));
        Ok(limited.map(|()| server))
    }
}

impl Server {
    fn ask(
        &self,
        load: LoadSettings,
        rate: Rate,
        duration: Duration,
        look: &dyn Fn(&Self) -> Option<Counts>,
    ) -> Result<Asked, LoadError> {
        let mut load = KvLoad::new(load)?;
        load.fill(|_| ())?;
        let warm = load.run(rate, (duration / WARM_UP_SHARE).max(Duration::from_millis(1)), |_| ())?;
        let before = look(self);
        let result = load.run(rate, duration, |_| ())?;
        let counted = look(self).zip(before).map(|(after, before)| after.since(before));
        let own = Measured { group_bytes: self.group.as_ref().map(Group::bytes), ..Measured::of(&result) };
        let measured = counted.map_or(own, |counts| own.with_counts(counts));
        Ok(Asked { warm, result, measured })
    }

    /// Whether the kernel has killed it because memory was short.
    fn was_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::was_out_of_memory)
    }

    /// What the kernel has done for it so far; none if its memory is not the kernel's business.
    pub(crate) fn kernel_counts(&self) -> Option<Counts> {
        self.group.as_ref().map(Group::counts)
    }

    /// Ends it. Returns how it had ended before, if it had, or failed to end well.
    fn end(self) -> Result<Option<String>, BenchError> {
        let Self { running, group } = self;
        let ended = running.end();
        drop(group);
        Ok(match ended?.end {
            // Whoever has to read everything back from swap to let go of it may be late.
            End::Well | End::Late => None,
            End::Badly(how) => Some(how),
            End::Killed => Some("it was killed".to_owned()),
            End::Stopped => Some("it was stopped".to_owned()),
        })
    }
}
