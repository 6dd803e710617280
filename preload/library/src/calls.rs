//! System calls on far memory.
//!
//! The kernel cannot wait for a page of far memory: it answers EFAULT, or loses what it was about to store. So a call
//! on far memory is made on local memory instead: buffers are copied through [`Local`] memory, lists of buffers and
//! messages through [`Lists`], and large transfers in pieces. Copied and not held, because a call may wait for long,
//! and a hold keeps all of a block from being swept; only memory of which the length is not known is held. Which
//! arguments are buffers stands in `core/syscalls`.
//!
//! Calls come here from `transfers` by their names, and all others by a signal: [`answer_trapped`] runs in the handler,
//! at any system call of the program, so nothing here allocates, and no lock is taken but, where the program has
//! protected far memory, that of its mappings, unless this thread has it: on a stack in far memory the library's own
//! calls come here.
//!
//! UNSAFETY: memory of the program at the addresses that it gives the kernel.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::iovec;
use yonder_intercept::{Call, Interrupted, STUB};
use yonder_paging::Hold;
use yonder_syscalls::{Access, Buffer, Buffers, Instruction, Issuer, Length, Plan, Stub, plan, syscall};

use crate::bounce::Local;
use crate::far::{Far, far};
use crate::held::hold_for_good;
use crate::lists::Lists;
use crate::{maps, signals};

/// Buffers of one call that are copied or held: as many as it has arguments.
const BUFFERS_MAX: usize = 6;
/// Words of which a call names the addresses.
const FUTEXES_MAX: usize = 2;
/// How often a call on such a word is made again. Its page may be swept between a touch and the kernel's look, but
/// hardly so often: then another address is not the program's.
const FUTEX_TRIES: usize = 1000;
/// Bytes that are copied at a time, but of a message, which is never cut.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

pub(crate) const EFAULT: i64 = -(libc::EFAULT as i64);

/// The program of the filter that sends calls on far memory back.
pub(crate) fn filter() -> Vec<Instruction> {
    yonder_syscalls::filter(Stub { start: STUB.start as u64, end: STUB.end as u64 })
}

/// Answers a call that the filter has sent back.
pub(crate) fn answer_trapped(call: &Call, interrupted: &mut Interrupted<'_>) -> i64 {
    if let Some(far) = far() {
        far.calls.trapped.fetch_add(1, Ordering::Relaxed);
    }
    if call.number == libc::SYS_rt_sigprocmask {
        return signals::change_mask(call, interrupted).unwrap_or_else(|errno| errno);
    }
    answer(call)
}

/// Makes a call, with its far memory where the kernel can use it.
pub(crate) fn answer(call: &Call) -> i64 {
    let Some(far) = far() else { return make(call) };
    far.calls.all.fetch_add(1, Ordering::Relaxed);
    let number = call.number as u32;
    match plan(number, &call.arguments) {
        Plan::Refuse(errno) => -i64::from(errno.0),
        Plan::Memory => maps::answer(call),
        // It would act on the handler and not on the thread. Those that programs use are wrapped by their names.
        Plan::Issue(_) if syscall(number).is_some_and(|row| row.issuer == Issuer::Caller) => EFAULT,
        Plan::Issue(buffers) => far.transfer(call, &buffers),
    }
}

/// Makes a call as it is.
pub(crate) fn make(call: &Call) -> i64 {
    // SAFETY: the program's, with its own arguments or with memory that stands in for them.
    unsafe { yonder_intercept::call(call) }
}

/// How a transfer that is made in pieces goes on after one that was whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterPiece {
    /// With the next one.
    GoOn,
    /// It is over: a next one might wait for what is not going to come.
    Stop,
}

