//! Far memory over an emulated node, one process and its threads.

mod ahead;
mod damage;
mod delegation;
mod discards;
mod emulated;
mod ended_regions;
mod far_heap;
mod guests;
mod guided;
mod guides;
mod helped_workers;
mod layers;
mod lost_updates;
mod ports;
mod reads;
mod swap_cache;
mod threads;
