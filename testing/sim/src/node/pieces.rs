//! What a node's slow path does in pieces, beside its requests: the oracle is told when it begins and when it is over,
//! and then nothing of it may be found.

use yonder_board::{Handled, Pid};
use yonder_units::Nanos;
use yonder_wire::{Allocated, Body, ErrorCode, HEADER_BYTES, Header, Kind, Message, split};

use crate::node::Node;
use crate::oracle::Leaving;
use crate::sabotage::Sabotage;
use crate::settings::PAGE_BYTES;
use crate::workload::is_kept;

impl Node {
    /// Does all that waits for the slow path.
    pub(crate) fn finish_work(&mut self, now: Nanos) -> Result<(), String> {
        while self.has_slow_work() {
            self.slow_step(now)?;
        }
        Ok(())
    }

    /// Requests whose work is over since the last call: they were executed.
    pub(crate) fn take_over(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.over)
    }

    /// Takes note of what `request` has begun, if it has begun something.
    pub(crate) fn note_begun(&mut self, request: &Message<'_>) -> Result<(), String> {
        let header = &request.header;
        let is_known = self.under_way.iter().any(|begun| begun.first_id == header.first_id);
        let begins = matches!(header.kind, Kind::Free | Kind::DestroySpace) && request.verify().is_ok();
        if is_known || !begins || !self.slow_path.is_under_way(header) {
            return Ok(());
        }
        self.oracle.begin_end(header).map_err(|cause| format!("{header:?}: {cause}"))?;
        self.under_way.push(*header);
        Ok(())
    }

    /// Takes note of what is over, and looks whether it has gone.
    pub(crate) fn take_ended(&mut self) -> Result<(), String> {
        let slow_path = &self.slow_path;
        let over: Vec<Header> = self.under_way.extract_if(.., |begun| !slow_path.is_under_way(begun)).collect();
        for header in over {
            let gone = self.oracle.end(&header).map_err(|cause| format!("{header:?}: {cause}"))?;
            self.check_gone(header.pid, &gone)?;
            self.over.push(header);
        }
        while let Some(pid) = self.slow_path.take_ended() {
            let gone = self.oracle.space_has_ended(pid.get());
            self.check_gone(pid.get(), &gone)?;
        }
        Ok(())
    }

    /// Looks without a capability, which opens nothing any more where the whole space is over.
    fn check_gone(&self, pid: u32, gone: &[Leaving]) -> Result<(), String> {
        let access = self.board.access(&self.pages, &self.pages.inner);
        let Some(space) = Pid::new(pid) else { return Ok(()) };
        for address in gone.iter().flat_map(|gone| (gone.from..gone.to).step_by(PAGE_BYTES as usize)) {
            let read = access.read(space, address, &mut [0; 8]);
            if !matches!(read, Err(ErrorCode::BadAddress | ErrorCode::Moved)) {
                return Err(format!(
                    "{:?}: {address:#x} of {pid:x} is freed, and a read of it is {read:?}",
                    self.life()
                ));
            }
        }
        Ok(())
    }

    /// The answer that sabotage gives in place of the slow path's.
    pub(crate) fn misreport(&mut self, request: &Header, now: Nanos, handled: Handled) -> Handled {
        let is_under_way = self.under_way.iter().any(|begun| begun.first_id == request.first_id);
        match (self.sabotage, request.kind) {
            (Some(Sabotage::AnsweredEarly), Kind::Free | Kind::DestroySpace) if is_under_way => {
                self.feign_answer(&request.answer(self.clock.read(now), request.length), &[])
            }
            (Some(Sabotage::AbortedBetween), Kind::Abort) if is_under_way => {
                self.feign_answer(&request.answer(self.clock.read(now), 0), &[])
            }
            (Some(Sabotage::GivenOutInPieces), Kind::Allocate) => self.give_out_what_leaves(handled),
            _ => handled,
        }
    }

    /// Says that an allocation lies at the end of what is being freed, if it fits there.
    fn give_out_what_leaves(&mut self, handled: Handled) -> Handled {
        let Handled::Reply(bytes) = handled else { return handled };
        let told = split(&self.reply[..bytes]).ok().flatten().expect("an answer is a message");
        let Ok(allocated) = Allocated::from_bytes(told.payload) else { return handled };
        let mut fitting = self.oracle.leaving(told.header.pid).iter();
        let fitting = fitting.find(|range| range.to - range.from >= allocated.bytes && !is_kept(told.header.address));
        let Some(leaving) = fitting else { return handled };
        let (address, payload) = (leaving.to - allocated.bytes, told.payload.to_vec());
        self.feign_answer(&Header { address, ..told.header }, &payload)
    }

    /// An answer that the slow path has not given.
    pub(super) fn feign_answer(&mut self, header: &Header, payload: &[u8]) -> Handled {
        let bytes = HEADER_BYTES + payload.len();
        self.reply[..HEADER_BYTES].copy_from_slice(&header.seal(payload));
        self.reply[HEADER_BYTES..bytes].copy_from_slice(payload);
        Handled::Reply(bytes)
    }
}
