//! What programs say of ranges, and how it comes to the pager, which keeps it ([`Advice`]).

use crate::far_memory::FarMemory;
use crate::kernel::RegionCore;
use crate::region::Region;
use yonder_pager::{Advice, AdviceError};

impl FarMemory {
    /// Advises on the pages that `bytes` bytes at `address` are in, in a region of this far memory. See [`Advice`].
    pub fn swap_advise(&self, address: usize, bytes: u64, advice: Advice) -> Result<(), AdviceError> {
        if bytes == 0 {
            return Err(AdviceError::Empty);
        }
        match self.pager().with_region_at(address, |core, offset| advise(core, offset, bytes, advice)) {
            Some(Ok(())) => Ok(()),
            None | Some(Err(_)) => Err(AdviceError::Outside { address, bytes }),
        }
    }
}

impl Region {
    /// Advises on the pages that `bytes` bytes at `offset` are in. See [`Advice`].
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<(), AdviceError> {
        if bytes == 0 {
            return Err(AdviceError::Empty);
        }
        advise(&self.core, offset, bytes, advice)
    }
}

fn advise(core: &RegionCore, offset: u64, bytes: u64, advice: Advice) -> Result<(), AdviceError> {
    let pages = core.pages_advised(offset, bytes)?;
    // A handler that touches far memory may need the reclaimer, and that the list of what was advised out.
    yonder_trap::hold_back(|| core.note_advice(pages, advice));
    Ok(())
}
