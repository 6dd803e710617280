//! [`Memory`]: the node's memory as offloads see it. It counts accesses, and refuses one when it is told to.

use std::collections::BTreeMap;

use yonder_offload::{OffloadMemory, Space};
use yonder_simulation::parts;
use yonder_wire::{AtomicOperation, ErrorCode};

const PAGE: u64 = 4096;
/// Where each caller has its memory, and how much.
pub(super) const CALLER_ADDRESS: u64 = 0x10_000;
pub(super) const CALLER_BYTES: u64 = 4 * PAGE;
/// Allocations that the offloads may have together.
const ALLOCATIONS_MAX: usize = 6;
/// Offloads that keep a chunk in reserve when nothing is stored.
const RESERVES: usize = 2;

/// All address spaces.
#[derive(Debug)]
pub(super) struct Memory {
    callers: BTreeMap<u32, Vec<u8>>,
    /// Allocations of the offloads, and their pages that were written.
    allocations: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, Vec<u8>>,
    current: u32,
    next: u64,
    /// Accesses until one is refused.
    pub(super) refuse_after: Option<u32>,
    refused_frees: usize,
    /// Accesses, and bytes read and written, since the call began.
    pub(super) accesses: u64,
    pub(super) bytes: u64,
}

impl Memory {
    pub(super) fn new(callers: &[u32]) -> Self {
        let callers = callers.iter().map(|pid| (*pid, vec![0; CALLER_BYTES as usize])).collect();
        let (allocations, pages) = (BTreeMap::new(), BTreeMap::new());
        let (accesses, bytes, next) = (0, 0, 1 << 22);
        Self { callers, allocations, pages, current: 0, next, refuse_after: None, refused_frees: 0, accesses, bytes }
    }

    /// A call of this caller begins.
    pub(super) fn begin(&mut self, pid: u32) {
        (self.current, self.accesses, self.bytes) = (pid, 0, 0);
    }

    pub(super) fn of_caller(&self, pid: u32) -> Vec<u8> {
        self.callers[&pid].clone()
    }

    pub(super) fn caller_mut(&mut self, pid: u32) -> &mut [u8] {
        self.callers.get_mut(&pid).expect("it is a caller")
    }

    pub(super) fn of_other_callers(&self, pid: u32) -> Vec<Vec<u8>> {
        self.callers.iter().filter(|(other, _)| **other != pid).map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The offloads have given back all but what they keep in reserve, and what was refused to be taken back.
    pub(super) fn check_given_back(&self) {
        let left = self.allocations.len();
        assert!(left <= RESERVES + self.refused_frees, "{left} allocations are left behind");
    }

    fn count(&mut self, bytes: usize) -> Result<(), ErrorCode> {
        self.accesses += 1;
        self.bytes += bytes as u64;
        match self.refuse_after.as_mut() {
            Some(0) => {
                self.refuse_after = None;
                Err(ErrorCode::Busy)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The caller's memory at `address`.
    fn caller_range(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], ErrorCode> {
        let memory = self.callers.get_mut(&self.current).ok_or(ErrorCode::BadAddress)?;
        let start = address.checked_sub(CALLER_ADDRESS).ok_or(ErrorCode::BadAddress)?;
        let end = start.checked_add(bytes as u64).filter(|end| *end <= CALLER_BYTES).ok_or(ErrorCode::BadAddress)?;
        Ok(&mut memory[start as usize..end as usize])
    }

    fn check_own(&self, address: u64, bytes: usize) -> Result<(), ErrorCode> {
        let (start, length) = self.allocations.range(..=address).next_back().ok_or(ErrorCode::BadAddress)?;
        let end = address.checked_add(bytes as u64).ok_or(ErrorCode::BadAddress)?;
        if end <= start + length { Ok(()) } else { Err(ErrorCode::BadAddress) }
    }
}

impl OffloadMemory for Memory {
    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        if into.is_empty() {
            return Ok(());
        }
        self.count(into.len())?;
        if space == Space::Caller {
            into.copy_from_slice(self.caller_range(address, into.len())?);
            return Ok(());
        }
        self.check_own(address, into.len())?;
        for (page, inside, part) in parts(PAGE, address, into.len()) {
            match self.pages.get(&page) {
                Some(stored) => into[part.clone()].copy_from_slice(&stored[inside..inside + part.len()]),
                None => into[part].fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, space: Space, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        if from.is_empty() {
            return Ok(());
        }
        self.count(from.len())?;
        if space == Space::Caller {
            self.caller_range(address, from.len())?.copy_from_slice(from);
            return Ok(());
        }
        self.check_own(address, from.len())?;
        for (page, inside, part) in parts(PAGE, address, from.len()) {
            let stored = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
            stored[inside..inside + part.len()].copy_from_slice(&from[part]);
        }
        Ok(())
    }

    fn atomic(&mut self, space: Space, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        if !address.is_multiple_of(8) {
            return Err(ErrorCode::BadLength);
        }
        let old = self.read_word(space, address)?;
        self.write(space, address, &operation.apply(old).to_le_bytes())?;
        Ok(old)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, ErrorCode> {
        self.count(0)?;
        if self.allocations.len() >= ALLOCATIONS_MAX {
            return Err(ErrorCode::OutOfMemory);
        }
        let address = self.next;
        self.next += bytes.next_multiple_of(PAGE) + PAGE;
        self.allocations.insert(address, bytes);
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), ErrorCode> {
        if let Err(code) = self.count(0) {
            self.refused_frees += 1;
            return Err(code);
        }
        let bytes = self.allocations.remove(&address).expect("what is freed was allocated");
        self.pages.retain(|page, _| !(address..address + bytes).contains(&(page * PAGE)));
        Ok(())
    }
}
