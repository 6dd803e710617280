//! A ring against the kernel.
//!
//! UNSAFETY: signals between threads of a test, and a question about a mapping.

use std::cell::RefCell;
use std::io::Write as _;
use std::os::fd::BorrowedFd;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use yonder_intercept::Kept;

use super::*;

const BYTES: usize = 8192;

fn ring(folder: &tempfile::TempDir, buffers: u16) -> Option<Ring> {
    let file = DirectFile::open(&folder.path().join("disk")).unwrap();
    file.reserve(64 * BYTES as u64).unwrap();
    match Ring::new(Arc::new(file), buffers, BYTES) {
        Ok(ring) => Some(ring),
        Err(error) => {
            println!("SKIP: {error}");
            None
        }
    }
}

fn finish(ring: &mut Ring) -> Vec<Ended> {
    let mut all = Vec::new();
    while ring.transfers() > 0 {
        ring.wait();
        all.extend(std::iter::from_fn(|| ring.ended()));
    }
    all.sort_by_key(|ended| ended.buffer);
    all
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut ring) = ring(&folder, 8) else { return };
    for buffer in 0..8 {
        ring.buffer(buffer).fill(buffer as u8 + 1);
        ring.write(buffer, u64::from(buffer) * BYTES as u64, BYTES);
    }
    assert_eq!(finish(&mut ring), [0, 1, 2, 3, 4, 5, 6, 7].map(|buffer| Ended { buffer, is_done: true }));
    for buffer in 0..8 {
        ring.read(buffer, u64::from(7 - buffer) * BYTES as u64 + 4096, 4096);
    }
    assert_eq!(finish(&mut ring).len(), 8);
    for buffer in 0..8 {
        let (read, kept) = ring.buffer(buffer).split_at(4096);
        assert!(read.iter().all(|byte| *byte == 8 - buffer as u8));
        assert!(kept.iter().all(|byte| *byte == buffer as u8 + 1));
    }
    ring.copy(0, 0, 1, 4096, 4096);
    assert!(ring.buffer(1)[4096..].iter().all(|byte| *byte == 8));
}

#[test]
fn what_is_not_there_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut ring) = ring(&folder, 2) else { return };
    ring.read(0, 64 * BYTES as u64 - 4096, BYTES);
    ring.read(1, 1 << 40, 4096);
    assert_eq!(finish(&mut ring), [0, 1].map(|buffer| Ended { buffer, is_done: false }));
}

#[test]
#[should_panic(expected = "buffer 0 has a transfer")]
fn a_buffer_is_the_kernels_while_it_has_a_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = ring(&folder, 1).unwrap_or_else(|| panic!("buffer 0 has a transfer, or would have"));
    ring.read(0, 0, 4096);
    ring.buffer(0);
}

thread_local! {
    static RANDOM: RefCell<SmallRng> = RefCell::new(SmallRng::seed_from_u64(11));
}

/// A kernel that is busy half of the time, and takes less than it is given.
fn grudging(ring: BorrowedFd<'_>, to_submit: u32, least: u32, flags: u32) -> i64 {
    match RANDOM.with_borrow_mut(|random| random.random_range(0..8)) {
        0 => -i64::from(libc::EINTR),
        1 => -i64::from(libc::EAGAIN),
        2 => -i64::from(libc::EBUSY),
        3 => raw::enter(ring, to_submit.min(1), least, flags),
        _ => raw::enter(ring, to_submit, least, flags),
    }
}

/// Against a file as bytes in memory, with buffers registered and not, and a kernel that takes everything or not.
#[test]
fn random_transfers_are_those_of_a_file() {
    const BUFFERS: u16 = 16;
    const BLOCKS: usize = 128;
    const BLOCK: usize = 4096;
    for (enter, is_registered) in [(raw::enter as raw::Enter, true), (grudging, true), (grudging, false)] {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(DirectFile::open(&folder.path().join("disk")).unwrap());
        file.reserve((BLOCKS * BLOCK) as u64).unwrap();
        let mut ring = match Ring::with(file, BUFFERS, BYTES, Queues::new(u32::from(BUFFERS), enter)) {
            Ok(ring) => ring,
            Err(error) => return println!("SKIP: {error}"),
        };
        ring.is_registered &= is_registered;
        let mut random = SmallRng::seed_from_u64(5);
        let mut model = vec![0; BLOCKS * BLOCK];
        // What each buffer is doing: where, how long, and whether it writes.
        let mut doing: [Option<(usize, usize, bool)>; BUFFERS as usize] = [None; BUFFERS as usize];
        for _ in 0..5000 {
            let buffer = random.random_range(0..BUFFERS);
            let (start, bytes) = (random.random_range(0..BLOCKS - 1) * BLOCK, random.random_range(1..=2) * BLOCK);
            let others = doing.iter().flatten();
            let is_apart =
                others.into_iter().all(|(other, length, _)| start + bytes <= *other || other + length <= start);
            if doing[usize::from(buffer)].is_none() && is_apart {
                let is_write = random.random_bool(0.5);
                if is_write {
                    random.fill_bytes(&mut ring.buffer(buffer)[..bytes]);
                    model[start..start + bytes].copy_from_slice(&ring.buffer(buffer)[..bytes]);
                    ring.write(buffer, start as u64, bytes);
                } else {
                    ring.read(buffer, start as u64, bytes);
                }
                doing[usize::from(buffer)] = Some((start, bytes, is_write));
            }
            match random.random_range(0..4) {
                0 => ring.submit(),
                1 => ring.wait(),
                _ => {}
            }
            while let Some(ended) = ring.ended() {
                let (start, bytes, is_write) = doing[usize::from(ended.buffer)].take().unwrap();
                assert!(ended.is_done);
                assert!(is_write || ring.buffer(ended.buffer)[..bytes] == model[start..start + bytes]);
            }
            assert_eq!(ring.transfers(), doing.iter().flatten().count());
        }
        assert!(finish(&mut ring).iter().all(|ended| ended.is_done));
        drop(ring);
        assert!(std::fs::read(folder.path().join("disk")).unwrap() == model);
    }
}

