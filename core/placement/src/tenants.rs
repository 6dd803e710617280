//! Tenants over all nodes: [`TenantReport`] is what a node says of one, [`TenantView`] what the controller makes of all
//! that nodes say, and of the address spaces that it has itself.
//!
//! What a node has said last is remembered as long as the node is (`live`), with how much was done between its last
//! two reports. A node may be no honest one, so what is kept of its report is bounded here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use yonder_units::Nanos;

use crate::asker::Maker;
use crate::controller::Controller;
use crate::live::Link;
use crate::message::Answer;
use crate::names::{NodeId, Pid};
use crate::record::Presence;
use crate::{TENANTS_PER_ANSWER_MAX, TENANTS_PER_REPORT_MAX};

/// Longest name that is kept, and more than any member of a cluster has.
const NAME_BYTES_MAX: usize = 64;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// What one tenant has at a node, and has done there since the node started.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TenantReport {
    /// Its name; without names, the host or the user of the machine.
    pub name: String,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of messages, both ways.
    pub bytes: u64,
    /// Requests refused, or dropped, because of a limit.
    pub shed: u64,
    /// Time of the slow path and of offloads, in nanoseconds.
    pub work_ns: u64,
    /// Address spaces now.
    pub spaces: u32,
    /// Connections now.
    pub connections: u32,
    /// Bytes of allocations now.
    pub reserved_bytes: u64,
    /// Bytes of the node's memory now.
    pub memory_bytes: u64,
}

impl TenantReport {
    /// Those that have most, as many as a report tells of.
    #[must_use]
    pub fn most(mut reports: Vec<Self>) -> Vec<Self> {
        if reports.len() > TENANTS_PER_REPORT_MAX {
            let had = |report: &Self| (report.memory_bytes, report.reserved_bytes, report.spaces, report.requests);
            reports.sort_by_key(|report| std::cmp::Reverse(had(report)));
            reports.truncate(TENANTS_PER_REPORT_MAX);
        }
        reports
    }

    /// A name that can be shown.
    fn is_named(&self) -> bool {
        let name = self.name.as_bytes();
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
    }
}

/// How a tenant is seen by the controller: sums over the nodes that are there.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TenantView {
    /// Its name; without names, the host or the user of the machine.
    pub tenant: String,
    /// Nodes that know it.
    pub nodes: u64,
    /// Address spaces, each once, on however many nodes it is.
    pub spaces: u64,
    /// Bytes of its allocations, with memory or without.
    pub reserved_bytes: u64,
    /// Bytes of memory that it has.
    pub memory_bytes: u64,
    /// Connections.
    pub connections: u64,
    /// Requests answered in a second, of late.
    pub requests_per_s: u64,
    /// Bytes of messages in a second, both ways, of late.
    pub bytes_per_s: u64,
    /// Nanoseconds of the slow path and of offloads in a second, of late.
    pub work_ns_per_s: u64,
    /// Requests answered since the nodes started.
    pub requests: u64,
    /// Bytes of messages, both ways, since the nodes started.
    pub bytes: u64,
    /// Nanoseconds of the slow path and of offloads since the nodes started.
    pub work_ns: u64,
    /// Requests refused, or dropped, because of a limit, since the nodes started.
    pub shed: u64,
}

/// What a tenant did in a second, between two reports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Rates {
    requests: u64,
    bytes: u64,
    work_ns: u64,
}

impl Rates {
    fn between(earlier: &TenantReport, later: &TenantReport, elapsed: Nanos) -> Self {
        let rate = |earlier: u64, later: u64| {
            let more = u128::from(later.saturating_sub(earlier));
            u64::try_from(more * NANOS_PER_SECOND / u128::from(elapsed.max(1))).unwrap_or(u64::MAX)
        };
        Self {
            requests: rate(earlier.requests, later.requests),
            bytes: rate(earlier.bytes, later.bytes),
            work_ns: rate(earlier.work_ns, later.work_ns),
        }
    }
}

