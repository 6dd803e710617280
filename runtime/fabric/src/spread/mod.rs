//! `yonder://controller`: pages on the nodes of a controller.
//!
//! An allocation is cut into groups of a region each ([`group`]), and each group has as many places as was asked for
//! (`?copies=2`), which the controller finds on nodes that do not fail together. Places have copies, or shares of each
//! page (`?code=4+1`, [`shares`]). Queue pairs have a lane to each node ([`nodes`], [`lanes`]) and post to the places
//! of a group ([`queue`]). A place that fails is given up and replaced by the [`keeper`], and the [`mender`] writes to
//! the new one what it lacks. Addresses are this fabric's own: they stay what they are wherever their memory is.
//!
//! Neighbours: `core/protect` decides which place has which page; `cluster` asks the controller and renews the lease;
//! `areas` is how queue pairs find groups.

mod group;
mod keeper;
mod lanes;
mod mender;
mod nodes;
mod queue;
mod shares;
mod unsettled;
mod url;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use yonder_controller::{ClientError, ControllerClient};
use yonder_mapping::Mapping;
use yonder_placement::{Key, NodeId, Pid, PlacesWanted, Refusal};
use yonder_protect::code::Code;
use yonder_protect::mend::Progress;
use yonder_protect::{Protection, Slot, SlotSet};
use yonder_units::{Nanos, Narrow, PAGE_BYTES};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Permission};

use crate::areas::{Area, Areas, parts_of};
use crate::background::{Background, Waker};
use crate::cluster::{Cluster, ClusterError, Location};
use crate::lane::CallError;
use crate::ranges::Ranges;
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};
use group::{Address, Entry, Kept, place_bytes};
use keeper::{Found, Keeper, find};
use mender::Mender;
use nodes::{FailedCall, Nodes};
use queue::{SpreadQueuePair, may_have_moved};
use unsettled::Orphan;
pub(crate) use url::SCHEME;

/// How long a controller has for an answer.
const CONTROLLER_TIME_MAX: Duration = Duration::from_secs(3);
/// How often an allocation is tried anew because nodes had filled up since the controller last heard of them.
const ATTEMPTS_MAX: usize = 16;
/// How long a call waits for a region that is on its way between nodes.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause between two questions where a region is.
const ASK_AGAIN: Duration = Duration::from_millis(2);
/// Addresses that this fabric gives out: far more than there is memory.
const ADDRESSES: u64 = 1 << 56;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Moved,
    GivenUp,
    Replaced,
    Mended,
    Hedged,
    ReadAgain,
}

/// Their names, in their order.
const EVENTS: [&str; 6] = [
    "spread_moves",
    "spread_places_given_up",
    "spread_places_replaced",
    "spread_mended_pages",
    "spread_hedged_reads",
    "spread_repeated_reads",
];

/// Pages on the nodes of a controller.
pub struct SpreadFabric {
    url: String,
    shared: Arc<Shared>,
    addresses: Mutex<Ranges>,
    /// Ended first, so that nothing is looked after any more when the address space ends.
    threads: [Background; 2],
}

/// What queue pairs, the keeper and the mender share.
struct Shared {
    url: String,
    cluster: Cluster,
    protection: Protection,
    areas: Arc<Areas<Entry>>,
    nodes: Nodes,
    events: [AtomicU64; EVENTS.len()],
    /// Bytes that are mended in a second.
    mending: AtomicU64,
    /// Of queue pairs that have ended.
    orphans: Mutex<Vec<Orphan>>,
    keeper: OnceLock<Arc<Waker>>,
}

/// A place that a node has given memory at.
struct Given {
    region: u32,
    address: Address,
}

impl Shared {
    /// Places of a group are doubted: the keeper asks.
    fn doubt(&self, entry: &Entry, slots: SlotSet) {
        if entry.doubt(slots)
            && let Some(keeper) = self.keeper.get()
        {
            keeper.wake();
        }
    }

