//! [`EtcdStore`]: records in etcd, for one leader among several controllers.
//!
//! The leader holds a key with a lease of etcd's, which a thread renews ([`Tenure`]). Every write is a transaction that
//! compares this key first: a controller that has slept past its lease, and has been replaced, cannot change anything.
//! Others watch the key, and one of them takes it when it goes.
//!
//! A controller that is killed is replaced within [`LEADER_LEASE`], and the half second in which etcd looks for leases
//! that are over.
//!
//! With TLS the client checks etcd's certificate by the authority that is named, and shows its own if etcd asks for
//! one.
//!
//! Everything is under one prefix: `records/` as in every store, `leader`, and `live/` with what is announced.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, EventType, GetOptions, Identity,
    PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{Builder, Runtime};
use yonder_identity::{IdentityError, read_secret};
use yonder_units::Nanos;

use super::announced::Announced;
use super::tenure::Tenure;
use super::{EtcdAccess, EtcdCertificate, EtcdTls, Leadership, Store, StoreError, TenureProbe, Write};

/// How long the leader may be silent: the shortest lease that an etcd grants, unless its election timeout is longer
/// than the second that it is by default.
const LEADER_LEASE: Duration = Duration::from_secs(2);
/// Renewals in a lease: the leader may miss all but one of them. The fewer, the earlier the lease of one that was
/// killed is over.
const RENEWALS_PER_LEASE: u32 = 4;
/// Longest time between two looks whether another one leads, should etcd not say that it has gone.
const WATCH_MAX: Duration = Duration::from_secs(1);
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write is tried again while etcd cannot be reached: its own leader may be changing.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait between attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait between attempts to renew the leader's lease.
const RENEW_PAUSE: Duration = Duration::from_millis(50);
/// Most operations in a transaction; etcd's own limit is 128 by default.
const OPERATIONS_MAX: usize = 100;

const _: () = assert!(WATCH_MAX.as_nanos() < CALL_TIMEOUT.as_nanos(), "else etcd's client ends what is watched");

/// Records in etcd.
#[derive(Debug)]
pub struct EtcdStore {
    place: String,
    prefix: String,
    /// What this leader has written to the leader's key; no other writes the same.
    holder: String,
    session: Session,
    leader_lease: i64,
    renewer: Option<Renewer>,
    announced: Announced,
}

impl EtcdStore {
    /// Connects to etcd, and leads there under `prefix`. `name` tells people who leads.
    pub fn open(at: &EtcdAccess, prefix: &str, name: &str, leadership: Leadership) -> Result<Self, StoreError> {
        let place = format!("etcd {}", at.endpoints.join(","));
        let mut session = Session::open(at, &place)?;
        let renews = Session::open(at, &place)?;
        let key = format!("{prefix}leader");
        let (holder, lease) = loop {
            match session.campaign(&key, name) {
                Ok(Campaign::Won { holder, lease }) => break (holder, lease),
                Ok(Campaign::Lost { holder, .. }) if leadership == Leadership::Refuse => {
                    return Err(StoreError::Taken { place, holder });
                }
                Ok(Campaign::Lost { holder, revision }) => {
                    tracing::debug!(leader = holder, "another controller leads; waiting");
                    if let Err(error) = session.watch_until_gone(&key, revision) {
                        tracing::warn!(%error, place, "it is not known whether another controller leads; looking again");
                        thread::sleep(PAUSE);
                    }
                }
                Err(error) if leadership == Leadership::Refuse => return Err(failed(&place, error)),
                // Who waits may as well wait for etcd.
                Err(error) => {
                    tracing::warn!(%error, place, "etcd is lost; trying again");
                    thread::sleep(PAUSE);
                }
            }
        };
        let leader_lease = lease.id;
        let renewer = renew_in_thread(renews, place.clone(), lease)?;
        let (prefix, announced) = (prefix.to_owned(), Announced::default());
        Ok(Self { place, prefix, holder, session, leader_lease, renewer: Some(renewer), announced })
    }

