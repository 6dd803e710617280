//! [`NodeSession`]: whether a node still is the one that has this client's memory.
//!
//! It is shared by all lanes to a node. The first welcome says which incarnation of the node that is; a welcome of
//! another one means that the memory is gone, and so does a refused capability. From then on the node is lost for good,
//! because an address of the new incarnation would read as somebody else's bytes instead of failing. Each lane also
//! tells here what it has sent and received, by counters of its own, so that lanes do not contend for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, thread};

use yonder_client::Stats;
use yonder_identity::Credential;
use yonder_session::Protection;
use yonder_wire::Welcome;

use super::protection::{Renewed, Sessions};
use crate::url::{bad, settings_of};
use crate::{Counter, FabricError};

/// Time between two looks at whether a session must follow another.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// One node, as its client knows it.
#[derive(Default, Debug)]
pub struct NodeSession {
    incarnation: OnceLock<u64>,
    is_lost: AtomicBool,
    /// Of every lane there was.
    traffic: Mutex<Vec<Arc<Traffic>>>,
    /// How the node knows who asks, if it wants to.
    pub(super) sessions: Sessions,
}

/// Bytes that one lane has exchanged with the node, written by its owner.
#[derive(Default, Debug)]
pub(super) struct Traffic {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Traffic {
    #[inline]
    pub(super) fn set(&self, stats: &Stats) {
        self.sent_bytes.store(stats.sent_bytes, Ordering::Relaxed);
        self.received_bytes.store(stats.received_bytes, Ordering::Relaxed);
    }
}

impl NodeSession {
    /// One whose lanes show this credential, or none, and protect each message like this. By default it is the
    /// process's ([`Credential::of_process`]), and messages are encrypted.
    #[must_use]
    pub fn with(credential: Option<Arc<Credential>>, protection: Protection) -> Self {
        Self { sessions: Sessions::of(credential, protection), ..Self::default() }
    }

    /// One whose lanes show what the process shows, if it does, and protect each message like this.
    #[must_use]
    pub fn protecting(protection: Protection) -> Self {
        Self { sessions: Sessions::protecting(protection), ..Self::default() }
    }

    /// The node at `url`, used as the settings behind its address say, of which there may be a name and a protection;
    /// and the URL without them.
    pub fn of_url(url: &str) -> Result<(&str, Self), FabricError> {
        let (node, settings) = settings_of(url)?;
        match settings.lease {
            None => Ok((node, settings.session())),
            Some(_) => Err(bad(url, "has a lease, which the program says itself: type it without ?lease=")),
        }
    }

    /// The same, of a node that is called so: no other is taken for it. Without a name any node of the cluster is.
    #[must_use]
    pub fn called(mut self, name: Option<String>) -> Self {
        self.sessions.name = name;
        self
    }

    /// Starts the thread that makes the sessions which follow, if there are any and it does not run yet. It ends soon
    /// after the last of those who share this.
    pub(super) fn keep_renewed(self: &Arc<Self>) -> io::Result<()> {
        if !self.sessions.wants_renewer() {
            return Ok(());
        }
        let watched = Arc::downgrade(self);
        let renew = move || {
            while let Some(session) = watched.upgrade().filter(|session| !session.is_lost()) {
                match session.sessions.renew() {
                    Renewed::Nothing => {}
                    Renewed::Made(incarnation) => {
                        session.know(incarnation);
                    }
                    Renewed::Revoked => {
                        tracing::error!("this identity was revoked: a node answers no more, and its memory is lost");
                        session.lose();
                    }
                }
                drop(session);
                thread::park_timeout(RENEWAL_PAUSE);
            }
        };
        thread::Builder::new().name("yonder-session".to_owned()).spawn(renew).map(drop)
    }

    /// Notes which incarnation of the node has answered. False if the node is lost.
    pub(super) fn know(&self, incarnation: u64) -> bool {
        if *self.incarnation.get_or_init(|| incarnation) != incarnation {
            self.lose();
        }
        !self.is_lost()
    }

    /// Notes a welcome. False if the node is lost.
    pub(crate) fn accept(&self, welcome: &Welcome) -> bool {
        self.know(welcome.incarnation)
    }

    /// The counters of a new lane.
    pub(super) fn join(&self) -> Arc<Traffic> {
        let traffic = Arc::<Traffic>::default();
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&traffic));
        traffic
    }

    /// Bytes that all lanes have exchanged with the node, with the headers of messages and all attempts, but without
    /// what the network below adds.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        let lanes = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let sum =
            |bytes: fn(&Traffic) -> &AtomicU64| lanes.iter().map(|lane| bytes(lane).load(Ordering::Relaxed)).sum();
        vec![
            Counter { name: "wire_sent_bytes", value: sum(|lane| &lane.sent_bytes) },
            Counter { name: "wire_received_bytes", value: sum(|lane| &lane.received_bytes) },
        ]
    }

    /// Gives the node up for good.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// Whether the node was given up.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_incarnation_is_never_accepted() {
        let welcome = |incarnation| Welcome { home: 0, page_bytes: 4096, memory_bytes: 4096, incarnation };
        let session = NodeSession::default();
        assert!(session.accept(&welcome(1)) && session.accept(&welcome(1)));
        assert!(!session.accept(&welcome(2)));
        assert!(!session.accept(&welcome(1)), "a node that was lost is trusted again");
    }
}
