//! Hydra's question (FAST'22): how nodes that fail at once lose groups. The sizes are an example; what more groups
//! change is in the figure's second table.

super::costs! {
    NODES, "nodes", 1000.0, Calibrated, "an example of a cluster: chosen, and no check but one depends on it";
    RACKS, "racks", 40.0, Calibrated, "an example: 25 nodes in a rack";
    REGIONS, "regions_per_node", 16.0, Calibrated, "an example: places of groups on each node, of 1 GiB at most";
    REGION, "region_bytes", 1_073_741_824.0, Derived, "Yonder's regions by default";
    FAILED, "failed_nodes", 10.0, Calibrated, "an example: 1 % of the nodes at once, anywhere";
    REBUILD, "rebuild_gbps", 10.0, Calibrated, "an example: what a node's port gives to rebuilding, each way; times are in inverse proportion";
}
