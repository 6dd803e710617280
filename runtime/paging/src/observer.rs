//! [`FaultObserver`]: whoever wants to know of every fault of a region that came by a signal, and from where.
//!
//! A region has none, or one for good. It is told when the fault is over, in the handler of whoever had it: see the trait for what
//! that forbids. Without one a fault costs a load and a branch more.
//!
//! Neighbours: `region` calls it; `edge/shim` has one that keeps a record for `yonder run --report`.

use std::sync::{Arc, OnceLock};

use yonder_pagetable::{PageTable, State};
use yonder_units::{Nanos, PageIndex};

/// A fault that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenFault {
    /// Byte offset of the touched address in its region.
    pub offset: u64,
    /// Address of the instruction that touched it.
    pub instruction: usize,
    /// When it began, on [`yonder_clock`].
    pub began: Nanos,
    /// How long it took.
    pub took: Nanos,
    /// What the page needed when it was touched.
    pub needed: Needed,
}

/// What the page of a fault needed when it was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// A fetch: a major fault. If others were quicker, it may have been spared.
    Fetch,
    /// No fetch, or one that was on its way.
    NoFetch,
}

/// Is told of faults.
///
/// It runs inside a signal handler, in the middle of anything: it must not allocate, lock, make system calls, or touch far memory.
pub trait FaultObserver: Send + Sync {
    /// A fault is over, and its page was brought.
    fn saw(&self, fault: &SeenFault);
}

/// A region's [`FaultObserver`], if it has one.
#[derive(Default)]
pub(crate) struct Observer(OnceLock<Arc<dyn FaultObserver>>);

impl Observer {
    /// False if there is one already.
    pub(crate) fn set(&self, observer: Arc<dyn FaultObserver>) -> bool {
        self.0.set(observer).is_ok()
    }

    /// Something that sees the fault that begins here; `None` if nobody wants to know of it.
    #[inline]
    pub(crate) fn begin(&self, table: &PageTable, offset: u64, instruction: usize) -> Option<Seeing<'_>> {
        let observer = &**self.0.get()?;
        let is_remote = table.load(PageIndex::containing(offset)).state() == State::Remote;
        let needed = if is_remote { Needed::Fetch } else { Needed::NoFetch };
        Some(Seeing { observer, fault: SeenFault { offset, instruction, began: yonder_clock::now(), took: 0, needed } })
    }
}

/// A fault that is under way.
pub(crate) struct Seeing<'a> {
    observer: &'a dyn FaultObserver,
    fault: SeenFault,
}

impl Seeing<'_> {
    /// Its page was brought.
    pub(crate) fn end(mut self) {
        self.fault.took = yonder_clock::now().saturating_sub(self.fault.began);
        self.observer.saw(&self.fault);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Access, Config, FarMemory};

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
        let told = all.iter().filter(|fault| fault.needed == Needed::Fetch).count();
        assert!(told > 1024 && told as u64 <= major, "{told} of {major} are said to be major");
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
}
