//! Where the controller's records are: [`Store`], and the text that records have there.
//!
//! Invariant: after [`Store::commit`] has returned well, a store that is opened at the same place has the writes,
//! whatever happened to this process.

#[cfg(feature = "etcd")]
mod announced;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod memory;
#[cfg(feature = "etcd")]
mod tenure;
#[cfg(not(feature = "etcd"))]
mod without_etcd;

pub use embedded::EmbeddedStore;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
pub use memory::MemoryStore;
#[cfg(not(feature = "etcd"))]
pub use without_etcd::EtcdStore;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use yonder_identity::IdentityError;
use yonder_placement::{Change, RECORDS_FORMAT_READ_MAX, Record, RecordKey, RestoreError};

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

    /// [`StoreError::Deposed`] if this controller may not lead any more: what it would answer may be another one's to
    /// say. Asks no one; where a renewal is late it is waited for.
    fn leads(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Asks the same for other threads, without waiting: what is not certain is a no.
    fn tenure_probe(&self) -> TenureProbe {
        Arc::new(|| true)
    }
}

/// Whether a controller leads, for threads that do not own its store.
pub type TenureProbe = Arc<dyn Fn() -> bool + Send + Sync>;

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
    #[error("state in {place}: another controller has taken over, because this one was silent for too long")]
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

/// All records in the store. Those of a later release are not read, for it may have some that this one cannot read.
pub(crate) fn load(store: &mut dyn Store, place: &str) -> Result<Vec<Record>, StoreError> {
    let failed = |cause| StoreError::Failed { place: place.to_owned(), cause };
    let stored = store.scan("")?;
    if let Some(stored) = format_of(&stored).filter(|format| *format > RECORDS_FORMAT_READ_MAX) {
        return Err(failed(RestoreError::Format { stored }.to_string()));
    }
    let records = stored.into_iter().map(|(key, value)| {
        let cause = |error| failed(format!("record '{key}' cannot be read ({error}): is it of another release?"));
        serde_json::from_slice(&value).map_err(cause)
    });
    records.collect()
}

/// The format that the cluster's record says, if there is one that says so, whatever else it has.
fn format_of(stored: &[(String, Vec<u8>)]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Cluster {
        cluster: Format,
    }
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let (_, record) = stored.iter().find(|(key, _)| *key == RecordKey::Cluster.to_string())?;
    serde_json::from_slice(record).ok().map(|Cluster { cluster: Format { format } }| format)
}

/// Makes changes durable.
pub(crate) fn commit(store: &mut dyn Store, changes: &[Change]) -> Result<(), StoreError> {
    if changes.is_empty() { Ok(()) } else { store.commit(&writes(changes)) }
}

/// The writes for some changes: in order, and for each key only the last.
fn writes(changes: &[Change]) -> Vec<Write> {
    let (mut keys, mut spaces) = (BTreeSet::new(), BTreeSet::new());
    let mut is_last_of = |change: &Change| {
        let key = match change {
            Change::Put(record) => record.key(),
            Change::Delete(key) => *key,
            Change::DeleteRegions(pid) => return spaces.insert(*pid),
        };
        !matches!(key, RecordKey::Region(pid, _) if spaces.contains(&pid)) && keys.insert(key)
    };
    let mut writes: Vec<Write> = changes.iter().rev().filter(|change| is_last_of(change)).map(write).collect();
    writes.reverse();
    writes
}

