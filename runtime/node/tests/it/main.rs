//! Memory nodes in one process with their clients: one node, and several with their controller.

mod cluster;
mod end_to_end;
