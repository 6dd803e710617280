//! What `stats` answers: the store's counters, the server's, and what the runtime adds.

use std::sync::Arc;

use yonder::FarMemory;
use yonder::sched::SchedStats;
use yonder::units::PAGE_BYTES;

use super::buffers::Output;
use super::hits::HitTimes;
use super::session::VERSION;
use super::{ExtraStats, KvConfig};
use crate::memory::ItemMemory;
use crate::protocol::{StatsKind, reply};
use crate::store::Store;

/// Statistics of a store of any memory.
pub(super) trait StoreStats: Send + Sync {
    fn general(&self) -> Vec<(&'static str, u64)>;
    fn slabs(&self) -> Vec<(String, u64)>;
    fn items(&self) -> Vec<(String, u64)>;
    fn reset(&self);
}

impl<M: ItemMemory> StoreStats for Store<M> {
    fn general(&self) -> Vec<(&'static str, u64)> {
        self.stats()
    }

    fn slabs(&self) -> Vec<(String, u64)> {
        self.slab_stats()
    }

    fn items(&self) -> Vec<(String, u64)> {
        self.item_stats()
    }

    fn reset(&self) {
        self.reset_stats();
    }
}

/// What the front end counts itself.
#[derive(Clone, Default, Debug)]
pub(super) struct Traffic {
    pub(super) connections: u64,
    pub(super) connections_total: u64,
    pub(super) connections_rejected: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) datagrams_dropped: u64,
    pub(super) hits: HitTimes,
}

/// Everything `stats` needs but the counters of the moment.
pub(super) struct Report {
    pub(super) store: Arc<dyn StoreStats>,
    pub(super) config: KvConfig,
    pub(super) memory_bytes: u64,
    pub(super) extra: Option<ExtraStats>,
}

impl Report {
    /// Answers one `stats` command.
    pub(super) fn answer(
        &self,
        kind: StatsKind,
        traffic: &mut Traffic,
        uptime_s: u32,
        now_s: u32,
        output: &mut Output,
    ) {
        match kind {
            StatsKind::General => self.general(traffic, uptime_s, now_s, output),
            StatsKind::Settings => self.settings(output),
            StatsKind::Items => self.store.items().iter().for_each(|(name, value)| line(output, name, value)),
            StatsKind::Slabs => self.store.slabs().iter().for_each(|(name, value)| line(output, name, value)),
            StatsKind::Sizes => line(output, "sizes_status", "disabled"),
            StatsKind::Hits => traffic.hits.counts().for_each(|(nanos, count)| line(output, &nanos.to_string(), count)),
            StatsKind::Reset => {
                self.store.reset();
                *traffic = Traffic { connections: traffic.connections, ..Traffic::default() };
                return output.push(reply::RESET);
            }
        }
        output.push(reply::END);
    }

    fn general(&self, traffic: &Traffic, uptime_s: u32, now_s: u32, output: &mut Output) {
        line(output, "pid", std::process::id());
        line(output, "uptime", uptime_s);
        line(output, "time", now_s);
        line(output, "version", VERSION);
        line(output, "pointer_size", usize::BITS);
        line(output, "max_connections", self.config.connections_max);
        line(output, "curr_connections", traffic.connections);
        line(output, "total_connections", traffic.connections_total);
        line(output, "rejected_connections", traffic.connections_rejected);
        line(output, "bytes_read", traffic.bytes_read);
        line(output, "bytes_written", traffic.bytes_written);
        line(output, "udp_datagrams_dropped", traffic.datagrams_dropped);
        line(output, "request_hits", traffic.hits.total());
        line(output, "accepting_conns", 1);
        line(output, "threads", self.config.threads);
        for (name, value) in self.store.general() {
            line(output, name, value);
        }
        if let Some(extra) = &self.extra {
            let mut stats = Vec::new();
            extra(&mut stats);
            for (name, value) in stats {
                line(output, &name, value);
            }
        }
    }

    fn settings(&self, output: &mut Output) {
        line(output, "maxbytes", self.memory_bytes);
        line(output, "maxconns", self.config.connections_max);
        line(output, "tcpport", self.config.listen.port());
        line(output, "udpport", self.config.udp.map_or(0, |address| address.port()));
        line(output, "inter", self.config.listen.ip());
        line(output, "verbosity", 0);
        line(output, "oldest", 0);
        line(output, "evictions", "on");
        line(output, "domain_socket", "NULL");
        line(output, "growth_factor", "1.25");
        line(output, "num_threads", self.config.threads);
        line(output, "cas_enabled", "yes");
        line(output, "item_size_max", self.config.value_bytes_max);
        line(output, "maxconns_fast", "yes");
        line(output, "slab_reassign", "yes");
        line(output, "flush_enabled", "yes");
    }
}

/// What the runtime below a server counts: of paging, and of what was predicted.
pub fn runtime_stats(far: FarMemory, requests: Arc<SchedStats>) -> ExtraStats {
    Box::new(move |lines| {
        let stats = far.stats();
        let mut line = |name: &str, value: u64| lines.push((name.to_owned(), value.to_string()));
        line("major_faults", stats.major_faults);
        line("minor_faults", stats.minor_faults);
        line("fetched_bytes", stats.fetched_bytes);
        line("written_bytes", stats.written_bytes);
        line("paging_errors", stats.paging_errors);
        line("local_limit_bytes", stats.limit_pages * PAGE_BYTES as u64);
        line("local_used_bytes", stats.charged_pages * PAGE_BYTES as u64);
        line("local_peak_bytes", stats.peak_pages * PAGE_BYTES as u64);
        let predictions = requests.predictions();
        line("predicted_hits_right", predictions.hits_right);
        line("predicted_hits_wrong", predictions.hits_wrong);
        line("predicted_faults_right", predictions.faults_right);
        line("predicted_faults_wrong", predictions.faults_wrong);
        line("predictor_bytes", requests.predictor_bytes());
    })
}

fn line(output: &mut Output, name: &str, value: impl std::fmt::Display) {
    output.push(format!("STAT {name} {value}\r\n").as_bytes());
}
