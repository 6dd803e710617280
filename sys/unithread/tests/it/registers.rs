//! What the switch itself must keep on x86-64: every register that a call preserves, and the floating-point control
//! words of each side.
//!
//! UNSAFETY: reads and writes registers in assembly, to see that switches keep them.

use std::arch::{asm, naked_asm};
use std::cell::RefCell;

use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT, Unithread, suspend};

fn start_one<P: Send + 'static>(payload: P, entry: fn(&mut P)) -> Running<P> {
    Pool::new(1, STACK_BYTES_DEFAULT).unwrap().take(payload).ok().unwrap().start(entry)
}

fn suspended<P: Send + 'static>(running: Running<P>) -> Running<P> {
    match running.resume() {
        Resumed::Suspended(again) => again,
        other => panic!("{other:?} instead of a suspension"),
    }
}

fn finished<P: Send + 'static>(running: Running<P>) -> Unithread<P> {
    match running.resume() {
        Resumed::Finished(idle) => idle,
        other => panic!("{other:?} instead of an end"),
    }
}

/// Calls `function` with `mark + 1` to `mark + 6` in the registers that a call preserves, and tells whether they were.
#[unsafe(naked)]
extern "C" fn keeps_registers(mark: u64, function: extern "C" fn()) -> bool {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        "lea rbx, [rdi + 1]",
        "lea rbp, [rdi + 2]",
        "lea r12, [rdi + 3]",
        "lea r13, [rdi + 4]",
        "lea r14, [rdi + 5]",
        "lea r15, [rdi + 6]",
        "call rsi",
        "pop rdi",
        "lea rax, [rdi + 1]",
        "xor rax, rbx",
        "lea rcx, [rdi + 2]",
        "xor rcx, rbp",
        "or rax, rcx",
        "lea rcx, [rdi + 3]",
        "xor rcx, r12",
        "or rax, rcx",
        "lea rcx, [rdi + 4]",
        "xor rcx, r13",
        "or rax, rcx",
        "lea rcx, [rdi + 5]",
        "xor rcx, r14",
        "or rax, rcx",
        "lea rcx, [rdi + 6]",
        "xor rcx, r15",
        "or rax, rcx",
        "sete al",
        "movzx eax, al",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

extern "C" fn suspend_once() {
    suspend();
}

#[test]
fn every_preserved_register_survives_on_both_sides() {
    thread_local! {
        static OTHER: RefCell<Option<Running<bool>>> = const { RefCell::new(None) };
    }
    extern "C" fn resume_once() {
        let running = OTHER.take().unwrap();
        OTHER.set(Some(suspended(running)));
    }
    OTHER.set(Some(start_one(false, |kept| {
        *kept = keeps_registers(0x1000, suspend_once) && keeps_registers(0x2000, suspend_once);
    })));
    assert!(keeps_registers(0x3000, resume_once), "the first resume changed a register");
    assert!(keeps_registers(0x4000, resume_once), "the second resume changed a register");
    assert!(finished(OTHER.take().unwrap()).into_payload(), "a suspend changed a register");
}

const MXCSR_DEFAULT: u32 = 0x1f80;
const MXCSR_ROUND_UP: u32 = 0x1f80 | 0x4000;
/// The control bits; the others are status flags, which belong to nobody.
const MXCSR_CONTROL: u32 = 0xffc0;
const X87_DEFAULT: u16 = 0x037f;
const X87_SINGLE_ROUND_DOWN: u16 = 0x047f;

fn controls() -> (u32, u16) {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: stores two control words into locals.
    unsafe { asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87) };
    (mxcsr & MXCSR_CONTROL, x87)
}

fn set_controls(mxcsr: u32, x87: u16) {
    // SAFETY: loads two valid control words that unmask no exception; the tests restore them.
    unsafe { asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87) };
}

#[test]
fn control_words_stay_with_their_unithread() {
    let running = suspended(start_one(false, |kept| {
        let fresh = controls() == (MXCSR_DEFAULT, X87_DEFAULT);
        set_controls(MXCSR_ROUND_UP, X87_SINGLE_ROUND_DOWN);
        suspend();
        *kept = fresh && controls() == (MXCSR_ROUND_UP, X87_SINGLE_ROUND_DOWN);
    }));
    assert_eq!(controls(), (MXCSR_DEFAULT, X87_DEFAULT), "the resumer got the unithread's control words");
    assert!(finished(running).into_payload(), "the unithread lost its control words");
    assert_eq!(controls(), (MXCSR_DEFAULT, X87_DEFAULT), "a unithread that has ended left its control words behind");
}

#[test]
fn each_control_word_is_restored_alone() {
    for (mxcsr, x87) in [(MXCSR_ROUND_UP, X87_DEFAULT), (MXCSR_DEFAULT, X87_SINGLE_ROUND_DOWN)] {
        let running = suspended(start_one(false, |fresh| {
            suspend();
            *fresh = controls() == (MXCSR_DEFAULT, X87_DEFAULT);
        }));
        set_controls(mxcsr, x87);
        let idle = finished(running);
        let after = controls();
        set_controls(MXCSR_DEFAULT, X87_DEFAULT);
        assert_eq!(after, (mxcsr, x87), "the resumer lost its own control words");
        assert!(idle.into_payload(), "the unithread got the resumer's control words");
    }
}
