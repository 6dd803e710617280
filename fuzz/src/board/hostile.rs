//! [`Hostile`]: a client that sends anything, and what it may use and what not.
//!
//! It owns an address space and one that a controller has named, may read a third, and knows number and place of the
//! honest client's. Its requests carry any of these with any capability.

use std::collections::BTreeSet;

use yonder_board::Pid;
use yonder_simulation::encoded;
use yonder_wire::{
    AdoptRequest, AdoptStage, AdoptedAllocation, AllocateRequest, Backing, Direction, Header, InventoryList, Kind,
    MESSAGE_BYTES_MAX, Permission, Rights,
};

use super::honest::Honest;
use super::node::{Answer, Credential, Node, PAGE, REGION_PAGES, allocation};
use crate::script::Step;

/// An address space that a controller names.
pub(super) const NAMED: u32 = 1 << 31;
/// What the shared space's page is filled with.
const SHARED: u8 = 0x5a;
/// Names of its own requests in the beginning; later ones are whatever the input says.
const FIRST_ID: u64 = 1 << 61;
/// The usual kinds, which it sends more often than the others.
const USUAL: [Kind; 8] =
    [Kind::Read, Kind::Write, Kind::Atomic, Kind::Allocate, Kind::Free, Kind::Discard, Kind::Adopt, Kind::Adopt];

/// The hostile client.
#[derive(Debug)]
pub(super) struct Hostile {
    own: Credential,
    named: Credential,
    /// An address space of somebody else, of which it may read a page; its owner's capability is not the attacker's.
    shared: Credential,
    shared_owner: Credential,
    shared_address: u64,
    honest: u32,
    honest_base: u64,
    /// What it was given last.
    latest: Credential,
    latest_address: u64,
    /// The honest client's.
    secret: [u8; 16],
    /// Names of what it has sent. A node answers a later request of such a name as the first one, whoever it is for.
    used: BTreeSet<u64>,
    next_id: u64,
}

impl Hostile {
    pub(super) fn new(node: &mut Node, honest: &Honest) -> Self {
        let mut hostile = Self {
            own: Credential::default(),
            named: Credential::default(),
            shared: Credential::default(),
            shared_owner: Credential::default(),
            shared_address: 0,
            honest: honest.own.pid,
            honest_base: honest.base,
            latest: Credential::default(),
            latest_address: 0,
            secret: honest.secret(),
            used: BTreeSet::new(),
            next_id: FIRST_ID,
        };
        hostile.own = hostile.create(node);
        let pid = Pid::new(NAMED).expect("a number");
        node.slow_path(|slow, _| slow.create_space(Some(pid), 0, 1)).expect("there is room");
        let capability = node.slow.capability(pid, Rights::Owner);
        hostile.named = Credential { pid: NAMED, capability };
        let owner = hostile.create(node);
        hostile.shared_owner = owner;
        let pid = Pid::new(owner.pid).expect("a number");
        let capability = node.slow.capability(pid, Rights::Read);
        hostile.shared = Credential { capability, ..owner };
        hostile.shared_address = hostile.allocate(node, owner);
        let filled = hostile.ask(node, owner, Kind::Write, hostile.shared_address, &[SHARED; PAGE as usize]);
        assert_eq!(filled.result(), Ok(()));
        hostile.latest_address = hostile.allocate(node, hostile.own);
        hostile
    }

    pub(super) fn own_pid(&self) -> u32 {
        self.own.pid
    }

