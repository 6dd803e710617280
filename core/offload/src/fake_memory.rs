//! [`FakeMemory`]: a node's memory for tests, which checks every access and refuses one when told to; and a node's
//! calls, which check every answer.

use std::collections::BTreeMap;

use yonder_wire::{AtomicOperation, ErrorCode, PAYLOAD_BYTES_MAX};

use crate::memory::{OffloadMemory, Space};
use crate::{Call, Effect, ONCE_ANSWER_BYTES_MAX, Offload};

const PAGE_BYTES: u64 = 4096;

/// Memory of one space: allocations by address, and the pages that were written.
#[derive(Default, Debug)]
pub(crate) struct FakeSpace {
    pub(crate) allocations: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl FakeSpace {
    fn check(&self, address: u64, bytes: usize) -> Result<(), ErrorCode> {
        let (start, length) = self.allocations.range(..=address).next_back().ok_or(ErrorCode::BadAddress)?;
        let end = address.checked_add(bytes as u64).ok_or(ErrorCode::BadAddress)?;
        if end <= start + length { Ok(()) } else { Err(ErrorCode::BadAddress) }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.check(address, into.len())?;
        let mut done = 0;
        while done < into.len() {
            let (page, offset) = split(address + done as u64);
            let bytes = (into.len() - done).min(PAGE_BYTES as usize - offset);
            match self.pages.get(&page) {
                Some(stored) => into[done..done + bytes].copy_from_slice(&stored[offset..offset + bytes]),
                None => into[done..done + bytes].fill(0),
            }
            done += bytes;
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        self.check(address, from.len())?;
        let mut done = 0;
        while done < from.len() {
            let (page, offset) = split(address + done as u64);
            let bytes = (from.len() - done).min(PAGE_BYTES as usize - offset);
            let stored = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
            stored[offset..offset + bytes].copy_from_slice(&from[done..done + bytes]);
            done += bytes;
        }
        Ok(())
    }
}

fn split(address: u64) -> (u64, usize) {
    (address / PAGE_BYTES, (address % PAGE_BYTES) as usize)
}

/// The memory of a node with one offload and some callers.
#[derive(Debug)]
pub(crate) struct FakeMemory {
    pub(crate) own: FakeSpace,
    pub(crate) callers: BTreeMap<u32, FakeSpace>,
    /// Who calls.
    pub(crate) current: u32,
    /// Accesses until one is refused with [`ErrorCode::Busy`]; `None` refuses none.
    pub(crate) refuse_after: Option<u32>,
    /// Reads, writes and atomics so far.
    pub(crate) accesses: u64,
    next: u64,
}

impl Default for FakeMemory {
    fn default() -> Self {
        let (own, callers) = (FakeSpace::default(), BTreeMap::new());
        Self { own, callers, current: 0, refuse_after: None, accesses: 0, next: 1 << 22 }
    }
}

impl FakeMemory {
    /// Makes a call of `offload`, as a node does.
    pub(crate) fn call(&mut self, offload: &mut dyn Offload, pid: u32, arguments: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        self.current = pid;
        let (effect, mut answer) = (offload.effect(arguments), Vec::new());
        let outcome = offload.call(Call { pid, arguments, memory: self, answer: &mut answer });
        assert_ne!(outcome, Err(ErrorCode::None));
        outcome.map(|()| {
            let most = if effect == Effect::Once { ONCE_ANSWER_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
            assert!(answer.len() <= most, "an answer of {} bytes", answer.len());
            answer
        })
    }

    /// Makes a call of which one access may be refused, and again, as a client does, if it is.
    pub(crate) fn call_twice(
        &mut self,
        offload: &mut dyn Offload,
        pid: u32,
        arguments: &[u8],
        refuse_after: Option<u32>,
    ) -> Vec<u8> {
        self.refuse_after = refuse_after;
        let first = self.call(offload, pid, arguments);
        self.refuse_after = None;
        first.unwrap_or_else(|refused| {
            assert_eq!(refused, ErrorCode::Busy);
            self.call(offload, pid, arguments).unwrap()
        })
    }

    pub(crate) fn caller_allocates(&mut self, pid: u32, address: u64, bytes: u64) {
        self.callers.entry(pid).or_default().allocations.insert(address, bytes);
    }

    pub(crate) fn caller_writes(&mut self, pid: u32, address: u64, from: &[u8]) {
        self.callers.get_mut(&pid).unwrap().write(address, from).unwrap();
    }

    pub(crate) fn caller_reads(&self, pid: u32, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.callers[&pid].read(address, &mut read).unwrap();
        read
    }

    fn count_down(&mut self) -> Result<(), ErrorCode> {
        self.accesses += 1;
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

    fn space(&mut self, space: Space) -> Result<&mut FakeSpace, ErrorCode> {
        match space {
            Space::Own => Ok(&mut self.own),
            Space::Caller => self.callers.get_mut(&self.current).ok_or(ErrorCode::BadAddress),
        }
    }
}

impl OffloadMemory for FakeMemory {
    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        if into.is_empty() {
            return Ok(());
        }
        self.count_down()?;
        self.space(space)?.read(address, into)
    }

    fn write(&mut self, space: Space, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        if from.is_empty() {
            return Ok(());
        }
        self.count_down()?;
        self.space(space)?.write(address, from)
    }

    fn atomic(&mut self, space: Space, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        self.count_down()?;
        if !address.is_multiple_of(8) {
            return Err(ErrorCode::BadLength);
        }
        let memory = self.space(space)?;
        let mut word = [0; 8];
        memory.read(address, &mut word)?;
        let old = u64::from_le_bytes(word);
        memory.write(address, &operation.apply(old).to_le_bytes())?;
        Ok(old)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, ErrorCode> {
        self.count_down()?;
        let address = self.next;
        self.next += bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        self.own.allocations.insert(address, bytes);
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), ErrorCode> {
        self.count_down()?;
        let bytes = self.own.allocations.remove(&address).ok_or(ErrorCode::BadAddress)?;
        self.own.pages.retain(|page, _| !(address..address + bytes).contains(&(page * PAGE_BYTES)));
        Ok(())
    }
}
