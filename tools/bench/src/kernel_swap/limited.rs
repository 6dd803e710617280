//! [`Limited`]: a group whose processes have their local memory, and [`KernelCounts`]: what the kernel does for them.

use yonder::units::PAGE_BYTES;

use super::Group;

/// A group, and how much memory it was left.
#[derive(Debug)]
pub(crate) struct Limited {
    group: Group,
    bytes: u64,
}

/// What the kernel has done for a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelCounts {
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    pub(crate) swapped: Swapped,
    pub(crate) group_bytes: u64,
}

/// What the whole machine has swapped since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Swapped {
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
}

impl Limited {
    /// A group as it is.
    pub(crate) fn new(group: Group) -> Self {
        Self { group, bytes: 0 }
    }

    /// Leaves it the local memory, and what its processes take before they have data, which is now.
    pub(crate) fn leave(&mut self, local_bytes: u64) -> Result<(), String> {
        self.bytes = local_bytes + self.group.usage()?;
        self.group.limit(self.bytes)
    }

    /// How much memory it was left.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the kernel has killed one of its processes because memory was short.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.group.was_out_of_memory()
    }

    /// What the kernel has done for it so far. Swap is counted for the whole machine.
    pub(crate) fn counts(&self) -> KernelCounts {
        let faults = self.group.faults();
        KernelCounts {
            major_faults: faults.major,
            minor_faults: faults.minor,
            swapped: Swapped::so_far(),
            group_bytes: self.bytes,
        }
    }
}

impl KernelCounts {
    /// What was done since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            swapped: self.swapped.since(earlier.swapped),
            group_bytes: self.group_bytes,
        }
    }
}

impl Swapped {
    /// Until now; nothing where the kernel does not tell.
    pub(crate) fn so_far() -> Self {
        let pages = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let bytes = |name| count(&pages, name) * PAGE_BYTES as u64;
        Self { in_bytes: bytes("pswpin"), out_bytes: bytes("pswpout") }
    }

    /// What was swapped since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            in_bytes: self.in_bytes.saturating_sub(earlier.in_bytes),
            out_bytes: self.out_bytes.saturating_sub(earlier.out_bytes),
        }
    }
}

/// A count in `/proc/vmstat`; 0 where the kernel does not tell.
fn count(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_read() {
        assert_eq!(count("nr_free 5\npswpin 12\npswpin_zero 9\npswpout 7\n", "pswpin"), 12);
        assert_eq!(count("pswpin_zero 9\n", "pswpin"), 0);
        let swapped = |in_bytes, out_bytes| Swapped { in_bytes, out_bytes };
        assert_eq!(swapped(9, 5).since(swapped(4, 5)), swapped(5, 0));
    }
}
