//! Transactions on tables in far memory: rows, indexes, TPC-C, and what a lost node leaves.

mod example;
mod history;
mod index;
mod lost_node;
mod serializable;
mod served;
mod support;
mod tpcc;
