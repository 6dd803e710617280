//! What is the same for every system: pages, links and the hardware of Adios' testbed (section 5: 100 GbE, ConnectX-6
//! Dx, 2.0 GHz).

super::costs! {
    PAGE, "page_bytes", 4096.0, Paper, "Adios, section 5: 4 KiB pages at compute nodes";
    CLOCK, "clock_ghz", 2.0, Paper, "Adios, section 5: Xeon Gold 6330 at 2.00 GHz";
    LINK, "link_gbps", 100.0, Paper, "Adios, section 5: a 100 GbE cable to the memory node, another to the clients";
    PACKET_PAYLOAD, "packet_payload_bytes", 1024.0, Derived, "RoCE's path MTU below Ethernet's 1,500 bytes";
    PACKET_OVERHEAD, "packet_overhead_bytes", 98.0, Derived, "preamble 8, Ethernet 18, IPv4 20, UDP 8, BTH 12, AETH or RETH 16, ICRC 4, gap 12";
    FETCH_LEAST, "fetch_least_ns", 2000.0, Paper, "Adios, section 2.3: a 4 KiB page takes 2 to 3 us over RDMA; the least, without queues";
    FETCH_SPREAD, "fetch_spread_ns", 600.0, Derived, "the same: a fetch takes up to so much more, so that with queues it stays below 3 us";
    FETCH, "fetch_ns", FETCH_LEAST.value + FETCH_SPREAD.value / 2.0, Derived, "their mean";
}

/// How long the link carries a page, with the headers of its packets.
#[must_use]
pub fn page_wire_ns() -> u64 {
    let packets = (PAGE.value / PACKET_PAYLOAD.value).ceil();
    ((PAGE.value + packets * PACKET_OVERHEAD.value) * 8.0 / LINK.value) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_its_bytes_and_four_headers() {
        assert_eq!(page_wire_ns(), (4096 + 4 * 98) * 8 / 100);
    }
}
