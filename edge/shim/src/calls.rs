//! System calls on far memory.
//!
//! The kernel cannot wait for a page of far memory: it answers EFAULT, or loses what it was about to store. So a call on far
//! memory is made on local memory instead, or on pages that are held: small buffers are copied through a [`Bounce`], because
//! a call may wait for long and a hold keeps a block from being swept; large ones are made resident and held for the call,
//! and very large ones in pieces. Which arguments are buffers stands in `core/syscalls`.
//!
//! Calls come here from `transfers` by their names, and all others by a signal: [`answer_trapped`] runs in the handler, at any
//! system call of the program, so nothing here allocates or takes a lock.
//!
//! UNSAFETY: memory of the program at the addresses that it gives the kernel.

use std::sync::atomic::Ordering;

use libc::{iovec, mmsghdr, msghdr};
use yonder_intercept::{Call, STUB};
use yonder_paging::Hold;
use yonder_syscalls::{Access, Buffer, Buffers, Instruction, Issuer, Length, Plan, Stub, plan, syscall};

use crate::bounce::{BOUNCE_BYTES, Bounce};
use crate::far::{Far, far, is_far};
use crate::maps;

/// Buffers of one call that are held.
const HOLDS_MAX: usize = 64;
/// Buffers of one call that are copied: as many as it has arguments.
const BOUNCED_MAX: usize = 6;
/// Longest text that the kernel takes: a path.
const TEXT_BYTES_MAX: usize = libc::PATH_MAX as usize;
/// A share of local memory of one in so many is held for a transfer; a larger one is made in pieces.
const PIECES: u64 = 16;
/// Smallest and largest piece, in bytes.
const PIECE_MIN: u64 = 64 << 10;
const PIECE_MAX: u64 = 8 << 20;

const EFAULT: i64 = -(libc::EFAULT as i64);

/// The program of the filter that sends calls on far memory back.
pub(crate) fn filter() -> Vec<Instruction> {
    yonder_syscalls::filter(Stub { start: STUB.start as u64, end: STUB.end as u64 })
}