/// What one node has said of its tenants last.
#[derive(Clone, Default, Debug)]
pub(crate) struct LiveTenants {
    at: Nanos,
    /// Whether the report told of all that there were: one that comes later has then done nothing before.
    is_whole: bool,
    tenants: BTreeMap<String, (TenantReport, Rates)>,
}

impl LiveTenants {
    /// Takes a report of the node that came then: what waited is handled in a moment, and was not done in one.
    pub(crate) fn report(&mut self, reports: &[TenantReport], came: Nanos) {
        let (before, elapsed) = (std::mem::take(&mut self.tenants), came.saturating_sub(self.at));
        for report in reports.iter().take(TENANTS_PER_REPORT_MAX).filter(|report| report.is_named()) {
            let rates = match before.get(&report.name) {
                Some((_, rates)) if elapsed == 0 => *rates,
                Some((earlier, _)) => Rates::between(earlier, report, elapsed),
                None if self.is_whole && elapsed > 0 => Rates::between(&TenantReport::default(), report, elapsed),
                None => Rates::default(),
            };
            self.tenants.insert(report.name.clone(), (report.clone(), rates));
        }
        (self.at, self.is_whole) = (came, reports.len() < TENANTS_PER_REPORT_MAX);
    }

    fn iter(&self) -> impl Iterator<Item = (&TenantReport, Rates)> {
        self.tenants.values().map(|(report, rates)| (report, *rates))
    }
}

impl TenantView {
    fn add(&mut self, report: &TenantReport, rates: Rates) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.nodes, 1);
        add(&mut self.reserved_bytes, report.reserved_bytes);
        add(&mut self.memory_bytes, report.memory_bytes);
        add(&mut self.connections, report.connections.into());
        add(&mut self.requests_per_s, rates.requests);
        add(&mut self.bytes_per_s, rates.bytes);
        add(&mut self.work_ns_per_s, rates.work_ns);
        add(&mut self.requests, report.requests);
        add(&mut self.bytes, report.bytes);
        add(&mut self.work_ns, report.work_ns);
        add(&mut self.shed, report.shed);
    }
}

impl Controller {
    /// The tenants, those with most memory first, as many as fit an answer.
    pub(crate) fn tenants(&self) -> Answer {
        let mut views: BTreeMap<&str, TenantView> = BTreeMap::new();
        for space in self.state.spaces.values() {
            if let Some(Maker::Tenant(name) | Maker::Source(name)) = &space.maker {
                views.entry(name).or_default().spaces += 1;
            }
        }
        let placed = self.placed_spaces();
        for (node, live) in self.live.iter().filter(|(_, live)| live.link != Link::Lost) {
            for (report, rates) in live.tenants.iter() {
                let view = views.entry(&report.name).or_default();
                // What a node did last is no longer what it does.
                view.add(report, if live.link == Link::Connected { rates } else { Rates::default() });
                // Those of the controller are counted already.
                let placed = placed.get(&(*node, report.name.as_str())).copied().unwrap_or(0);
                view.spaces += u64::from(report.spaces).saturating_sub(placed);
            }
        }
        let named = views.into_iter().map(|(name, view)| TenantView { tenant: name.to_owned(), ..view });
        let mut tenants: Vec<TenantView> = named.collect();
        tenants.sort_by_key(|view| std::cmp::Reverse((view.memory_bytes, view.reserved_bytes, view.spaces)));
        tenants.truncate(TENANTS_PER_ANSWER_MAX);
        Answer::Tenants(tenants)
    }

    /// How many of a tenant's spaces that the controller has made a node knows as that tenant's.
    fn placed_spaces(&self) -> BTreeMap<(NodeId, &str), u64> {
        let mut placed = BTreeMap::new();
        let tenant = |pid: &Pid| match self.state.spaces.get(pid).map(|space| &space.maker) {
            Some(Some(Maker::Tenant(name))) => Some(name.as_str()),
            _ => None,
        };
        for ((pid, node), presence) in &self.state.presences {
            if let (Presence::Ready(_), Some(name)) = (presence, tenant(pid)) {
                *placed.entry((*node, name)).or_default() += 1;
            }
        }
        placed
    }
}
