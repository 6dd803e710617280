//! Far memory for tests.

use yonder::{Config, FarMemory};

pub(crate) const URL: &str = "emu://?latency=2.5us&gbps=100";

/// Far memory with so many bytes local; `None`, and why, where it cannot be had.
pub(crate) fn far(local_bytes: u64) -> Option<FarMemory> {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return None;
    }
    Some(FarMemory::open(URL, Config::with_local(local_bytes)).unwrap())
}
