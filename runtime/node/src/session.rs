//! Clients, their sessions, and the fence between two sessions of one queue pair.
//!
//! A [`Session`] is one connection. Whoever executes its requests holds its gate; [`Clients::admit`] closes the gate of
//! the older session before it lets a newer one of the same queue pair in. So when the newer session is acknowledged,
//! nothing of the older one is executed any more.
//!
//! A client that the node meets gets an [`Owner`] and a random incarnation. Both end when the last session has been gone
//! for the grace: a client that comes back later is a stranger.
//!
//! Locks: the table of clients first, then one gate. Neither is taken while a view of the memory is held.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::TryRngCore;
use rand::rngs::OsRng;
use yonder_wire::{ClientId, ErrorCode, Greeting, Incarnation};

use crate::extents::Owner;

/// Most clients that a node remembers.
const CLIENTS_MAX: usize = 4096;
/// Most queue pairs of one client that a node remembers. Clients reuse their numbers.
const QUEUE_PAIRS_MAX: usize = 4096;

/// One connection, as the threads that must agree about it see it.
#[derive(Debug)]
pub(crate) struct Session {
    socket: OwnedFd,
    gate: Mutex<Gate>,
}

/// Whether requests of a session may be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    Open,
    Fenced,
}

/// The right to execute requests of a session, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    _gate: MutexGuard<'a, Gate>,
}

impl Session {
    /// A session over `socket`.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, gate: Mutex::new(Gate::Open) }
    }

    /// The right to execute requests; `None` when a newer session has taken over.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        (*gate == Gate::Open).then_some(Pass { _gate: gate })
    }

    /// Waits for the requests that are being executed, and closes the session for all others.
    fn fence(&self) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = Gate::Fenced;
        // The socket may be closed by its peer already. If it is not, this wakes the thread that serves it.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A session that was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admitted {
    pub(crate) greeting: Greeting,
    pub(crate) owner: Owner,
    pub(crate) incarnation: Incarnation,
}

/// All clients that the node remembers.
#[derive(Debug)]
pub(crate) struct Clients {
    grace: Duration,
    table: Mutex<Table>,
}

#[derive(Default, Debug)]
struct Table {
    clients: HashMap<ClientId, Client>,
    owners: u64,
}

#[derive(Debug)]
struct Client {
    owner: Owner,
    incarnation: Incarnation,
    queue_pairs: HashMap<u32, QueuePair>,
    /// When the last session ended; `None` while there is one.
    gone_since: Option<Instant>,
}

#[derive(Debug)]
struct QueuePair {
    /// The newest epoch that was let in. Kept after the session, so that an older one that comes late is refused.
    epoch: u64,
    session: Option<Arc<Session>>,
}

impl Clients {
    /// No clients yet. A client is forgotten `grace` after its last session.
    pub(crate) fn new(grace: Duration) -> Self {
        Self { grace, table: Mutex::default() }
    }

    /// Lets `session` in as what `greeting` says, after fencing the older session of that queue pair.
    pub(crate) fn admit(&self, greeting: Greeting, session: &Arc<Session>) -> Result<Admitted, ErrorCode> {
        let mut table = self.lock();
        if !table.clients.contains_key(&greeting.client) {
            table.meet(greeting.client)?;
        }
        let client = table.clients.get_mut(&greeting.client).expect("the client was just met");
        let known_pairs = client.queue_pairs.len();
        match client.queue_pairs.get_mut(&greeting.queue_pair) {
            Some(known) if greeting.epoch <= known.epoch => return Err(ErrorCode::StaleEpoch),
            Some(known) => {
                if let Some(older) = known.session.take() {
                    older.fence();
                }
                *known = QueuePair { epoch: greeting.epoch, session: Some(Arc::clone(session)) };
            }
            None if known_pairs >= QUEUE_PAIRS_MAX => return Err(ErrorCode::TooMany),
            None => {
                let fresh = QueuePair { epoch: greeting.epoch, session: Some(Arc::clone(session)) };
                client.queue_pairs.insert(greeting.queue_pair, fresh);
            }
        }
        client.gone_since = None;
        Ok(Admitted { greeting, owner: client.owner, incarnation: client.incarnation })
    }

    /// Notes that a session has ended. True if it was the client's last, so that [`Clients::next_expiry`] has changed.
    pub(crate) fn leave(&self, admitted: &Admitted, now: Instant) -> bool {
        let mut table = self.lock();
        let Some(client) = table.clients.get_mut(&admitted.greeting.client) else { return false };
        match client.queue_pairs.get_mut(&admitted.greeting.queue_pair) {
            Some(known) if known.epoch == admitted.greeting.epoch => known.session = None,
            _ => return false,
        }
        let gone = client.queue_pairs.values().all(|known| known.session.is_none());
        client.gone_since = gone.then_some(now);
        gone
    }