    /// How pages are cut.
    fn code(&self) -> Code {
        Code::new(self.protection.needed())
    }

    fn pid(&self) -> u32 {
        self.cluster.pid()
    }

    fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A queue pair has ended and leaves this.
    fn leave(&self, orphan: Orphan) {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).push(orphan);
    }

    /// Looks whether what queue pairs have left may still land.
    fn poll_orphans(&self, now: Nanos) {
        let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.retain_mut(|orphan| orphan.poll(now, self.pid()));
    }

    fn event(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// How fast pages are mended.
    fn tell_progress(&self, progress: &Progress) {
        self.mending.store(progress.bytes_per_second(), Ordering::Relaxed);
    }

    /// Has places found for `bytes` of a group and memory given there: a new group's, or further ones.
    fn find_places(
        &self,
        bytes: u64,
        places: u8,
        group: Option<u32>,
        apart: &[NodeId],
    ) -> Result<(u32, Vec<Given>), FabricError> {
        let mut wanted = PlacesWanted { bytes, places: places.into(), group, apart: apart.to_vec(), avoid: Vec::new() };
        let mut given = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let placed = self.cluster.place_group(&wanted).map_err(|error| failed(&self.url, bytes, error));
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
            wanted.group = Some(name);
            wanted.places = (usize::from(places) - given.len()).narrow_u32();
            match refused {
                None => return Ok((name, given)),
                Some(FabricError::OutOfMemory { .. } | FabricError::Unreachable { .. }) => {}
                Some(error) => {
                    self.give_back(&given);
                    return Err(error);
                }
            }
        }
        self.give_back(&given);
        Err(FabricError::OutOfMemory { url: self.url.clone(), bytes })
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
    fn give_back(&self, given: &[Given]) {
        for Given { region, address } in given {
            // What cannot be freed ends with the address space.
            let _ = self.nodes.get(address.node).call(Kind::Free, address.start, 0, &[]);
            let _ = self.cluster.give_up(*region);
        }
    }

    /// Puts new places into a group that has too few.
    fn replace(&self, entry: &Entry) -> Result<(), FabricError> {
        let view = entry.group.view();
        let missing = entry.group.protection().wanted().saturating_sub(view.live().count());
        let missing = missing.min(view.free().count());
        let mut apart: Vec<NodeId> = entry.kept().map(|kept| self.nodes.get(kept.address.node).id).collect();
        apart.extend(self.nodes.silent(yonder_clock::now()));
        apart.sort_unstable();
        apart.dedup();
        let (_, given) = self.find_places(entry.bytes(), missing, Some(entry.name()), &apart)?;
        for (slot, given) in view.free().iter().zip(given) {
            if entry.adopt(slot, given.region, given.address) {
                self.count(Event::Replaced);
            } else {
                // Its memory was released meanwhile.
                self.give_back(&[given]);
            }
        }
        Ok(())
    }
}

