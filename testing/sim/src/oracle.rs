//! [`Oracle`]: what one life of a node must do, by the simplest means: bytes in a map, and a ledger of every request by
//! the id of its first attempt that forgets nothing.
//!
//! It is told each request and its answer in the order in which the node made them, and what the node did to its memory
//! meanwhile. That order is the witness: if every answer is right when it was given, and each was given between the
//! start and the end of its operation (which `history` checks), all operations are linearizable. Invariant: an answer
//! that the node's limits alone explain (busy, too old, out of memory) is right only as long as it changes nothing.

mod answers;
mod endings;
mod leases;
mod voided;

use std::collections::{BTreeMap, HashMap};

use yonder_simulation::parts;
use yonder_units::Nanos;
use yonder_wire::{
    AllocateRequest, Allocated, AtomicOperation, Body, ErrorCode, Header, Kind, Message, Permission, Rights,
};

use crate::memory::Effect;
use answers::{Answered, answered, difference, well_formed};
pub(crate) use endings::Leaving;
use leases::Lease;

/// One life of a node, as it should be.
#[derive(Debug)]
pub(crate) struct Oracle {
    page_bytes: u64,
    spaces: BTreeMap<u32, Space>,
    ledger: HashMap<u64, Fate>,
    /// Capabilities that were good once, with their address space.
    voided: Vec<(u32, u128, Rights)>,
    /// Calls of the offload that were executed.
    calls: u64,
    /// The time of the simulation.
    now: Nanos,
    /// How often the node's clock has leapt by less than a step of leases.
    leaps: u64,
}

/// An address space.
#[derive(Debug)]
struct Space {
    owner: u128,
    capabilities: Vec<(u128, Rights)>,
    allocations: BTreeMap<u64, Allocation>,
    pages: HashMap<u64, Vec<u8>>,
    lease: Option<Lease>,
    /// It has begun to end, and the slow path knows nothing of it any more.
    is_ending: bool,
    /// What is being freed in pieces.
    leaving: Vec<Leaving>,
    /// Ranges that are not here, or not now.
    elsewhere: Vec<(u64, u64, Presence)>,
}

/// Where a range of an address space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// At this node.
    Here,
    /// On its way.
    Moving,
    /// At another node.
    Away,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: u64,
    permission: Permission,
}

/// What became of a request that may be executed once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It was executed, with this answer.
    Executed(Answered),
    /// It was refused, and is never to be executed.
    Refused,
    /// It was given up, and is never to be executed.
    Aborted,
}

/// What a request has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It was executed now, for the first time. The word before, for an atomic.
    Executed(u64),
    /// It had been executed, and got its answer again.
    Repeated,
    /// It was answered, and changes nothing.
    Looked,
    /// Nothing was done.
    Refused(ErrorCode),
}

impl Oracle {
    /// A node with pages of `page_bytes` that has just begun.
    #[must_use]
    pub(crate) fn new(page_bytes: u64) -> Self {
        Self {
            page_bytes,
            spaces: BTreeMap::new(),
            ledger: HashMap::new(),
            voided: Vec::new(),
            calls: 0,
            now: 0,
            leaps: 0,
        }
    }

