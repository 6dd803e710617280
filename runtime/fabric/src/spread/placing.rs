//! How places are found: the controller names nodes, and these give memory.
//!
//! It may take a while: a controller has some seconds for an answer. Of the keeper, and of allocations.

use yonder_controller::ClientError;
use yonder_placement::{APART_PER_REQUEST_MAX, NodeId, PlacesWanted, Refusal};
use yonder_protect::SlotSet;
use yonder_units::Narrow;
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Permission};

use super::group::{Address, Entry};
use super::nodes::FailedCall;
use super::{Event, Shared, failed};
use crate::FabricError;
use crate::cluster::{ClusterError, Location};
use crate::lane::CallError;

/// How often an allocation is tried anew because nodes had filled up since the controller last heard of them.
const ATTEMPTS_MAX: usize = 16;
/// Nodes that places are kept apart from to begin with: attempts that fail add others.
const APART_KEPT: usize = APART_PER_REQUEST_MAX / 2;

/// A place that a node has given memory at.
pub(super) struct Given {
    pub(super) region: u32,
    pub(super) address: Address,
}

/// Why no place was found.
pub(super) struct Unplaced {
    pub(super) error: FabricError,
    /// No node that may have it has room: others may be asked for.
    pub(super) is_refusal: bool,
}

impl Shared {
    /// Has places found for `bytes` of a group and memory given there: a new group's, or further ones.
    pub(super) fn find_places(
        &self,
        bytes: u64,
        places: u8,
        group: Option<u32>,
        apart: &[NodeId],
    ) -> Result<(u32, Vec<Given>), Unplaced> {
        // Those that have a place come first.
        let apart = apart.iter().copied().take(APART_KEPT).collect();
        let mut wanted = PlacesWanted { bytes, places: places.into(), group, apart, avoid: Vec::new() };
        let mut given = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let placed = self.cluster.place_group(&wanted).map_err(|error| Unplaced::by(&self.url, bytes, error));
            let (name, placed) = placed.inspect_err(|_| self.give_back(&given))?;
            let mut refused = None;
            for (region, location) in &placed {
                match self.take(*region, location, bytes) {
                    Ok(taken) => {
                        given.push(taken);
                        wanted.apart.push(location.node);
                    }
                    Err(error) => {
                        wanted.avoid.push(*region);
                        wanted.apart.push(location.node);
                        // Nothing is there, so whoever frees it is welcome.
                        let _ = self.cluster.give_up(*region);
                        refused = Some(error);
                    }
                }
            }
            while wanted.apart.len() > APART_PER_REQUEST_MAX {
                // Of those that were found since, the first.
                wanted.apart.remove(APART_KEPT);
            }
            wanted.group = Some(name);
            wanted.places = (usize::from(places) - given.len()).narrow_u32();
            match refused {
                None => return Ok((name, given)),
                Some(FabricError::OutOfMemory { .. } | FabricError::Unreachable { .. }) => {}
                Some(error) => {
                    self.give_back(&given);
                    return Err(Unplaced { error, is_refusal: false });
                }
            }
        }
        self.give_back(&given);
        Err(Unplaced { error: FabricError::OutOfMemory { url: self.url.clone(), bytes }, is_refusal: true })
    }

    /// Has memory given in a region.
    fn take(&self, region: u32, location: &Location, bytes: u64) -> Result<Given, FabricError> {
        let index = self.nodes.know(location)?;
        self.nodes.connect(index)?;
        let node = self.nodes.get(index);
        let from = u64::from(region) * self.cluster.region_bytes();
        let to = from + self.cluster.region_bytes();
        let request = AllocateRequest { bytes, permission: Permission::ReadWrite, backing: Backing::Now, from, to };
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        match node.call(Kind::Allocate, 0, 0, &body) {
            Ok(answer) => Ok(Given { region, address: Address { node: index, start: answer.header.address } }),
            // It has filled up since the controller last heard of it, the region is on its way, or it has forgotten the
            // address space: others are tried.
            Err(FailedCall::Call(CallError::Refused(
                ErrorCode::OutOfMemory
                | ErrorCode::BadAddress
                | ErrorCode::BadLength
                | ErrorCode::BadCapability
                | ErrorCode::Moved,
            ))) => Err(FabricError::OutOfMemory { url: self.url.clone(), bytes }),
            Err(FailedCall::Open(error)) => Err(error),
            Err(FailedCall::Call(CallError::Refused(code))) => {
                Err(FabricError::System { url: node.url(), cause: code.to_string() })
            }
            Err(FailedCall::Call(error)) => Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() }),
        }
    }

    /// Gives places back that nobody has used.
    pub(super) fn give_back(&self, given: &[Given]) {
        for Given { region, address } in given {
            // What cannot be freed ends with the address space.
            let _ = self.nodes.get(address.node).call(Kind::Free, address.start, 0, &[]);
            let _ = self.cluster.give_up(*region);
        }
    }

    /// Puts new places into a group that has too few, one after another, at any node if need be.
    pub(super) fn replace_missing(&self, entry: &Entry) -> Result<(), Unplaced> {
        let left = self.nodes.left();
        while self.lacks_places(entry, SlotSet::NONE) {
            match self.add_place(entry, &left) {
                Err(Unplaced { is_refusal: true, .. }) if !left.is_empty() => self.add_place(entry, &[])?,
                added => added?,
            }
        }
        Ok(())
    }

    /// Puts places into a group beside those that are evacuated, at nodes that writes do not wait for.
    pub(super) fn replace_evacuated(&self, entry: &Entry) -> Result<(), Unplaced> {
        let left = self.nodes.left();
        while self.lacks_places(entry, entry.group.evacuated()) {
            self.add_place(entry, &left)?;
        }
        Ok(())
    }

    /// Whether a group has fewer live places at nodes than it should, without some, and a slot for one.
    pub(super) fn lacks_places(&self, entry: &Entry, without: SlotSet) -> bool {
        let there = self.of_nodes(entry.group.view().live() - without).count();
        there < self.nodes_wanted() && self.has_free_slot(entry)
    }

    fn has_free_slot(&self, entry: &Entry) -> bool {
        !self.of_nodes(entry.group.view().free()).is_empty()
    }

    /// Puts a new place into a group, at none of some nodes.
    fn add_place(&self, entry: &Entry, without: &[NodeId]) -> Result<(), Unplaced> {
        let at_nodes = entry.kept().filter(|kept| kept.region.is_some());
        let mut apart: Vec<NodeId> = at_nodes.map(|kept| self.nodes.get(kept.address.node).id).collect();
        apart.extend(self.nodes.silent(yonder_clock::now()));
        apart.extend(without);
        let (_, given) = self.find_places(entry.bytes(), 1, Some(entry.name()), &apart)?;
        let slot = self.of_nodes(entry.group.view().free()).first().expect("only the keeper fills slots");
        match given[..] {
            [Given { region, address }] if entry.adopt(slot, Some(region), address) => {
                self.count(Event::Replaced);
                Ok(())
            }
            _ => {
                self.give_back(&given);
                let cause = "the memory was released meanwhile".to_owned();
                Err(Unplaced { error: FabricError::System { url: self.url.clone(), cause }, is_refusal: true })
            }
        }
    }
}

impl Unplaced {
    fn by(url: &str, bytes: u64, error: ClusterError) -> Self {
        let refused = matches!(
            error,
            ClusterError::Controller(ClientError::Refused(Refusal::NoRoom { .. } | Refusal::TooFewNodes { .. }))
        );
        Self { error: failed(url, bytes, error), is_refusal: refused }
    }
}
