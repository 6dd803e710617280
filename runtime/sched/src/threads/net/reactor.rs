//! [`Reactor`]: a worker's sockets, and how the kernel tells that they are ready.
//!
//! One epoll for each worker. A socket is registered once with each worker whose light threads wait for it, and every
//! change is told once there (edge-triggered): so waiting costs no system call. A worker with a reactor sleeps on it,
//! and is woken by an event of its own.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use yonder_units::saturating_nanos;

use super::source::{Source, timespec};
use crate::threads::guarded::Guarded;
use crate::threads::local::WorkerShared;

/// Events that are taken with one call.
const EVENTS_MAX: usize = 64;
/// What wakes the worker, in the place of a socket's number.
const INTERRUPT: u64 = 0;

/// See the head of this file.
pub(in crate::threads) struct Reactor {
    epoll: OwnedFd,
    interrupt: OwnedFd,
    sources: Guarded<Sources>,
}

struct Sources {
    /// Numbers are not used again: an event may be told late.
    last: u64,
    by_number: HashMap<u64, Arc<Source>>,
}

impl Reactor {
    pub(in crate::threads) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &interrupt, EventData::new_u64(INTERRUPT), EventFlags::IN | EventFlags::ET)?;
        let sources = Guarded::new(Sources { last: INTERRUPT, by_number: HashMap::new() });
        Ok(Self { epoll, interrupt, sources })
    }

    /// Registers a socket. Returns its number here.
    pub(super) fn add(&self, socket: BorrowedFd<'_>, source: &Arc<Source>) -> io::Result<u64> {
        let number = self.sources.with(|sources| {
            sources.last += 1;
            sources.by_number.insert(sources.last, Arc::clone(source));
            sources.last
        });
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = epoll::add(&self.epoll, socket, EventData::new_u64(number), flags);
        added.inspect_err(|_| self.forget(number))?;
        Ok(number)
    }

    /// Undoes [`add`](Self::add).
    pub(super) fn remove(&self, socket: BorrowedFd<'_>, number: u64) {
        // It fails only if the socket is registered no more, which is what is wanted.
        let _ = epoll::delete(&self.epoll, socket);
        self.forget(number);
    }

    /// Leaves all sockets, which may outlive the worker. Called when its light threads have ended.
    pub(in crate::threads) fn leave_sockets(&self, worker: &Arc<WorkerShared>) {
        let left = self.sources.with(|sources| std::mem::take(&mut sources.by_number));
        for source in left.into_values() {
            source.unregister(worker);
        }
    }

    fn forget(&self, number: u64) {
        let source = self.sources.with(|sources| sources.by_number.remove(&number));
        drop(source);
    }

    /// Ends the worker's sleep, or its next one.
    pub(in crate::threads) fn interrupt(&self) {
        // Full after 2^64 - 2 of them, and then it has been told.
        let _ = rustix::io::write(&self.interrupt, &1u64.to_ne_bytes());
    }

    /// Sleeps until a socket is ready, the worker is woken, or this time has passed.
    pub(in crate::threads) fn sleep(&self, span: Duration) {
        let timeout = timespec(saturating_nanos(span));
        // Through `poll`, whose timeout is exact. A signal ends it early, as anything may.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.epoll.as_fd(), PollFlags::IN)], Some(&timeout));
    }

    /// Wakes those whose sockets are ready now.
    pub(in crate::threads) fn dispatch(&self) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&no_time)) else { return };
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            let source = self.sources.with(|sources| sources.by_number.get(&number).cloned());
            if let Some(source) = source {
                source.changed(flags);
            }
        }
    }
}
