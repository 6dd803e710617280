//! What a server counts, as Prometheus text over HTTP, and `yonder top`, which shows it live.
//!
//! A server implements [`Source`] (a closure will do) and calls [`serve`]: every `GET /metrics` takes a [`Sample`] and
//! answers it as text. [`top::run`] attaches to such an address from another process, so looking at a server costs it
//! one sample a second. Percentiles are of the last seconds, not of the whole run. [`page`] is the same for browsers:
//! files that each server has, whose script reads the text.
//!
//! A server that has a credential (`runtime/identity`) shows what it counts over TLS, to operators of its cluster.
//!
//! Neighbours: `runtime/yonder` counts; `edge/cli` knows the flags `--metrics` and `--attach`. Only text crosses from
//! [`serve`] to [`top`], so `names` is what the two must agree on.

#![forbid(unsafe_code)]

mod address;
mod connection;
mod dial;
mod http;
mod latency;
mod names;
pub mod page;
mod render;
mod sample;
mod scrape;
mod server;
mod tenants;
pub mod top;
mod window;

pub use address::{AddressError, DEFAULT_ADDRESS};
pub use dial::Shows;
pub use sample::{Extra, ExtraKind, Requests, Sample, Source};
pub use server::{BoundMetrics, MetricsError, MetricsServer, bind, serve};
pub use tenants::Tenant;
