//! What is asked of all places of a group, wherever they are by then: that memory is freed or discarded.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_protect::Slot;
use yonder_wire::Kind;

use super::Shared;
use super::group::{Entry, Kept};
use super::keeper::{Found, find};
use super::nodes::{FailedCall, Node, may_have_moved};
use crate::FabricError;
use crate::areas::Area;
use crate::lane::CallError;

/// How long a call waits for a region that is on its way between nodes.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause between two questions where a region is.
const ASK_AGAIN: Duration = Duration::from_millis(2);

impl Shared {
    /// Asks all nodes that have a place of a group, wherever it is by then.
    pub(super) fn call_at_all(
        &self,
        area: &Arc<Area<Entry>>,
        kind: Kind,
        offset: u64,
        bytes: u64,
    ) -> Result<(), FabricError> {
        let slots = area.table.kept().map(|kept| kept.place.slot);
        slots.into_iter().try_for_each(|slot| self.call_at(area, slot, (kind, offset, bytes)))
    }

    fn call_at(
        &self,
        area: &Arc<Area<Entry>>,
        slot: Slot,
        (kind, offset, bytes): (Kind, u64, u64),
    ) -> Result<(), FabricError> {
        let end = Instant::now() + MOVE_TIME_MAX;
        loop {
            let kept = area.table.kept().find(|kept| kept.place.slot == slot);
            // What was given up is not asked.
            let asked = kept.and_then(|kept| Some((kept, area.table.ask(kept.place)?.1)));
            let Some((kept, asked)) = asked else { return Ok(()) };
            if asked.node != kept.address.node {
                // It has moved just now.
                continue;
            }
            let (has_others, start) = (area.table.group.protection().wanted() > 1, kept.address.start + offset);
            if let Some(backup) = self.backup.as_ref().filter(|_| kept.region.is_none()) {
                // Its memory is freed when the mender has done with it.
                return if kind == Kind::Discard { backup.discard(start, bytes) } else { Ok(()) };
            }
            let node = self.nodes.get(kept.address.node);
            // What is freed is all of the place.
            let span = if kind == Kind::Free { area.table.bytes() } else { bytes };
            // What does not answer is not waited for where others have the pages: their words say what they are,
            // whatever is there. But for what was asked before and may still be done: it would undo a later write.
            let may_still_change = || self.asked_once(&area.table, kept).any(|node| node.may_still_change(start, span));
            if has_others && !node.health.state().is_up() && !may_still_change() {
                return Ok(());
            }
            let error = match node.call(kind, start, bytes, &[]) {
                Ok(_) => {
                    area.table.has_answered(slot, asked);
                    return Ok(());
                }
                Err(error) => error,
            };
            if matches!(error, FailedCall::Call(CallError::TimedOut | CallError::Lost)) {
                area.table.note_given_up(slot, asked);
            }
            let may_be_elsewhere = match &error {
                FailedCall::Call(CallError::Refused(code)) => may_have_moved(*code),
                FailedCall::Call(CallError::TimedOut | CallError::Lost) | FailedCall::Open(_) => true,
            };
            let is_over = Instant::now() >= end;
            if is_over || !may_be_elsewhere || find(self, area, kept) == Found::Lost && !has_others {
                return Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() });
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Waits until nothing that was asked before and given up may be done in these bytes of any place: a discard of
    /// more pages, which would undo later writes of those that have shares there.
    pub(super) fn await_aborts(&self, area: &Arc<Area<Entry>>, bytes: Range<u64>) -> Result<(), FabricError> {
        for kept in area.table.kept().filter(|kept| kept.region.is_some()) {
            for node in self.asked_once(&area.table, kept) {
                let ended = node.await_aborts(kept.address.start + bytes.start, bytes.end - bytes.start);
                // What was given up is not asked, nor written; and the place may have left the node meanwhile.
                let is_asked_still = || self.asked_once(&area.table, kept).any(|asked| Arc::ptr_eq(&asked, &node));
                if let Err(error) = ended
                    && area.table.address(kept.place).is_some()
                    && is_asked_still()
                {
                    return Err(FabricError::Unreachable { url: node.url(), cause: error.to_string() });
                }
            }
        }
        Ok(())
    }

    /// The node that has a place, and those that had it when it was asked for something that they have not answered:
    /// once it is back there, they may do it. That the controller has it elsewhere does not end that.
    fn asked_once(&self, entry: &Entry, kept: Kept) -> impl Iterator<Item = Arc<Node>> + use<> {
        let mut nodes = entry.given_up_at(kept.place.slot);
        nodes.retain(|node| *node != kept.address.node);
        nodes.push(kept.address.node);
        nodes.into_iter().map(|node| self.nodes.get(node)).collect::<Vec<_>>().into_iter()
    }
}
