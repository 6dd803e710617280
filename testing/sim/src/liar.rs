//! A tenant of each node that claims several times for one request: it sends the same name with times before and behind
//! the node's clock, and gives requests up that are under way.
//!
//! What it comes to is its own affair: its requests may be executed twice, or not at all, and nobody judges them. But
//! the node goes on, all that it had is given back in the end, and no other tenant notices.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use yonder_simulation::encoded;
use yonder_units::Nanos;
use yonder_wire::{AllocateRequest, Backing, Header, Kind, Permission, Rights};

use crate::node::Node;
use crate::settings::{MILLISECOND, PAGE_BYTES};

/// Requests that it remembers and asks for again.
const REQUESTS_MAX: usize = 12;
/// Where its allocations may lie: so little that it hits its own again and again.
const PAGES: u64 = 24;

/// What a tenant that lies keeps.
#[derive(Default, Debug)]
pub(crate) struct Liar {
    /// Its address space, and the owner's capability.
    space: Option<(u32, u128)>,
    requests: Vec<(Header, Vec<u8>)>,
}

impl Node {
    /// The tenant that lies sends something.
    pub(crate) fn lie(&mut self, now: Nanos, rng: &mut SmallRng) {
        let shown = self.clock.read(now);
        let (pid, capability) = match self.liar.space {
            Some(space) => space,
            None => {
                let Ok(pid) = self.slow_path.create_space(None, 0, shown) else { return };
                let capability = self.slow_path.capability(pid, Rights::Owner);
                *self.liar.space.insert((pid.get(), capability))
            }
        };
        let is_old = !self.liar.requests.is_empty() && rng.random_bool(0.6);
        let (mut header, payload) = match self.liar.requests.choose(rng) {
            Some(request) if is_old => request.clone(),
            _ => new_request(rng, pid, capability),
        };
        if !is_old {
            self.liar.requests.truncate(REQUESTS_MAX - 1);
            self.liar.requests.insert(0, (header, payload.clone()));
        }
        header.request_id = header.first_id + rng.random_range(0..1000);
        let off = rng.random_range(0..2 * MILLISECOND);
        header.time = if rng.random_bool(0.5) { shown.saturating_sub(off) } else { shown + off };
        let payload = if rng.random_bool(0.4) {
            // An abort of a request of the slow path has an offset.
            let offset = u32::from(!header.kind.is_fast());
            header = Header { kind: Kind::Abort, length: 0, fragment_offset: offset, ..header };
            Vec::new()
        } else {
            payload
        };
        let bytes = [&header.seal(&payload)[..], &payload].concat();
        let thread = rng.random_range(0..self.threads());
        self.execute_unjudged(now, thread, &bytes);
        if header.kind == Kind::DestroySpace && !self.is_there(pid) {
            self.liar.space = None;
        }
    }

    /// The tenant that lies ends its address space, as everybody does in the end.
    pub(crate) fn end_liar(&mut self) {
        if let Some((pid, _)) = self.liar.space.take() {
            let pid = yonder_board::Pid::new(pid).expect("it was one");
            // It may have ended by a request that was not believed to have been executed.
            let _ = self.slow_path.destroy_space(pid);
        }
    }

    fn is_there(&self, pid: u32) -> bool {
        self.slow_path.spaces().iter().any(|space| space.get() == pid)
    }
}

/// A request that was not made before.
fn new_request(rng: &mut SmallRng, pid: u32, capability: u128) -> (Header, Vec<u8>) {
    let address = PAGE_BYTES * rng.random_range(1..PAGES);
    let kind =
        *[Kind::Allocate, Kind::Allocate, Kind::Free, Kind::Free, Kind::Discard, Kind::Write, Kind::DestroySpace]
            .choose(rng)
            .unwrap_or(&Kind::Free);
    let payload = match kind {
        Kind::Allocate => encoded(&AllocateRequest {
            bytes: PAGE_BYTES * rng.random_range(1..8),
            permission: Permission::ReadWrite,
            backing: if rng.random_bool(0.2) { Backing::Now } else { Backing::OnDemand },
            from: 0,
            to: PAGES * PAGE_BYTES,
        }),
        Kind::Write => vec![rng.random(); 16],
        _ => Vec::new(),
    };
    let length = if kind == Kind::Discard { PAGE_BYTES as u32 } else { payload.len() as u32 };
    let name = rng.random_range(1..1 << 63);
    (Header { pid, capability, ..Header::request(kind, name, address, length) }, payload)
}
