//! Where the controller's records are: [`Store`], and the text that records have there.
//!
//! Invariant: after [`Store::commit`] has returned well, a store that is opened at the same place has the writes,
//! whatever happened to this process.

mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod memory;
#[cfg(not(feature = "etcd"))]
mod without_etcd;

pub use embedded::EmbeddedStore;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
pub use memory::MemoryStore;
#[cfg(not(feature = "etcd"))]
pub use without_etcd::EtcdStore;

use std::path::PathBuf;
use std::time::Duration;

use yonder_identity::IdentityError;
use yonder_placement::{Change, Record, RecordKey};

/// Records as text keys and bytes, for one controller at a time.
pub trait Store: Send {
    /// All records whose keys begin with `prefix`, by key.
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Makes the writes durable, all or none, in order. Where a store bounds its transactions, in several: then some of
    /// the first writes may be durable after an error. No two writes touch the same key.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// Shows others that `name` is there, for as long as the lease is renewed by another call. Stores that have no
    /// others do nothing. [`StoreError::Deposed`] if this controller does not lead any more.
    fn announce(&mut self, name: &str, value: &[u8], lease: Duration) -> Result<(), StoreError>;

    /// [`StoreError::Deposed`] if it is known that this controller does not lead any more: what it would answer may be
    /// another one's to say. Asks no one.
    fn leads(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// One write to a [`Store`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Sets the record with this key.
    Put {
        /// The key.
        key: String,
        /// The record.
        value: Vec<u8>,
    },
    /// Removes the record with this key, if there is one.
    Delete {
        /// The key.
        key: String,
    },
    /// Removes all records whose keys begin with this.
    DeletePrefix {
        /// The beginning.
        prefix: String,
    },
}

/// What to do while another controller leads in etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leadership {
    /// Fail.
    Refuse,
    /// Wait until it ends.
    Wait,
}

/// Where etcd is, and how it is spoken with.
#[derive(Clone, Debug)]
pub struct EtcdAccess {
    /// Its endpoints, such as `http://127.0.0.1:2379`; all of them `https://` with TLS.
    pub endpoints: Vec<String>,
    /// Whom to take for etcd, and what to show; without it all is in the clear.
    pub tls: Option<EtcdTls>,
}

/// What TLS with etcd is made of: files in PEM, as etcd's own programs have them. They are read when a controller
/// starts.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The certificate of the authority that has signed etcd's.
    pub ca: PathBuf,
    /// What is shown to an etcd that asks for it.
    pub certificate: Option<EtcdCertificate>,
}

/// A certificate for clients of etcd, and its key.
#[derive(Clone, Debug)]
pub struct EtcdCertificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key, which must be its user's alone.
    pub key: PathBuf,
}

/// Why a store failed. The controller that was refused a write must end.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened, read or written.
    #[error("state in {place}: {cause}")]
    Failed {
        /// Where the store is.
        place: String,
        /// What went wrong, and what to type if it is known.
        cause: String,
    },
    /// Another controller serves from this store.
    #[error("state in {place}: controller {holder} serves from it; stop that one first, or name another place")]
    Taken {
        /// Where the store is.
        place: String,
        /// Who has it.
        holder: String,
    },
    /// Another controller has taken over from this one.
    #[error(
        "state in {place}: another controller has taken over, because this one was silent for too long; start it again"
    )]
    Deposed {
        /// Where the store is.
        place: String,
    },
    /// A file that is needed to speak with etcd cannot be used.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// This build has no client of etcd.
    #[error(
        "state in {place}: this build has no client of etcd; build one with cargo build --release --features etcd, or \
         type --state PATH to keep the state in a file"
    )]
    NotBuilt {
        /// Where the store is.
        place: String,
    },
}

/// All records in the store.
pub(crate) fn load(store: &mut dyn Store, place: &str) -> Result<Vec<Record>, StoreError> {
    let records = store.scan("")?.into_iter().map(|(key, value)| {
        serde_json::from_slice(&value).map_err(|error| StoreError::Failed {
            place: place.to_owned(),
            cause: format!("record '{key}' cannot be read ({error}): is it of another release?"),
        })
    });
    records.collect()
}