#[test]
fn no_more_is_begun_than_has_not_ended() {
    const BUFFERS: u16 = 8;
    let folder = tempfile::tempdir().unwrap();
    let file = Arc::new(DirectFile::open(&folder.path().join("disk")).unwrap());
    let mut ring = match Ring::with(file, BUFFERS, BYTES, Queues::polled(u32::from(BUFFERS), raw::enter)) {
        Ok(ring) => ring,
        Err(error) => return println!("SKIP: {error}"),
    };
    for _ in 0..20_000 {
        // The file is empty: each read ends at once, while the thread of the kernel still takes those behind it.
        for buffer in 0..BUFFERS {
            if ring.in_flight[usize::from(buffer)] == 0 {
                ring.read(buffer, 0, 4096);
            }
        }
        ring.submit();
        while ring.ended().is_none() {
            std::hint::spin_loop();
        }
        assert!(ring.begun() <= ring.transfers());
    }
}

/// A ring over an empty pipe, from which nothing is read before something is written, and the end to write to.
fn over_a_pipe() -> Option<(Ring, std::io::PipeWriter)> {
    let (from, into) = std::io::pipe().unwrap();
    let file = Arc::new(DirectFile { file: Kept::new(from.into()) });
    match Ring::new(file, 1, BYTES) {
        Ok(ring) => Some((ring, into)),
        Err(error) => {
            println!("SKIP: {error}");
            None
        }
    }
}

#[test]
fn a_ring_that_ends_waits_for_its_transfers() {
    let Some((mut ring, mut into)) = over_a_pipe() else { return };
    ring.read(0, 0, 4096);
    ring.submit();
    let (has_ended, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        drop(ring);
        has_ended.send(()).unwrap();
    });
    // It would end at once, if it did not wait.
    let early = ended.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "the kernel still writes to its buffer");
    into.write_all(&[1; 4096]).unwrap();
    ended.recv().unwrap();
    thread.join().unwrap();
}

#[test]
fn a_signal_ends_a_wait_and_no_transfer() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let Some((mut ring, mut into)) = over_a_pipe() else { return };
    // SAFETY: an all-zero action is valid, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    let (said, says) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: names the calling thread.
        said.send(unsafe { libc::pthread_self() }).unwrap();
        ring.read(0, 0, 4096);
        ring.wait();
        assert_eq!((ring.transfers(), ring.ended()), (1, None));
        said.send(0).unwrap();
        finish(&mut ring)
    });
    let waiting = says.recv().unwrap();
    while says.try_recv().is_err() {
        // SAFETY: the thread is joined later. It may come before the wait: then another one follows.
        unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
        std::thread::yield_now();
    }
    into.write_all(&[1; 4096]).unwrap();
    assert_eq!(thread.join().unwrap(), [Ended { buffer: 0, is_done: true }]);
}

#[test]
fn the_buffers_of_a_ring_whose_descriptor_is_gone_stay() {
    let Some((mut ring, into)) = over_a_pipe() else { return };
    ring.read(0, 0, 4096);
    ring.submit();
    let start = ring.buffers.address();
    // Every call is answered as the kernel answers one on a descriptor that was closed.
    ring.queues.answer_by(|_, _, _, _| -i64::from(libc::EBADF));
    drop(ring);
    // SAFETY: a question about a page, which the kernel answers into a byte that lives as long.
    let is_mapped = unsafe {
        let mut resident = 0_u8;
        libc::mincore(std::ptr::with_exposed_provenance_mut(start), 4096, &raw mut resident) == 0
    };
    assert!(is_mapped);
    drop(into);
}