impl SpreadFabric {
    /// Makes an address space at the controller that `url` names. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let settings = url::parse(url)?;
        let cluster = Cluster::create(settings.controllers, CONTROLLER_TIME_MAX, settings.lease);
        let cluster = cluster.map_err(|error| failed(url, 0, error))?;
        let nodes = Nodes::new(cluster.pid(), settings.protection);
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            cluster,
            protection: settings.places,
            areas: Arc::new(Areas::new()),
            nodes,
            events: [const { AtomicU64::new(0) }; EVENTS.len()],
            mending: AtomicU64::new(0),
            orphans: Mutex::default(),
            keeper: OnceLock::new(),
        });
        let failed = |error: std::io::Error| FabricError::System {
            url: url.to_owned(),
            cause: format!("no thread can be started to look after pages: {error}"),
        };
        let (kept, mut keeper) = (Arc::clone(&shared), Keeper::default());
        let keeper = Background::start("yonder-keeper", move || keeper.step(&kept)).map_err(failed)?;
        assert!(shared.keeper.set(keeper.waker()).is_ok(), "there is one keeper");
        let mut mender = Mender::new(&shared)?;
        let mender = Background::start("yonder-mender", move || mender.step()).map_err(failed)?;
        let addresses = Mutex::new(Ranges::new(ADDRESSES));
        Ok(Self { url: url.to_owned(), shared, addresses, threads: [keeper, mender] })
    }

    fn addresses(&self) -> MutexGuard<'_, Ranges> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all nodes that have a place of a group, wherever it is by then.
    fn call_at_all(&self, area: &Area<Entry>, kind: Kind, offset: u64, bytes: u64) -> Result<(), FabricError> {
        let slots = area.table.kept().map(|kept| kept.place.slot);
        slots.into_iter().try_for_each(|slot| self.call_at(area, slot, (kind, offset, bytes)))
    }

    fn call_at(
        &self,
        area: &Area<Entry>,
        slot: Slot,
        (kind, offset, bytes): (Kind, u64, u64),
    ) -> Result<(), FabricError> {
        let end = Instant::now() + MOVE_TIME_MAX;
        loop {
            let kept: Option<Kept> = area.table.kept().find(|kept| kept.place.slot == slot);
            // What was given up is not asked.
            let Some(kept) = kept.filter(|kept| area.table.address(kept.place).is_some()) else { return Ok(()) };
            let node = self.shared.nodes.get(kept.address.node);
            let (has_others, start) = (area.table.group.protection().wanted() > 1, kept.address.start + offset);
            // What does not answer is not waited for where others have the pages: their words say what they are,
            // whatever is there. But for what was asked before and may still be done: it would undo a later write.
            if has_others && !node.health.state().is_up() && !node.may_still_change(start, bytes) {
                return Ok(());
            }
            let error = match node.call(kind, start, bytes, &[]) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let may_be_elsewhere = match &error {
                FailedCall::Call(CallError::Refused(code)) => may_have_moved(*code),
                FailedCall::Call(CallError::TimedOut | CallError::Lost) | FailedCall::Open(_) => true,
            };
            let is_over = Instant::now() >= end;
            if is_over || !may_be_elsewhere || find(&self.shared, area, kept) == Found::Lost && !has_others {
                return Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() });
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Waits until nothing that was asked before and given up may be done in these bytes of any place: a discard of
    /// more pages, which would undo later writes of those that have shares there.
    fn await_aborts(&self, area: &Area<Entry>, bytes: Range<u64>) -> Result<(), FabricError> {
        for kept in area.table.kept() {
            let node = self.shared.nodes.get(kept.address.node);
            let ended = node.await_aborts(kept.address.start + bytes.start, bytes.end - bytes.start);
            // What was given up is not asked, nor written.
            if let Err(error) = ended
                && area.table.address(kept.place).is_some()
            {
                return Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() });
            }
        }
        Ok(())
    }
}

/// Ends the address space of a program at a controller, which is no more.
pub(crate) fn end_space(url: &str, credentials: Credentials) -> Result<(), FabricError> {
    let settings = url::parse(url)?;
    let client = ControllerClient::new(settings.controllers, CONTROLLER_TIME_MAX).with_credential_of_process();
    let ended = client.and_then(|mut client| client.destroy_space(Pid(credentials.pid), Key(credentials.capability)));
    ended.map_err(|error| failed(url, 0, error.into()))
}

fn failed(url: &str, bytes: u64, error: ClusterError) -> FabricError {
    let url = url.to_owned();
    match error {
        ClusterError::Fabric(error) => error,
        ClusterError::Controller(ClientError::Refused(Refusal::NoRoom { .. })) => {
            FabricError::OutOfMemory { url, bytes }
        }
        error => FabricError::System { url, cause: error.to_string() },
    }
}