    /// PID and owner's capability of every address space.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = (u32, u128)> {
        self.spaces.iter().map(|(pid, space)| (*pid, space.owner))
    }

    /// A range of an address space, from its first address to the one behind it, has begun or ended to move.
    pub(crate) fn set_presence(&mut self, (pid, from, to): (u32, u64, u64), presence: Presence) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        space.elsewhere.retain(|(start, ..)| *start != from);
        if presence != Presence::Here {
            space.elsewhere.push((from, to, presence));
        }
    }

    /// Whether something of what is asked for is as `presence` says.
    fn is_partly(&self, asked: &Header, presence: Presence) -> bool {
        let bytes = match asked.kind {
            Kind::Read | Kind::Write | Kind::Discard => u64::from(asked.length),
            Kind::Atomic | Kind::Free => 1,
            // If it fails for want of room, a node may blame the part of the window that is not here.
            Kind::Allocate if presence == Presence::Away => u64::MAX,
            _ => return false,
        };
        let end = asked.address.saturating_add(bytes);
        let overlaps =
            |(from, to, there): &(u64, u64, Presence)| *there == presence && *from < end && asked.address < *to;
        self.spaces.get(&asked.pid).is_some_and(|space| space.elsewhere.iter().any(overlaps))
    }

    /// Whether the request with this first id was executed.
    #[must_use]
    pub(crate) fn was_executed(&self, first_id: u64) -> bool {
        matches!(self.ledger.get(&first_id), Some(Fate::Executed(_)))
    }

    /// Whether `answer` is right for `request`, given what the node did to its memory meanwhile. The error says what is
    /// wrong.
    pub(crate) fn judge(
        &mut self,
        request: &Message<'_>,
        answer: &Message<'_>,
        effect: Effect,
    ) -> Result<Verdict, String> {
        let (asked, told) = (&request.header, &answer.header);
        if (told.kind, told.request_id, told.first_id) != (asked.kind, asked.request_id, asked.first_id) {
            return Err("the answer is to another request".to_owned());
        }
        if asked.kind == Kind::Abort {
            return self.judge_abort(asked, told, effect);
        }
        if told.is_refusal() {
            return self.judge_refusal(request, told.code, effect);
        }
        let fate = self.ledger.get(&asked.first_id).copied().filter(|_| asked.kind.is_exactly_once());
        match fate {
            Some(Fate::Executed(before)) => {
                unchanged(effect, "a copy of an executed request")?;
                let again = answered(answer)?;
                let right = again == before;
                if right {
                    Ok(Verdict::Repeated)
                } else {
                    Err(format!("a copy was answered {again:?}, not {before:?}"))
                }
            }
            Some(fate) => Err(format!("executed after it was {fate:?}")),
            None => self.execute(request, answer, effect),
        }
    }

    fn judge_abort(&mut self, asked: &Header, told: &Header, effect: Effect) -> Result<Verdict, String> {
        unchanged(effect, "an abort")?;
        let fate = self.ledger.get(&asked.first_id);
        match (told.code, told.length, fate) {
            (ErrorCode::None, 1, Some(Fate::Executed(_))) => Ok(Verdict::Repeated),
            (ErrorCode::None, 0, None | Some(Fate::Refused | Fate::Aborted)) => {
                self.ledger.insert(asked.first_id, Fate::Aborted);
                Ok(Verdict::Looked)
            }
            (ErrorCode::None, length, fate) => {
                Err(format!("an abort was answered {length} when the request was {fate:?}"))
            }
            (ErrorCode::TooOld, _, fate) => {
                if fate.is_none() {
                    self.ledger.insert(asked.first_id, Fate::Refused);
                }
                Ok(Verdict::Refused(ErrorCode::TooOld))
            }
            (ErrorCode::BadCapability, ..) if self.rights(asked).is_none() => {
                Ok(Verdict::Refused(ErrorCode::BadCapability))
            }
            (code, ..) if code.may_pass() => Ok(Verdict::Refused(code)),
            (code, ..) => Err(format!("an abort was refused: {code}")),
        }
    }

    fn judge_refusal(&mut self, request: &Message<'_>, code: ErrorCode, effect: Effect) -> Result<Verdict, String> {
        unchanged(effect, "a refused request")?;
        let asked = &request.header;
        let fate = self.ledger.get(&asked.first_id).copied().filter(|_| asked.kind.is_exactly_once());
        let explained = match (code, fate) {
            (ErrorCode::Busy | ErrorCode::Corrupt | ErrorCode::TooOld, _) => true,
            (_, Some(Fate::Executed(_))) => false,
            (ErrorCode::Aborted, fate) => fate == Some(Fate::Aborted),
            (_, Some(Fate::Refused | Fate::Aborted)) => true,
            (code, None) => self.explains(request, code),
        };
        if !explained {
            return Err(format!("refused ({code}) without a reason; it was {fate:?}"));
        }
        if fate.is_none() && !code.may_pass() && asked.kind.is_exactly_once() {
            self.ledger.insert(asked.first_id, Fate::Refused);
        }
        Ok(Verdict::Refused(code))
    }

    /// Whether a request that was not seen before deserves to be refused with `code`.
    fn explains(&self, request: &Message<'_>, code: ErrorCode) -> bool {
        let asked = &request.header;
        if code == ErrorCode::BadLength {
            return !well_formed(request);
        }
        if asked.pid != 0 && !self.spaces.contains_key(&asked.pid) {
            // Where nothing is, the address is as wrong as the capability.
            return matches!(code, ErrorCode::BadCapability | ErrorCode::BadAddress | ErrorCode::NotAllowed);
        }
        match code {
            ErrorCode::Moved => self.is_partly(asked, Presence::Away),
            ErrorCode::NoOffload => asked.kind == Kind::Call,
            ErrorCode::BadCapability => self.obstacles(asked).contains(&code),
            ErrorCode::BadAddress if self.is_leaving(asked) => true,
            ErrorCode::NotAllowed | ErrorCode::BadAddress => self.obstacles(asked).contains(&code),
            ErrorCode::OutOfMemory => !matches!(asked.kind, Kind::Read | Kind::Free | Kind::DestroySpace | Kind::Ping),
            _ => false,
        }
    }

    fn execute(&mut self, request: &Message<'_>, answer: &Message<'_>, effect: Effect) -> Result<Verdict, String> {
        let (asked, told) = (&request.header, &answer.header);
        if let Some(code) = self.obstacles(asked).first() {
            return Err(format!("executed, though: {code}"));
        }
        if asked.kind != Kind::Allocate
            && [Presence::Moving, Presence::Away].iter().any(|there| self.is_partly(asked, *there))
        {
            return Err("executed in a range that is not here".to_owned());
        }
        match asked.kind {
            Kind::Read => {
                let right = self.read(asked.pid, asked.address, asked.length as usize);
                if right == answer.payload { Ok(Verdict::Looked) } else { Err(difference(&right, answer.payload)) }
            }
            Kind::Write => {
                if effect.written != request.payload.len() || effect.atomics != 0 {
                    return Err(format!("a write of {} bytes did {effect:?}", request.payload.len()));
                }
                self.write(asked.pid, asked.address, request.payload);
                self.executed(answer, 0)
            }
            Kind::Atomic => self.execute_atomic(request, answer, effect),
            Kind::Discard => {
                self.write(asked.pid, asked.address, &vec![0; asked.length as usize]);
                self.executed(answer, 0)
            }
            Kind::Grant => {
                let rights = Rights::from_number(asked.length).ok_or("rights that do not exist were granted")?;
                let space = self.spaces.get_mut(&asked.pid).ok_or("a grant in no address space")?;
                space.capabilities.push((told.capability, rights));
                Ok(Verdict::Looked)
            }
            Kind::Revoke => {
                self.revoke(asked.pid, told.capability)?;
                self.executed(answer, 0)
            }
            Kind::CreateSpace => self.create_space(asked, answer),
            Kind::DestroySpace => {
                self.remove_space(asked.pid);
                self.executed(answer, 0)
            }
            Kind::Allocate => self.allocate(request, answer),
            Kind::Call => {
                let counted = answered(answer)?.counted;
                if counted != Some(self.calls) {
                    return Err(format!("the offload counted {counted:?} calls, not {}", self.calls));
                }
                self.calls += 1;
                self.executed(answer, 0)
            }
            Kind::Free => {
                self.free(asked)?;
                self.executed(answer, 0)
            }
            Kind::Ping => {
                self.renew(asked.pid);
                Ok(Verdict::Looked)
            }
            _ => Ok(Verdict::Looked),
        }
    }

    fn execute_atomic(
        &mut self,
        request: &Message<'_>,
        answer: &Message<'_>,
        effect: Effect,
    ) -> Result<Verdict, String> {
        let asked = &request.header;
        if effect.written != 0 || effect.atomics != 1 {
            return Err(format!("an atomic did {effect:?}"));
        }
        let operation = AtomicOperation::from_bytes(request.payload).map_err(|error| error.to_string())?;
        let bytes = self.read(asked.pid, asked.address, 8);
        let old = u64::from_le_bytes(bytes.try_into().map_err(|_| "a word has 8 bytes")?);
        if answer.header.address != old {
            return Err(format!("an atomic answered {:#x}, the word was {old:#x}", answer.header.address));
        }
        self.write(asked.pid, asked.address, &operation.apply(old).to_le_bytes());
        self.executed(answer, old)
    }

    fn create_space(&mut self, asked: &Header, answer: &Message<'_>) -> Result<Verdict, String> {
        let Header { pid, capability, .. } = answer.header;
        let space = Space {
            owner: capability,
            capabilities: vec![(capability, Rights::Owner)],
            allocations: BTreeMap::new(),
            pages: HashMap::new(),
            lease: self.new_lease(asked.length),
            is_ending: false,
            leaving: Vec::new(),
            elsewhere: Vec::new(),
        };
        if pid == 0 || self.spaces.insert(pid, space).is_some() {
            return Err(format!("{pid} is not the number of a new address space"));
        }
        self.executed(answer, 0)
    }

    fn allocate(&mut self, request: &Message<'_>, answer: &Message<'_>) -> Result<Verdict, String> {
        let asked = AllocateRequest::from_bytes(request.payload).map_err(|error| error.to_string())?;
        let told = Allocated::from_bytes(answer.payload).map_err(|error| error.to_string())?;
        let address = answer.header.address;
        let space = self.spaces.get_mut(&request.header.pid).ok_or("an allocation in no address space")?;
        let end = address + told.bytes;
        let overlaps = space.allocations.range(..end).next_back().is_some_and(|(from, old)| from + old.bytes > address);
        let window = if asked.to == 0 { 0..u64::MAX } else { asked.from..asked.to };
        let inside = window.start <= address && end <= window.end;
        let whole =
            address.is_multiple_of(self.page_bytes) && told.bytes == asked.bytes.next_multiple_of(self.page_bytes);
        if overlaps || !inside || !whole || address == 0 {
            return Err(format!("{:#x} bytes were allocated at {address:#x} for {asked:?}", told.bytes));
        }
        space.give_out(address, end, self.page_bytes);
        space.allocations.insert(address, Allocation { bytes: told.bytes, permission: asked.permission });
        self.executed(answer, 0)
    }

    fn free(&mut self, asked: &Header) -> Result<(), String> {
        let page_bytes = self.page_bytes;
        let space = self.spaces.get_mut(&asked.pid).ok_or("a free in no address space")?;
        let gone = space.allocations.remove(&asked.address).ok_or("nothing that is allocated was freed")?;
        let pages = asked.address / page_bytes..(asked.address + gone.bytes) / page_bytes;
        space.pages.retain(|page, _| !pages.contains(page));
        Ok(())
    }

    /// Enters an executed request into the ledger.
    fn executed(&mut self, answer: &Message<'_>, old: u64) -> Result<Verdict, String> {
        self.ledger.insert(answer.header.first_id, Fate::Executed(answered(answer)?));
        Ok(Verdict::Executed(old))
    }

    /// The rights that the request proves.
    fn rights(&self, asked: &Header) -> Option<Rights> {
        let space = self.spaces.get(&asked.pid)?;
        let known = space.capabilities.iter().filter(|(capability, _)| *capability == asked.capability);
        known.map(|(_, rights)| *rights).max()
    }

    /// Whether something of what is asked for is being freed, so that it may be there or not.
    fn is_leaving(&self, asked: &Header) -> bool {
        let bytes = if asked.kind == Kind::Atomic { 8 } else { u64::from(asked.length) };
        let end = asked.address.saturating_add(bytes);
        let is_data = matches!(asked.kind, Kind::Read | Kind::Write | Kind::Atomic);
        is_data && self.leaving(asked.pid).iter().any(|leaving| leaving.from < end && asked.address < leaving.to)
    }

    /// Why the request may not be executed: every reason that there is, and a node may name any.
    fn obstacles(&self, asked: &Header) -> Vec<ErrorCode> {
        let needed = match asked.kind {
            Kind::Hello | Kind::CreateSpace => return Vec::new(),
            Kind::Ping if asked.pid == 0 => return Vec::new(),
            Kind::Ping | Kind::Read | Kind::Translate | Kind::Abort | Kind::Status => Rights::Read,
            Kind::Write | Kind::Atomic | Kind::Discard | Kind::Call => Rights::ReadWrite,
            Kind::DestroySpace | Kind::Allocate | Kind::Free | Kind::Grant | Kind::Revoke | Kind::Adopt => {
                Rights::Owner
            }
        };
        let Some(rights) = self.rights(asked) else { return self.obstacles_without_right(asked, needed) };
        let space = &self.spaces[&asked.pid];
        let mut obstacles = match asked.kind {
            Kind::Read | Kind::Write | Kind::Atomic | Kind::Discard => {
                let length = if asked.kind == Kind::Atomic { 8 } else { u64::from(asked.length) };
                match asked.address.checked_add(length) {
                    Some(end) => space.obstacles(asked.address, end, asked.kind),
                    None => vec![ErrorCode::BadAddress],
                }
            }
            Kind::Free if !space.allocations.contains_key(&asked.address) => vec![ErrorCode::BadAddress],
            _ => Vec::new(),
        };
        if rights < needed {
            obstacles.push(ErrorCode::NotAllowed);
        }
        // Its capabilities are void from the moment at which its end begins.
        if space.is_ending && asked.kind != Kind::Abort {
            obstacles.push(ErrorCode::BadCapability);
        }
        obstacles
    }

    fn read(&self, pid: u32, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let space = &self.spaces[&pid];
        for (page, offset, part) in parts(self.page_bytes, address, length) {
            if let Some(content) = space.pages.get(&page) {
                bytes[part.clone()].copy_from_slice(&content[offset..offset + part.len()]);
            }
        }
        bytes
    }

    fn write(&mut self, pid: u32, address: u64, bytes: &[u8]) {
        let page_bytes = self.page_bytes;
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        for (page, offset, part) in parts(page_bytes, address, bytes.len()) {
            let content = space.pages.entry(page).or_insert_with(|| vec![0; page_bytes as usize]);
            content[offset..offset + part.len()].copy_from_slice(&bytes[part]);
        }
    }
}

