//! Clio's experiments (ASPLOS'22): its board, its client library, its testbed, and the RDMA that it is compared with.

super::costs! {
    CLIB, "clib_ns", 250.0, Paper, "Clio, section 7.1: CLib adds 250 ns in total; half of it before a request, half behind its answer";
    COMPUTE_LINK, "compute_link_gbps", 40.0, Paper, "Clio, section 7: ConnectX-3 NICs and a switch of 40 Gbps";
    BOARD_PORT, "board_port_gbps", 10.0, Paper, "Clio, section 5: SFP+ ports of 10 Gbps, of which one is used";
    COMPUTE_NODES, "compute_nodes", 4.0, Paper, "Clio, section 7: four compute nodes";
    FRAME_OVERHEAD, "frame_overhead_bytes", 66.0, Derived, "preamble 8, Ethernet 18, gap 12, IPv4 20, UDP 8; Yonder's header comes from core/wire";
    FRAGMENT, "fragment_bytes", 1408.0, Derived, "Ethernet's 1,500 bytes less IPv4, UDP and Yonder's header";
    CYCLE, "board_cycle_ns", 4.0, Derived, "Clio, section 5: modules at 250 MHz, one new unit of data in each cycle";
    DATA_WIDTH, "board_width_bytes", 64.0, Derived, "Clio, section 5: 512 bits in a cycle";
    FAULT_CYCLES, "page_fault_cycles", 3.0, Paper, "Clio, section 4.3: a page's first write takes three cycles more";
    TLB_ENTRIES, "tlb_entries", 16.0, Paper, "Clio, section 7.1: Figure 5's lower level ends at 2^4 entries; replaced by LRU, section 4.2";
    PAGE, "page_bytes", 4_194_304.0, Paper, "Clio, section 4.2: pages of 4 MB by default";
    BOARD_MEMORY, "board_memory_bytes", 2_147_483_648.0, Paper, "Clio, section 5: 2 GB of memory on the board";
    DRAM, "board_dram_ns", 300.0, Calibrated, "one access of the board to its DRAM: virtual memory costs Clio-KV 12 % of its latency at most (section 6), that is of 2.5 us";
    PATH, "path_ns", 815.0, Calibrated, "one way through NIC, switch, MAC and the board's other modules: what the median of 2.5 us (abstract) leaves";
    ALLOCATION_RETRY, "allocation_retry_ns", 500_000.0, Paper, "Clio, section 7.1: about 0.5 ms a retry (section 4.2 has a few us)";
    RDMA_ACCESS, "rdma_access_ns", 1191.0, Derived, "Clio, sections 2.2 and 7.1: an access that faults takes 16.8 ms, 14,100 times one that does not";
    RNIC_LOCAL, "rnic_local_entries", 256.0, Paper, "Clio, section 7.1: ConnectX-3 degrades above 2^8 entries; taken for QPs, MRs and PTEs, each in a cache of its own";
    RNIC_CLOUD, "rnic_cloudlab_entries", 4096.0, Paper, "Clio, section 7.1: ConnectX-5 degrades above 2^12 entries; as above";
    REGIONS_MAX, "rdma_regions_max", 262_144.0, Paper, "Clio, section 7.1: RDMA fails with more than 2^18 memory regions";
    RNIC_MISS, "rnic_miss_ns", 500.0, Calibrated, "a NIC's read of host memory over PCIe: the text has no number of it, so it is the order of such a read; no check depends on it";
    SOFTWARE_BOARD, "software_board_ns", 452.0, Measured, "yonder bench rread: 2.21 M reads of 64 bytes a second, by one data thread";
}
