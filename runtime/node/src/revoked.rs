//! [`Revoked`]: which sessions are over before their time, because the members that made them were revoked.
//!
//! Of each tenant there is a number: its sessions with a serial up to that are over. A message is held to it by one
//! load, on whichever thread. The thread of the slow path looks once a second whether the node's list has changed, and
//! then at all who have sessions. Members that are no tenants share the number 0: if one of them is revoked, the others
//! make new sessions, as they do whenever a node is silent.
//!
//! Invariant: a member is noted before its session is granted, and looked at once more in between, so that none slips
//! through while the list changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_identity::{Credential, Peer};
use yonder_session::SessionNumber;

/// Certificates with sessions that are not over: about as many as tenants, and those they had before.
const MAKERS_MAX: usize = 4 * SessionNumber::TENANT_MAX as usize;

/// What is over.
#[derive(Debug)]
pub(crate) struct Revoked {
    over: Box<[AtomicU32]>,
    makers: Mutex<Makers>,
}

#[derive(Default, Debug)]
struct Makers {
    all: Vec<Maker>,
    /// [`Credential::changes`] when they were looked at last.
    looked: u64,
}

/// One that has made a session.
#[derive(Debug)]
struct Maker {
    peer: Peer,
    tenant: u16,
    /// The hour of the node in which its last session ends.
    end: u32,
}

impl Revoked {
    pub(crate) fn new() -> Self {
        let over = (0..=SessionNumber::TENANT_MAX).map(|_| AtomicU32::new(0)).collect();
        Self { over, makers: Mutex::default() }
    }

    /// Whether the session is over.
    #[inline]
    pub(crate) fn has(&self, number: SessionNumber) -> bool {
        number.serial() <= self.over[usize::from(number.tenant())].load(Ordering::Relaxed)
    }

    /// Notes that a member makes a session as this tenant, which ends in the hour `end`. False if there are too many.
    pub(crate) fn note(&self, peer: &Peer, tenant: u16, end: u32, now: u32) -> bool {
        // One who has the shared key is no one in particular, and is not revoked.
        if peer.role().is_none() {
            return true;
        }
        let mut makers = self.makers();
        if let Some(known) = makers.all.iter_mut().find(|maker| maker.peer == *peer && maker.tenant == tenant) {
            known.end = known.end.max(end);
            return true;
        }
        makers.all.retain(|maker| maker.end > now);
        let has_room = makers.all.len() < MAKERS_MAX;
        if has_room {
            makers.all.push(Maker { peer: peer.clone(), tenant, end });
        }
        has_room
    }

    /// Ends the sessions of those who were revoked since the last look: all up to `last`, the latest serial.
    pub(crate) fn look(&self, credential: &Credential, last: impl Fn() -> u32) {
        let changes = credential.changes();
        let mut makers = self.makers();
        if std::mem::replace(&mut makers.looked, changes) == changes {
            return;
        }
        for maker in makers.all.extract_if(.., |maker| credential.has_revoked(&maker.peer)) {
            tracing::warn!("{} was revoked: its sessions are over", maker.peer);
            self.over[usize::from(maker.tenant)].fetch_max(last(), Ordering::Relaxed);
        }
    }

    fn makers(&self) -> MutexGuard<'_, Makers> {
        self.makers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
