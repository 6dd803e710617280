//! `yonder://controller`: pages on the nodes of a controller.
//!
//! An allocation is cut into groups of a region each ([`group`]), and each group has as many places as was asked for
//! (`?copies=2`), which the controller finds on nodes that do not fail together ([`placing`]). Places have copies, or
//! shares of each page (`?code=4+1`, [`shares`]). Queue pairs have a lane to each node ([`nodes`], [`lanes`]), to which
//! they go in [`rounds`], and post to the places of a group ([`queue`], [`course`]). A place that fails is given up and
//! replaced by the [`keeper`], and the [`mender`] writes to the new one what it lacks. With `?disk=/path` one place is
//! in a file ([`backup`]). Addresses are this fabric's own: they stay what they are wherever their memory is.
//!
//! Neighbours: `core/protect` decides which place has which page; `cluster` asks the controller and renews the lease;
//! `areas` is how queue pairs find groups.

mod backup;
mod calls;
mod course;
mod group;
mod keeper;
mod lanes;
mod mender;
mod nodes;
mod placing;
mod queue;
mod rounds;
mod shares;
mod unsettled;
mod url;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use yonder_controller::{ClientError, ControllerClient};
use yonder_mapping::Mapping;
use yonder_placement::{Key, NodeId, Pid, Refusal};
use yonder_protect::code::Code;
use yonder_protect::mend::Progress;
use yonder_protect::{Protection, Slot, SlotSet};
use yonder_units::{Nanos, Narrow, PAGE_BYTES};
use yonder_wire::Kind;

use crate::areas::{Area, Areas, parts_of};
use crate::background::{Background, Waker};
use crate::cluster::{Cluster, ClusterError};
use crate::ranges::Ranges;
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};
use backup::Backup;
use group::{Entry, place_bytes};
use keeper::Keeper;
use mender::Mender;
use nodes::Nodes;
use placing::{Given, Unplaced};
use queue::SpreadQueuePair;
use unsettled::Orphan;
pub(crate) use url::SCHEME;

/// How long a controller has for an answer.
const CONTROLLER_TIME_MAX: Duration = Duration::from_secs(3);
/// Addresses that this fabric gives out: far more than there is memory.
const ADDRESSES: u64 = 1 << 56;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Moved,
    GivenUp,
    Evacuated,
    Replaced,
    Mended,
    Hedged,
    ReadAgain,
}

/// Their names, in their order.
const EVENTS: [&str; 7] = [
    "spread_moves",
    "spread_places_given_up",
    "spread_places_evacuated",
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
    backup: Option<Arc<Backup>>,
    events: [AtomicU64; EVENTS.len()],
    /// Bytes that are mended in a second.
    mending: AtomicU64,
    /// Of queue pairs that have ended.
    orphans: Mutex<Vec<Orphan>>,
    keeper: OnceLock<Arc<Waker>>,
}

impl Shared {
    /// Places of a group are doubted, perhaps none: the keeper asks.
    fn doubt(&self, entry: &Entry, slots: SlotSet) {
        if !slots.is_empty()
            && entry.doubt(slots)
            && let Some(keeper) = self.keeper.get()
        {
            keeper.wake();
        }
    }

    /// How pages are cut.
    fn code(&self) -> Code {
        Code::new(self.protection.needed())
    }

    /// Nodes that a page should be at.
    fn nodes_wanted(&self) -> u8 {
        self.protection.wanted() - u8::from(self.backup.is_some())
    }

    /// A place has refused something that it should have done: a file is used no more then.
    fn file_refused(&self, slot: Slot) {
        self.backup.iter().filter(|_| slot == backup::SLOT).for_each(|backup| backup.fail());
    }

    /// Those of some slots that are for places at nodes.
    fn of_nodes(&self, slots: SlotSet) -> SlotSet {
        if self.backup.is_some() { slots - backup::SLOT.into() } else { slots }
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
}

impl SpreadFabric {
    /// Whether a URL asks for pages on a disk too.
    pub(crate) fn has_disk(url: &str) -> bool {
        url.starts_with(SCHEME) && url::parse(url).is_ok_and(|settings| settings.disk.is_some())
    }