fn write(change: &Change) -> Write {
    match change {
        Change::Put(record) => {
            let value = serde_json::to_vec(record).expect("a record has only text keys");
            Write::Put { key: record.key().to_string(), value }
        }
        Change::Delete(key) => Write::Delete { key: key.to_string() },
        Change::DeleteRegions(pid) => Write::DeletePrefix { prefix: RecordKey::regions_of(*pid) },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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

    /// Every sequence of some changes, up to a length, comes to the same as they do one after the other.
    #[test]
    fn writes_come_to_what_the_changes_do() {
        let (a, b) = (Pid::FIRST, Pid(Pid::FIRST.0 + 1));
        let space = RecordKey::Space(a);
        let changes = [
            region(a, 1, 1),
            region(a, 1, 2),
            region(a, 2, 1),
            region(b, 1, 1),
            Change::Delete(RecordKey::Region(a, 1)),
            Change::Delete(space),
            Change::DeleteRegions(a),
        ];
        let begin = || {
            let mut store = MemoryStore::default();
            commit(&mut store, &[region(a, 1, 9), region(a, 3, 9), region(b, 1, 9), region(b, 2, 9)]).unwrap();
            store
        };
        for number in 0..changes.len().pow(4) {
            let digits = (0..4).map(|digit| number / changes.len().pow(digit) % changes.len());
            let sequence: Vec<Change> = digits.map(|digit| changes[digit].clone()).collect();
            let (mut one_by_one, mut together) = (begin(), begin());
            sequence.iter().for_each(|change| commit(&mut one_by_one, std::slice::from_ref(change)).unwrap());
            commit(&mut together, &sequence).unwrap();
            assert_eq!(one_by_one.scan("").unwrap(), together.scan("").unwrap(), "{sequence:?}");
            let key = |write| match write {
                Write::Put { key, .. } | Write::Delete { key } | Write::DeletePrefix { prefix: key } => key,
            };
            let mut keys: Vec<String> = writes(&sequence).into_iter().map(key).collect();
            keys.sort_unstable();
            assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{sequence:?}");
        }
    }

    /// Once each change was compared with all before it, which took minutes.
    #[test]
    fn many_changes_take_no_time() {
        let begun = Instant::now();
        let change = |number: u32| match number % 3 {
            0 => region(Pid(Pid::FIRST.0 + number / 7), number, 1),
            1 => Change::Delete(RecordKey::Presence(Pid(Pid::FIRST.0 + number), NodeId(1))),
            _ => Change::DeleteRegions(Pid(Pid::FIRST.0 + number / 7)),
        };
        assert!(writes(&(0..200_000).map(change).collect::<Vec<_>>()).len() > 60_000);
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn records_of_a_later_format_are_told_from_those_that_are_wrong() {
        let mut store = MemoryStore::default();
        let put = |key: RecordKey, value: &str| Write::Put { key: key.to_string(), value: value.as_bytes().to_vec() };
        store.commit(&[put(RecordKey::Node(NodeId(1)), r#"{"singer":{}}"#)]).unwrap();
        let told = load(&mut store, "here").unwrap_err().to_string();
        assert!(told.contains("cannot be read"), "{told}");
        let later = RECORDS_FORMAT_READ_MAX + 1;
        let cluster = format!(r#"{{"cluster":{{"id":7,"sung":true,"format":{later}}}}}"#);
        store.commit(&[put(RecordKey::Cluster, &cluster)]).unwrap();
        let told = load(&mut store, "here").unwrap_err().to_string();
        assert!(told.contains(&format!("format {later}")) && told.contains("use the later release"), "{told}");
    }

    /// What every store must do.
    pub(super) fn keeps_what_it_is_told(store: &mut dyn Store) {
        let keys = Keys { owner: Key(3), read_write: Key(2), read: Key(1) };
        let space = Record::Space { pid: Pid::FIRST, space: SpaceRecord::new(keys, None, 60_000) };
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
        // Those of its neighbours are not meant.
        let neighbours = [Pid(Pid::FIRST.0 - 1), Pid(Pid::FIRST.0 + 1)].map(|pid| region(pid, u32::MAX, 7));
        commit(store, &neighbours).unwrap();
        commit(store, &[Change::DeleteRegions(Pid::FIRST)]).unwrap();
        assert_eq!(store.scan("region/").unwrap().len(), 2);
        let end = |pid: u32| Change::DeleteRegions(Pid(pid));
        commit(store, &[end(Pid::FIRST.0 - 1), end(Pid::FIRST.0 + 1)]).unwrap();
        assert_eq!(load(store, "here").unwrap(), [space]);
        store.announce("node", b"there", Duration::from_secs(3)).unwrap();
    }
}
