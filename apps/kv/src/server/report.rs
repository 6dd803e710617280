//! What `stats` answers: the store's counters, the server's, and what the runtime adds.

use std::sync::Arc;

use yonder::FarMemory;
use yonder::sched::SchedStats;
use yonder::units::PAGE_BYTES;

use super::budget::Budget;
use super::buffers::Output;
use super::hits::HitTimes;
use super::session::VERSION;
use super::socket::tcp_name;
use super::{ExtraStats, KvAccess, KvConfig, Listen, ShutdownCommand, TlsClients};
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
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// What the connections may have allocated, and have.
    pub(super) buffers: Budget,
    pub(super) connections: u64,
    pub(super) connections_total: u64,
    pub(super) connections_rejected: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    /// Connections that were closed because they were silent for too long.
    pub(super) idle_kicks: u64,
    /// Silent connections that were closed because others needed what they held.
    pub(super) silent_kicks: u64,
    /// Commands and connections that were refused because there was no room in `buffers`.
    pub(super) buffer_refusals: u64,
    pub(super) datagrams_dropped: u64,
    /// Answers that were not sent because their receiver may not have asked.
    pub(super) answers_withheld: u64,
    pub(super) hits: HitTimes,
}

impl Traffic {
    pub(super) fn new(buffers: Budget) -> Self {
        Self {
            buffers,
            connections: 0,
            connections_total: 0,
            connections_rejected: 0,
            bytes_read: 0,
            bytes_written: 0,
            idle_kicks: 0,
            silent_kicks: 0,
            buffer_refusals: 0,
            datagrams_dropped: 0,
            answers_withheld: 0,
            hits: HitTimes::default(),
        }
    }

    /// Sets the counters to zero; what is, stays.
    fn reset(&mut self) {
        self.buffers.forget_peak();
        *self = Self { connections: self.connections, ..Self::new(self.buffers.clone()) };
    }
}

/// Everything `stats` needs but the counters of the moment.
pub(super) struct Report {
    pub(super) store: Arc<dyn StoreStats>,
    pub(super) config: KvConfig,
    pub(super) access: KvAccess,
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
            // Whoever knows the connections lists them.
            StatsKind::Connections => {}
            StatsKind::Hits => traffic.hits.counts().for_each(|(nanos, count)| line(output, &nanos.to_string(), count)),
            StatsKind::Reset => {
                self.store.reset();
                traffic.reset();
                self.access.passwords.iter().for_each(|passwords| passwords.reset());
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
        line(output, "idle_kicks", traffic.idle_kicks);
        line(output, "silent_kicks", traffic.silent_kicks);
        line(output, "buffer_bytes", traffic.buffers.taken_bytes());
        line(output, "buffer_bytes_peak", traffic.buffers.peak_bytes());
        line(output, "limit_buffer_bytes", traffic.buffers.bytes_max());
        line(output, "buffer_refusals", traffic.buffer_refusals);
        line(output, "bytes_read", traffic.bytes_read);
        line(output, "bytes_written", traffic.bytes_written);
        line(output, "udp_datagrams_dropped", traffic.datagrams_dropped);
        line(output, "udp_answers_withheld", traffic.answers_withheld);
        line(output, "request_hits", traffic.hits.total());
        let (attempts, failures) = self.access.passwords.as_ref().map_or((0, 0), |passwords| passwords.counts());
        line(output, "auth_cmds", attempts);
        line(output, "auth_errors", failures);
        line(output, "accepting_conns", 1);
        line(output, "listen_disabled_num", 0);
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

    /// Reads certificates again. Returns the answer.
    pub(super) fn refresh_certificates(&self) -> &'static [u8] {
        match self.access.certificates.as_ref().map(|certificates| certificates.reload()) {
            None => reply::NO_TLS,
            Some(Ok(())) => reply::OK,
            Some(Err(error)) => {
                tracing::warn!(%error, "the certificates from before stay");
                reply::BAD_CERTIFICATES
            }
        }
    }