    fn deposed(&self) -> StoreError {
        StoreError::Deposed { place: self.place.clone() }
    }

    /// Whether the lease is over, or was not renewed in time.
    fn is_over(&self) -> bool {
        self.renewer.as_ref().is_none_or(|renewer| renewer.tenure.is_over())
    }

    /// Tries until etcd has answered, or for as long as this controller may lead.
    fn patiently<T>(&mut self, mut call: impl FnMut(&mut Session) -> Result<T, CallError>) -> Result<T, StoreError> {
        let deadline = Instant::now() + COMMIT_TIMEOUT;
        loop {
            match call(&mut self.session) {
                Ok(value) => return Ok(value),
                Err(error) if self.is_over() => {
                    tracing::warn!(%error, place = self.place, "etcd is lost, and another controller may lead");
                    return Err(self.deposed());
                }
                Err(error) if Instant::now() >= deadline => return Err(failed(&self.place, error)),
                Err(error) => {
                    tracing::warn!(%error, place = self.place, "trying again");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn operation(&self, write: &Write) -> TxnOp {
        let full = |key: &str| format!("{}records/{key}", self.prefix);
        match write {
            Write::Put { key, value } => TxnOp::put(full(key), value.clone(), None),
            Write::Delete { key } => TxnOp::delete(full(key), None),
            Write::DeletePrefix { prefix } => TxnOp::delete(full(prefix), Some(DeleteOptions::new().with_prefix())),
        }
    }
}

impl Store for EtcdStore {
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let root = format!("{}records/", self.prefix);
        let full = format!("{root}{prefix}");
        let pairs = self.patiently(|session| {
            let options = GetOptions::new().with_prefix();
            session
                .call(async |client| client.get(full.clone(), Some(options)).await)
                .map(|mut answer| answer.take_kvs())
        })?;
        let mut found: Vec<(String, Vec<u8>)> = pairs
            .into_iter()
            .filter_map(|pair| {
                let (key, value) = pair.into_key_value();
                Some((String::from_utf8(key).ok()?.strip_prefix(&root)?.to_owned(), value))
            })
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        for part in writes.chunks(OPERATIONS_MAX) {
            let leads = Compare::value(format!("{}leader", self.prefix), CompareOp::Equal, self.holder.clone());
            let operations: Vec<TxnOp> = part.iter().map(|write| self.operation(write)).collect();
            let transaction = Txn::new().when([leads]).and_then(operations);
            let done = self.patiently(|session| {
                let transaction = transaction.clone();
                session.call(async |client| client.txn(transaction).await).map(|answer| answer.succeeded())
            })?;
            if !done {
                return Err(self.deposed());
            }
        }
        Ok(())
    }

    fn announce(&mut self, name: &str, value: &[u8], lease: Duration) -> Result<(), StoreError> {
        self.leads()?;
        let place = self.place.clone();
        if let Some(known) = self.announced.lease(name)
            && self.session.renew(known, CALL_TIMEOUT).map_err(|error| failed(&place, error))?
        {
            self.announced.note(name, known, lease, Instant::now());
            return Ok(());
        }
        let granted = self.session.grant(lease).map_err(|error| failed(&place, error))?.id;
        let key = format!("{}live/{name}", self.prefix);
        let options = PutOptions::new().with_lease(granted);
        let put = self.session.call(async |client| client.put(key, value, Some(options)).await);
        put.map_err(|error| failed(&place, error))?;
        self.announced.note(name, granted, lease, Instant::now());
        Ok(())
    }

    fn leads(&self) -> Result<(), StoreError> {
        match &self.renewer {
            Some(renewer) if renewer.tenure.lasts(yonder_clock::boottime, CALL_TIMEOUT) => Ok(()),
            _ => Err(self.deposed()),
        }
    }

    fn tenure_probe(&self) -> TenureProbe {
        let tenure = self.renewer.as_ref().map(|renewer| Arc::clone(&renewer.tenure));
        Arc::new(move || tenure.as_ref().is_some_and(|tenure| tenure.lasts(yonder_clock::boottime, Duration::ZERO)))
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(renewer) = self.renewer.take() {
            drop(renewer.stop);
            let _ = renewer.thread.join();
        }
        // So that the next controller need not wait for the lease to end. If etcd is gone, it ends by itself.
        let deadline = Instant::now() + CALL_TIMEOUT;
        let others = self.announced.leases();
        let leases = [self.leader_lease].into_iter().chain(others).collect::<Vec<_>>();
        for lease in leases {
            if Instant::now() >= deadline {
                return;
            }
            // Those of nodes that have gone may be over.
            let _ = self.session.call(async |client| client.lease_revoke(lease).await);
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("it does not answer within {} s: is it running, and is the address right?", .0.as_secs_f32())]
    Late(Duration),
    #[error("{0}")]
    Etcd(#[from] Error),
}

fn failed(place: &str, error: CallError) -> StoreError {
    StoreError::Failed { place: place.to_owned(), cause: error.to_string() }
}

/// A lease that etcd has granted.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: i64,
    /// When it was asked for, by the clock that goes on while the machine sleeps: it has begun no earlier.
    asked: Nanos,
    /// How long etcd has made it; no shorter than it was asked to.
    length: Duration,
}

/// What became of an attempt to lead.
enum Campaign {
    /// This one leads.
    Won {
        /// What it has written to the leader's key.
        holder: String,
        lease: Lease,
    },
    /// Another one does.
    Lost {
        holder: String,
        /// The state of etcd in which it does.
        revision: i64,
    },
}

/// A client of etcd that waits for each call.
struct Session {
    runtime: Runtime,
    client: Client,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Session")
    }
}

impl Session {
    fn open(at: &EtcdAccess, place: &str) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Failed {
            place: place.to_owned(),
            cause: format!("no event loop: {error}"),
        })?;
        let mut options = ConnectOptions::new().with_connect_timeout(CALL_TIMEOUT).with_timeout(CALL_TIMEOUT);
        if let Some(tls) = &at.tls {
            options = options.with_tls(tls_options(tls)?);
        }
        let connected = wait(&runtime, CALL_TIMEOUT, Client::connect(&at.endpoints, Some(options)));
        let client = connected.map_err(|error| failed(place, error))?;
        Ok(Self { runtime, client })
    }

    fn call<T>(&mut self, call: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> Result<T, CallError> {
        self.call_within(CALL_TIMEOUT, call)
    }

    fn call_within<T>(
        &mut self,
        limit: Duration,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, CallError> {
        wait(&self.runtime, limit, call(&mut self.client))
    }

    fn grant(&mut self, lease: Duration) -> Result<Lease, CallError> {
        let asked = yonder_clock::boottime();
        let seconds = i64::try_from(lease.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let answer = self.call(async |client| client.lease_grant(seconds, None).await)?;
        let length = Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0));
        Ok(Lease { id: answer.id(), asked, length })
    }

    /// Renews a lease; `false` if it is over.
    fn renew(&mut self, lease: i64, limit: Duration) -> Result<bool, CallError> {
        self.call_within(limit, async |client| match client.lease_keep_alive(lease).await {
            // It was renewed already; this is how etcd's client begins.
            Ok(_) => Ok(true),
            Err(Error::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Takes the leader's key, with a lease of its own, if nobody has it.
    fn campaign(&mut self, key: &str, name: &str) -> Result<Campaign, CallError> {
        let found = self.call(async |client| client.get(key, None).await)?;
        let revision =
            |header: Option<&etcd_client::ResponseHeader>| header.map_or(0, etcd_client::ResponseHeader::revision);
        if let Some(pair) = found.kvs().first() {
            let holder = String::from_utf8_lossy(pair.value()).into_owned();
            return Ok(Campaign::Lost { holder, revision: revision(found.header()) });
        }
        // No attempt is taken for an earlier one, whose answer was lost, and whose lease is another.
        let holder = format!("{name} ({:016x})", StdRng::from_os_rng().random::<u64>());
        let lease = self.grant(LEADER_LEASE)?;
        let put = TxnOp::put(key, holder.clone(), Some(PutOptions::new().with_lease(lease.id)));
        let transaction = Txn::new().when([Compare::version(key, CompareOp::Equal, 0)]).and_then([put]);
        let answer = self.call(async |client| client.txn(transaction).await)?;
        if answer.succeeded() {
            return Ok(Campaign::Won { holder, lease });
        }
        // The lease ends by itself.
        Ok(Campaign::Lost { holder: "that came first".to_owned(), revision: revision(answer.header()) })
    }

    /// Waits until the key was removed since `revision`, or for as long as that may go unnoticed.
    fn watch_until_gone(&mut self, key: &str, revision: i64) -> Result<(), CallError> {
        let watched = self.call_within(WATCH_MAX, async |client| {
            let options = WatchOptions::new().with_start_revision(revision + 1);
            let mut answers = client.watch(key, Some(options)).await?;
            while let Some(answer) = answers.message().await? {
                if answer.events().iter().any(|event| event.event_type() == EventType::Delete) {
                    return Ok(());
                }
                if answer.canceled() {
                    return Err(Error::WatchError(answer.cancel_reason().to_owned()));
                }
            }
            Err(Error::WatchError("it has ended".to_owned()))
        });
        match watched {
            Err(CallError::Late(_)) => Ok(()),
            other => other,
        }
    }
}

/// Reads the files of TLS.
fn tls_options(tls: &EtcdTls) -> Result<TlsOptions, IdentityError> {
    let options = TlsOptions::new().ca_certificate(Certificate::from_pem(read_certificate(&tls.ca)?));
    let Some(EtcdCertificate { certificate, key }) = &tls.certificate else { return Ok(options) };
    let shown = Identity::from_pem(read_certificate(certificate)?, read_secret(key)?.as_bytes());
    Ok(options.identity(shown))
}

/// A text that has a certificate, at least as far as can be seen.
fn read_certificate(path: &Path) -> Result<String, IdentityError> {
    let text = std::fs::read_to_string(path).map_err(|cause| IdentityError::File { path: path.to_owned(), cause })?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(text);
    }
    Err(IdentityError::Damaged { path: path.to_owned(), cause: "it has no certificate in PEM".to_owned() })
}

fn wait<T>(runtime: &Runtime, limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, CallError> {
    let bounded = runtime.block_on(async { tokio::time::timeout(limit, call).await });
    match bounded {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Late(limit)),
    }
}

/// The thread that renews the leader's lease.
#[derive(Debug)]
struct Renewer {
    /// Dropped, it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
    tenure: Arc<Tenure>,
}

fn renew_in_thread(mut session: Session, place: String, lease: Lease) -> Result<Renewer, StoreError> {
    let (stop, stopped) = mpsc::channel::<()>();
    let Lease { id, asked, length } = lease;
    let tenure = Arc::new(Tenure::new(asked, length));
    let renewed = Arc::clone(&tenure);
    let every = length / RENEWALS_PER_LEASE;
    let renew = move || {
        let took = Duration::from_nanos(yonder_clock::boottime().saturating_sub(asked));
        let mut pause = every.saturating_sub(took);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let asked = yonder_clock::boottime();
            pause = match session.renew(id, every) {
                Ok(true) => {
                    renewed.renew(asked, length);
                    let took = Duration::from_nanos(yonder_clock::boottime().saturating_sub(asked));
                    every.saturating_sub(took)
                }
                Ok(false) => return renewed.end(),
                Err(_) if renewed.is_past(yonder_clock::boottime()) => return renewed.end(),
                Err(error) => {
                    tracing::warn!(%error, "the leader's lease could not be renewed");
                    RENEW_PAUSE
                }
            };
        }
    };
    let thread = thread::Builder::new().name("yonder-leader".to_owned()).spawn(renew);
    let thread = thread.map_err(|error| StoreError::Failed { place, cause: error.to_string() })?;
    Ok(Renewer { stop, thread, tenure })
}
