//! [`FarControl`]: far memory as something that is asked for its settings.

use std::time::Duration;

use yonder_paging::{ColdBand, Effort, FarMemory, RegionView, Tuning, TuningError, know_traps};
use yonder_settings::{Name, Refusal, Row, TIME_NS_MAX, Value};
use yonder_units::PAGE_BYTES;

use crate::answer::Controlled;

/// The far memory of this process. Keeps it alive.
pub struct FarControl {
    far: FarMemory,
    tuning: Tuning,
    command: String,
    finds_out: bool,
}

impl FarControl {
    /// What is asked for concerns `far`.
    #[must_use]
    pub fn new(far: FarMemory) -> Self {
        let tuning = far.tuning();
        Self { far, tuning, command: command_line(), finds_out: false }
    }

    /// The process sets its soft limit itself: others leave it alone.
    #[must_use]
    pub fn that_finds_out(self, finds_out: bool) -> Self {
        Self { finds_out, ..self }
    }
}

/// What this process was started with.
fn command_line() -> String {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}

/// Whoever set it can set something else, unless there is nothing to set any more.
fn refusal(error: &TuningError) -> Refusal {
    match error {
        TuningError::Ended => Refusal::Failed(error.to_string()),
        TuningError::NoRegion(_)
        | TuningError::QuotaTooSmall(_)
        | TuningError::AgeTooShort(_)
        | TuningError::Local(_)
        | TuningError::Held { .. }
        | TuningError::NoPages => Refusal::Refused(error.to_string()),
    }
}

impl Controlled for FarControl {
    fn about(&self) -> Row {
        let resident: u64 = self.tuning.regions().iter().map(|region| region.resident_bytes).sum();
        Row::new()
            .with("resident_bytes", resident)
            .with("quota_bytes", self.tuning.process_quota())
            .with("local_bytes", self.far.local())
            .with("local_bytes_max", self.far.local_max())
            .with("finds_out", u64::from(self.finds_out))
            .with("far", self.far.url())
            .with("command", self.command.as_str())
    }

    fn settings(&self) -> Vec<(Name, Value)> {
        let (age, pages) = (self.tuning.standby_age(), self.tuning.standby_pages());
        // Longer than what can be set is never, however it is kept.
        let age = u64::try_from(age.as_nanos()).ok().filter(|nanos| *nanos <= TIME_NS_MAX);
        let mut settings = vec![
            (Name::StandbyAge, Value::Time(age)),
            (Name::StandbyPages, Value::Count((pages != usize::MAX).then_some(pages as u64))),
            (Name::Local, Value::Size(self.tuning.local())),
            (Name::SoftLimit, Value::Size(self.tuning.soft_limit())),
            (Name::Quota, Value::Size(self.tuning.process_quota())),
        ];
        let of_region = |region: RegionView| (Name::RegionQuota(region.id), Value::Size(region.quota_bytes));
        settings.extend(self.tuning.regions().into_iter().map(of_region));
        settings
    }

    fn set(&self, name: Name, value: Value) -> Result<(), Refusal> {
        let set = match (name, value) {
            (Name::StandbyAge, Value::Time(age)) => {
                self.tuning.set_standby_age(age.map_or(Duration::MAX, Duration::from_nanos))
            }
            (Name::StandbyPages, Value::Count(pages)) => {
                let pages = pages.map_or(usize::MAX, |pages| usize::try_from(pages).unwrap_or(usize::MAX));
                self.tuning.set_standby_pages(pages)
            }
            (Name::Local, Value::Size(bytes)) => self.tuning.set_local(bytes),
            (Name::SoftLimit, Value::Size(bytes)) => self.tuning.set_soft_limit(bytes),
            (Name::Quota, Value::Size(bytes)) => self.tuning.set_process_quota(bytes),
            (Name::RegionQuota(id), Value::Size(bytes)) => self.tuning.set_region_quota(id, bytes),
            (
                Name::StandbyAge
                | Name::StandbyPages
                | Name::Local
                | Name::SoftLimit
                | Name::Quota
                | Name::RegionQuota(_),
                _,
            ) => {
                return Err(Refusal::Refused(format!("{value} is no value of {name}")));
            }
        };
        set.map_err(|error| refusal(&error))
    }

    fn stats(&self) -> Row {
        know_traps(&self.far);
        let (stats, counts) = (self.far.stats(), self.tuning.counts());
        let effort = Effort::of(&stats);
        let bytes = |pages: u64| pages * PAGE_BYTES as u64;
        let numbers = [
            ("local_bytes", bytes(stats.limit_pages)),
            ("charged_bytes", bytes(stats.charged_pages)),
            ("peak_bytes", bytes(stats.peak_pages)),
            ("touched_bytes", bytes(stats.touched_pages)),
            ("resident_bytes", bytes(stats.resident_pages)),
            ("standby_bytes", bytes(stats.standby_pages)),
            ("writing_bytes", bytes(stats.writing_pages)),
            ("metadata_bytes", stats.metadata_bytes),
            ("major_faults", stats.major_faults),
            ("minor_faults", stats.minor_faults),
            ("worked_ns", effort.worked),
            ("stalled_ns", effort.stalled),
            ("fetching_ns", effort.fetching),
            ("paging_errors", stats.paging_errors),
            ("damaged_pages", stats.damaged_pages),
            ("in_flight", stats.in_flight),
            ("fetched_bytes", stats.fetched_bytes),
            ("written_bytes", stats.written_bytes),
            ("prefetched_pages", stats.prefetched_pages),
            ("prefetch_hits", stats.prefetch_hits),
            ("swept_pages", stats.swept_pages),
            ("dropped_pages", stats.dropped_pages),
            ("returned_pages", stats.returned_pages()),
            ("fetched_pages", stats.fetched_pages()),
            ("clean_pages", stats.clean_pages),
            ("flushed_by_age_pages", counts.flushed_by_age_pages),
            ("flushed_by_size_pages", counts.flushed_by_size_pages),
            ("quota_evicted_pages", counts.quota_evicted_pages),
            ("advised_out_pages", counts.advised_out_pages),
            ("advised_ahead_pages", counts.advised_ahead_pages),
        ];
        let row = Row::new().with("soft_limit_bytes", self.tuning.soft_limit());
        numbers.into_iter().fold(row, |row, (name, number)| row.with(name, number))
    }

    fn regions(&self) -> Vec<Row> {
        let row = |region: RegionView| {
            Row::new()
                .with("region", u64::from(region.id))
                .with("address", region.address as u64)
                .with("bytes", region.bytes)
                .with("resident_bytes", region.resident_bytes)
                .with("quota_bytes", region.quota_bytes)
        };
        self.tuning.regions().into_iter().map(row).collect()
    }

    fn cold(&self) -> Vec<Row> {
        let row = |band: ColdBand| {
            Row::new()
                .with("region", u64::from(band.region))
                .with("untouched_s", band.untouched.as_secs())
                .with("resident_bytes", band.resident_bytes)
        };
        self.tuning.cold().into_iter().map(row).collect()
    }
}
