//! Servers and their clients over the loopback, and the example.

mod example;
mod over_udp;