/// Makes changes durable.
pub(crate) fn commit(store: &mut dyn Store, changes: &[Change]) -> Result<(), StoreError> {
    if changes.is_empty() { Ok(()) } else { store.commit(&writes(changes)) }
}

/// The writes for some changes: in order, and for each key only the last.
fn writes(changes: &[Change]) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::with_capacity(changes.len());
    for change in changes {
        let write = match change {
            Change::Put(record) => {
                let value = serde_json::to_vec(record).expect("a record has only text keys");
                Write::Put { key: record.key().to_string(), value }
            }
            Change::Delete(key) => Write::Delete { key: key.to_string() },
            Change::DeleteRegions(pid) => Write::DeletePrefix { prefix: RecordKey::regions_of(*pid) },
        };
        writes.retain(|earlier| !write.covers(earlier));
        writes.push(write);
    }
    writes
}

impl Write {
    /// Whether nothing is left of `earlier` after this.
    fn covers(&self, earlier: &Self) -> bool {
        let key = match earlier {
            Self::Put { key, .. } | Self::Delete { key } => key,
            Self::DeletePrefix { prefix } => prefix,
        };
        match self {
            Self::Put { key: own, .. } | Self::Delete { key: own } => own == key,
            Self::DeletePrefix { prefix } => key.starts_with(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_placement::{Key, Keys, NodeId, Pid, RegionRecord, SpaceRecord};

    use super::*;

    fn region(pid: Pid, region: u32, owner: u64) -> Change {
        let record = RegionRecord::new(NodeId(owner));
        Change::Put(Record::Region { pid, region, record })
    }

    #[test]
    fn the_last_change_of_a_key_is_the_only_one() {
        let (a, b) = (Pid::FIRST, Pid(Pid::FIRST.0 + 1));
        let changes = [
            region(a, 1, 1),
            region(a, 1, 2),
            region(b, 1, 3),
            Change::Delete(RecordKey::Space(a)),
            Change::DeleteRegions(a),
        ];
        let writes = writes(&changes);
        assert_eq!(writes.len(), 3);
        assert!(matches!(&writes[0], Write::Put { key, .. } if key == "region/80000001/00000001"));
        assert_eq!(writes[1], Write::Delete { key: "space/80000000".to_owned() });
        assert_eq!(writes[2], Write::DeletePrefix { prefix: "region/80000000/".to_owned() });
    }

    /// What every store must do.
    pub(super) fn keeps_what_it_is_told(store: &mut dyn Store) {
        let keys = Keys { owner: Key(3), read_write: Key(2), read: Key(1) };
        let space = Record::Space { pid: Pid::FIRST, space: SpaceRecord { keys, maker: None, lease_ms: 60_000 } };
        let regions = [1, 2, 3].map(|number| region(Pid::FIRST, number, 5));
        commit(store, &[Change::Put(space.clone())]).unwrap();
        commit(store, &regions).unwrap();
        assert_eq!(load(store, "here").unwrap().len(), 4);
        assert_eq!(store.scan(&RecordKey::regions_of(Pid::FIRST)).unwrap().len(), 3);
        assert_eq!(store.scan("nothing").unwrap(), []);
        commit(store, &[Change::Delete(RecordKey::Region(Pid::FIRST, 2)), region(Pid::FIRST, 3, 6)]).unwrap();
        let found = store.scan("region/").unwrap();
        assert_eq!(found.len(), 2);
        assert!(String::from_utf8_lossy(&found[1].1).contains("0000000000000006"));
        commit(store, &[Change::DeleteRegions(Pid::FIRST)]).unwrap();
        assert_eq!(load(store, "here").unwrap(), [space]);
        store.announce("node", b"there", Duration::from_secs(3)).unwrap();
    }
}
