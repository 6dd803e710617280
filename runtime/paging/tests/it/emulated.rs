//! Far memory for tests: over a fast emulated link whose failures they choose. [`wait_for`]: how they wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_fabric::{EmuControl, EmuFabric};
use yonder_paging::{Config, FarMemory};

/// Far memory of 256 MiB that is 1 us away, or `None` (and a line that says so) where userfaultfd is missing.
pub(crate) fn far(config: Config) -> Option<(FarMemory, Arc<EmuControl>)> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let pairs = [("latency", "1us"), ("size", "256MiB")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let fabric = EmuFabric::from_query("emu://?latency=1us&size=256MiB", &pairs).unwrap();
    let control = fabric.control();
    Some((FarMemory::new(Arc::new(fabric), config).unwrap(), control))
}

/// Waits until something is so, as long as a busy machine may take.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}
