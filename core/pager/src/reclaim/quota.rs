//! Quotas: how many pages a region or a process keeps mapped, though there is room for more.
//!
//! Faults know nothing of quotas. Reclaim looks, and takes away what is too much and a little more, so that the next
//! fault is not one too many again.

/// Pages to take away now from what has `resident` mapped; 0 if that is within its quota. More than the excess, so that
/// a flush of the TLB is worth it.
#[must_use]
pub fn excess(resident: u64, quota: u64) -> u64 {
    let excess = if resident > quota { resident - quota + slack(quota) } else { 0 };
    debug_assert!(excess <= resident, "{excess} of {resident} mapped pages are to go");
    excess
}

/// Whether what has `resident` mapped is about to reach its quota: what has been advised out goes now.
#[must_use]
pub fn is_near(resident: u64, quota: u64) -> bool {
    resident.saturating_add(2 * slack(quota)) > quota
}

fn slack(quota: u64) -> u64 {
    quota / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_its_quota_comes_below_it_and_is_near_it_then() {
        for quota in [64, 1_000, 1 << 31] {
            assert_eq!(excess(quota, quota), 0);
            let left = quota + 1 - excess(quota + 1, quota);
            assert!(left < quota && left > quota * 9 / 10 && is_near(left, quota), "{left} of {quota}");
            assert!(!is_near(quota * 8 / 10, quota));
        }
    }

    #[test]
    fn without_a_quota_nothing_is_too_much() {
        assert_eq!(excess(1 << 40, u64::MAX), 0);
        assert!(!is_near(1 << 40, u64::MAX));
    }
}
