//! Instructions of the classic BPF machine, placed from the last to the first.
//!
//! Jumps lead forward only, so a [`Program`] that grows towards its start knows every target when it needs it: a
//! [`Label`] is something that stands already. A conditional jump reaches 255 instructions; where that is too little,
//! an unconditional one is put in its reach.

/// The reach of a conditional jump, less one for a detour that the other branch may need.
const REACH: usize = 254;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// One instruction, laid out as the kernel's `sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// Its operand.
    pub k: u32,
}

/// An instruction that has been placed: how many there are from it to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(usize);

/// A program without its beginning.
#[derive(Default)]
pub(super) struct Program {
    /// The last instruction first.
    reversed: Vec<Instruction>,
}

impl Program {
    /// The whole, first instruction first.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }

    /// Ends with an answer.
    pub(super) fn answer(&mut self, value: u32) -> Label {
        self.place(RETURN, 0, 0, value)
    }

    /// Loads 32 bits of the call's data, and goes on at `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.operate(LOAD, offset, next)
    }

    /// Keeps these bits of what is loaded.
    pub(super) fn and(&mut self, mask: u32, next: Label) -> Label {
        self.operate(AND, mask, next)
    }

    /// Shifts what is loaded.
    pub(super) fn shift_right(&mut self, bits: u8, next: Label) -> Label {
        self.operate(SHIFT_RIGHT, bits.into(), next)
    }

    /// Whether what is loaded is `value`.
    pub(super) fn jump_if_equal(&mut self, value: u32, yes: Label, no: Label) -> Label {
        self.branch(JUMP_EQUAL, value, yes, no)
    }

    /// Whether what is loaded is `value` or more.
    pub(super) fn jump_if_at_least(&mut self, value: u32, yes: Label, no: Label) -> Label {
        self.branch(JUMP_AT_LEAST, value, yes, no)
    }

    /// Whether what is loaded is more than `value`.
    pub(super) fn jump_if_greater(&mut self, value: u32, yes: Label, no: Label) -> Label {
        self.branch(JUMP_GREATER, value, yes, no)
    }

    fn operate(&mut self, code: u16, k: u32, next: Label) -> Label {
        if self.distance(next) != 0 {
            self.detour(next);
        }
        self.place(code, 0, 0, k)
    }

    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        let yes = self.within_reach(yes);
        let no = self.within_reach(no);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        let offset = |distance: usize| u8::try_from(distance).expect("targets were brought within reach");
        self.place(code, offset(jt), offset(jf), k)
    }

    /// The target, or a jump to it.
    fn within_reach(&mut self, target: Label) -> Label {
        if self.distance(target) > REACH { self.detour(target) } else { target }
    }

    fn detour(&mut self, target: Label) -> Label {
        let distance = u32::try_from(self.distance(target)).expect("programs are short");
        self.place(JUMP, 0, 0, distance)
    }

    /// Instructions between the one that is placed next and the target.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0
    }

    fn place(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        Label(self.reversed.len())
    }
}
