//! [`TenantsResult`]: what `bench tenants` tells of one attack.

use serde::Serialize;

/// What the victim got beside one attack: medians of the turns. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct TenantsResult {
    /// Always `tenants`.
    pub bench: &'static str,
    /// `udp` or `tcp`.
    pub transport: &'static str,
    /// What was beside it: `none`, `twin`, or an attack.
    pub beside: String,
    /// What it did: `reads`, `spaces` or `calls`.
    pub work: String,
    /// Reads that it had under way.
    pub depth: usize,
    /// Bytes of a read.
    pub size_bytes: usize,
    /// Threads of the attack.
    pub attackers: usize,
    /// Whether node, victim and twin came before the threads of attacks.
    pub own_cpus: bool,
    /// CPUs that the node's data threads had alone.
    pub data_cpus: Option<String>,
    /// Turns.
    pub turns: usize,
    /// What it got done per second, reads, spaces or calls ...
    pub ops_per_s: f64,
    /// ... in the worst turn ...
    pub ops_per_s_min: f64,
    /// ... and in the best.
    pub ops_per_s_max: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// The 99th percentile in the worst turn.
    pub p99_us_max: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// What it got done per second as a part of that beside the twin.
    pub of_fair_share: f64,
    /// The 99th percentile as a multiple of that alone ...
    pub p99_of_alone: f64,
    /// ... and of that beside the twin.
    pub p99_of_twin: f64,
    /// What the attack got done, requests and connections, per second.
    pub attacks_per_s: f64,
}
