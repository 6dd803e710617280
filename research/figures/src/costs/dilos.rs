//! DiLOS' experiments (EuroSys'23, sections 3.1, 3.2 and 6.1): Fastswap and DiLOS, a sequence of pages on one thread.

super::costs! {
    PAGES, "pages", 5_242_880.0, Paper, "DiLOS, section 6.1: 20 GB with 4 KB strides, Table 3's faults without prefetching";
    LOCAL, "local_percent", 12.5, Paper, "DiLOS, section 6.1: 2.5 GB of 20 GB are local";
    WINDOW, "window_pages", 8.0, Derived, "DiLOS, Table 3: with readahead one page in eight is a major fault, in Fastswap and DiLOS";
    EXCEPTION, "exception_ns", 570.0, Paper, "DiLOS, section 3.1: the hardware's and the kernel's exception take 0.57 us; half before the handler, half after";
    FETCH, "fetch_ns", 2500.0, Paper, "DiLOS, section 4.3: 2 to 3 us for 4 KB";
    FASTSWAP_FETCH, "fastswap_fetch_ns", 2910.0, Derived, "DiLOS, Figure 1: 46 % of a fault of which 9 % are 0.57 us";
    FASTSWAP_SWAP, "fastswap_swap_ns", 1010.0, Derived, "DiLOS, Figure 1: 100 - 46 - 29 - 9 = 16 % of that fault: allocation, swap cache, mapping; half before the read, half after";
    FASTSWAP_RECLAIM, "fastswap_reclaim_ns", 8230.0, Calibrated, "a clean page, on either CPU; fixed by the 29 % of DiLOS' Figure 1";
    FASTSWAP_BATCH, "fastswap_batch_pages", 32.0, Derived, "what Linux reclaims in one go (SWAP_CLUSTER_MAX)";
    HANDLER, "dilos_handler_ns", 150.0, Calibrated, "page table, read posted, page mapped; half before the read, half after; fixed by 1.24 GB/s of DiLOS' Table 2, read without prefetching";
    RECLAIM, "dilos_reclaim_ns", 500.0, Derived, "DiLOS, section 6.1: a CPU of its own hides all of it, so it is less than a page's 1.1 us with readahead; half of that";
    AHEAD, "ahead_interval_ns", 760.0, Calibrated, "from one read ahead to the next, of one queue pair; fixed by the 3,167,233 minor faults of DiLOS' Table 3, with readahead";
    TRACKER, "dilos_tracker_ns", 300.0, Calibrated, "what DiLOS does in a fault on a page under way, beside mapping: its hit tracker, which a major fault hides; fixed by 3.74 GB/s of DiLOS' Table 2, read with readahead";
    TOUCH, "touch_ns", 80.0, Derived, "one word of a page: a cache miss";
    STORE, "store_ns", 290.0, Calibrated, "what a store to a new page takes longer; fixed by 1.14 GB/s of DiLOS' Table 2, written without prefetching";
}