impl Fabric for SpreadFabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(SpreadQueuePair::new(&self.shared, frames)?))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let (protection, share_bytes) = (self.shared.protection, self.shared.code().share_bytes() as u64);
        // As many as a region has shares of.
        let pages_max = self.shared.cluster.region_bytes() / share_bytes;
        let start = self.addresses().allocate(bytes);
        let start = start.ok_or_else(|| FabricError::OutOfMemory { url: self.url.clone(), bytes })?;
        let bytes_max = pages_max * PAGE_BYTES as u64;
        for at in (0..bytes).step_by(bytes_max.narrow_usize()) {
            let part = (bytes - at).min(bytes_max);
            let pages = (part / PAGE_BYTES as u64).narrow_usize();
            match self.shared.find_places(place_bytes(pages, share_bytes), protection.wanted(), None, &[]) {
                Ok((name, given)) => {
                    let entry = Entry::new(pages, share_bytes, protection, name);
                    for (number, Given { region, address }) in (0..).zip(given) {
                        assert!(entry.adopt(Slot::new(number), region, address), "nobody else knows it");
                    }
                    let added = self.shared.areas.add(Area::new(RemoteAddress(start + at), part, entry));
                    assert!(added, "addresses are given out once");
                }
                Err(error) => {
                    // The first error is the one that counts.
                    let _ = self.release(RemoteAddress(start));
                    return Err(error);
                }
            }
        }
        Ok(RemoteAddress(start))
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        let Some(bytes) = self.addresses().length(start.0) else {
            return Err(FabricError::System { url: self.url.clone(), cause: "there is no such memory".to_owned() });
        };
        let areas = self.shared.areas.all();
        let (mut failed, mut is_reached) = (Ok(()), true);
        for (area, _) in parts_of(&areas, start, bytes) {
            self.shared.areas.remove(area.start());
            // What cannot be freed ends with the address space.
            area.table.release();
            failed = failed.and(self.call_at_all(area, Kind::Free, 0, 0));
            for kept in area.table.kept() {
                if is_reached {
                    let given_up = self.shared.cluster.give_up(kept.region);
                    is_reached = !matches!(given_up, Err(ClusterError::Controller(ClientError::Unreachable { .. })));
                }
            }
        }
        self.addresses().release(start.0);
        failed
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        let areas = self.shared.areas.all();
        for (area, pages) in parts_of(&areas, start, bytes) {
            let (bytes, around) = (area.table.bytes_of(pages.clone()), area.table.bytes_around(pages.clone()));
            for page in pages {
                // Who discards has seen the ends of all writes.
                let forgotten = area.table.group.forget(page);
                assert!(forgotten.is_ok(), "a page is discarded while it is written");
            }
            if !bytes.is_empty() {
                self.call_at_all(area, Kind::Discard, bytes.start, bytes.end - bytes.start)?;
            }
            if bytes != around {
                self.await_aborts(area, around)?;
            }
        }
        Ok(())
    }

    fn space(&self) -> Option<Credentials> {
        Some(Credentials { pid: self.shared.cluster.pid(), capability: self.shared.cluster.key().0 })
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.shared.nodes.counters();
        let events = EVENTS.iter().zip(&self.shared.events);
        counters.extend(events.map(|(name, count)| Counter { name, value: count.load(Ordering::Relaxed) }));
        let Shared { protection, .. } = &*self.shared;
        for (name, value) in
            [("spread_places_wanted", protection.wanted()), ("spread_places_needed", protection.needed())]
        {
            counters.push(Counter { name, value: value.into() });
        }
        let areas = self.shared.areas.all();
        for (name, of) in [
            ("spread_degraded_pages", Entry::pages_below as fn(&Entry) -> u64),
            ("spread_places_missing", Entry::places_missing),
        ] {
            counters.push(Counter { name, value: areas.iter().map(|area| of(&area.table)).sum() });
        }
        let mending = self.shared.mending.load(Ordering::Relaxed);
        counters.push(Counter { name: "spread_mending_bytes_per_s", value: mending });
        counters
    }
}

impl Drop for SpreadFabric {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(Background::stop);
        self.shared.cluster.destroy();
    }
}