    /// Lists what listens, as `stats conns` does. Returns its address.
    pub(super) fn list_listener(&self, output: &mut Output) -> String {
        let address = match &self.config.listen {
            Listen::Tcp(address) => tcp_name(address),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        line(output, "listener:addr", &address);
        line(output, "listener:state", "conn_listening");
        address
    }

    fn settings(&self, output: &mut Output) {
        line(output, "maxbytes", self.memory_bytes);
        line(output, "maxconns", self.config.connections_max);
        let tcp = self.config.listen.tcp();
        line(output, "tcpport", tcp.map_or(0, |address| address.port()));
        line(output, "udpport", self.config.udp.map_or(0, |address| address.port()));
        line(output, "inter", tcp.map_or_else(|| "NULL".to_owned(), |address| address.ip().to_string()));
        line(output, "verbosity", 0);
        line(output, "oldest", 0);
        line(output, "evictions", "on");
        match &self.config.listen {
            Listen::Unix(path) => line(output, "domain_socket", path.display()),
            Listen::Tcp(_) => line(output, "domain_socket", "NULL"),
        }
        line(output, "shutdown_command", yes_if(self.config.shutdown == ShutdownCommand::Obeyed));
        line(output, "growth_factor", "1.25");
        line(output, "num_threads", self.config.threads);
        line(output, "detail_enabled", "no");
        line(output, "cas_enabled", "yes");
        line(output, "binding_protocol", "ascii");
        line(output, "auth_enabled_sasl", "no");
        match &self.config.auth_file {
            Some(path) => line(output, "auth_enabled_ascii", path.display()),
            None => line(output, "auth_enabled_ascii", "no"),
        }
        line(output, "item_size_max", self.config.value_bytes_max);
        line(output, "buffer_bytes_max", self.config.buffer_bytes());
        line(output, "idle_timeout", self.config.idle_timeout.map_or(0, |time| time.as_secs()));
        line(output, "maxconns_fast", "yes");
        line(output, "slab_reassign", "yes");
        line(output, "lru_crawler", "yes");
        line(output, "flush_enabled", "yes");
        line(output, "dump_enabled", "no");
        line(output, "hash_algorithm", "xxh3");
        line(output, "lru_maintainer_thread", "no");
        line(output, "track_sizes", "no");
        self.tls_settings(output);
    }

    fn tls_settings(&self, output: &mut Output) {
        line(output, "ssl_enabled", yes_if(self.config.tls.is_some()));
        let Some(tls) = &self.config.tls else { return };
        line(output, "ssl_chain_cert", tls.cert.display());
        line(output, "ssl_key", tls.key.display());
        // memcached's numbers: 0 asks for none, 1 for one that may be missing, 2 for one.
        let verified = match (&tls.client_authorities, tls.clients) {
            (None, _) => 0,
            (Some(_), TlsClients::MayBeUnknown) => 1,
            (Some(_), TlsClients::AreVerified) => 2,
        };
        line(output, "ssl_verify_mode", verified);
        match &tls.client_authorities {
            Some(path) => line(output, "ssl_ca_cert", path.display()),
            None => line(output, "ssl_ca_cert", "NULL"),
        }
        line(output, "ssl_session_cache", "no");
        line(output, "ssl_min_version", "tlsv1.3");
    }
}

/// One connection of `stats conns`.
pub(super) fn connection(output: &mut Output, number: usize, peer: &str, listener: &str, state: &str, silent_s: u64) {
    line(output, &format!("{number}:addr"), peer);
    line(output, &format!("{number}:listen_addr"), listener);
    line(output, &format!("{number}:state"), state);
    line(output, &format!("{number}:secs_since_last_cmd"), silent_s);
}

fn yes_if(enabled: bool) -> &'static str {
    if enabled { "yes" } else { "no" }
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
