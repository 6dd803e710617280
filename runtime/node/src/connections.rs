//! [`Connections`]: which connections have greeted, where they come from, and which of them goes when there are as many
//! as there may be.
//!
//! A source has a share of them. If there is no place for a new one, the connection goes that has been idle for longest
//! of those that have never shown a right to anything: of the same source, or of any if the source has few. One that
//! has shown a right stays, however idle: its client may hold a lease, and a lane that is made again costs it time. A
//! client that was handed the node's memory stays as well, because the end of its connection must say that it has gone.
//! Others that have shown nothing for [`IDLE_TIME_MAX`] go in any case.
//!
//! Who touches what: the control thread lets in, and closes by shutting the socket down, which the thread that serves
//! the connection sees; that thread notes what the connection does, and lets it out.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_board::{Accounts, Share, Source};
use yonder_units::Nanos;

use crate::connection::Transport;

/// Part of the places that one source may have.
const SHARE_DIVISOR: usize = 2;
/// A source with fewer connections than one of so many places has few, and with fewer than this in any case.
const FEW_DIVISOR: usize = 16;
const FEW_MAX: usize = 16;

/// How long one may be idle that has never shown a right.
const IDLE_TIME_MAX: Nanos = 60_000_000_000;

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: OwnedFd,
    pub(crate) transport: Transport,
    pub(crate) source: Source,
    /// When something last came.
    used: AtomicU64,
    /// Whether a request was executed that needs a capability.
    has_right: AtomicBool,
}

impl Guest {
    /// A connection that was just accepted.
    pub(crate) fn new(socket: OwnedFd, transport: Transport, source: Source, now: Nanos) -> Self {
        Self { socket, transport, source, used: AtomicU64::new(now), has_right: AtomicBool::new(false) }
    }

    /// Something has come.
    pub(crate) fn touch(&self, now: Nanos) {
        self.used.store(now, Ordering::Relaxed);
    }

    /// It has shown a right.
    pub(crate) fn trust(&self) {
        self.has_right.store(true, Ordering::Relaxed);
    }

    fn may_go(&self) -> bool {
        self.transport == Transport::Tcp && !self.has_right.load(Ordering::Relaxed)
    }
}

/// The connections of a node that have greeted.
#[derive(Debug)]
pub(crate) struct Connections {
    share: Share,
    open: Mutex<Vec<Arc<Guest>>>,
}

impl Connections {
    /// At most `connections_max`.
    pub(crate) fn new(connections_max: usize) -> Self {
        let share = Share {
            places_max: connections_max,
            of_one_max: (connections_max / SHARE_DIVISOR).max(1),
            few_max: (connections_max / FEW_DIVISOR).clamp(1, FEW_MAX),
        };
        Self { share, open: Mutex::default() }
    }

    /// Lets a connection in, in place of another if need be; false if there is no place for it, or its source has as
    /// many as it may.
    pub(crate) fn enter(&self, guest: &Arc<Guest>, accounts: &Accounts) -> bool {
        let account = accounts.get(accounts.number_of(guest.source));
        if !account.connect() {
            account.shed(1);
            return false;
        }
        let has_place = self.take_place(guest, accounts);
        if !has_place {
            account.disconnect();
        }
        has_place
    }

    fn take_place(&self, guest: &Arc<Guest>, accounts: &Accounts) -> bool {
        let mut open = self.open();
        let own = open.iter().filter(|other| other.source == guest.source).count();
        if !self.share.admits(open.len(), own) {
            let of_any = open.len() >= self.share.places_max && own < self.share.few_max;
            let may_go = |other: &Guest| other.may_go() && (of_any || other.source == guest.source);
            let candidates = open.iter().enumerate().filter(|(_, other)| may_go(other));
            let Some((place, _)) = candidates.min_by_key(|(_, other)| other.used.load(Ordering::Relaxed)) else {
                return false;
            };
            let closed = open.swap_remove(place);
            accounts.get(accounts.number_of(closed.source)).disconnect();
            tracing::debug!("a connection that has shown no right is closed in favour of a new one");
            let _ = rustix::net::shutdown(&closed.socket, rustix::net::Shutdown::Both);
        }
        open.push(Arc::clone(guest));
        true
    }

    /// Ends those that have been idle for too long, and says when the next one will have been.
    pub(crate) fn end_idle(&self, now: Nanos) -> Option<Nanos> {
        let mut next = None;
        for guest in self.open().iter().filter(|guest| guest.may_go()) {
            let end = guest.used.load(Ordering::Relaxed).saturating_add(IDLE_TIME_MAX);
            if end <= now {
                // Its thread sees that, and lets it out.
                let _ = rustix::net::shutdown(&guest.socket, rustix::net::Shutdown::Both);
            } else {
                next = Some(next.map_or(end, |next: Nanos| next.min(end)));
            }
        }
        next
    }

