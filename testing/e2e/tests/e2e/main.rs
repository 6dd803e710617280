//! The whole, from outside: `yonder` processes, their clients, and what happens to them.
//!
//! One program, so that tests which need the CPUs for themselves can take turns (`yonder_e2e::alone`). Set
//! `YONDER_E2E_SECONDS=60` for long load and soak runs, and `YONDER_BIN` to test another binary.

mod against_memcached;
mod app_servers;
mod bench_apps;
mod bench_faults;
mod bench_node;
mod bench_notify;
mod bench_paging;
mod bench_peers;
mod bench_redis;
mod bench_rocksdb;
mod capi;
mod cluster;
mod controller;
mod ctl;
mod datagrams;
mod dying_node;
#[path = "../../../../runtime/controller/tests/it/etcd_server.rs"]
mod etcd_server;
mod figures;
mod files;
mod governor;
mod hostile_clients;
mod kv_access;
mod local_limit;
mod members;
mod memory_nodes;
mod privileges;
mod refusals;
mod rolling;
mod run;
mod services;
mod soak;
mod spread;
mod stock_clients;
mod stopped_client;
mod takeover;
mod top;
mod versions;
mod web;
mod workloads;
