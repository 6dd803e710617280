//! [`Quarantine`]: memory of address spaces that have ended while clients on the node's machine had it mapped.
//!
//! A client maps the memory that it was told the place of, and accesses it without asking. It may have stood still when
//! its lease ended, between its last look at the clock and a copy. So that memory is given to nobody else for as long
//! as the client may have it mapped: another page number, which nobody was ever told, takes its place, and lies
//! elsewhere in the node's file. What the client still writes is seen by nobody. The memory itself returns to the
//! machine at once; what is kept are numbers, of which there are [`NUMBERS_PER_PAGE`] for each page that there may be
//! at a time.
//!
//! ```text
//!   in use --space ends, mapped by a client--> held --the last such client is gone, zeroed--> spare --> in use
//! ```
//!
//! One owner, the slow path. Invariant: a number is in one list, here or in the pool, or in use. So there are never
//! more pages in use than the node has memory for, and fewer only if all spare numbers are held.

use std::collections::{BTreeMap, HashMap};

use crate::address::{PhysicalPage, Pid};
use crate::node_core::Upkeep;

/// Numbers for each page of memory that there may be at a time.
pub const NUMBERS_PER_PAGE: u32 = 2;

/// Memory that is kept from others.
#[derive(Debug)]
pub(crate) struct Quarantine {
    /// How many clients may have memory of an address space mapped.
    holders: HashMap<Pid, u32>,
    /// In order, so that the same requests have their memory zeroed in the same order.
    held: BTreeMap<Pid, Held>,
    /// Nobody has them mapped any more; late accesses may have written to them.
    returning: Vec<PhysicalPage>,
    /// They read as zeros, and nobody has them mapped.
    spare: Vec<PhysicalPage>,
    /// Pages that the node lacks, because there was no spare number for them.
    lacking: usize,
}

#[derive(Default, Debug)]
struct Held {
    /// Memory that has not returned to the machine.
    backed: Vec<PhysicalPage>,
    /// Memory that has.
    zeroed: Vec<PhysicalPage>,
}

impl Quarantine {
    /// Nothing is kept, on a node with `pages` pages.
    pub(crate) fn new(pages: u32) -> Self {
        let numbers = pages.checked_mul(NUMBERS_PER_PAGE).expect("there are few enough pages for their numbers");
        let spare = (pages..numbers).rev().map(PhysicalPage).collect();
        Self { holders: HashMap::new(), held: BTreeMap::new(), returning: Vec::new(), spare, lacking: 0 }
    }

    /// A client may have memory of the address space mapped.
    pub(crate) fn hold(&mut self, pid: Pid) {
        *self.holders.entry(pid).or_default() += 1;
    }

    /// A client that [`Quarantine::hold`] was called for has no memory mapped any more.
    ///
    /// # Panics
    /// If it was not called for it.
    pub(crate) fn let_go(&mut self, pid: Pid) {
        let holders = self.holders.get_mut(&pid).expect("who lets go has held");
        *holders -= 1;
        if *holders == 0 {
            self.holders.remove(&pid);
            let Held { backed, zeroed } = self.held.remove(&pid).unwrap_or_default();
            self.returning.extend(backed.into_iter().chain(zeroed));
        }
    }

    /// Pages that the node lacks now.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking
    }

    /// The address space has ended: what it had is kept from now on, if a client may have it mapped.
    pub(crate) fn end(&mut self, pid: Pid) {
        if self.holders.contains_key(&pid) {
            self.held.entry(pid).or_default();
        }
    }

    /// Takes `memory` of the address space, which no request uses, if it is to be kept; else it comes back. What takes
    /// its place reads as zeros and goes to `clean`.
    pub(crate) fn keep(
        &mut self,
        pid: Pid,
        memory: Vec<PhysicalPage>,
        clean: &mut Vec<PhysicalPage>,
    ) -> Vec<PhysicalPage> {
        let Some(held) = self.held.get_mut(&pid) else { return memory };
        let replaced = memory.len().min(self.spare.len());
        self.lacking += memory.len() - replaced;
        clean.extend(self.spare.drain(self.spare.len() - replaced..));
        held.backed.extend(memory);
        Vec::new()
    }

    /// Gives the memory of at most `pages_max` pages back to the machine, and says whether there is more to do. Pages
    /// that the node lacked go to `clean`.
    pub(crate) fn clean(&mut self, pages_max: usize, clean: &mut Vec<PhysicalPage>, upkeep: &mut impl Upkeep) -> bool {
        for _ in 0..pages_max {
            if let Some(page) = self.returning.pop() {
                upkeep.zero(page);
                let into = if self.lacking > 0 { &mut *clean } else { &mut self.spare };
                into.push(page);
                self.lacking = self.lacking.saturating_sub(1);
                continue;
            }
            let Some(held) = self.held.values_mut().find(|held| !held.backed.is_empty()) else { return false };
            let page = held.backed.pop().expect("it is not empty");
            upkeep.zero(page);
            held.zeroed.push(page);
        }
        !self.returning.is_empty() || self.held.values().any(|held| !held.backed.is_empty())
    }
}
