//! [`Tenant`]: what one user of a server has and has done, and how all of them are shown as metrics with a label.
//!
//! Each tenant is a time series of every metric, and names of hosts have no end. So only [`TENANTS_MAX`] of them are
//! shown by name, those with the largest part of anything; the others are one, called [`OTHER`].

use std::cmp::Reverse;

use crate::names;
use crate::sample::{Extra, ExtraKind};

/// Tenants that are shown by name.
const TENANTS_MAX: usize = 100;
/// The name of all others together.
const OTHER: &str = "other";

/// What one tenant has, and has done since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of messages, both ways.
    pub bytes: u64,
    /// Requests refused, or dropped, because of a limit.
    pub shed: u64,
    /// Time that was worked for it beside requests for bytes, in nanoseconds.
    pub work_ns: u64,
    /// Address spaces now.
    pub spaces: u64,
    /// Connections now.
    pub connections: u64,
    /// Bytes of allocations now.
    pub reserved_bytes: u64,
    /// Bytes of memory now.
    pub memory_bytes: u64,
}

/// A metric of each tenant.
type Metric = (&'static str, ExtraKind, &'static str, fn(&Tenant) -> u64);

/// Of a memory node.
const OF_NODE: [Metric; 8] = [
    (names::TENANT_REQUESTS, ExtraKind::Counter, "Requests answered, by tenant.", |tenant| tenant.requests),
    (names::TENANT_BYTES, ExtraKind::Counter, "Bytes of messages, both ways, by tenant.", |tenant| tenant.bytes),
    (names::TENANT_SHED, ExtraKind::Counter, "Requests refused or dropped because of a limit, by tenant.", |tenant| {
        tenant.shed
    }),
    (
        "yonder_node_tenant_work_seconds_total",
        ExtraKind::NanosCounter,
        "Time of the slow path and of offloads, by tenant.",
        |tenant| tenant.work_ns,
    ),
    ("yonder_node_tenant_spaces", ExtraKind::Gauge, "Address spaces now, by tenant.", |tenant| tenant.spaces),
    ("yonder_node_tenant_connections", ExtraKind::Gauge, "Connections open now, by tenant.", |tenant| {
        tenant.connections
    }),
    ("yonder_node_tenant_reserved_bytes", ExtraKind::Gauge, "Bytes of allocations now, by tenant.", |tenant| {
        tenant.reserved_bytes
    }),
    (names::TENANT_MEMORY, ExtraKind::Gauge, "Bytes of the node's memory in use now, by tenant.", |tenant| {
        tenant.memory_bytes
    }),
];

/// Of a controller: what has been done is not summed, because it shrinks when a node goes.
const OF_CONTROLLER: [Metric; 4] = [
    ("yonder_controller_tenant_spaces", ExtraKind::Gauge, "Address spaces, by tenant.", |tenant| tenant.spaces),
    ("yonder_controller_tenant_connections", ExtraKind::Gauge, "Connections to nodes, by tenant.", |tenant| {
        tenant.connections
    }),
    ("yonder_controller_tenant_reserved_bytes", ExtraKind::Gauge, "Bytes of allocations, by tenant.", |tenant| {
        tenant.reserved_bytes
    }),
    ("yonder_controller_tenant_memory_bytes", ExtraKind::Gauge, "Bytes of memory of all nodes, by tenant.", |tenant| {
        tenant.memory_bytes
    }),
];

impl Tenant {
    /// Metrics of the tenants of a memory node.
    #[must_use]
    pub fn node_metrics(tenants: Vec<Self>) -> Vec<Extra> {
        metrics(&OF_NODE, tenants)
    }

    /// Metrics of the tenants of all nodes of a controller.
    #[must_use]
    pub fn controller_metrics(tenants: Vec<Self>) -> Vec<Extra> {
        metrics(&OF_CONTROLLER, tenants)
    }

    fn numbers(&self) -> [u64; 8] {
        OF_NODE.map(|(_, _, _, of)| of(self))
    }

    fn add(&mut self, more: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.requests, more.requests);
        add(&mut self.bytes, more.bytes);
        add(&mut self.shed, more.shed);
        add(&mut self.work_ns, more.work_ns);
        add(&mut self.spaces, more.spaces);
        add(&mut self.connections, more.connections);
        add(&mut self.reserved_bytes, more.reserved_bytes);
        add(&mut self.memory_bytes, more.memory_bytes);
    }
}

fn metrics(of: &[Metric], tenants: Vec<Tenant>) -> Vec<Extra> {
    let tenants = bounded(tenants);
    let metric = |(name, kind, help, value): &Metric| {
        let extra = |tenant: &Tenant| Extra {
            labels: vec![(names::TENANT, tenant.name.clone())],
            ..Extra::new(name, *kind, value(tenant), help)
        };
        tenants.iter().map(extra).collect::<Vec<_>>()
    };
    of.iter().flat_map(metric).collect()
}

