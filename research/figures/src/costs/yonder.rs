//! Yonder's own costs, measured with `yonder bench fault-breakdown` (docs/perf/archive/2026-11-22-ycsb-on-a-disk.md) on
//! a virtual machine with 2 CPUs, Linux 6.18, where a fault that the kernel handles takes several times what it takes
//! on bare metal.

super::costs! {
    EXCEPTION, "exception_ns", 2240.0, Measured, "fault-breakdown: from the touch to the handler";
    POST, "post_ns", 730.0, Measured, "fault-breakdown: page table, and asking for the page";
    AWAY, "away_ns", 190.0, Measured, "fault-breakdown: to other requests";
    INSTALL, "install_ns", 2170.0, Measured, "fault-breakdown: mapping the page";
    BACK, "back_ns", 180.0, Measured, "fault-breakdown: from other requests";
    RETURN, "return_ns", 290.0, Measured, "fault-breakdown: to the code";
    SWITCH, "switch_cycles", 15.0, Measured, "bench switch: from one unithread to another";
}
