//! Names of metrics, labels and stages, as `render` writes them and `top` reads them.

/// What every name starts with.
pub(crate) const PREFIX: &str = "yonder_";

pub(crate) const MAJOR_FAULTS: &str = "yonder_major_faults_total";
pub(crate) const MINOR_FAULTS: &str = "yonder_minor_faults_total";
pub(crate) const PAGING_ERRORS: &str = "yonder_paging_errors_total";
pub(crate) const FETCH_RETRIES: &str = "yonder_fetch_retries_total";
pub(crate) const WRITE_RETRIES: &str = "yonder_write_retries_total";
pub(crate) const FETCHED_BYTES: &str = "yonder_fetched_bytes_total";
pub(crate) const WRITTEN_BYTES: &str = "yonder_written_bytes_total";
pub(crate) const FETCHES_IN_FLIGHT: &str = "yonder_fetches_in_flight";
pub(crate) const LOCAL_PAGES: &str = "yonder_local_pages";
pub(crate) const LOCAL_LIMIT: &str = "yonder_local_limit_pages";
pub(crate) const LOCAL_PEAK: &str = "yonder_local_peak_pages";
pub(crate) const METADATA_BYTES: &str = "yonder_metadata_bytes";
pub(crate) const TOUCHED_PAGES: &str = "yonder_touched_pages";
pub(crate) const FAULT_STAGE: &str = "yonder_fault_stage_seconds";
pub(crate) const FAULT_LATENCY: &str = "yonder_fault_latency_seconds";

pub(crate) const REQUESTS: &str = "yonder_requests_total";
pub(crate) const REQUESTS_PANICKED: &str = "yonder_requests_panicked_total";
pub(crate) const REQUESTS_IN_SERVICE: &str = "yonder_requests_in_service";
pub(crate) const REQUEST_STAGE: &str = "yonder_request_stage_seconds";
pub(crate) const REQUEST_LATENCY: &str = "yonder_request_latency_seconds";

pub(crate) const PREDICTED_HITS_RIGHT: &str = "yonder_predicted_hits_right_total";
pub(crate) const PREDICTED_HITS_WRONG: &str = "yonder_predicted_hits_wrong_total";
pub(crate) const PREDICTED_FAULTS_RIGHT: &str = "yonder_predicted_faults_right_total";
pub(crate) const PREDICTED_FAULTS_WRONG: &str = "yonder_predicted_faults_wrong_total";

/// Of pages on several nodes.
pub(crate) const PLACES_WANTED: &str = "yonder_places_of_each_page";
pub(crate) const PLACES_NEEDED: &str = "yonder_places_needed_of_each_page";
pub(crate) const PAGES_BELOW: &str = "yonder_pages_below_protection";
pub(crate) const MENDING_BYTES: &str = "yonder_mending_bytes_per_second";
pub(crate) const PLACES_GIVEN_UP: &str = "yonder_places_given_up_total";
pub(crate) const PAGES_LATE: &str = "yonder_pages_late";
pub(crate) const PAGES_LATE_MAX: &str = "yonder_pages_late_max";
pub(crate) const PLACES_REPLACED: &str = "yonder_places_replaced_total";
pub(crate) const EPOCH: &str = "yonder_placement_epoch";
pub(crate) const NODES_SLOW: &str = "yonder_nodes_slow";
pub(crate) const NODES_LEFT: &str = "yonder_nodes_left";
pub(crate) const HEDGED_READS: &str = "yonder_hedged_reads_total";
/// What is shown in one line of its own.
pub(crate) const PROTECTION: [&str; 12] = [
    PLACES_WANTED,
    PLACES_NEEDED,
    PAGES_BELOW,
    PAGES_LATE,
    PAGES_LATE_MAX,
    MENDING_BYTES,
    PLACES_GIVEN_UP,
    PLACES_REPLACED,
    HEDGED_READS,
    EPOCH,
    NODES_SLOW,
    NODES_LEFT,
];

/// What a memory node counts by tenant.
pub(crate) const TENANT_REQUESTS: &str = "yonder_node_tenant_requests_total";
pub(crate) const TENANT_BYTES: &str = "yonder_node_tenant_bytes_total";
pub(crate) const TENANT_SHED: &str = "yonder_node_tenant_shed_total";
pub(crate) const TENANT_MEMORY: &str = "yonder_node_tenant_memory_bytes";

/// Label of what is counted by tenant.
pub(crate) const TENANT: &str = "tenant";
/// Label of [`LOCAL_PAGES`].
pub(crate) const STATE: &str = "state";
/// Labels of [`FAULT_STAGE`] and [`REQUEST_STAGE`].
pub(crate) const STAGE: &str = "stage";
pub(crate) const QUANTILE: &str = "quantile";
/// Label of the buckets of [`FAULT_LATENCY`] and [`REQUEST_LATENCY`].
pub(crate) const UPPER_BOUND: &str = "le";

/// Values of [`STATE`]; the pages of all states add up to the limit.
pub(crate) const STATES: [&str; 5] = ["resident", "standby", "writing", "buffer", "free"];
/// Stages of a major fault, in order.
pub(crate) const FAULT_STAGES: [&str; 5] = ["post", "fetch", "install", "resume", "total"];
/// Stages of a request, in order.
pub(crate) const REQUEST_STAGES: [&str; 5] = ["queued", "running", "waiting", "total", HIT];
/// The total of requests without a major fault.
pub(crate) const HIT: &str = "hit";
/// Values of [`QUANTILE`], as text and as numbers.
pub(crate) const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999)];
