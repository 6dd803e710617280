//! [`Meter`]: a thread of an address space that counts what it does.

use yonder::clib::{Permission, Process, Thread};

use crate::AppError;

/// A thread of an address space, and what it has asked for so far.
pub struct Meter {
    thread: Thread,
    traffic: Traffic,
}

/// What crossed the network, without headers and retries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Operations that waited for an answer.
    pub round_trips: u64,
    /// Bytes that were read, and those of the answers of calls.
    pub fetched_bytes: u64,
    /// Bytes that were written, and those of the arguments of calls.
    pub written_bytes: u64,
}

impl Traffic {
    /// What was added since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            round_trips: self.round_trips - earlier.round_trips,
            fetched_bytes: self.fetched_bytes - earlier.fetched_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            round_trips: self.round_trips + more.round_trips,
            fetched_bytes: self.fetched_bytes + more.fetched_bytes,
            written_bytes: self.written_bytes + more.written_bytes,
        }
    }
}

impl Meter {
    /// A new thread of `process`.
    pub fn new(process: &Process) -> Result<Self, AppError> {
        Ok(Self { thread: process.thread()?, traffic: Traffic::default() })
    }

    /// All that was asked for so far.
    #[must_use]
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Allocates `bytes` for reading and writing, which read as zeros.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, AppError> {
        self.traffic.round_trips += 1;
        Ok(self.thread.ralloc(bytes, Permission::ReadWrite)?)
    }

    /// Frees the allocation that begins at `address`.
    pub fn free(&mut self, address: u64) -> Result<(), AppError> {
        self.traffic.round_trips += 1;
        Ok(self.thread.rfree(address)?)
    }

    /// Copies the bytes at `address` into `into`. Nothing is read from anywhere.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), AppError> {
        if into.is_empty() {
            return Ok(());
        }
        self.traffic.round_trips += 1;
        self.traffic.fetched_bytes += into.len() as u64;
        Ok(self.thread.rread(address, into)?)
    }

    /// The little-endian words at `address`.
    pub fn read_words<const WORDS: usize>(&mut self, address: u64) -> Result<[u64; WORDS], AppError> {
        let mut bytes = [[0; 8]; WORDS];
        self.read(address, bytes.as_flattened_mut())?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// Copies `from` to `address`. Nothing is written to anywhere.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), AppError> {
        if from.is_empty() {
            return Ok(());
        }
        self.traffic.round_trips += 1;
        self.traffic.written_bytes += from.len() as u64;
        Ok(self.thread.rwrite(address, from)?)
    }

    /// Adds to the aligned word at `address`, modulo 2^64, and returns what it was.
    pub fn fetch_add(&mut self, address: u64, more: u64) -> Result<u64, AppError> {
        self.count_atomic();
        Ok(self.thread.fetch_add(address, more)?)
    }

    /// Replaces the aligned word at `address` by `new` if it is `expected`, and returns what it was.
    pub fn compare_and_swap(&mut self, address: u64, expected: u64, new: u64) -> Result<u64, AppError> {
        self.count_atomic();
        Ok(self.thread.compare_and_swap(address, expected, new)?)
    }

    /// Calls the offload with number `offload`, and returns its answer.
    pub fn call(&mut self, offload: u64, arguments: &[u8]) -> Result<Vec<u8>, AppError> {
        self.traffic.round_trips += 1;
        self.traffic.written_bytes += arguments.len() as u64;
        let answer = self.thread.call(offload, arguments)?;
        self.traffic.fetched_bytes += answer.len() as u64;
        Ok(answer)
    }

    /// A word there and a word back.
    const fn count_atomic(&mut self) {
        self.traffic.round_trips += 1;
        self.traffic.fetched_bytes += 8;
        self.traffic.written_bytes += 8;
    }
}
