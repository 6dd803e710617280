//! `bench tpcc`: TPC-C on tables in far memory, after Silo (Adios, section 5.2).
//!
//! Tables are loaded into far memory. After each run the specification's conditions of consistency are checked.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use yonder::{Config, FarMemory};
use yonder_oltp::tpcc::{Scale, Terminals, Tpcc};

use crate::app::{App, AppMemory, AppResult, AppRun};
use crate::{BenchError, OnProgress};

/// Room for New-Orders that runs enter, for each second of all of them.
const NEW_ORDERS_PER_S: f64 = 60_000.0;

/// What is TPC-C's own of a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TpccDetails {
    /// Warehouses.
    pub warehouses: u32,
    /// Runs of transactions, warm-up and drain included, that were in conflict with others and were run again.
    pub conflicts: u64,
}

/// Tables in far memory that runs are made on.
pub struct Warehouses {
    app: App<Tpcc>,
    scale: Scale,
}

impl Warehouses {
    /// Loads the tables, with room for runs of `time` together. Local memory is as `paging` has it.
    ///
    /// # Errors
    /// If far memory cannot be had.
    pub fn prepare(
        scale: Scale,
        (far, paging): (String, Config),
        time: Duration,
        progress: OnProgress<'_>,
    ) -> Result<Self, BenchError> {
        let far_memory = FarMemory::open(&far, paging)?;
        let new_orders = (time.as_secs_f64() * NEW_ORDERS_PER_S) as u64;
        let region = Arc::new(far_memory.region(scale.bytes(new_orders).next_multiple_of(2 << 20))?);
        let tpcc = Tpcc::load(region, scale, 1, &mut |share| progress("loading tables", share))?;
        let memory = AppMemory { data: scale.bytes(0), far, paging };
        Ok(Self { app: App::new("tpcc", memory, far_memory, (tpcc, yonder_oltp::STACK_BYTES)), scale })
    }

    /// Runs transactions, and checks the tables.
    ///
    /// # Errors
    /// If the tables are not consistent afterwards, or the threads cannot run.
    pub fn run(&self, run: &AppRun, progress: OnProgress<'_>) -> Result<AppResult<TpccDetails>, BenchError> {
        let tpcc = self.app.handler();
        let before = tpcc.conflicts();
        let questions = |seed| Terminals::new(self.scale, seed);
        let details = || TpccDetails { warehouses: self.scale.warehouses, conflicts: tpcc.conflicts() - before };
        let result = self.app.run(run, questions, details, progress)?;
        tpcc.check().map_err(|broken| BenchError::Inconsistent(broken.to_string()))?;
        Ok(result)
    }
}
