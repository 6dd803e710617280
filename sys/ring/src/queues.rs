//! [`Queues`]: the submission and the completion queue that a process shares with the kernel.
//!
//! Who touches what: this side writes entries and the tail of the submission queue, and the head of the completion
//! queue; the kernel writes the other two. Each side releases what it has written with its own end, and acquires the
//! other's, so an entry is whole when it is seen, and its place is used again only after it was read.
//!
//! In a process whose system calls are filtered, which is a program that knows nothing of this, a thread of the kernel
//! takes submissions that nobody waits for ([`Queues::unattended`]). Otherwise the kernel would finish each transfer in
//! the thread that has begun it, wherever the program is by then: a system call that waits there would end as if a
//! signal had come, `epoll_wait` with EINTR and `recv` of everything with less.
//!
//! Invariants: no entry is written to a place that the kernel has not let go of. An entry that the kernel has not
//! taken, for whatever reason it gives, stays and is handed over by a later call.
//!
//! UNSAFETY: memory that the kernel changes, reached by pointers into mappings that live as long.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering, fence};

use yonder_intercept::{Kept, has_stub};

use crate::raw::{self, Completion, Enter, Params, Shared, Submission};

/// How long the kernel's thread looks for submissions before it sleeps, in milliseconds: the least there is.
const THREAD_IDLE_MS: u32 = 1;
/// The first ring whose submissions a thread of the kernel takes; -1 if there was none. The others share it.
static FIRST_POLLED: AtomicI32 = AtomicI32::new(-1);

/// What the kernel has answered to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// It has taken what it could.
    Taken,
    /// It was interrupted, has no memory now, or wants completions to be taken first: a later call does it.
    Later,
    /// The ring is not usable any more, because its descriptor was closed.
    Gone,
}

/// Both queues, and the descriptor of the ring.
pub(crate) struct Queues {
    fd: Kept,
    enter: Enter,
    /// Of the submission queue. The kernel's copy of the tail is written with every push.
    head: *const AtomicU32,
    tail: *const AtomicU32,
    flags: *const AtomicU32,
    submissions: *mut Submission,
    entries: u32,
    /// Of the completion queue.
    completion_head: *const AtomicU32,
    completion_tail: *const AtomicU32,
    completions: *const Completion,
    completion_entries: u32,
    /// Whether a thread of the kernel takes submissions.
    is_polled: bool,
    /// Behind the pointers above.
    _queues: Shared,
    _submissions: Shared,
}

// SAFETY: the pointers are into mappings of the process, which any thread may use; one at a time does, as it needs
// `&mut`.
unsafe impl Send for Queues {}

impl Queues {
    /// Queues of a ring whose thread may leave while something is under way.
    pub(crate) fn unattended(entries: u32, enter: Enter) -> io::Result<Self> {
        if has_stub() { Self::polled(entries, enter) } else { Self::new(entries, enter) }
    }

    /// Queues for `entries` submissions at least, of a ring that does not interrupt its thread when something ends,
    /// where the kernel can do so.
    pub(crate) fn new(entries: u32, enter: Enter) -> io::Result<Self> {
        let quiet = Self::set_up(entries, Params::with(raw::COOPERATIVE | raw::FLAGS_WORK), enter);
        quiet.or_else(|_| Self::set_up(entries, Params::default(), enter))
    }

    /// Of a ring whose submissions a thread of the kernel takes, one for the rings of a process.
    pub(crate) fn polled(entries: u32, enter: Enter) -> io::Result<Self> {
        // The thread lets go of the entries that it took when it has taken several, and what is the first of them may
        // have ended and another begun before: so many are in use twice.
        let entries = 2 * entries;
        let first = FIRST_POLLED.load(Ordering::Acquire);
        let shared = (first >= 0).then(|| Self::set_up(entries, Params::polled(THREAD_IDLE_MS, Some(first)), enter));
        if let Some(Ok(queues)) = shared {
            return Ok(queues);
        }
        // There was none before, or it is gone.
        let queues = Self::set_up(entries, Params::polled(THREAD_IDLE_MS, None), enter)?;
        FIRST_POLLED.store(queues.fd.as_raw_fd(), Ordering::Release);
        Ok(queues)
    }

