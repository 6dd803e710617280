//! A client that asks the controller where a region is, and asks again when a node says that it has moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_client::{Operation, Outcome};
use yonder_controller::{ControllerClient, Space};
use yonder_fabric::lane::{Data, Lane, NodeAddress, NodeSession};
use yonder_placement::{NodeId, Placement};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Header, Kind, Permission};

use crate::cluster::scene::{REGION, Scene, TIMEOUT};

/// Longest sleep of a client that waits for an answer.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread's way to an address space.
pub(crate) struct Router {
    pub(crate) controller: ControllerClient,
    pub(crate) space: Space,
    places: HashMap<u32, Placement>,
    lanes: HashMap<NodeId, Lane>,
    /// How often a region was not where it had been.
    pub(crate) moved: usize,
}

/// The bytes of one operation, and its answer.
#[derive(Default)]
struct Transfer {
    bytes: Vec<u8>,
    answer: Option<Header>,
}

impl Data for Transfer {
    fn copy_out(&mut self, _token: u64, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset as usize..][..into.len()]);
    }

    fn copy_in(&mut self, _token: u64, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn answer(&mut self, _token: u64, header: &Header, _payload: &[u8]) {
        self.answer = Some(*header);
    }
}

impl Router {
    /// A client with an address space of its own.
    pub(crate) fn create(scene: &Scene) -> Self {
        let mut controller = scene.client();
        let space = controller.create_space().unwrap();
        Self::open(scene, space)
    }

    /// A client of an address space that is there.
    pub(crate) fn open(scene: &Scene, space: Space) -> Self {
        Self { controller: scene.client(), space, places: HashMap::new(), lanes: HashMap::new(), moved: 0 }
    }

    /// Allocates a region but for one page, in a region of its own; returns the address.
    pub(crate) fn allocate_region(&mut self) -> u64 {
        let owner = self.space.keys.owner;
        let placed = self.controller.place(self.space.pid, owner, REGION, &[]).unwrap().remove(0);
        self.allocate_in(placed)
    }

    /// Allocates a region but for one page at this place; returns the address.
    pub(crate) fn allocate_in(&mut self, placed: Placement) -> u64 {
        let (from, bytes) = (u64::from(placed.region) * REGION, REGION - crate::cluster::scene::PAGE);
        let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
        let request = AllocateRequest { bytes, permission, backing, from, to: from + REGION };
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        self.places.insert(placed.region, placed);
        let (outcome, transfer) = self.route(Kind::Allocate, from, 0, &body, Vec::new());
        assert_eq!(outcome, Outcome::Done);
        transfer.answer.expect("it was answered").address
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        let (outcome, _) = self.route(Kind::Write, address, bytes.len() as u64, &[], bytes.to_vec());
        assert_eq!(outcome, Outcome::Done);
    }

    pub(crate) fn read(&mut self, address: u64, length: usize) -> Vec<u8> {
        let (outcome, transfer) = self.route(Kind::Read, address, length as u64, &[], vec![0; length]);
        assert_eq!(outcome, Outcome::Done);
        transfer.bytes
    }

    /// Reads where the region was last seen, for a moment only: whether the node was busy.
    pub(crate) fn is_held_up(&mut self, address: u64) -> bool {
        let moment = Duration::from_millis(20);
        let (outcome, _) = self.ask(Kind::Read, address, 1, &[], vec![0], moment);
        assert!(matches!(outcome, Outcome::Done | Outcome::TimedOut), "{outcome:?}");
        let node = self.place(address).node;
        outcome == Outcome::TimedOut && self.lanes[&node].stats().busy > 0
    }

    /// Reads a byte at the node of `place`, wherever the region is.
    pub(crate) fn read_at(&mut self, place: &Placement, address: u64) -> Outcome {
        let known = self.places.insert(place.region, place.clone());
        let (outcome, _) = self.ask(Kind::Read, address, 1, &[], vec![0], TIMEOUT);
        match known {
            Some(known) => drop(self.places.insert(place.region, known)),
            None => drop(self.places.remove(&place.region)),
        }
        outcome
    }

    /// One stage of a transfer, sent to the node that has the region of `like`.
    pub(crate) fn adopt(&mut self, like: u64, payload: Vec<u8>) -> Outcome {
        self.ask(Kind::Adopt, like, payload.len() as u64, &[], payload, TIMEOUT).0
    }

    /// Where the region of an address is, as far as this client knows.
    pub(crate) fn place(&mut self, address: u64) -> Placement {
        let region = (address / REGION) as u32;
        if !self.places.contains_key(&region) {
            let place = self.controller.locate(self.space.pid, self.space.keys.owner, region).unwrap();
            self.places.insert(region, place);
        }
        self.places[&region].clone()
    }

    /// Forgets where regions are.
    pub(crate) fn look_again(&mut self) {
        self.places.clear();
    }

    /// Performs an operation wherever the region is.
    fn route(&mut self, kind: Kind, address: u64, length: u64, body: &[u8], bytes: Vec<u8>) -> (Outcome, Transfer) {
        let start = Instant::now();
        loop {
            let (outcome, transfer) = self.ask(kind, address, length, body, bytes.clone(), TIMEOUT);
            if outcome != Outcome::Refused(ErrorCode::Moved) {
                return (outcome, transfer);
            }
            assert!(start.elapsed() < TIMEOUT, "the region is nowhere");
            self.moved += 1;
            self.places.remove(&((address / REGION) as u32));
        }
    }

    fn ask(
        &mut self,
        kind: Kind,
        address: u64,
        length: u64,
        body: &[u8],
        bytes: Vec<u8>,
        timeout: Duration,
    ) -> (Outcome, Transfer) {
        let place = self.place(address);
        let open = || {
            let address = NodeAddress::resolve(&place.urls[0]).unwrap().remove(0);
            Lane::open(&address, 4, &Arc::new(NodeSession::default())).unwrap().lane
        };
        let lane = self.lanes.entry(place.node).or_insert_with(open);
        let (pid, capability) = (self.space.pid.0, place.capability.0);
        let deadline = yonder_clock::now() + timeout.as_nanos() as u64;
        let operation = Operation { kind, pid, capability, address, length, body, deadline, token: 1 };
        lane.submit(&operation, yonder_clock::now()).unwrap();
        let mut transfer = Transfer { bytes, answer: None };
        loop {
            let now = yonder_clock::now();
            lane.poll(now, &mut transfer);
            if let Some(completion) = lane.completion() {
                return (completion.outcome, transfer);
            }
            lane.wait(now, PAUSE);
        }
    }
}
