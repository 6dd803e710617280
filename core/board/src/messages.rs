//! The slow path's messages: [`SlowPath::execute`].
//!
//! Requests that change something are executed once, by the id of their first attempt; the rest is executed as often as
//! it arrives. What needs no capability is remembered apart, so that strangers push nothing out that tenants have done.
//! Invariant: what was remembered for one kind of request never answers another.

use yonder_wire::{
    AdoptRequest, AllocateRequest, Allocated, Body, DISCARD_BYTES_MAX, Direction, ErrorCode, Header, Kind, Message,
    Rights,
};

use crate::address::Pid;
use crate::capability::{Claims, needs_capability};
use crate::extend_path::{Path, path_of};
use crate::fast_path::is_fast;
use crate::lives::Life;
use crate::node_core::{Memory, PageSource, Upkeep};
use crate::recent::{NodeTime, Party, Recent};
use crate::reply::{Handled, Reply};
use crate::slow_path::{Shell, SlowPath};
use crate::source::Source;

/// How a request that is executed once has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Created { pid: Pid, life: Life, tenant: u16, lease_ms: u32 },
    Allocated { address: u64, allocated: Allocated },
    Revoked { pid: Pid, life: Life, tenant: u16 },
}

/// Least rights that a request needs which is executed once, or the abort of one: who has less, or a capability of
/// another address space, is refused before anything is remembered.
fn right_to(kind: Kind) -> Rights {
    match kind {
        Kind::Abort => Rights::Read,
        Kind::Discard => Rights::ReadWrite,
        _ => Rights::Owner,
    }
}

fn party_of(header: &Header, source: Source) -> Party {
    if needs_capability(header) { Party::of(header) } else { Party::of_source(source) }
}

impl SlowPath {
    /// Executes one message from `source`, and composes the answer at the start of `reply`. `now` is the node's clock,
    /// read after the message had arrived.
    ///
    /// # Panics
    /// If `reply` has no room for a header.
    pub fn execute<M: Memory, P: PageSource, U: Upkeep>(
        &mut self,
        message: &Message<'_>,
        source: Source,
        now: NodeTime,
        shell: &mut Shell<'_, M, P, U>,
        reply: &mut [u8],
    ) -> Handled {
        let header = &message.header;
        if header.direction != Direction::Request || header.kind == Kind::Hello {
            return Handled::Dropped;
        }
        let reply = Reply::new(header, now, reply);
        if message.verify().is_err() {
            return reply.refuse(ErrorCode::Corrupt);
        }
        // Who has no right to what is asked leaves no trace. A space that is to be made has no capability yet.
        if header.kind.is_exactly_once()
            && needs_capability(header)
            && let Err(code) = self.board.check(header, right_to(header.kind), now)
        {
            return reply.refuse(code);
        }
        let party = party_of(header, source);
        if self.is_under_way(header) {
            return reply.refuse(ErrorCode::Busy);
        }
        match header.kind {
            _ if path_of(header) == Path::Extend => reply.refuse(ErrorCode::Unsupported),
            Kind::Read | Kind::Write | Kind::Atomic => reply.refuse(ErrorCode::Unsupported),
            Kind::Abort if is_fast(header) => reply.refuse(ErrorCode::Unsupported),
            Kind::Abort if needs_capability(header) && !self.board.may_change(header, now) => {
                match self.recent.was_executed(party, header, now) {
                    Ok(executed) => reply.answer(executed),
                    Err(code) => reply.refuse(code),
                }
            }
            Kind::Abort => {
                let payer = if needs_capability(header) { party.payer() } else { source.0 };
                match self.recent_of(header).abort(party, payer, header, now) {
                    Ok(executed) => reply.answer(executed),
                    Err(code) => reply.refuse(code),
                }
            }
            Kind::Ping | Kind::Grant | Kind::Translate | Kind::Status => self.ask(header, now, reply),
            _ => {
                let ended = self.recent_of(header).ended(party, header, now);
                let result = ended.unwrap_or_else(|| {
                    let result = self.change(message, source, now, shell);
                    if !matches!(result, Err(ErrorCode::BadCapability)) {
                        self.recent_of(header).keep(party, header, result, now);
                    }
                    result
                });
                self.answer(header, result, reply)
            }
        }
    }

    /// Where is remembered how such a request has ended.
    fn recent_of(&mut self, header: &Header) -> &mut Recent<Result<Outcome, ErrorCode>> {
        if needs_capability(header) { &mut self.recent } else { &mut self.recent_of_strangers }
    }

    /// Answers a request that changes nothing that would matter a second time.
    fn ask(&mut self, header: &Header, now: NodeTime, reply: Reply<'_>) -> Handled {
        let result = match header.kind {
            Kind::Status => match self.check(header, Rights::Read, now) {
                Ok(_) => return reply.answer_body(header.address, &self.status()),
                Err(code) => Err(code),
            },
            Kind::Ping if header.pid == 0 => return reply.answer(0),
            Kind::Ping => self.check(header, Rights::Read, now).and_then(|pid| self.renew(pid, now)),
            Kind::Grant => match self.grant(header, now) {
                Ok(capability) => {
                    return reply.answer_with(header.length, |answer| answer.capability = capability);
                }
                Err(code) => Err(code),
            },
            _ => match self.check(header, Rights::ReadWrite, now).and_then(|pid| self.translate(pid, header.address)) {
                Ok(translation) => return reply.answer_body(header.address, &translation),
                Err(code) => Err(code),
            },
        };
        match result {
            Ok(()) => reply.answer(0),
            Err(code) => reply.refuse(code),
        }
    }