    /// Sends something, and says what and what came of it.
    pub(super) fn act(&mut self, node: &mut Node, step: &mut Step<'_>) -> [u64; 3] {
        let kind = step.pick(&[&Kind::ALL[..], &USUAL].concat());
        let credential = self.credential(step);
        let address = self.address(step);
        let payload = if kind.carries_payload(Direction::Request) { self.payload(kind, step) } else { Vec::new() };
        let request_id = if step.once_in(3) { step.number() } else { 1 + step.below(40) }.max(1);
        let retry = step.below(8).min(request_id - 1);
        let mut header = Header::request(kind, request_id, address, step.number() as u32);
        header.first_id = request_id - retry;
        header.direction = if step.once_in(16) { Direction::Answer } else { Direction::Request };
        (header.pid, header.capability) = (credential.pid, credential.capability);
        header.fragment_offset = step.below(4) as u32;
        header.time = if step.once_in(4) { step.number() } else { node.now() };
        let payload = if kind.carries_payload(header.direction) { payload } else { Vec::new() };
        if kind.carries_payload(header.direction) || !payload.is_empty() {
            header.length = payload.len() as u32;
        }
        let room = if step.once_in(8) { 64 + step.index(64) } else { MESSAGE_BYTES_MAX };
        let bytes = [&header.seal(&payload)[..], &payload].concat();
        let answer = node.deliver(&bytes, room);
        let Some(answer) = answer else { return [2, kind as u64, 99] };
        self.check_secrecy(&answer);
        if self.used.insert(header.first_id) {
            self.check_rights(&answer);
        }
        [2, kind as u64 + 32 * u64::from(credential.pid == self.honest), answer.header.code as u64]
    }

    /// Nobody has changed what the attacker may only read.
    pub(super) fn check_shared(&mut self, node: &mut Node) {
        let (owner, address) = (self.shared_owner, self.shared_address);
        let header = self.header(node, owner, Kind::Read, address, PAGE as u32);
        let answer = node.ask(&header, &[]);
        assert_eq!(answer.result(), Ok(()));
        assert!(answer.payload.iter().all(|byte| *byte == SHARED), "memory was changed that may only be read");
    }

    /// Nothing of the honest client is in an answer, neither bytes nor a right.
    fn check_secrecy(&self, answer: &Answer) {
        let Header { kind, pid, .. } = answer.header;
        let leaks = |payload: &[u8]| payload.windows(self.secret.len()).any(|window| window == self.secret);
        assert!(kind != Kind::Read || !leaks(&answer.payload), "the secret was given away");
        if kind == Kind::Grant && answer.result().is_ok() {
            assert!(pid != self.honest && pid != self.shared.pid, "a right was given away by who has none to give");
        }
    }

    /// A new request was done only if it may be. What it was given it uses from now on.
    fn check_rights(&mut self, answer: &Answer) {
        let Header { kind, pid, capability, address, .. } = answer.header;
        if answer.result().is_err() {
            return;
        }
        match kind {
            Kind::CreateSpace | Kind::Grant => self.latest = Credential { pid, capability },
            Kind::Allocate => self.latest_address = address,
            Kind::Read => assert_ne!(pid, self.honest, "a read was allowed without a right"),
            Kind::Hello | Kind::Ping | Kind::Abort | Kind::Status | Kind::Call => {}
            _ => assert!(pid != self.honest && pid != self.shared.pid, "a {kind:?} was allowed without a right"),
        }
    }

    fn credential(&self, step: &mut Step<'_>) -> Credential {
        let honest = |capability| Credential { pid: self.honest, capability };
        let raised = |of: Credential| Credential { capability: of.capability | 3 << 64, ..of };
        match step.below(16) {
            0..4 => self.own,
            4..7 => self.named,
            7 => honest(self.own.capability),
            8 => honest(u128::from(step.number()) << 64 | u128::from(step.number())),
            9 => honest(self.shared.capability),
            10 | 11 => self.shared,
            12 => raised(self.shared),
            13 => Credential::default(),
            14 => Credential { pid: step.number() as u32, capability: self.own.capability },
            _ => self.latest,
        }
    }

    /// Near what is there, or anywhere.
    fn address(&self, step: &mut Step<'_>) -> u64 {
        let base = match step.below(8) {
            0 => 0,
            1 => self.honest_base,
            2 => self.shared_address,
            3 => REGION_PAGES * PAGE,
            4 => return step.number(),
            5 => u64::from(u32::MAX) * PAGE,
            _ => self.latest_address,
        };
        let within = if step.once_in(2) { step.pick(&[0, 8, 1, PAGE - 8, PAGE - 1, PAGE / 2]) } else { 0 };
        base.wrapping_add(step.below(6) * PAGE).wrapping_add(within)
    }

