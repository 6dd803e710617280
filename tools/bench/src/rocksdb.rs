//! `bench rocksdb`: GETs and SCANs of RocksDB with its tables in far memory (Adios, section 5.2).
//!
//! Tables are made in a folder and copied to far memory. Every value that comes back is compared with what was stored.

use serde::Serialize;
use yonder::FarMemory;
use yonder_rocksdb::{GetsAndScans, Rocks, Rows};

use crate::app::{App, AppMemory, AppResult, AppRun};
use crate::{BenchError, OnProgress};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RocksMix {
    /// Share of the requests that are SCANs, of 0 to 1.
    pub scans: f64,
    /// Rows of a SCAN.
    pub scan_rows: u32,
}

/// What is RocksDB's own of a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RocksDetails {
    /// Rows.
    pub rows: u64,
    /// Share of the requests that are SCANs.
    pub scans: f64,
    /// Rows of a SCAN.
    pub scan_rows: u32,
}

/// A database in far memory that runs are made on.
pub struct Tables {
    app: App<Rocks>,
    rows: Rows,
}

impl Tables {
    /// Makes tables of about `memory.data` bytes among the system's temporary files, and copies them to far memory.
    ///
    /// # Errors
    /// If RocksDB is missing, there is no room on the disk, or far memory cannot be had.
    pub fn prepare(memory: AppMemory, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let rows = Rows::of_bytes(memory.data);
        let far = FarMemory::open(&memory.far, memory.paging)?;
        let rocks = Rocks::filled(rows, &far, progress)?;
        let memory = AppMemory { data: rows.bytes(), ..memory };
        Ok(Self { app: App::new("rocksdb", memory, far, (rocks, yonder_rocksdb::STACK_BYTES)), rows })
    }

    /// Runs requests.
    ///
    /// # Errors
    /// If a value is wrong, or the threads cannot run.
    pub fn run(
        &self,
        run: &AppRun,
        mix: RocksMix,
        progress: OnProgress<'_>,
    ) -> Result<AppResult<RocksDetails>, BenchError> {
        let RocksMix { scans, scan_rows } = mix;
        let questions = |seed| GetsAndScans::new(self.rows, (scans, scan_rows), seed);
        self.app.run(run, questions, || RocksDetails { rows: self.rows.count, scans, scan_rows }, progress)
    }
}