    fn set_up(entries: u32, mut params: Params, enter: Enter) -> io::Result<Self> {
        let fd = raw::setup(entries, &mut params)?;
        if params.features & (raw::ONE_MAPPING | raw::NO_DROP) != raw::ONE_MAPPING | raw::NO_DROP {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Self::of(fd, &params, enter)
    }

    fn of(fd: OwnedFd, params: &Params, enter: Enter) -> io::Result<Self> {
        let (submission, completion) = (params.submission, params.completion);
        let (entries, completion_entries) = (params.submission_entries, params.completion_entries);
        let array_end = submission.array as usize + entries as usize * size_of::<u32>();
        let completions_end = completion.entries as usize + completion_entries as usize * size_of::<Completion>();
        let queues = Shared::map(fd.as_fd(), raw::QUEUES_OFFSET, array_end.max(completions_end))?;
        let submissions_bytes = entries as usize * size_of::<Submission>();
        let submissions = Shared::map(fd.as_fd(), raw::SUBMISSIONS_OFFSET, submissions_bytes)?;
        let array: *mut u32 = queues.at(submission.array, entries);
        for place in 0..entries {
            // SAFETY: the array has so many words, which the kernel reads only when it is called. Each place of the
            // queue always has the entry of its own number.
            unsafe { array.add(place as usize).write_volatile(place) };
        }
        Ok(Self {
            head: queues.at::<AtomicU32>(submission.head, 1),
            tail: queues.at::<AtomicU32>(submission.tail, 1),
            flags: queues.at::<AtomicU32>(submission.flags, 1),
            submissions: submissions.at(0, entries),
            entries,
            completion_head: queues.at::<AtomicU32>(completion.head, 1),
            completion_tail: queues.at::<AtomicU32>(completion.tail, 1),
            completions: queues.at::<Completion>(completion.entries, completion_entries),
            completion_entries,
            is_polled: params.flags & raw::POLLED != 0,
            fd: Kept::new(fd),
            enter,
            _queues: queues,
            _submissions: submissions,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[cfg(test)]
    pub(crate) fn answer_by(&mut self, enter: Enter) {
        self.enter = enter;
    }

    /// A word that is shared with the kernel.
    fn word(&self, word: *const AtomicU32) -> &AtomicU32 {
        // SAFETY: the pointer is aligned and into a mapping that lives as long as `self`; both sides use the word
        // atomically.
        unsafe { &*word }
    }

    /// Entries that were pushed and not taken by the kernel.
    #[inline]
    pub(crate) fn pushed(&self) -> u32 {
        let tail = self.word(self.tail).load(Ordering::Relaxed);
        tail.wrapping_sub(self.word(self.head).load(Ordering::Acquire))
    }

    /// Whether completions wait for a call: of work that the thread does only in the kernel, or that found the queue
    /// full.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.word(self.flags).load(Ordering::Acquire) & (raw::HAS_WORK | raw::HAS_OVERFLOWN) != 0
    }

    /// Puts an entry behind the others; the next call hands it over.
    ///
    /// # Panics
    /// The queue is full.
    ///
    /// # Safety
    /// What the entry names is the kernel's until its completion was taken.
    #[inline]
    pub(crate) unsafe fn push(&mut self, entry: Submission) {
        assert!(self.pushed() < self.entries, "there is an entry for each buffer");
        let tail = self.word(self.tail).load(Ordering::Relaxed);
        let place = (tail & (self.entries - 1)) as usize;
        // SAFETY: the place is in the mapping, and the kernel has let go of it: its head, which was acquired, is past
        // it.
        unsafe { self.submissions.add(place).write(entry) };
        self.word(self.tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Hands over what was pushed, has the kernel put up what it holds back, and waits for `least` completions in all.
    pub(crate) fn enter(&mut self, least: u32) -> Entered {
        let mut flags = if least > 0 || self.has_news() { raw::GET_EVENTS } else { 0 };
        if self.is_polled {
            // The tail is written before the kernel's thread is looked at, which looks at the tail before it sleeps.
            fence(Ordering::SeqCst);
            if self.word(self.flags).load(Ordering::Relaxed) & raw::SLEEPS != 0 {
                flags |= raw::WAKE;
            } else if flags == 0 {
                return Entered::Taken;
            }
        }
        let answer = (self.enter)(self.fd.as_fd(), self.pushed(), least, flags);
        match i32::try_from(-answer) {
            Ok(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => Entered::Later,
            Ok(errno) if errno > 0 => Entered::Gone,
            _ => Entered::Taken,
        }
    }

    /// Whether a completion is there.
    #[inline]
    pub(crate) fn has_completion(&self) -> bool {
        let head = self.word(self.completion_head).load(Ordering::Relaxed);
        head != self.word(self.completion_tail).load(Ordering::Acquire)
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Completion> {
        if !self.has_completion() {
            return None;
        }
        let head = self.word(self.completion_head).load(Ordering::Relaxed);
        let place = (head & (self.completion_entries - 1)) as usize;
        // SAFETY: the place is in the mapping, and the kernel has written it: its tail, which was acquired, is past it,
        // and it writes there again only when the head is.
        let completion = unsafe { self.completions.add(place).read() };
        self.word(self.completion_head).store(head.wrapping_add(1), Ordering::Release);
        Some(completion)
    }
}

#[cfg(test)]
mod tests;