/// What stands in for the memory of a call, or keeps it here.
#[derive(Default)]
struct Uses {
    copies: [Option<(Local<'static>, Buffer, u64)>; BUFFERS_MAX],
    holds: [Option<Hold<'static>>; BUFFERS_MAX],
    lists: Option<Lists>,
    futexes: [Option<usize>; FUTEXES_MAX],
}

impl Far {
    /// Makes a call, in pieces if it moves much.
    fn transfer(&'static self, call: &Call, buffers: &Buffers) -> i64 {
        let list = buffers.iter().find_map(|buffer| match buffer.length {
            Length::Iovec(count) => Some(count),
            _ => None,
        });
        match list {
            Some(count) if is_of_lists(call.number) => self.transfer_list(call, count, buffers),
            Some(_) => self.issue(call, buffers),
            // What the descriptor is of costs a call of its own, so little is not asked.
            None if call.arguments[2] > PIECE_BYTES => match after_piece(call) {
                Some(after) => self.transfer_bytes(call, after),
                None => self.issue(call, buffers),
            },
            None => self.issue(call, buffers),
        }
    }

    fn transfer_bytes(&'static self, call: &Call, after: AfterPiece) -> i64 {
        if has_messages(call.arguments[0]) {
            return self.issue_as_planned(call);
        }
        let (mut call, bytes) = (*call, call.arguments[2]);
        let mut done = 0;
        loop {
            let piece = (bytes - done).min(PIECE_BYTES);
            call.arguments[2] = piece;
            let result = self.issue_as_planned(&call);
            if result < 0 {
                return if done > 0 { done as i64 } else { result };
            }
            done += result as u64;
            if (result as u64) < piece || done == bytes || after == AfterPiece::Stop {
                return done as i64;
            }
            call.arguments[1] += piece;
            if matches!(call.number, libc::SYS_pread64 | libc::SYS_pwrite64) {
                call.arguments[3] += piece;
            }
        }
    }

    /// As [`Far::transfer_bytes`], with a list of buffers.
    fn transfer_list(&'static self, call: &Call, count: u64, buffers: &Buffers) -> i64 {
        if count == 0 || count > libc::UIO_MAXIOV as u64 {
            return make(call);
        }
        let list_bytes = count as usize * size_of::<iovec>();
        let lists = self.bounces.local(list_bytes).and_then(|rest| Ok((rest, self.bounces.local(list_bytes)?)));
        let (rest, part) = match lists {
            Ok(lists) => lists,
            Err(errno) => return errno,
        };
        // SAFETY: both are this call's alone, and as long.
        let (rest, part) = unsafe {
            (
                std::slice::from_raw_parts_mut(pointer_mut::<iovec>(rest.address()), count as usize),
                std::slice::from_raw_parts_mut(pointer_mut::<iovec>(part.address()), count as usize),
            )
        };
        if let Err(errno) = self.get(call.arguments[1] as usize, rest) {
            return errno;
        }
        let is_long =
            rest.iter().fold(0, |bytes: usize, buffer| bytes.saturating_add(buffer.iov_len)) as u64 > PIECE_BYTES;
        let Some(after) = (if is_long { after_piece(call) } else { None }) else { return self.issue(call, buffers) };
        if has_messages(call.arguments[0]) {
            return self.issue(call, buffers);
        }
        let (mut call, mut first, mut done) = (*call, 0, 0);
        loop {
            let (filled, bytes) = cut(&mut rest[first..], part);
            (call.arguments[1], call.arguments[2]) = (part.as_ptr() as u64, filled as u64);
            let result = self.issue_as_planned(&call);
            if result < 0 {
                return if done > 0 { done } else { result };
            }
            done += result;
            first += rest[first..].iter().position(|buffer| buffer.iov_len > 0).unwrap_or(rest.len() - first);
            if (result as u64) < bytes || first == rest.len() || after == AfterPiece::Stop {
                return done;
            }
            // Offset -1 is the file's own.
            if !matches!(call.number, libc::SYS_readv | libc::SYS_writev) && call.arguments[3] != u64::MAX {
                call.arguments[3] += bytes;
            }
        }
    }

    fn issue_as_planned(&'static self, call: &Call) -> i64 {
        let Plan::Issue(buffers) = plan(call.number as u32, &call.arguments) else { return EFAULT };
        self.issue(call, &buffers)
    }

    fn issue(&'static self, call: &Call, buffers: &Buffers) -> i64 {
        let (mut call, mut uses) = (*call, Uses::default());
        for (index, buffer) in buffers.iter().enumerate() {
            if let Err(errno) = self.prepare(&mut call, &mut uses, index, *buffer) {
                return errno;
            }
        }
        let mut result = make(&call);
        if uses.futexes[0].is_some() {
            let mut tries = 1..FUTEX_TRIES;
            // It was taken away again before the kernel has looked at it.
            while result == EFAULT && tries.next().is_some() {
                if uses.futexes.iter().flatten().any(|address| self.touch(*address).is_err()) {
                    break;
                }
                result = make(&call);
            }
        }
        for (copy, buffer, offset) in uses.copies.iter().flatten() {
            let written = buffer.written(result) as usize;
            // SAFETY: the copy is this call's alone, and the kernel is done with it.
            let copy = unsafe { std::slice::from_raw_parts(pointer::<u8>(copy.address()), written) };
            let put_back = match call.number {
                libc::SYS_poll | libc::SYS_ppoll if buffer.index == 0 => self.put_events(*offset, copy),
                _ => self.write(*offset, copy),
            };
            if put_back.is_err() {
                return EFAULT;
            }
        }
        match uses.lists.map_or(Ok(()), |lists| lists.copy_back(self, result)) {
            Ok(()) => result,
            Err(errno) => errno,
        }
    }

    /// Sees to one buffer of a call; an error is the call's answer.
    fn prepare(&'static self, call: &mut Call, uses: &mut Uses, at: usize, buffer: Buffer) -> Result<(), i64> {
        let address = buffer.address as usize;
        match buffer.length {
            // What these point to can be far even if they are not.
            Length::Iovec(_) | Length::Message | Length::Messages(_) => {
                let lists = Lists::of(self, &buffer)?;
                call.arguments[usize::from(buffer.index)] = lists.address() as u64;
                uses.lists = Some(lists);
                Ok(())
            }
            _ if !buffer.is_far() => Ok(()),
            Length::Futex => {
                let free = uses.futexes.iter_mut().find(|futex| futex.is_none());
                *free.ok_or(EFAULT)? = Some(address);
                self.touch(address)
            }
            Length::InMemory { at: place, .. } => {
                let told = buffer.with_length_word(self.word(place as usize)?);
                self.prepare(call, uses, at, told)
            }
            Length::Text => {
                let bytes = self.text_bytes(address)?;
                self.copy_in(call, uses, at, buffer, bytes)
            }
            Length::Bytes(bytes) if buffer.access == Access::Kept => {
                hold_for_good(address, bytes as usize).map_err(|_| EFAULT)
            }
            Length::Bytes(0) => Ok(()),
            Length::Bytes(bytes) => self.copy_in(call, uses, at, buffer, bytes),
            Length::AtLeast(bytes) => self.hold(uses, at, address, bytes),
            // It may be a number that looks like an address.
            Length::Unknown => self.hold(uses, at, address, 1).or(Ok(())),
            Length::Waiters(_) | Length::Strings | Length::Argpack | Length::Stack => Err(EFAULT),
        }
    }

    /// Puts a local copy in the place of a buffer.
    fn copy_in(
        &'static self,
        call: &mut Call,
        uses: &mut Uses,
        at: usize,
        buffer: Buffer,
        bytes: u64,
    ) -> Result<(), i64> {
        let address = buffer.address as usize;
        let offset = self.offset(address).ok_or(EFAULT)?;
        if self.offset(address + bytes as usize - 1).is_none() {
            return Err(EFAULT);
        }
        if buffer.access != Access::In {
            self.check_first(address)?;
        }
        let local = self.bounces.local(bytes as usize)?;
        if matches!(buffer.access, Access::In | Access::InOut) {
            // SAFETY: the copy is this call's alone, and at least as long.
            let copy = unsafe { std::slice::from_raw_parts_mut(pointer_mut::<u8>(local.address()), bytes as usize) };
            self.read(offset, copy)?;
        }
        call.arguments[usize::from(buffer.index)] = local.address() as u64;
        uses.copies[at] = Some((local, buffer, offset));
        Ok(())
    }

    /// Keeps memory here for the call.
    fn hold(&'static self, uses: &mut Uses, at: usize, address: usize, bytes: u64) -> Result<(), i64> {
        if bytes == 0 {
            return Ok(());
        }
        let offset = self.offset(address).ok_or(EFAULT)?;
        if address.checked_add(bytes as usize - 1).is_none_or(|last| self.offset(last).is_none()) {
            return Err(EFAULT);
        }
        uses.holds[at] =
            Some(yonder_trap::hold_back(|| self.region().hold(offset, bytes as usize)).map_err(|_| EFAULT)?);
        Ok(())
    }

    /// Makes sure that the kernel finds a word.
    fn touch(&self, address: usize) -> Result<(), i64> {
        let offset = self.offset(address).ok_or(EFAULT)?;
        self.check(offset, size_of::<u32>(), libc::PROT_READ)?;
        yonder_trap::hold_back(|| self.region().probe(offset)).map_err(|_| EFAULT)
    }
}

/// Whether a call is a transfer of a list of buffers, which is its second argument.
fn is_of_lists(number: i64) -> bool {
    let reads = matches!(number, libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2);
    reads || matches!(number, libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2)
}

/// How a transfer goes on after a piece; `None` if it is not one that can be made in pieces. May ask the kernel.
fn after_piece(call: &Call) -> Option<AfterPiece> {
    match call.number {
        libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_sendto => Some(AfterPiece::GoOn),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_preadv => Some(AfterPiece::GoOn),
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 if is_regular(call.arguments[0]) => Some(AfterPiece::GoOn),
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => Some(AfterPiece::Stop),
        libc::SYS_recvfrom => match call.arguments[3] as libc::c_int & (libc::MSG_WAITALL | libc::MSG_PEEK) {
            libc::MSG_WAITALL => Some(AfterPiece::GoOn),
            0 => Some(AfterPiece::Stop),
            _ => None,
        },
        _ => None,
    }
}

/// Moves the next piece of a list of buffers to `part`: how many buffers and bytes that are.
fn cut(rest: &mut [iovec], part: &mut [iovec]) -> (usize, u64) {
    let (mut filled, mut bytes) = (0, 0);
    for (buffer, place) in rest.iter_mut().zip(part) {
        let length = buffer.iov_len.min((PIECE_BYTES - bytes) as usize);
        *place = iovec { iov_base: buffer.iov_base, iov_len: length };
        buffer.iov_base = buffer.iov_base.wrapping_byte_add(length);
        buffer.iov_len -= length;
        filled += 1;
        bytes += length as u64;
        if bytes == PIECE_BYTES {
            break;
        }
    }
    (filled, bytes)
}

/// Whether a descriptor is of a socket that keeps messages apart.
fn has_messages(fd: u64) -> bool {
    let (mut kind, mut bytes): (c_int, libc::socklen_t) = (0, size_of::<c_int>() as u32);
    let told = [(&raw mut kind) as u64, (&raw mut bytes) as u64];
    let arguments = [fd, libc::SOL_SOCKET as u64, libc::SO_TYPE as u64, told[0], told[1], 0];
    make(&Call { number: libc::SYS_getsockopt, arguments }) == 0 && kind != libc::SOCK_STREAM
}

/// Whether a descriptor is of a file that is read to its end without waiting.
fn is_regular(fd: u64) -> bool {
    // SAFETY: an all-zero stat is valid, and lives as long as the call.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let call = Call { number: libc::SYS_fstat, arguments: [fd, (&raw mut stat) as u64, 0, 0, 0, 0] };
    make(&call) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

pub(crate) fn pointer<T>(address: usize) -> *const T {
    std::ptr::with_exposed_provenance(address)
}

pub(crate) fn pointer_mut<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}
