//! A file for each subcommand.

pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod controller;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod doctor;
mod drawn;
pub(crate) mod governor;
pub(crate) mod kv;
pub(crate) mod load;
mod machine;
mod metrics;
pub(crate) mod next_steps;
pub(crate) mod node;
pub(crate) mod papers;
mod points;
mod processes;
mod protection;
pub(crate) mod reference;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod top;
pub(crate) mod trying;
pub(crate) mod workload;
