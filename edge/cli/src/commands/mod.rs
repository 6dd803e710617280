//! A file for each subcommand.

pub(crate) mod bench;
pub(crate) mod controller;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod kv;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod run;
pub(crate) mod top;
pub(crate) mod workload;
