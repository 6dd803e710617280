//! [`State`]: all records, by key, and the changes to them that are not durable yet.
//!
//! Invariant: records change only through [`State::put`] and [`State::delete`] and their kin, which note every change.
//! So what a store has after the changes is what is here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::names::{NodeId, Pid};
use crate::record::{Change, ClusterRecord, NodeRecord, Presence, Record, RecordKey, RegionRecord, SpaceRecord};

/// The records.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cluster: ClusterRecord,
    pub(crate) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(crate) spaces: BTreeMap<Pid, SpaceRecord>,
    pub(crate) presences: BTreeMap<(Pid, NodeId), Presence>,
    pub(crate) regions: BTreeMap<(Pid, u32), RegionRecord>,
    changes: Vec<Change>,
}

impl State {
    /// No records but the cluster's own.
    pub(crate) fn new(cluster: ClusterRecord) -> Self {
        Self {
            cluster,
            nodes: BTreeMap::new(),
            spaces: BTreeMap::new(),
            presences: BTreeMap::new(),
            regions: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Adds a record that is durable already.
    pub(crate) fn load(&mut self, record: Record) {
        match record {
            Record::Cluster(cluster) => self.cluster = cluster,
            Record::Node(node) => drop(self.nodes.insert(node.facts.node, node)),
            Record::Space { pid, space } => drop(self.spaces.insert(pid, space)),
            Record::Presence { pid, node, presence } => drop(self.presences.insert((pid, node), presence)),
            Record::Region { pid, region, record } => drop(self.regions.insert((pid, region), record)),
        }
    }

    /// Adds or replaces a record.
    pub(crate) fn put(&mut self, record: Record) {
        self.changes.push(Change::Put(record.clone()));
        self.load(record);
    }

    /// Replaces what is known of a region.
    pub(crate) fn put_region(&mut self, (pid, region): (Pid, u32), record: RegionRecord) {
        self.put(Record::Region { pid, region, record });
    }

    /// Replaces what is known of a node's knowledge of a space.
    pub(crate) fn put_presence(&mut self, pid: Pid, node: NodeId, presence: Presence) {
        self.put(Record::Presence { pid, node, presence });
    }

    /// Changes what the cluster counts.
    pub(crate) fn count(&mut self, change: impl FnOnce(&mut ClusterRecord)) {
        let mut cluster = self.cluster.clone();
        change(&mut cluster);
        self.put(Record::Cluster(cluster));
    }

    /// Removes a record other than the cluster's.
    pub(crate) fn delete(&mut self, key: RecordKey) {
        match key {
            RecordKey::Cluster => unreachable!("a cluster has a record for as long as it exists"),
            RecordKey::Node(node) => drop(self.nodes.remove(&node)),
            RecordKey::Space(pid) => drop(self.spaces.remove(&pid)),
            RecordKey::Presence(pid, node) => drop(self.presences.remove(&(pid, node))),
            RecordKey::Region(pid, region) => drop(self.regions.remove(&(pid, region))),
        }
        self.changes.push(Change::Delete(key));
    }

    /// Removes all regions of a space.
    pub(crate) fn delete_regions(&mut self, pid: Pid) {
        let regions: Vec<u32> = self.regions_of(pid).map(|(region, _)| region).collect();
        for region in regions {
            self.regions.remove(&(pid, region));
        }
        self.changes.push(Change::DeleteRegions(pid));
    }

    /// Ends what is left of spaces whose end was cut off after its first record: their nodes must still be told.
    pub(crate) fn end_spaces_without_record(&mut self) {
        let has_ended = |pid: &Pid| !self.spaces.contains_key(pid);
        let orphans = self.presences.iter().filter(|(_, presence)| **presence != Presence::Ending);
        let orphans: Vec<(Pid, NodeId)> = orphans.map(|(key, _)| *key).filter(|(pid, _)| has_ended(pid)).collect();
        let regions: BTreeSet<Pid> = self.regions.keys().map(|(pid, _)| *pid).filter(has_ended).collect();
        for (pid, node) in orphans {
            self.put_presence(pid, node, Presence::Ending);
        }
        for pid in regions {
            self.delete_regions(pid);
        }
    }

    /// How many changes there are since they were taken.
    pub(crate) fn changes_made(&self) -> usize {
        self.changes.len()
    }

    /// The changes since the last call, oldest first.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        mem::take(&mut self.changes)
    }

    /// The numbers and records of a space's regions, lowest first.
    pub(crate) fn regions_of(&self, pid: Pid) -> impl Iterator<Item = (u32, &RegionRecord)> {
        self.regions.range((pid, 0)..=(pid, u32::MAX)).map(|((_, region), record)| (*region, record))
    }

    /// Whether the node has made the space.
    pub(crate) fn ready(&self, pid: Pid, node: NodeId) -> bool {
        matches!(self.presences.get(&(pid, node)), Some(Presence::Ready(_)))
    }

    /// How the node is called in messages to people.
    pub(crate) fn url(&self, node: NodeId) -> String {
        self.nodes.get(&node).and_then(|record| record.facts.urls.first()).cloned().unwrap_or_else(|| node.to_string())
    }
}
