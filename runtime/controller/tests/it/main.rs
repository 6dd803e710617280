//! The controller end to end, in one process: its server, nodes made of maps (`fake`), and clients.

#![forbid(unsafe_code)]

mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_server;
mod failures;
mod fake;
mod floods;
mod groups;
mod identities;
mod leases;
mod moves;
mod roles;
#[cfg(feature = "etcd")]
mod secure_etcd;
mod signs;
mod strangers;
mod versions;
