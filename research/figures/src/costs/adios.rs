//! Adios' experiments (EuroSys'25): Hermit, DiLOS, DiLOS-P and Adios behind one request handler, on the testbed of its
//! section 5.

super::costs! {
    WORKERS, "workers", 8.0, Paper, "section 5: eight worker threads, one dispatcher, one reclaimer";
    HIT, "hit_ns", 850.0, Paper, "section 5.1: a request that finds its page takes 1.7 Kcycles";
    FAULTED, "faulted_ns", 5300.0, Paper, "section 5.1: one that does not takes 10.6 Kcycles with busy-waiting";
    FAULT_SOFTWARE, "fault_software_ns", FAULTED.value - HIT.value - super::testbed::FETCH.value, Derived, "a request with a fault, less one without and the fetch";
    SWITCH, "switch_ns", 20.0, Paper, "Table 1: 40 cycles from one unithread to another";
    UCONTEXT, "ucontext_switch_ns", 95.5, Paper, "Table 1: 191 cycles with Shinjuku's ucontext_t";
    YIELD, "yield_ns", 560.0, Calibrated, "section 6: at 0.2 MRPS Adios' P99.9 is 6 % above DiLOS'; polling, lists and cold caches, beyond two switches";
    TX_WAIT, "tx_wait_ns", 480.0, Calibrated, "Figure 9: 1.15 times the peak with polling delegation";
    DISPATCH, "dispatch_ns", 300.0, Calibrated, "Figure 8: DiLOS loses 60 % from 100 % to 10 % local, where only the dispatcher bounds the first";
    REAP, "reap_ns", 30.0, Derived, "a completion of a transmission, polled in batches of those of arrivals (section 3.4)";
    HANDOVER, "handover_ns", 100.0, Derived, "a cache line from one core to another of its socket";
    CLIENT_RTT, "client_rtt_ns", 2000.0, Derived, "client to node and back: the fetch less a page on the wire, rounded up";
    RX_RING, "rx_ring", 1024.0, Derived, "a receive queue of a verbs NIC at its usual size: what is beyond is dropped";
    QP_DEPTH, "qp_depth", 128.0, Derived, "a queue pair's usual size: a fault beyond waits for room (section 5.2)";
    QP_PAGE, "qp_page_ns", 250.0, Derived, "a queue pair's own time for a page: one queue pair reads at most 16 GB/s";
    RECLAIM_PAGE, "reclaim_page_ns", 150.0, Derived, "the pinned reclaimer keeps up with 2.5 M requests a second";
    RECLAIM_WAKE, "reclaim_wake_ns", 50_000.0, Derived, "waking a reclaimer that is not pinned: some schedulings (section 3.3)";
    FREE_SHARE, "free_percent", 15.0, Paper, "section 3.3: reclaim starts when 15 % of local memory is left";
    PREEMPTION, "preemption_ns", 5000.0, Paper, "section 5: Shinjuku's default interval";
    PREEMPT, "preempt_ns", 150.0, Derived, "a checkpoint that is taken: a switch, and the request back into the one queue";
    KERNEL_FAULT, "kernel_fault_ns", 700.0, Calibrated, "section 5.1: DiLOS' peak is 1.29 times Hermit's";
    KERNEL_STALL_EVERY, "kernel_stall_every_ns", 2_000_000.0, Derived, "a worker loses its CPU about as often as a kernel's timer ticks";
    KERNEL_STALL, "kernel_stall_ns", 400_000.0, Calibrated, "section 5.1: at 0.7 MRPS Hermit's P99.9 is 42 times DiLOS'";
    MEMCACHED_GET, "memcached_get_ns", 1800.0, Calibrated, "section 5.2: DiLOS' knee at about 750 KRPS; computing of a GET that touches two pages";
    ROCKSDB_GET, "rocksdb_get_ns", 2400.0, Calibrated, "section 5.2: at 490 KRPS the median GET of DiLOS takes 1.37 times Adios'; computing of a GET";
    ROCKSDB_NEXT, "rocksdb_next_ns", 1000.0, Derived, "section 5.2: a SCAN(100) takes 25 to 100 times a GET; a key and its value";
    ROCKSDB_VALUE, "rocksdb_value_bytes", 1074.0, Paper, "section 5.2: a key of 50 and a value of 1,024 bytes";
    ROCKSDB_SCANS, "rocksdb_scan_share", 0.01, Paper, "section 5.2: 99 % GET, 1 % SCAN(100)";
    ARRAY, "array_bytes", 42_949_672_960.0, Paper, "section 5.1: 40 GB, of which 8 GB are local";
    SCALE, "scale", 256.0, Derived, "memory is simulated at a 256th of its size: at random only the shares count";
}
