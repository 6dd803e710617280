//! Where `yonder kv` and `yonder serve` listen, and who may look at their metrics: all who reach them, or with a
//! credential operators, and those who have the same one. And what of them is the fabric's.

use std::net::SocketAddr;

use yonder_fabric::Counter;
use yonder_metrics::{Extra, ExtraKind, MetricsServer};

use crate::args::{CredentialArgs, OpenArgs};

/// Refuses addresses that other machines reach, unless the server is to be open: its own, where it asks no one who he
/// is, and that of its metrics, unless a credential is typed.
pub(super) fn check_addresses(
    own: impl IntoIterator<Item = SocketAddr>,
    metrics: Option<&str>,
    open: OpenArgs,
    credential: &CredentialArgs,
) -> anyhow::Result<()> {
    open.check(own.into_iter().map(|address| address.to_string()))?;
    let metrics = metrics.filter(|_| !credential.is_typed());
    open.check_or(metrics, ", or --identity FILE or --key FILE")
}

/// Where the metrics are, and what shows them to the one who has started the server.
pub(super) fn how_to_watch(metrics: &MetricsServer, credential: &CredentialArgs) -> String {
    format!("metrics on {0}; `yonder top --attach {0}{credential}` shows them", metrics.address())
}

/// Counters of fabrics that are metrics too: the counter's name, the metric's, its kind and what it says.
const FABRIC_METRICS: [(&str, &str, ExtraKind, &str); 20] = {
    use ExtraKind::{Counter, Gauge};
    [
        ("wire_sent_bytes", "yonder_wire_sent_bytes_total", Counter, "Bytes sent to memory nodes."),
        ("wire_received_bytes", "yonder_wire_received_bytes_total", Counter, "Bytes received from memory nodes."),
        ("spread_places_wanted", "yonder_places_of_each_page", Gauge, "Places that a page should be at."),
        ("spread_places_needed", "yonder_places_needed_of_each_page", Gauge, "Places that a page can be read with."),
        ("spread_degraded_pages", "yonder_pages_below_protection", Gauge, "Pages at fewer nodes than was asked for."),
        ("spread_places_missing", "yonder_places_missing", Gauge, "Places that no node was found for yet."),
        ("spread_late_pages", "yonder_pages_late", Gauge, "Pages on their way to the disk."),
        ("spread_late_pages_max", "yonder_pages_late_max", Gauge, "Pages that may be: then writes wait for it."),
        ("spread_mending_bytes_per_s", "yonder_mending_bytes_per_second", Gauge, "Bytes copied to new places."),
        ("spread_mended_pages", "yonder_mended_pages_total", Counter, "Pages copied to new places."),
        ("spread_places_given_up", "yonder_places_given_up_total", Counter, "Places of pages that were given up."),
        ("spread_places_evacuated", "yonder_places_evacuated_total", Counter, "Places that were moved off slow nodes."),
        ("spread_places_replaced", "yonder_places_replaced_total", Counter, "Places found in the stead of others."),
        ("spread_epoch", "yonder_placement_epoch", Gauge, "Places that moved, were given up or found anew."),
        ("spread_slow_nodes", "yonder_nodes_slow", Gauge, "Nodes that reads ask last, because they are slow."),
        (
            "spread_nodes_left",
            "yonder_nodes_left",
            Gauge,
            "Nodes that pages are moved off, because writes wait for them.",
        ),
        (
            "spread_pages_to_evacuate",
            "yonder_pages_to_evacuate",
            Gauge,
            "Pages that are still to be moved off slow nodes.",
        ),
        ("spread_moves", "yonder_places_moved_total", Counter, "Places that moved to another node."),
        ("spread_hedged_reads", "yonder_hedged_reads_total", Counter, "Reads asked for at a further place."),
        (
            "spread_repeated_reads",
            "yonder_repeated_reads_total",
            Counter,
            "Reads that did not count, and were repeated.",
        ),
    ]
};

/// Those that a fabric has.
pub(super) fn fabric_metrics(counters: &[Counter]) -> Vec<Extra> {
    let metric = |(wanted, name, kind, help): (&str, &'static str, ExtraKind, &'static str)| {
        let counter = counters.iter().find(|counter| counter.name == wanted)?;
        Some(Extra::new(name, kind, counter.value, help))
    };
    FABRIC_METRICS.into_iter().filter_map(metric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_ask_who_looks_may_be_reached_and_what_asks_nothing_may_not() {
        let (plain, key) = (CredentialArgs::default(), Some("cluster.key".into()));
        let keyed = CredentialArgs { key, ..CredentialArgs::default() };
        let (here, there) = (SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([0, 0, 0, 0], 0)));
        let check = |own, open, credential| {
            check_addresses([own], Some("0.0.0.0:9185"), OpenArgs { open }, credential)
                .map_err(|error| error.to_string())
        };
        assert_eq!(check(here, false, &keyed), Ok(()));
        let refused = check(here, false, &plain).unwrap_err();
        assert!(refused.starts_with("0.0.0.0:9185 ") && refused.contains("--key FILE"), "{refused}");
        let refused = check(there, false, &keyed).unwrap_err();
        assert!(refused.starts_with("0.0.0.0:0 ") && !refused.contains("--key"), "{refused}");
        for credential in [&plain, &keyed] {
            assert_eq!(check(there, true, credential), Ok(()));
        }
    }
}