    fn payload(&self, kind: Kind, step: &mut Step<'_>) -> Vec<u8> {
        if step.once_in(8) {
            return step.rest().to_vec();
        }
        let mut payload = match kind {
            Kind::Atomic => atomic(step),
            Kind::Allocate => self.allocation(step),
            Kind::Adopt => self.adoption(step),
            _ => vec![step.byte(); step.pick(&[1, 8, 64, 65, PAGE, PAGE + 1, 3 * PAGE, 65_536]) as usize],
        };
        if step.once_in(16) {
            payload.pop();
        }
        payload
    }

    fn allocation(&self, step: &mut Step<'_>) -> Vec<u8> {
        let bytes = if step.once_in(4) { step.number() } else { step.below(30) * PAGE };
        let (permission, backing) = (permission(step), backing(step));
        let (from, to) = if step.once_in(3) { (self.address(step), self.address(step)) } else { (0, 0) };
        encoded(&AllocateRequest { bytes, permission, backing, from, to })
    }

    /// A stage of a transfer of a region, with an inventory that may make no sense.
    fn adoption(&self, step: &mut Step<'_>) -> Vec<u8> {
        let first = step.below(4) * 4;
        let pages = 1 + step.below(20);
        let (from, to) = (first * PAGE, (first + pages) * PAGE);
        let content = vec![step.byte(); 1 + step.below(2 * PAGE) as usize];
        let allocation = |step: &mut Step<'_>| AdoptedAllocation {
            first: if step.once_in(8) { step.number() as u32 } else { (first + step.below(6)) as u32 },
            pages: if step.once_in(8) { step.number() as u32 } else { step.below(4) as u32 },
            permission: permission(step),
            backing: backing(step),
        };
        let stage = step.below(6);
        let allocations: Vec<_> = (0..step.below(3)).map(|_| allocation(step)).collect();
        let with_memory: Vec<_> = (0..step.below(3)).map(|_| (first + step.below(6)) as u32).collect();
        let list = InventoryList::new(allocations, with_memory).expect("they are few");
        let stage = match stage {
            0 | 1 => AdoptStage::Begin(list.inventory()),
            2 => AdoptStage::Fill(&content),
            3 => AdoptStage::Prepare,
            4 => AdoptStage::Finish,
            _ => AdoptStage::Abandon,
        };
        AdoptRequest { transfer: step.below(6), from, to, stage }.to_bytes()
    }

    fn create(&mut self, node: &mut Node) -> Credential {
        let header = self.ask(node, Credential::default(), Kind::CreateSpace, 0, &[]).header;
        Credential { pid: header.pid, capability: header.capability }
    }

    fn allocate(&mut self, node: &mut Node, of: Credential) -> u64 {
        self.ask(node, of, Kind::Allocate, 0, &allocation(PAGE)).header.address
    }

    fn ask(&mut self, node: &mut Node, by: Credential, kind: Kind, address: u64, payload: &[u8]) -> Answer {
        let header = self.header(node, by, kind, address, payload.len() as u32);
        node.ask(&header, payload)
    }

    fn header(&mut self, node: &Node, by: Credential, kind: Kind, address: u64, length: u32) -> Header {
        self.next_id += 1;
        node.request(by, kind, self.next_id, address, length)
    }
}

fn permission(step: &mut Step<'_>) -> Permission {
    if step.once_in(4) { Permission::Read } else { Permission::ReadWrite }
}

fn backing(step: &mut Step<'_>) -> Backing {
    if step.once_in(4) { Backing::Now } else { Backing::OnDemand }
}

fn atomic(step: &mut Step<'_>) -> Vec<u8> {
    let (operation, operand, expected) = (step.below(6) as u32, step.number(), step.below(4));
    let reserved = u32::from(step.once_in(16));
    [&operation.to_le_bytes()[..], &reserved.to_le_bytes(), &operand.to_le_bytes(), &expected.to_le_bytes()].concat()
}