    /// Forgets the clients whose grace is over, and returns whose memory is to be released.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Owner> {
        let mut expired = Vec::new();
        self.lock().clients.retain(|_, client| {
            let over = client.gone_since.is_some_and(|since| now >= since + self.grace);
            if over {
                expired.push(client.owner);
            }
            !over
        });
        expired
    }

    /// When [`Clients::expire`] has something to do next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.lock().clients.values().filter_map(|client| client.gone_since).min().map(|since| since + self.grace)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn meet(&mut self, client: ClientId) -> Result<(), ErrorCode> {
        if self.clients.len() >= CLIENTS_MAX {
            return Err(ErrorCode::TooMany);
        }
        let mut incarnation = Incarnation([0; 16]);
        OsRng.try_fill_bytes(&mut incarnation.0).map_err(|_| ErrorCode::System)?;
        self.owners += 1;
        let fresh = Client { owner: Owner(self.owners), incarnation, queue_pairs: HashMap::new(), gone_since: None };
        self.clients.insert(client, fresh);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn session() -> (Arc<Session>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Arc::new(Session::new(near.into())), far)
    }

    fn greeting(queue_pair: u32, epoch: u64) -> Greeting {
        Greeting { client: ClientId([1; 16]), epoch, queue_pair }
    }

    #[test]
    fn a_newer_session_waits_for_the_batch_of_the_older_one_and_fences_it() {
        let clients = Clients::new(Duration::ZERO);
        let ((older, mut peer), (newer, _peer)) = (session(), session());
        clients.admit(greeting(1, 1), &older).unwrap();
        let batch_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let pass = older.enter().unwrap();
            let (clients, newer, batch_done) = (&clients, &newer, &batch_done);
            let admitting = scope.spawn(move || {
                clients.admit(greeting(1, 2), newer).unwrap();
                assert!(batch_done.load(Ordering::SeqCst), "acknowledged while the older session was executing");
            });
            // Give a wrong admission every chance to return before the batch is over.
            for _ in 0..1000 {
                thread::yield_now();
            }
            batch_done.store(true, Ordering::SeqCst);
            drop(pass);
            admitting.join().unwrap();
        });
        assert!(older.enter().is_none());
        assert!(newer.enter().is_some());
        assert_eq!(std::io::Read::read(&mut peer, &mut [0; 1]).unwrap(), 0, "the older connection is closed");
    }

    #[test]
    fn older_and_equal_epochs_are_refused_even_after_the_session() {
        let clients = Clients::new(Duration::from_secs(1));
        let (session, _peer) = session();
        let admitted = clients.admit(greeting(1, 5), &session).unwrap();
        assert_eq!(clients.admit(greeting(1, 5), &session), Err(ErrorCode::StaleEpoch));
        assert!(clients.leave(&admitted, Instant::now()));
        assert_eq!(clients.admit(greeting(1, 4), &session), Err(ErrorCode::StaleEpoch));
        assert_eq!(clients.admit(greeting(1, 6), &session).unwrap().incarnation, admitted.incarnation);
        assert!(clients.admit(greeting(2, 1), &session).is_ok());
    }

    #[test]
    fn a_client_is_forgotten_after_its_grace_and_comes_back_as_a_stranger() {
        let clients = Clients::new(Duration::from_secs(10));
        let (session, _peer) = session();
        let (first, second) =
            (clients.admit(greeting(0, 1), &session).unwrap(), clients.admit(greeting(1, 2), &session).unwrap());
        let start = Instant::now();
        assert!(!clients.leave(&first, start));
        assert_eq!(clients.next_expiry(), None);
        assert!(clients.leave(&second, start));
        assert_eq!(clients.next_expiry(), Some(start + Duration::from_secs(10)));
        assert_eq!(clients.expire(start + Duration::from_secs(9)), []);
        let again = clients.admit(greeting(0, 3), &session).unwrap();
        assert_eq!(clients.expire(start + Duration::from_secs(11)), [], "it came back in time");
        assert!(clients.leave(&again, start));
        assert_eq!(clients.expire(start + Duration::from_secs(10)), [first.owner]);
        let stranger = clients.admit(greeting(0, 1), &session).unwrap();
        assert_ne!((stranger.owner, stranger.incarnation), (first.owner, first.incarnation));
    }

    #[test]
    fn the_end_of_a_fenced_session_does_not_end_its_successor() {
        let clients = Clients::new(Duration::ZERO);
        let ((older, _a), (newer, _b)) = (session(), session());
        let old = clients.admit(greeting(1, 1), &older).unwrap();
        clients.admit(greeting(1, 2), &newer).unwrap();
        assert!(!clients.leave(&old, Instant::now()));
        assert_eq!(clients.expire(Instant::now()), []);
        assert!(newer.enter().is_some());
    }
}