/// Those that are shown, by name, and the sum of the others.
fn bounded(tenants: Vec<Tenant>) -> Vec<Tenant> {
    let mut sums = Tenant::default();
    tenants.iter().for_each(|tenant| sums.add(tenant));
    let sums = sums.numbers();
    // In parts of 2^32, the largest of which counts.
    let part = |tenant: &Tenant| {
        let parts = tenant.numbers().into_iter().zip(sums);
        parts.map(|(own, sum)| (u128::from(own) << u32::BITS) / u128::from(sum.max(1))).max()
    };
    let (mut others, mut named): (Vec<_>, Vec<_>) = tenants.into_iter().partition(|tenant| tenant.name == OTHER);
    named.sort_by_cached_key(|tenant| (Reverse(part(tenant)), tenant.name.clone()));
    others.extend(named.split_off(named.len().min(TENANTS_MAX)));
    named.sort_by(|one, other| one.name.cmp(&other.name));
    if !others.is_empty() {
        let mut sum = Tenant { name: OTHER.to_owned(), ..Tenant::default() };
        others.iter().for_each(|other| sum.add(other));
        named.push(sum);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::render;
    use crate::sample::Sample;
    use crate::scrape::Scrape;

    fn tenant(name: &str, number: u64) -> Tenant {
        Tenant {
            name: name.to_owned(),
            requests: 10 * number,
            bytes: 10 * number + 1,
            shed: 10 * number + 2,
            work_ns: 1_500_000 * number,
            spaces: 10 * number + 4,
            connections: 10 * number + 5,
            reserved_bytes: 10 * number + 6,
            memory_bytes: 10 * number + 7,
        }
    }

    fn scrape(extra: Vec<Extra>) -> Scrape {
        Scrape::parse(&render(&Sample { extra, ..Sample::default() }, &[])).unwrap()
    }

    #[test]
    fn each_number_is_a_metric_with_the_name_as_its_label() {
        let odd = "a \"b\" \\ \n";
        let scrape = scrape(Tenant::node_metrics(vec![tenant("app", 1), tenant(odd, 2)]));
        let value = |name: &str, tenant| scrape.labelled(&format!("yonder_node_tenant_{name}"), &[("tenant", tenant)]);
        let all = ["requests_total", "bytes_total", "shed_total", "work_seconds_total"].into_iter();
        let all: Vec<&str> = all.chain(["spaces", "connections", "reserved_bytes", "memory_bytes"]).collect();
        let of = |tenant| all.iter().map(|name| value(name, tenant).unwrap()).collect::<Vec<f64>>();
        assert_eq!(of("app"), [10.0, 11.0, 12.0, 0.0015, 14.0, 15.0, 16.0, 17.0]);
        assert_eq!(of(odd), [20.0, 21.0, 22.0, 0.003, 24.0, 25.0, 26.0, 27.0]);
    }

    #[test]
    fn a_controller_shows_what_there_is_and_not_what_was_done() {
        let scrape = scrape(Tenant::controller_metrics(vec![tenant("app", 1)]));
        let value = |name: &str| scrape.labelled(&format!("yonder_controller_tenant_{name}"), &[("tenant", "app")]);
        assert_eq!(value("memory_bytes"), Some(17.0));
        assert_eq!(value("spaces"), Some(14.0));
        assert_eq!(value("requests_total"), None);
    }

    #[test]
    fn of_many_those_with_the_largest_part_of_anything_are_named_and_the_others_summed() {
        let mut tenants: Vec<Tenant> = (0..1000).map(|number| tenant(&format!("t{number:03}"), number)).collect();
        // One that has next to nothing, and is refused more than all others.
        tenants.push(Tenant { name: "busy".to_owned(), shed: 1 << 40, ..Tenant::default() });
        tenants.push(tenant(OTHER, 1));
        let shown = bounded(tenants.clone());
        assert_eq!(shown.len(), TENANTS_MAX + 1);
        assert!(shown.iter().any(|tenant| tenant.name == "busy" && tenant.shed == 1 << 40));
        assert!(shown.iter().any(|tenant| tenant.name == "t999") && shown.iter().all(|tenant| tenant.name != "t000"));
        assert_eq!(shown.iter().filter(|tenant| tenant.name == OTHER).count(), 1);
        let requests = |tenants: &[Tenant]| tenants.iter().map(|tenant| tenant.requests).sum::<u64>();
        assert_eq!(requests(&shown), requests(&tenants));
        assert_eq!(bounded(vec![tenant("b", 1), tenant("a", 2)]), [tenant("a", 2), tenant("b", 1)]);
        assert_eq!(bounded(Vec::new()), []);
    }
}