    /// A connection has ended, if it was let in.
    pub(crate) fn leave(&self, guest: &Arc<Guest>, accounts: &Accounts) {
        let mut open = self.open();
        let before = open.len();
        open.retain(|other| !Arc::ptr_eq(other, guest));
        if open.len() < before {
            accounts.get(accounts.number_of(guest.source)).disconnect();
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Guest>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use yonder_board::TenantLimits;

    use super::*;

    fn guest(transport: Transport, source: u64, now: Nanos) -> (Arc<Guest>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        (Arc::new(Guest::new(near.into(), transport, Source(source), now)), far)
    }

    fn is_closed(far: &mut UnixStream) -> bool {
        std::io::Read::read(far, &mut [0]).is_ok_and(|bytes| bytes == 0)
    }

    #[test]
    fn the_longest_idle_of_those_without_a_right_goes_for_a_new_one() {
        let accounts = Accounts::new(TenantLimits::default());
        let connections = Connections::new(4);
        let mut guests: Vec<_> = (0..4).map(|number| guest(Transport::Tcp, number, 10 + number)).collect();
        assert!(guests.iter().all(|(guest, _)| connections.enter(guest, &accounts)));
        guests[0].0.trust();
        guests[1].0.touch(20);
        let (new, _far) = guest(Transport::Tcp, 9, 30);
        assert!(connections.enter(&new, &accounts), "connections that have shown nothing keep all others out");
        let closed: Vec<bool> = guests.iter_mut().map(|(_, far)| is_closed(far)).collect();
        assert_eq!(closed, [false, false, true, false]);
        connections.leave(&guests[2].0, &accounts);
        guests.iter().for_each(|(guest, _)| guest.trust());
        new.trust();
        assert!(!connections.enter(&guest(Transport::Tcp, 10, 31).0, &accounts), "one with a right was closed");
        connections.leave(&new, &accounts);
        assert!(connections.enter(&guest(Transport::Tcp, 10, 32).0, &accounts));
    }

    #[test]
    fn a_source_has_a_share_and_pushes_out_its_own() {
        let accounts = Accounts::new(TenantLimits::default());
        let connections = Connections::new(32);
        let mut mine: Vec<_> = (0..16).map(|number| guest(Transport::Tcp, 1, number)).collect();
        assert!(mine.iter().all(|(guest, _)| connections.enter(guest, &accounts)));
        let others: Vec<_> = (0..8).map(|number| guest(Transport::Tcp, 2, number)).collect();
        assert!(others.iter().all(|(guest, _)| connections.enter(guest, &accounts)));
        for _ in 0..3 {
            assert!(connections.enter(&guest(Transport::Tcp, 1, 99).0, &accounts));
        }
        assert_eq!(mine.iter_mut().filter_map(|(_, far)| is_closed(far).then_some(())).count(), 3);
        assert!(others.into_iter().all(|(_, mut far)| !is_closed(&mut far)));
        connections.open().iter().for_each(|guest| guest.trust());
        assert!(!connections.enter(&guest(Transport::Tcp, 1, 100).0, &accounts), "a source has more than its share");
        assert!(connections.enter(&guest(Transport::Tcp, 3, 100).0, &accounts));
    }

    #[test]
    fn a_client_that_was_handed_the_memory_stays() {
        let accounts = Accounts::new(TenantLimits::default());
        let connections = Connections::new(1);
        let (client, mut far) = guest(Transport::Shm, 1, 0);
        assert!(connections.enter(&client, &accounts) && !connections.enter(&guest(Transport::Tcp, 2, 1).0, &accounts));
        assert!(!is_closed(&mut far));
    }

    #[test]
    fn those_that_do_nothing_for_long_go_unless_they_have_a_right() {
        let accounts = Accounts::new(TenantLimits::default());
        let connections = Connections::new(8);
        let mut guests = [(Transport::Tcp, 10), (Transport::Tcp, 20), (Transport::Tcp, 30), (Transport::Shm, 10)]
            .map(|(transport, now)| guest(transport, 1, now));
        assert!(guests.iter().all(|(guest, _)| connections.enter(guest, &accounts)));
        guests[1].0.trust();
        assert_eq!(connections.end_idle(IDLE_TIME_MAX), Some(IDLE_TIME_MAX + 10));
        assert_eq!(connections.end_idle(IDLE_TIME_MAX + 10), Some(IDLE_TIME_MAX + 30));
        assert_eq!(guests.each_mut().map(|(_, far)| is_closed(far)), [true, false, false, false]);
        guests[2].0.touch(1000);
        connections.leave(&guests[0].0, &accounts);
        assert_eq!(connections.end_idle(IDLE_TIME_MAX + 900), Some(IDLE_TIME_MAX + 1000));
    }

    /// Every one that has left, or was pushed out, has given its place back.
    #[test]
    fn a_tenant_has_as_many_connections_as_it_may() {
        let accounts = Accounts::new("connections=2".parse().unwrap());
        let connections = Connections::new(8);
        let [(first, _a), (second, _b), (third, _c)] = [1, 2, 3].map(|now| guest(Transport::Tcp, 1, now));
        assert!(connections.enter(&first, &accounts) && connections.enter(&second, &accounts));
        assert!(!connections.enter(&third, &accounts));
        connections.leave(&first, &accounts);
        assert!(connections.enter(&third, &accounts));
        for source in 10..20 {
            assert!(connections.enter(&guest(Transport::Tcp, source, 100).0, &accounts));
        }
        [&second, &third].into_iter().for_each(|guest| connections.leave(guest, &accounts));
        assert_eq!(accounts.get(accounts.number_of(Source(1))).usage().connections, 0);
    }
}
