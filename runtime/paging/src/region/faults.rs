//! [`RegionFaults`]: a region's side of the SIGBUS handler, which asks the pager to bring the page.

use std::num::NonZeroU32;
use std::sync::Arc;

use yonder_pager::PagingCause;
use yonder_trap::{Fault, FaultHandler, FaultKind, Verdict};
use yonder_units::PageIndex;

use crate::kernel::RegionCore;

/// The region's side of the SIGBUS handler.
pub(super) struct RegionFaults(pub(super) Arc<RegionCore>);

impl FaultHandler for RegionFaults {
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
        if matches!(fault.kind, FaultKind::Damaged | FaultKind::FoundDamaged) {
            return match self.0.find_damage(PageIndex::containing(fault.offset)) {
                Ok(()) => Verdict::Retry,
                Err(cause) => Verdict::Fail(cause.code()),
            };
        }
        match self.0.bring_for_fault(fault.offset, fault.registers.instruction(), fault.registers) {
            Ok(()) => Verdict::Retry,
            Err(cause) => Verdict::Fail(cause.code()),
        }
    }

    fn describe(&self, _fault: &Fault<'_>, code: NonZeroU32, out: &mut dyn std::fmt::Write) {
        let cause = PagingCause::from_code(code).text();
        // Nothing can be done about a message that does not fit.
        let _ = write!(out, "node {}: {cause}", self.0.pager().fabric().url());
    }
}