    /// Makes an address space at the controller that `url` names. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let settings = url::parse(url)?;
        let cluster = Cluster::create(settings.controllers, CONTROLLER_TIME_MAX, settings.lease);
        let cluster = cluster.map_err(|error| failed(url, 0, error))?;
        let nodes = Nodes::new(cluster.pid(), settings.protection);
        let backup = settings.disk.map(|folder| Backup::open(Path::new(&folder))).transpose()?;
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            cluster,
            protection: settings.places,
            areas: Arc::new(Areas::new()),
            nodes,
            backup: backup.map(Arc::new),
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

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(SpreadQueuePair::new(&self.shared, module, frames)?))
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
            let wanted = self.shared.nodes_wanted();
            let find = |apart: &[NodeId]| self.shared.find_places(place_bytes(pages, share_bytes), wanted, None, apart);
            let left = self.shared.nodes.left();
            let placed = match find(&left) {
                Err(Unplaced { is_refusal: true, .. }) if !left.is_empty() => find(&[]),
                placed => placed,
            };
            let placed = placed.map_err(|unplaced| unplaced.error);
            let placed = placed.and_then(|(name, given)| {
                let entry = Entry::new(pages, share_bytes, protection, name);
                let entry = if self.shared.backup.is_some() { entry.with_file() } else { entry };
                for (number, Given { region, address }) in (0..).zip(&given) {
                    assert!(entry.adopt(Slot::new(number), Some(*region), *address), "nobody else knows it");
                }
                let backed = self.shared.backup.as_ref().map_or(Ok(()), |backup| backup.give_to(&entry));
                backed.inspect_err(|_| self.shared.give_back(&given)).map(|()| entry)
            });
            match placed {
                Ok(entry) => {
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
            self.shared.backup.iter().for_each(|backup| backup.release(area));
            // What cannot be freed ends with the address space.
            area.table.release();
            failed = failed.and(self.shared.call_at_all(area, Kind::Free, 0, 0));
            for region in area.table.kept().filter_map(|kept| kept.region) {
                if is_reached {
                    let given_up = self.shared.cluster.give_up(region);
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
                self.shared.call_at_all(area, Kind::Discard, bytes.start, bytes.end - bytes.start)?;
            }
            if bytes != around {
                self.shared.await_aborts(area, around)?;
            }
        }
        Ok(())
    }

    fn loses_operations(&self) -> bool {
        // Lanes repeat what the network loses, and other nodes are asked where one is late; the kernel ends every
        // transfer of a disk. What is slow is not helped by more of it.
        false
    }

    fn space(&self) -> Option<Credentials> {
        Some(Credentials { pid: self.shared.cluster.pid(), capability: self.shared.cluster.key().0 })
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.shared.nodes.counters();
        let events = EVENTS.iter().zip(&self.shared.events);
        counters.extend(events.map(|(name, count)| Counter { name, value: count.load(Ordering::Relaxed) }));
        let Shared { protection, backup, .. } = &*self.shared;
        for (name, value) in
            [("spread_places_wanted", protection.wanted()), ("spread_places_needed", protection.needed())]
        {
            counters.push(Counter { name, value: value.into() });
        }
        let areas = self.shared.areas.all();
        for (name, of) in [
            ("spread_degraded_pages", Entry::pages_below as fn(&Entry) -> u64),
            ("spread_places_missing", Entry::places_missing),
            ("spread_late_pages", Entry::late),
            ("spread_pages_to_evacuate", Entry::pages_to_evacuate),
        ] {
            counters.push(Counter { name, value: areas.iter().map(|area| of(&area.table)).sum() });
        }
        if let Some(backup) = backup {
            counters.push(Counter { name: "spread_late_pages_max", value: backup.late_max() });
        }
        let changes =
            [Event::Moved, Event::GivenUp, Event::Evacuated, Event::Replaced].map(|event| self.shared.event(event));
        for (name, value) in [
            ("spread_slow_nodes", self.shared.nodes.slow()),
            ("spread_nodes_left", self.shared.nodes.left().len() as u64),
            ("spread_epoch", changes.iter().sum()),
            ("spread_mending_bytes_per_s", self.shared.mending.load(Ordering::Relaxed)),
        ] {
            counters.push(Counter { name, value });
        }
        counters
    }
}

impl Drop for SpreadFabric {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(Background::stop);
        self.shared.cluster.destroy();
    }
}
