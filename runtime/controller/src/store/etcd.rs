//! [`EtcdStore`]: records in etcd, for one leader among several controllers.
//!
//! The leader holds a key with a lease of etcd's, which a thread renews. Every write is a transaction that compares
//! this key first: a controller that has slept past its lease, and has been replaced, cannot change anything.
//!
//! With TLS the client checks etcd's certificate by the authority that is named, and shows its own if etcd asks for
//! one.
//!
//! Everything is under one prefix: `records/` as in every store, `leader`, and `live/` with what is announced.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, Identity, PutOptions,
    TlsOptions, Txn, TxnOp, TxnOpResponse,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{Builder, Runtime};
use yonder_identity::{IdentityError, read_secret};

use super::announced::Announced;
use super::{EtcdAccess, EtcdCertificate, EtcdTls, Leadership, Store, StoreError, Write};

/// How long the leader may be silent.
const LEADER_LEASE: Duration = Duration::from_secs(6);
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a write is tried again while etcd cannot be reached: its own leader may be changing.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait between attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Most operations in a transaction; etcd's own limit is 128 by default.
const OPERATIONS_MAX: usize = 100;

const _: () = assert!(LEADER_LEASE.as_nanos() > 2 * CALL_TIMEOUT.as_nanos());

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
        let mut leader_lease = session.grant(LEADER_LEASE).map_err(|error| failed(&place, error))?;
        let holder = format!("{name} ({:016x})", StdRng::from_os_rng().random::<u64>());
        let key = format!("{prefix}leader");
        loop {
            match session.take_key(&key, &holder, leader_lease).map_err(|error| failed(&place, error))? {
                None => break,
                Some(other) if leadership == Leadership::Refuse => {
                    return Err(StoreError::Taken { place, holder: other });
                }
                Some(other) => {
                    tracing::info!(leader = other, "another controller leads; waiting");
                    thread::sleep(LEADER_LEASE / 4);
                    if !session.renew(leader_lease).map_err(|error| failed(&place, error))? {
                        leader_lease = session.grant(LEADER_LEASE).map_err(|error| failed(&place, error))?;
                    }
                }
            }
        }
        let renewer = renew_in_thread(at, place.clone(), leader_lease)?;
        let prefix = prefix.to_owned();
        Ok(Self {
            place,
            prefix,
            holder,
            session,
            leader_lease,
            renewer: Some(renewer),
            announced: Announced::default(),
        })
    }

    /// Tries until etcd has answered, or for so long that it is taken for gone.
    fn patiently<T>(&mut self, mut call: impl FnMut(&mut Session) -> Result<T, CallError>) -> Result<T, StoreError> {
        let deadline = Instant::now() + COMMIT_TIMEOUT;
        loop {
            match call(&mut self.session) {
                Ok(value) => return Ok(value),
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
                return Err(StoreError::Deposed { place: self.place.clone() });
            }
        }
        Ok(())
    }

    fn announce(&mut self, name: &str, value: &[u8], lease: Duration) -> Result<(), StoreError> {
        self.leads()?;
        let place = self.place.clone();
        if let Some(known) = self.announced.lease(name)
            && self.session.renew(known).map_err(|error| failed(&place, error))?
        {
            self.announced.note(name, known, lease, Instant::now());
            return Ok(());
        }
        let granted = self.session.grant(lease).map_err(|error| failed(&place, error))?;
        let key = format!("{}live/{name}", self.prefix);
        let options = PutOptions::new().with_lease(granted);
        let put = self.session.call(async |client| client.put(key, value, Some(options)).await);
        put.map_err(|error| failed(&place, error))?;
        self.announced.note(name, granted, lease, Instant::now());
        Ok(())
    }

    fn leads(&self) -> Result<(), StoreError> {
        match &self.renewer {
            Some(renewer) if !renewer.is_over.load(Ordering::Acquire) => Ok(()),
            _ => Err(StoreError::Deposed { place: self.place.clone() }),
        }
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
    #[error("it does not answer within {} s: is it running, and is the address right?", CALL_TIMEOUT.as_secs())]
    Late,
    #[error("{0}")]
    Etcd(#[from] Error),
}

fn failed(place: &str, error: CallError) -> StoreError {
    StoreError::Failed { place: place.to_owned(), cause: error.to_string() }
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
        let connected = wait(&runtime, Client::connect(&at.endpoints, Some(options)));
        let client = connected.map_err(|error| failed(place, error))?;
        Ok(Self { runtime, client })
    }

    fn call<T>(&mut self, call: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> Result<T, CallError> {
        wait(&self.runtime, call(&mut self.client))
    }

    fn grant(&mut self, lease: Duration) -> Result<i64, CallError> {
        let seconds = i64::try_from(lease.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        self.call(async |client| client.lease_grant(seconds, None).await).map(|answer| answer.id())
    }

    /// Renews a lease; `false` if it is over.
    fn renew(&mut self, lease: i64) -> Result<bool, CallError> {
        self.call(async |client| {
            let (mut keeper, mut answers) = match client.lease_keep_alive(lease).await {
                Ok(streams) => streams,
                Err(Error::LeaseKeepAliveError(_)) => return Ok(false),
                Err(error) => return Err(error),
            };
            keeper.keep_alive().await?;
            Ok(answers.message().await?.is_some_and(|answer| answer.ttl() > 0))
        })
    }

    /// Sets `key` to `value` while nobody has it; else says who does.
    fn take_key(&mut self, key: &str, value: &str, lease: i64) -> Result<Option<String>, CallError> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let transaction = Txn::new()
            .when([Compare::version(key, CompareOp::Equal, 0)])
            .and_then([put])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.call(async |client| client.txn(transaction).await)?;
        if answer.succeeded() {
            return Ok(None);
        }
        let holder = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => Some(String::from_utf8_lossy(found.kvs().first()?.value()).into_owned()),
            _ => None,
        });
        // It was there for the comparison, which is of the same instant.
        Ok(Some(holder.unwrap_or_else(|| "without a name".to_owned())).filter(|holder| holder != value))
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

fn wait<T>(runtime: &Runtime, call: impl Future<Output = Result<T, Error>>) -> Result<T, CallError> {
    let bounded = runtime.block_on(async { tokio::time::timeout(CALL_TIMEOUT, call).await });
    match bounded {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Late),
    }
}

/// The thread that renews the leader's lease.
#[derive(Debug)]
struct Renewer {
    /// Dropped, it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
    /// The lease is over, or was not renewed for so long that it must be.
    is_over: Arc<AtomicBool>,
}

fn renew_in_thread(at: &EtcdAccess, place: String, lease: i64) -> Result<Renewer, StoreError> {
    let mut session = Session::open(at, &place)?;
    let (stop, stopped) = mpsc::channel::<()>();
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_over);
    let renew = move || {
        let mut renewed = Instant::now();
        while stopped.recv_timeout(LEADER_LEASE / 3) == Err(RecvTimeoutError::Timeout) {
            let asked = Instant::now();
            match session.renew(lease) {
                Ok(true) => renewed = asked,
                Ok(false) => return ended.store(true, Ordering::Release),
                Err(error) if renewed.elapsed() < LEADER_LEASE => {
                    tracing::warn!(%error, "the leader's lease could not be renewed");
                }
                Err(_) => return ended.store(true, Ordering::Release),
            }
        }
    };
    let thread = thread::Builder::new().name("yonder-leader".to_owned()).spawn(renew);
    let thread = thread.map_err(|error| StoreError::Failed { place, cause: error.to_string() })?;
    Ok(Renewer { stop, thread, is_over })
}
