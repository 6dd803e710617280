//! The queues against the kernel, which is told to do nothing.
//!
//! UNSAFETY: entries that name nothing.

use std::io;

use super::*;

/// Queues; `None`, and a line that says why, where there is no io_uring.
fn queues(entries: u32) -> Option<Queues> {
    match Queues::new(entries, raw::enter) {
        Ok(queues) => Some(queues),
        Err(error) => {
            println!("SKIP: no io_uring: {error}");
            None
        }
    }
}

fn push(queues: &mut Queues, user_data: u64) {
    // SAFETY: the entry names nothing.
    unsafe { queues.push(Submission { operation: raw::NOP, user_data, ..Submission::default() }) };
}

#[test]
fn entries_are_taken_in_their_order_round_and_round() {
    let Some(mut queues) = queues(4) else { return };
    let mut next = 0;
    for round in 0..50 {
        let count = 1 + round % u64::from(queues.entries);
        (next..next + count).for_each(|user_data| push(&mut queues, user_data));
        assert_eq!(u64::from(queues.pushed()), count);
        assert_eq!(queues.enter(count as u32), Entered::Taken);
        assert_eq!(queues.pushed(), 0);
        for user_data in next..next + count {
            assert_eq!(queues.take().map(|completion| completion.user_data), Some(user_data));
        }
        assert_eq!((queues.take(), queues.has_completion()), (None, false));
        next += count;
    }
}

#[test]
fn completions_that_find_no_room_come_later() {
    const ROUNDS: u64 = 6;
    let Some(mut queues) = queues(8) else { return };
    for round in 0..ROUNDS {
        (0..8).for_each(|at| push(&mut queues, round * 8 + at));
        assert_eq!((queues.enter(0), queues.pushed()), (Entered::Taken, 0));
    }
    assert!(u64::from(queues.completion_entries) < ROUNDS * 8, "the queue has room for all");
    assert!(queues.has_news());
    let mut seen = Vec::new();
    while seen.len() < ROUNDS as usize * 8 {
        while let Some(completion) = queues.take() {
            seen.push(completion.user_data);
        }
        let _ = queues.enter(0);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..ROUNDS * 8).collect::<Vec<_>>());
    assert!(!queues.has_news() && queues.take().is_none());
}

#[test]
#[should_panic(expected = "an entry for each buffer")]
fn more_than_the_queue_holds_is_a_bug() {
    let mut queues = queues(2).expect("there is an entry for each buffer, or would be");
    (0..3).for_each(|user_data| push(&mut queues, user_data));
}

#[test]
fn what_the_kernel_refuses_stays() {
    let Some(mut queues) = queues(4) else { return };
    push(&mut queues, 7);
    for (errno, entered) in [
        (libc::EINTR, Entered::Later),
        (libc::EAGAIN, Entered::Later),
        (libc::EBUSY, Entered::Later),
        (libc::ENOMEM, Entered::Later),
        (libc::EBADF, Entered::Gone),
        (libc::EOPNOTSUPP, Entered::Gone),
    ] {
        static ERRNO: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
        ERRNO.store(errno, Ordering::Relaxed);
        queues.answer_by(|_, _, _, _| -i64::from(ERRNO.load(Ordering::Relaxed)));
        assert_eq!((queues.enter(1), queues.pushed(), queues.take()), (entered, 1, None));
    }
    queues.answer_by(raw::enter);
    assert_eq!(queues.enter(1), Entered::Taken);
    assert_eq!(queues.take().map(|completion| completion.user_data), Some(7));
}

#[test]
fn what_is_no_ring_is_gone() {
    let Some(mut queues) = queues(4) else { return };
    push(&mut queues, 1);
    let other = std::fs::File::open("/dev/null").unwrap();
    let ring = std::mem::replace(&mut queues.fd, Kept::new(other.into()));
    assert_eq!(queues.enter(0), Entered::Gone);
    queues.fd = ring;
    assert_eq!(queues.enter(1), Entered::Taken);
}

#[test]
fn a_ring_that_cannot_be_is_an_error() {
    let refused = |entries| Queues::new(entries, raw::enter).err().map(|error| error.kind());
    if queues(1).is_some() {
        assert_eq!(refused(0), Some(io::ErrorKind::InvalidInput));
        assert_eq!(refused(1 << 30), Some(io::ErrorKind::InvalidInput));
    }
}

/// Queues whose submissions a thread of the kernel takes, two that share it.
#[test]
fn a_thread_of_the_kernel_takes_entries_also_after_it_has_slept() {
    if queues(4).is_none() {
        return;
    }
    let [mut first, mut second] = match [0, 1].map(|_| Queues::polled(4, raw::enter)) {
        [Ok(first), Ok(second)] => [first, second],
        [first, second] => return println!("SKIP: {:?} {:?}", first.err(), second.err()),
    };
    for round in 0..20 {
        for queues in [&mut first, &mut second] {
            push(queues, round);
            while !queues.has_completion() {
                assert_ne!(queues.enter(1), Entered::Gone);
            }
            assert_eq!(queues.take().map(|completion| completion.user_data), Some(round));
            // Until the thread sleeps, so that it has to be woken.
            while round % 4 == 0 && queues.word(queues.flags).load(Ordering::Acquire) & raw::SLEEPS == 0 {
                std::thread::yield_now();
            }
        }
    }
    // The one whose thread it was goes, and the thread stays for the other.
    drop(first);
    push(&mut second, 99);
    while second.take().is_none() {
        let _ = second.enter(1);
    }
    let mut third = Queues::polled(4, raw::enter).unwrap();
    push(&mut third, 1);
    while third.take().is_none() {
        let _ = third.enter(1);
    }
}