/// Answers a call that the filter has sent back.
pub(crate) fn answer_trapped(call: &Call) -> i64 {
    if let Some(far) = far() {
        far.calls.trapped.fetch_add(1, Ordering::Relaxed);
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

/// Holds far memory that the kernel may use from now on at any time.
pub(crate) fn hold_for_good(address: usize, bytes: usize) {
    if let Some(far) = far()
        && let Some(offset) = far.offset(address)
        && bytes > 0
        && far.offset(address + bytes - 1).is_some()
    {
        std::mem::forget(far.region.hold(offset, bytes));
    }
}

/// How a transfer that is too large to be held goes on after a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterPiece {
    /// With the next one.
    GoOn,
    /// It is over: a next one might wait for what is not going to come.
    Stop,
}

/// What stands in for the memory of a call, or keeps it here.
struct Uses<'a> {
    bounced: [Option<(Bounce<'a>, Buffer, u64)>; BOUNCED_MAX],
    holds: [Option<Hold<'a>>; HOLDS_MAX],
    held: usize,
}

impl Far {
    /// Makes a call, in pieces if its buffer is too large to be held.
    fn transfer(&'static self, call: &Call, buffers: &Buffers) -> i64 {
        let piece_max = (self.region.far().local() / PIECES).clamp(PIECE_MIN, PIECE_MAX);
        let mut call = *call;
        if matches!(call.number, libc::SYS_epoll_wait | libc::SYS_epoll_pwait) {
            // A few events less at a time, so that they fit into a copy: the call waits, and must not hold anything.
            let most = BOUNCE_BYTES / size_of::<libc::epoll_event>();
            call.arguments[2] = call.arguments[2].min(most as u64);
            let Plan::Issue(fewer) = plan(call.number as u32, &call.arguments) else { return EFAULT };
            return self.issue(&call, &fewer);
        }
        let bytes = call.arguments[2];
        let Some(after) = after_piece(&call).filter(|_| bytes > piece_max) else { return self.issue(&call, buffers) };
        let mut done = 0;
        loop {
            let piece = (bytes - done).min(piece_max);
            call.arguments[2] = piece;
            let Plan::Issue(buffers) = plan(call.number as u32, &call.arguments) else { return EFAULT };
            let result = self.issue(&call, &buffers);
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

    fn issue(&'static self, call: &Call, buffers: &Buffers) -> i64 {
        let mut uses = Uses { bounced: [const { None }; BOUNCED_MAX], holds: [const { None }; HOLDS_MAX], held: 0 };
        let (mut call, mut futex) = (*call, None);
        for (index, buffer) in buffers.iter().enumerate() {
            if let Err(errno) = self.prepare(&mut call, &mut uses, index, *buffer, &mut futex) {
                return errno;
            }
        }
        let mut result = make(&call);
        while let Some(address) = futex.filter(|_| result == EFAULT) {
            // It was taken away again before the kernel has looked at it.
            if self.offset(address).is_none_or(|offset| self.region.probe(offset).is_err()) {
                break;
            }
            result = make(&call);
        }
        for (bounce, buffer, offset) in uses.bounced.iter().flatten() {
            let written = buffer.written(result) as usize;
            // SAFETY: the buffer is this call's alone, and the kernel is done with it.
            let copy = unsafe { std::slice::from_raw_parts(pointer::<u8>(bounce.address()), written) };
            if self.region.write(*offset, copy).is_err() {
                return EFAULT;
            }
        }
        result
    }

    /// Sees to one buffer of a call; an error is the call's answer.
    fn prepare(
        &'static self,
        call: &mut Call,
        uses: &mut Uses<'static>,
        at: usize,
        buffer: Buffer,
        futex: &mut Option<usize>,
    ) -> Result<(), i64> {
        let address = buffer.address as usize;
        match buffer.length {
            // What these point to can be far even if they are not.
            Length::Iovec(count) => {
                self.hold(uses, address, count * size_of::<iovec>() as u64)?;
                let held = self.hold_list(uses, pointer(address), count)?;
                if held < count {
                    // A transfer that is cut short is no error of its own, and goes on with the next call.
                    call.arguments[usize::from(buffer.index) + 1] = held;
                }
                Ok(())
            }
            Length::Message => {
                self.hold(uses, address, size_of::<msghdr>() as u64)?;
                self.hold_message(uses, pointer(address))
            }
            Length::Messages(count) => {
                self.hold(uses, address, count * size_of::<mmsghdr>() as u64)?;
                let messages = pointer::<mmsghdr>(address);
                // SAFETY: the program says that so many are there.
                (0..count as usize)
                    .try_for_each(|index| self.hold_message(uses, unsafe { &raw const (*messages.add(index)).msg_hdr }))
            }
            _ if !buffer.is_far() => Ok(()),
            Length::Futex => {
                *futex = Some(address);
                let offset = self.offset(address).ok_or(EFAULT)?;
                self.region.probe(offset).map_err(|_| EFAULT)
            }
            Length::Told { at: place, .. } => {
                let told = buffer.told(self.word(place as usize)?);
                self.prepare(call, uses, at, told, futex)
            }
            Length::Text => {
                let bytes = self.text_bytes(address)?;
                self.copy_in(call, uses, at, buffer, bytes)
            }
            Length::Bytes(bytes) if buffer.access == Access::Kept => {
                hold_for_good(address, bytes as usize);
                Ok(())
            }
            Length::Bytes(bytes) if bytes as usize <= BOUNCE_BYTES => self.copy_in(call, uses, at, buffer, bytes),
            Length::Bytes(bytes) | Length::AtLeast(bytes) => self.hold(uses, address, bytes),
            // It may be a number that looks like an address.
            Length::Unknown => self.hold(uses, address, 1).or(Ok(())),
            Length::Waiters(_) | Length::Strings | Length::Argpack | Length::Stack => Err(EFAULT),
        }
    }

    /// Puts a local copy in the place of a buffer; holds it if there is none to be had.
    fn copy_in(
        &'static self,
        call: &mut Call,
        uses: &mut Uses<'static>,
        at: usize,
        buffer: Buffer,
        bytes: u64,
    ) -> Result<(), i64> {
        let address = buffer.address as usize;
        let Some(bounce) = self.bounces.take() else { return self.hold(uses, address, bytes) };
        let offset = self.offset(address).ok_or(EFAULT)?;
        if self.offset(address + bytes as usize - 1).is_none() {
            return Err(EFAULT);
        }
        if matches!(buffer.access, Access::In | Access::InOut) {
            // SAFETY: the buffer is this call's alone, and at least as long.
            let copy =
                unsafe { std::slice::from_raw_parts_mut(pointer::<u8>(bounce.address()).cast_mut(), bytes as usize) };
            self.region.read(offset, copy).map_err(|_| EFAULT)?;
        }
        call.arguments[usize::from(buffer.index)] = bounce.address() as u64;
        uses.bounced[at] = Some((bounce, buffer, offset));
        Ok(())
    }

    /// Keeps memory here for the call, if it is far.
    fn hold(&'static self, uses: &mut Uses<'static>, address: usize, bytes: u64) -> Result<(), i64> {
        if !is_far(address) || bytes == 0 {
            return Ok(());
        }
        let offset = self.offset(address).ok_or(EFAULT)?;
        if address.checked_add(bytes as usize - 1).is_none_or(|last| self.offset(last).is_none()) {
            return Err(EFAULT);
        }
        let place = uses.holds.get_mut(uses.held).ok_or(-i64::from(libc::EMSGSIZE))?;
        *place = Some(self.region.hold(offset, bytes as usize).map_err(|_| EFAULT)?);
        uses.held += 1;
        Ok(())
    }

    /// Holds the buffers of a list; how many of them, from the first on, could be.
    fn hold_list(&'static self, uses: &mut Uses<'static>, list: *const iovec, count: u64) -> Result<u64, i64> {
        for index in 0..count {
            if uses.held == HOLDS_MAX {
                return Ok(index);
            }
            // SAFETY: the program says that so many are there.
            let buffer = unsafe { list.add(index as usize).read_unaligned() };
            self.hold(uses, buffer.iov_base as usize, buffer.iov_len as u64)?;
        }
        Ok(count)
    }

    fn hold_message(&'static self, uses: &mut Uses<'static>, message: *const msghdr) -> Result<(), i64> {
        // SAFETY: the program says that one is there.
        let message = unsafe { message.read_unaligned() };
        let list_bytes = message.msg_iovlen as u64 * size_of::<iovec>() as u64;
        self.hold(uses, message.msg_name as usize, u64::from(message.msg_namelen))?;
        self.hold(uses, message.msg_control as usize, message.msg_controllen as u64)?;
        self.hold(uses, message.msg_iov as usize, list_bytes)?;
        let held = self.hold_list(uses, message.msg_iov, message.msg_iovlen as u64)?;
        // A message cannot be cut.
        if held == message.msg_iovlen as u64 { Ok(()) } else { Err(-i64::from(libc::EMSGSIZE)) }
    }

    /// The 32 bits at an address.
    fn word(&self, address: usize) -> Result<u32, i64> {
        let mut word = [0; 4];
        if is_far(address) {
            let offset = self.offset(address).ok_or(EFAULT)?;
            self.region.read(offset, &mut word).map_err(|_| EFAULT)?;
        } else if address != 0 {
            // SAFETY: the program says that they are there.
            word = unsafe { pointer::<[u8; 4]>(address).read_unaligned() };
        }
        Ok(u32::from_ne_bytes(word))
    }

    /// Bytes of a text, with the zero at its end.
    fn text_bytes(&self, address: usize) -> Result<u64, i64> {
        const STEP: usize = 64;
        let mut bytes = 0;
        while bytes < TEXT_BYTES_MAX {
            // Up to a multiple of the step, so that no page behind the text is touched.
            let step = STEP - (address + bytes) % STEP;
            let mut part = [0; STEP];
            let offset = self.offset(address + bytes).ok_or(EFAULT)?;
            self.region.read(offset, &mut part[..step]).map_err(|_| EFAULT)?;
            if let Some(zero) = part[..step].iter().position(|byte| *byte == 0) {
                return Ok((bytes + zero + 1) as u64);
            }
            bytes += step;
        }
        Err(-i64::from(libc::ENAMETOOLONG))
    }
}

/// How a large transfer goes on after a piece; `None` if it is not one that can be made in pieces.
fn after_piece(call: &Call) -> Option<AfterPiece> {
    match call.number {
        libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_sendto => Some(AfterPiece::GoOn),
        libc::SYS_read if is_regular(call.arguments[0]) => Some(AfterPiece::GoOn),
        libc::SYS_read | libc::SYS_recvfrom => Some(AfterPiece::Stop),
        _ => None,
    }
}

/// Whether a descriptor is of a file that is read to its end without waiting.
fn is_regular(fd: u64) -> bool {
    // SAFETY: an all-zero stat is valid, and lives as long as the call.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let call = Call { number: libc::SYS_fstat, arguments: [fd, (&raw mut stat) as u64, 0, 0, 0, 0] };
    make(&call) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

fn pointer<T>(address: usize) -> *const T {
    std::ptr::with_exposed_provenance(address)
}
