//! [`Source`]: a socket that threads wait for.
//!
//! The kernel tells a change once, and it may do so between a thread's question and its wait: so each side of a socket
//! remembers that there was a change since the last that was looked at. A thread that finds one asks again instead of
//! waiting. All who wait for a side are woken by a change, because it may stand for several, such as two connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::threads::guarded::Guarded;
use crate::threads::local::WorkerShared;
use crate::threads::parker::Wait;
use crate::threads::sync::queue::WaitQueue;

/// What a thread wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To read, or to accept.
    In,
    /// To write, or to be connected.
    Out,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct Source {
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    incoming: Side,
    outgoing: Side,
    /// The worker that is told of changes, and the number there.
    registered: Option<(Arc<WorkerShared>, u64)>,
}

#[derive(Default)]
struct Side {
    /// There was a change since a thread last asked because of one.
    has_changed: bool,
    waiters: WaitQueue,
}

impl Side {
    fn changed(&mut self) -> WaitQueue {
        self.has_changed = true;
        std::mem::take(&mut self.waiters)
    }
}

impl State {
    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::In => &mut self.incoming,
            Direction::Out => &mut self.outgoing,
        }
    }
}

impl Source {
    /// Waits until the socket, which would block, should be asked again.
    fn wait(self: &Arc<Self>, socket: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
        let wait = Wait::begin();
        let Some(worker) = wait.worker() else {
            let flags = match direction {
                Direction::In => PollFlags::IN,
                Direction::Out => PollFlags::OUT,
            };
            return match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], None) {
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        let is_queued = self.state.with(|state| {
            if state.registered.is_none() {
                let number = worker.reactor_or_make()?.add(socket, self)?;
                state.registered = Some((Arc::clone(worker), number));
            }
            let side = state.side(direction);
            let is_queued = !std::mem::take(&mut side.has_changed);
            if is_queued {
                side.waiters.push(&wait);
            }
            io::Result::Ok(is_queued)
        })?;
        if is_queued {
            wait.park();
        }
        Ok(())
    }

    /// The worker ends, and all its light threads have. Those that wait elsewhere ask again, and the first that has to
    /// wait registers the socket with its own worker.
    pub(super) fn unregister(&self) {
        self.state.with(|state| state.registered = None);
        self.changed(EventFlags::HUP);
    }

    /// The kernel tells a change.
    pub(super) fn changed(&self, flags: EventFlags) {
        let for_both = EventFlags::HUP | EventFlags::ERR;
        let is_for = |own: EventFlags| flags.intersects(own | for_both);
        let (incoming, outgoing) = self.state.with(|state| {
            let incoming = is_for(EventFlags::IN | EventFlags::RDHUP).then(|| state.incoming.changed());
            (incoming, is_for(EventFlags::OUT).then(|| state.outgoing.changed()))
        });
        incoming.into_iter().chain(outgoing).for_each(WaitQueue::grant_all);
    }
}

/// A socket that does not block, and who waits for it.
pub(super) struct Io<S: AsFd> {
    socket: S,
    source: Arc<Source>,
}

impl<S: AsFd> Io<S> {
    /// A socket that has been set not to block.
    pub(super) fn new(socket: S) -> Self {
        Self { socket, source: Arc::default() }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Does what may block, and waits while it would.
    pub(super) fn attempt<T>(&self, direction: Direction, mut act: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.source.wait(self.socket.as_fd(), direction)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl<S: AsFd> Drop for Io<S> {
    fn drop(&mut self) {
        let registered = self.source.state.with(|state| state.registered.take());
        if let Some((worker, number)) = registered
            && let Some(reactor) = worker.reactor()
        {
            reactor.remove(self.socket.as_fd(), number);
        }
    }
}
