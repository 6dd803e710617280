//! Members of clusters for the tests of doors, and peers that say what they like.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use yonder_controller::{FromController, MemoryStore, ToController, VERSION_MIN};
use yonder_identity::{Authority, Credential, Role, SharedKey, Stream, connect};
use yonder_placement::{Config, Domains, NodeId, NodeReport, Registration};

use crate::fake::{Cluster, REGION, TIMEOUT, config, url};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority, and the files of its members.
pub(crate) struct Members {
    folder: TempDir,
    authority: Authority,
}

impl Members {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("cluster")).unwrap();
        Self { folder, authority }
    }

    pub(crate) fn add(&mut self, role: Role, name: &str) -> Arc<Credential> {
        self.add_for(role, name, DAY)
    }

    pub(crate) fn add_for(&mut self, role: Role, name: &str, lifetime: Duration) -> Arc<Credential> {
        self.add_limited(role, name, lifetime, "")
    }

    pub(crate) fn add_limited(&mut self, role: Role, name: &str, lifetime: Duration, limits: &str) -> Arc<Credential> {
        let path = self.path(name);
        self.authority.add_limited(role, name, lifetime, limits).unwrap().write(&path).unwrap();
        Arc::new(Credential::load(&path).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }

    /// Revokes a member, and puts the list beside the controller's identity.
    pub(crate) fn revoke(&mut self, name: &str) {
        self.authority.revoke(name).unwrap();
        std::fs::copy(self.authority.revoked_file(), self.folder.path().join("revoked.pem")).unwrap();
    }

    /// A controller called c1.
    pub(crate) fn cluster(&mut self, config: Config) -> Cluster {
        let credential = self.add(Role::Controller, "c1");
        Cluster::of(config, Box::new(MemoryStore::default()), Some(credential))
    }
}

/// A key that is shared.
pub(crate) fn shared_key() -> (TempDir, Arc<Credential>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.key");
    SharedKey::generate().unwrap().write(&path).unwrap();
    let key = Arc::new(Credential::load(&path).unwrap());
    (folder, key)
}

/// A peer that says what the test says.
pub(crate) struct Raw {
    pub(crate) stream: Stream,
    lines: BufReader<Stream>,
}

impl Raw {
    pub(crate) fn new(address: SocketAddr, credential: Option<&Credential>) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let stream: Stream = match credential {
            None => socket.into(),
            Some(own) => connect(own, socket, Role::Controller, Instant::now() + TIMEOUT).unwrap().0.into(),
        };
        Self { lines: BufReader::new(stream.clone()), stream }
    }

    pub(crate) fn say(&mut self, line: &ToController) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        self.stream.write_all(&text).unwrap();
    }

    pub(crate) fn hear(&mut self) -> FromController {
        let mut text = String::new();
        self.lines.read_line(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("'{text}': {error}"))
    }

    /// Why it is turned away.
    pub(crate) fn cause(&mut self) -> String {
        match self.hear() {
            FromController::TurnedAway { cause } => cause,
            other => panic!("{other:?}"),
        }
    }
}

/// What a node with this number says first.
pub(crate) fn register(node: u64, name: Option<&str>) -> ToController {
    let facts = Registration {
        node: NodeId(node),
        name: name.map(str::to_owned),
        urls: vec![url(node)],
        memory_bytes: REGION,
        page_bytes: 4096,
        region_bytes: config().region_bytes,
        domains: Domains::default(),
    };
    let report = NodeReport { free_bytes: REGION, ..NodeReport::default() };
    ToController::Register {
        facts,
        cluster: None,
        spaces: Vec::new(),
        report,
        knows_alive: false,
        version: VERSION_MIN,
        version_min: 1,
    }
}