impl Space {
    /// Why `from..to` may not be used as `kind` uses it: every reason that there is.
    fn obstacles(&self, from: u64, to: u64, kind: Kind) -> Vec<ErrorCode> {
        let (mut at, mut obstacles) = (from, Vec::new());
        while at < to {
            let before = self.allocations.range(..=at).next_back();
            if let Some(leaving) = self.leaving_at(at) {
                obstacles.extend(leaving.obstacle(kind));
                at = leaving.to;
            } else if let Some((start, found)) = before.filter(|(start, found)| at < **start + found.bytes) {
                if kind != Kind::Read && found.permission == Permission::Read {
                    obstacles.push(ErrorCode::NotAllowed);
                }
                at = start + found.bytes;
            } else {
                obstacles.push(ErrorCode::BadAddress);
                let next = self.allocations.range(at..).next().map(|(start, _)| *start);
                let leaving = self.leaving.iter().map(|leaving| leaving.from).filter(|from| *from > at).min();
                at = next.into_iter().chain(leaving).min().unwrap_or(to);
            }
        }
        obstacles
    }
}

fn unchanged(effect: Effect, what: &str) -> Result<(), String> {
    if effect == Effect::default() { Ok(()) } else { Err(format!("{what} changed memory: {effect:?}")) }
}
