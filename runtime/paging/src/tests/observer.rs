//! Observers of faults that came by signals.

use std::sync::{Arc, Mutex};

use crate::{Access, Config, FarMemory, FaultObserver, Needed, SeenFault};

#[derive(Default)]
struct Seen(Mutex<Vec<SeenFault>>);

impl FaultObserver for Seen {
    fn saw(&self, fault: &SeenFault) {
        // The test's own thread has the faults, outside of this lock.
        self.0.lock().unwrap().push(*fault);
    }
}

#[test]
fn faults_by_signals_are_seen_with_what_they_needed_and_others_are_not() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let config = Config { prefetch: crate::Prefetch::None, ..Config::with_local(4 << 20) };
    let far = FarMemory::open("emu://?latency=20us&size=64MiB", config).unwrap();
    let mut region = far.region(16 << 20).unwrap();
    let seen = Arc::new(Seen::default());
    region.observe_faults(Arc::clone(&seen) as Arc<dyn FaultObserver>);
    let before = yonder_clock::now();
    for offset in (0..16 << 20).step_by(4096) {
        region.write_u64(offset, offset + 1).unwrap();
    }
    // A write may meet a block that is being swept; all other pages were brought without a trap.
    assert!(std::mem::take(&mut *seen.0.lock().unwrap()).len() < 2048);
    // What is swept from a sealed region is far, and not on standby.
    region.seal().unwrap();
    let region = region.with_access(Access::Trap);
    let faults = || std::mem::take(&mut *seen.0.lock().unwrap());
    for offset in (0..16 << 20).step_by(4096) {
        region.read_u64(offset + 8).unwrap();
    }
    let all = faults();
    let major = far.stats().major_faults;
    assert!(all.len() > 1024 && major > 1024, "{} faults, {major} major", all.len());
    let fetches = all.iter().filter(|fault| fault.needed == Needed::Fetch).count();
    assert!(fetches > 1024 && fetches as u64 <= major, "{fetches} of {major} are said to be major");
    assert!(all.iter().filter(|fault| fault.needed == Needed::Fetch).all(|fault| fault.took >= 20_000));
    assert!(all.iter().all(|fault| fault.offset % 4096 == 8 && fault.began >= before));
    assert!(all.is_sorted_by_key(|fault| fault.began));
    let instruction = all[0].instruction;
    assert!(instruction != 0 && all.iter().all(|fault| fault.instruction == instruction), "one load has them all");
}

#[test]
#[should_panic(expected = "observed already")]
fn a_region_has_one_observer() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        panic!("observed already");
    }
    let far = FarMemory::open("emu://?size=64MiB", Config::with_local(4 << 20)).unwrap();
    let region = far.region(4 << 20).unwrap();
    region.observe_faults(Arc::new(Seen::default()));
    region.observe_faults(Arc::new(Seen::default()));
}
