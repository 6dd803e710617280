//! The pager on the kernel, where a test needs more of it than its users do: see the folder `tests` for the others.

mod clean_drops;
mod damage;
mod observer;
mod page_ids;
mod reclaimer;
mod release;
mod tuning;
