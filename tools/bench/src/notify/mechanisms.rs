//! The memory of each mechanism, and what brings its pages.
//!
//! Whoever is told of a fault takes the time before it does anything else, notes it on the [`Board`], and maps zeros.
//!
//! Invariant: nobody waits for ever. If the monitor ends, its userfaultfd is closed, and threads that sleep on a fault
//! go on with pages of the kernel, as errors.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use yonder::FarError;
use yonder::units::PAGE_BYTES;
use yonder_mapping::{Mapping, Protected};
use yonder_trap::{Fault, FaultHandler, RegisterError, Verdict};
use yonder_uffd::{CopyOutcome, Delivery, Uffd};

use super::Mechanism;
use super::touching::{Board, Touches, touch_all};
use crate::BenchError;

const PAGE: u64 = PAGE_BYTES as u64;
/// How long the monitor sleeps before it looks whether it should end, in milliseconds.
const TIMEOUT_MS: i32 = 20;
/// Why a touch fails: there is one reason only.
const NO_PAGE: NonZeroU32 = NonZeroU32::MIN;

/// Lets so many threads touch so many fresh pages each.
pub(super) fn measure(mechanism: Mechanism, threads: usize, faults: usize) -> Result<Touches, BenchError> {
    // The clock is measured at its first use, which takes longer than a fault.
    let _ = yonder_clock::now();
    let board = Board::new(threads, faults);
    match mechanism {
        Mechanism::Sigbus => by_sigbus(board),
        Mechanism::Monitor => by_monitor(&board),
        Mechanism::Signal => by_signal(board),
    }
}

fn by_sigbus(board: Board) -> Result<Touches, BenchError> {
    let uffd = Uffd::open().map_err(far)?;
    let region = Arc::new(Mapping::region(board.bytes()).map_err(far)?);
    uffd.register(&region).map_err(far)?;
    let board = Arc::new(board);
    let handler = InThread { uffd, region: Arc::clone(&region), board: Arc::clone(&board) };
    let registration = yonder_trap::register(region.address(), region.len(), Box::new(handler));
    let _registration = registration.map_err(|error| match error {
        RegisterError::Full => BenchError::Settings("this process has too many regions".to_owned()),
        RegisterError::Os(error) => BenchError::Os(error),
    })?;
    touch_all(&region, &board)
}

/// Brings pages in the thread that touches them.
struct InThread {
    uffd: Uffd,
    region: Arc<Mapping>,
    board: Arc<Board>,
}

impl FaultHandler for InThread {
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
        let now = yonder_clock::now();
        self.board.note(fault.offset, now);
        loop {
            match self.uffd.zero_page(&self.region, fault.offset - fault.offset % PAGE) {
                Ok(CopyOutcome::Installed | CopyOutcome::Exists) => return Verdict::Retry,
                Ok(CopyOutcome::Again) => {}
                Ok(CopyOutcome::NoMemory) | Err(_) => return Verdict::Fail(NO_PAGE),
            }
        }
    }

    fn describe(&self, _: &Fault<'_>, _: NonZeroU32, out: &mut dyn std::fmt::Write) {
        let _ = out.write_str("the kernel maps no page");
    }
}

fn by_monitor(board: &Board) -> Result<Touches, BenchError> {
    let uffd = Uffd::open_for(Delivery::UserMessages).map_err(far)?;
    let region = Mapping::region(board.bytes()).map_err(far)?;
    uffd.register(&region).map_err(far)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = || watch(uffd, &region, board, &is_over);
        let monitor = Builder::new().name("yonder-monitor".into()).spawn_scoped(scope, watching)?;
        let touches = touch_all(&region, board);
        is_over.store(true, Ordering::Release);
        monitor.join().expect("a monitor ends with an error")?;
        touches
    })
}

/// Brings pages to threads that sleep, one after the other. Takes the descriptor, so that they wake up if this fails.
fn watch(uffd: Uffd, region: &Mapping, board: &Board, is_over: &AtomicBool) -> Result<(), BenchError> {
    while !is_over.load(Ordering::Acquire) {
        let Some(address) = uffd.next_fault(TIMEOUT_MS)? else { continue };
        let now = yonder_clock::now();
        let offset = (address - region.address()) as u64 / PAGE * PAGE;
        board.note(offset, now);
        loop {
            match uffd.zero_page_and_wake(region, offset).map_err(far)? {
                CopyOutcome::Installed => break,
                // A thread that was woken by something else has asked again.
                CopyOutcome::Exists => break uffd.wake(region, offset, 1).map_err(far)?,
                CopyOutcome::Again => {}
                CopyOutcome::NoMemory => return Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()),
            }
        }
    }
    Ok(())
}

fn by_signal(board: Board) -> Result<Touches, BenchError> {
    let board = Arc::new(board);
    let noting = Arc::clone(&board);
    let on_touch = Box::new(move |offset| {
        let now = yonder_clock::now();
        noting.note(offset, now);
    });
    let protected = Protected::new(board.bytes(), on_touch).map_err(far)?;
    touch_all(protected.mapping(), &board)
}

/// The error of far memory that this is one of: what is missing, and what mends it.
fn far(error: impl Into<FarError>) -> BenchError {
    error.into().into()
}
