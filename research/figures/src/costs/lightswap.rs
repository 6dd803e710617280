//! LightSwap's experiments (sections 5.2 and 5.3): how a page fault reaches user space, and what handling it takes.

super::costs! {
    RDMA, "rdma_read_ns", 5000.0, Paper, "LightSwap, section 5.3: a page from remote memory, one-sided";
    SSD, "ssd_read_ns", 25000.0, Paper, "LightSwap, section 5.3: a page from the local SSD";
    NOTIFY, "notify_ns", 1600.0, Paper, "LightSwap, Table 1: eBPF, one thread";
    MAPS, "maps", 32.0, Paper, "LightSwap, section 5.3: 32 eBPF maps with a lock each, by the number of the core";
    MAP_LOCK, "map_lock_ns", 1420.0, Calibrated, "how long a notification holds its map's lock; fixed by the 4 us of LightSwap's Table 1, 128 threads";
    LIGHTSWAP_RDMA, "lightswap_rdma_software_ns", 3300.0, Derived, "LightSwap, Figure 11: 39.76 % of a fault that reads for 5 us";
    LIGHTSWAP_SSD, "lightswap_ssd_software_ns", 3765.0, Derived, "LightSwap, Figure 11: 13.09 % of a fault that reads for 25 us";
    INFINISWAP, "infiniswap_software_ns", 20202.0, Derived, "LightSwap, Figure 11: 80.16 % of a fault that reads for 5 us";
    LINUX, "linux_software_ns", 18200.0, Derived, "LightSwap, Figure 11: 42.13 % of a fault that reads for 25 us";
    THINK, "think_ns", 32500.0, Calibrated, "between two faults of a thread, on average; fixed by 13.5 us of LightSwap-RDMA in LightSwap's Figure 10, 128 threads";
    FLUSH, "flush_ns", 157.5, Calibrated, "for each other thread's CPU, in a fault that the kernel swaps for: it unmaps a page and interrupts them; fixed by 63.2 us of Linux in LightSwap's Figure 10, 128 threads";
}