    fn grant(&self, header: &Header, now: NodeTime) -> Result<u128, ErrorCode> {
        let pid = self.check(header, Rights::Owner, now)?;
        let rights = Rights::from_number(header.length).ok_or(ErrorCode::BadLength)?;
        let claims = Claims::of(rights, self.spaces.life_of(pid), self.spaces.tenant_of(pid))
            .for_minutes(header.address, now)?;
        // Who has a right for some time hands on none that lasts longer.
        let claims = claims.no_longer_than(Claims::expiry_in(header.capability));
        Ok(self.board.capabilities.of(pid, claims))
    }

    /// Executes a request that is executed once.
    fn change<M: Memory, P: PageSource, U: Upkeep>(
        &mut self,
        message: &Message<'_>,
        source: Source,
        now: NodeTime,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<Outcome, ErrorCode> {
        let header = &message.header;
        match header.kind {
            Kind::CreateSpace => {
                // Only a controller names address spaces, and it does not ask by message.
                if header.pid != 0 {
                    return Err(ErrorCode::NotAllowed);
                }
                let (pid, lease_ms) = self.create_space_for(source, header.length, now)?;
                let (life, tenant) = (self.spaces.life_of(pid), self.spaces.tenant_of(pid));
                return Ok(Outcome::Created { pid, life, tenant, lease_ms });
            }
            Kind::Revoke => {
                let pid = self.check(header, Rights::Owner, now)?;
                // A controller has told others its capabilities, and would not know the new ones.
                if pid.is_of_controller() || Claims::expiry_in(header.capability).is_some() {
                    return Err(ErrorCode::NotAllowed);
                }
                let life = self.spaces.revoke(pid, now)?;
                // A data thread may have found the life before, and not written yet.
                shell.upkeep.wait_until_quiet();
                return Ok(Outcome::Revoked { pid, life, tenant: self.spaces.tenant_of(pid) });
            }
            Kind::Allocate => {
                let pid = self.check(header, Rights::Owner, now)?;
                let request = AllocateRequest::from_bytes(message.payload).map_err(|_| ErrorCode::BadLength)?;
                let (address, allocated) = self.begin_allocate(pid, &request, header, shell)?;
                return Ok(Outcome::Allocated { address, allocated });
            }
            Kind::Discard => {
                let pid = self.check(header, Rights::ReadWrite, now)?;
                // So much at a time that nobody waits for long.
                if u64::from(header.length) > DISCARD_BYTES_MAX.max(self.board.config.page_size.bytes()) {
                    return Err(ErrorCode::BadLength);
                }
                self.is_not_before_return(pid, header)?;
                self.discard(pid, header.address, u64::from(header.length), shell)?;
            }
            Kind::Adopt => {
                let pid = self.check(header, Rights::Owner, now)?;
                if !pid.is_of_controller() {
                    return Err(ErrorCode::NotAllowed);
                }
                let request = AdoptRequest::from_bytes(message.payload).map_err(|_| ErrorCode::BadLength)?;
                self.adopt_by_message(pid, &request, header.address, now, shell)?;
            }
            Kind::Free => {
                let pid = self.check(header, Rights::Owner, now)?;
                self.is_not_before_return(pid, header)?;
                self.begin_free(pid, header.address, Some(header))?.result()?;
            }
            _ => {
                let pid = self.check(header, Rights::Owner, now)?;
                self.begin_destroy_space(pid, Some(header))?.result()?;
            }
        }
        Ok(Outcome::Done)
    }

    /// That a request was not sent before its region came back; it would undo what was done since.
    fn is_not_before_return(&self, pid: Pid, header: &Header) -> Result<(), ErrorCode> {
        let last = header.address.saturating_add(u64::from(header.length).saturating_sub(1));
        let is_before = |address| self.board.returned.is_before(pid, address, header.time);
        if is_before(header.address) || is_before(last) { Err(ErrorCode::Moved) } else { Ok(()) }
    }

    /// The address space that a request is for, if it is one of this node and the capability suffices.
    fn check(&self, header: &Header, needed: Rights, now: NodeTime) -> Result<Pid, ErrorCode> {
        self.board.present(self.board.check(header, needed, now)?)
    }

    /// Answers with how a request has ended. If its id is that of another kind of request, there is no answer to it.
    fn answer(&self, header: &Header, result: Result<Outcome, ErrorCode>, reply: Reply<'_>) -> Handled {
        match (header.kind, result) {
            (_, Err(code)) => reply.refuse(code),
            (Kind::DestroySpace | Kind::Free | Kind::Discard | Kind::Adopt, Ok(Outcome::Done)) => {
                reply.answer(header.length)
            }
            (Kind::CreateSpace, Ok(Outcome::Created { pid, life, tenant, lease_ms })) => {
                let capability = self.board.capabilities.of(pid, Claims::of(Rights::Owner, life, tenant));
                reply.answer_with(lease_ms, |answer| {
                    (answer.pid, answer.capability) = (pid.get(), capability);
                })
            }
            (Kind::Revoke, Ok(Outcome::Revoked { pid, life, tenant })) => {
                let capability = self.board.capabilities.of(pid, Claims::of(Rights::Owner, life, tenant));
                reply.answer_with(header.length, |answer| answer.capability = capability)
            }
            (Kind::Allocate, Ok(Outcome::Allocated { address, allocated })) => reply.answer_body(address, &allocated),
            (_, Ok(_)) => reply.refuse(ErrorCode::Unsupported),
        }
    }
}
