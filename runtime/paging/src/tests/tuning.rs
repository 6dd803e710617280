//! Settings of far memory that is used, and of one that has ended.

use std::time::Duration;

use yonder_units::PAGE_BYTES;

use crate::{Config, FarMemory, RegionView, TuningCounts, TuningError};

const LOCAL: u64 = 4 << 20;

#[test]
fn settings_are_checked_and_outlive_the_far_memory() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(LOCAL)).unwrap();
    let tuning = far.tuning();
    let region = far.region(2 * LOCAL).unwrap();
    region.write_u64(0, 1).unwrap();
    let expected = RegionView {
        id: 0,
        address: region.address(),
        bytes: 2 * LOCAL,
        resident_bytes: PAGE_BYTES as u64,
        quota_bytes: None,
    };
    assert_eq!(tuning.regions(), [expected]);
    assert_eq!(tuning.cold().iter().map(|band| band.resident_bytes).sum::<u64>(), PAGE_BYTES as u64);
    tuning.set_region_quota(0, Some(LOCAL)).unwrap();
    tuning.set_process_quota(Some(2 * LOCAL)).unwrap();
    tuning.set_standby_age(Duration::from_millis(5)).unwrap();
    tuning.set_standby_pages(9).unwrap();
    assert_eq!(tuning.regions()[0].quota_bytes, Some(LOCAL));
    let refused = [
        tuning.set_region_quota(1, None),
        tuning.set_region_quota(0, Some(4096)),
        tuning.set_standby_pages(0),
        tuning.set_standby_age(Duration::ZERO),
    ];
    let messages = refused.map(|result| result.unwrap_err().to_string());
    assert_eq!(messages[0], "there is no region 1: give the number of one that is listed");
    assert_eq!(messages[1], "a quota of 4 KiB is too small: give at least 256 KiB, or none");
    assert_eq!(messages[2], "a batch of 0 pages is too small: give at least 1");
    assert_eq!(messages[3], "a standby age of 0ns is too short: give at least 1ms");
    tuning.set_process_quota(None).unwrap();
    tuning.set_region_quota(0, None).unwrap();
    // What is held could not leave.
    (0..2 << 20).step_by(PAGE_BYTES).for_each(|offset| region.write_u64(offset, 1).unwrap());
    let held = region.hold(0, 1).unwrap();
    let refused = tuning.set_local(Some(LOCAL - 1)).unwrap_err();
    assert_eq!(refused, TuningError::Held { held: 2 << 20, least: 4 << 20 });
    drop(held);
    assert_eq!((tuning.set_local(Some(2 << 20)), tuning.local()), (Ok(()), Some(2 << 20)));
    assert!(tuning.set_local(Some(2 * LOCAL)).is_err(), "it was made for less");
    assert_eq!((tuning.set_local(None), tuning.local()), (Ok(()), Some(LOCAL)));
    tuning.set_process_quota(Some(2 * LOCAL)).unwrap();
    drop(region);
    assert_eq!(tuning.regions(), []);
    drop(far);
    assert_eq!(tuning.set_process_quota(None), Err(TuningError::Ended));
    assert_eq!((tuning.process_quota(), tuning.standby_pages()), (Some(2 * LOCAL), 9));
    assert_eq!((tuning.standby_age(), tuning.counts()), (Duration::from_millis(5), TuningCounts::default()));
}
