//! [`Lists`]: local copies of what a system call finds through lists: buffers of an `iovec`, messages with names and
//! control data.
//!
//! Each step copies what the one before has found, so that a list which another thread changes meanwhile is used as it
//! was read: headers, then lists, then what these point to. What is not far stays where it is.
//!
//! UNSAFETY: memory of the program at the addresses that it gives the kernel.

use std::mem::offset_of;

use libc::{iovec, mmsghdr, msghdr};
use yonder_syscalls::{Access, Buffer, Length};

use crate::bounce::Local;
use crate::far::{Far, is_far};

/// Elements of a list, and messages of a call, that the kernel takes.
const COUNT_MAX: usize = libc::UIO_MAXIOV as usize;
/// Bytes that are sent with one call; more are for the next one.
const SENT_MAX: usize = 64 << 20;
/// Direct input and output ask for addresses that are multiples of this.
const SECTOR_BYTES: usize = 512;

/// What a call's list is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Buffers,
    Message,
    Messages,
}

/// The copies.
pub(crate) struct Lists {
    kind: Kind,
    access: Access,
    /// Where the program has them.
    original: usize,
    /// A header for each message, as the kernel gets it; one with nothing but the list, if that is all.
    headers: Copied<mmsghdr>,
    /// The lists of all messages, one after the other, as the program has them and as the kernel gets them.
    lists: Copied<iovec>,
    mapped: Copied<iovec>,
    /// Names and control data as the program has them are in these; what is far is in `_data` for the kernel.
    originals: Copied<mmsghdr>,
    _data: Local<'static>,
}

/// Elements in local memory.
struct Copied<T> {
    memory: Local<'static>,
    count: usize,
    _of: std::marker::PhantomData<T>,
}

impl<T> Copied<T> {
    fn new(far: &'static Far, count: usize) -> Result<Self, i64> {
        Ok(Self { memory: far.bounces.local(count * size_of::<T>())?, count, _of: std::marker::PhantomData })
    }

    fn get(&self) -> &[T] {
        // SAFETY: the memory is ours, so long, begins with a page, and any bytes are valid in the kernel's structures.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.memory.address()), self.count) }
    }

    fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(self.memory.address()), self.count)
        }
    }
}

impl Lists {
    /// Copies what a buffer of a call leads to; an error is the call's answer.
    pub(crate) fn of(far: &'static Far, buffer: &Buffer) -> Result<Self, i64> {
        let original = buffer.address as usize;
        let (kind, count) = match buffer.length {
            Length::Iovec(_) => (Kind::Buffers, 1),
            Length::Message => (Kind::Message, 1),
            Length::Messages(count) => (Kind::Messages, (count as usize).min(COUNT_MAX)),
            _ => unreachable!("only lists are asked for"),
        };
        let mut originals = Copied::<mmsghdr>::new(far, count.max(1))?;
        originals.count = count;
        match buffer.length {
            Length::Iovec(count) => {
                // SAFETY: an all-zero header is valid.
                let mut only: mmsghdr = unsafe { std::mem::zeroed() };
                only.msg_hdr.msg_iov = std::ptr::with_exposed_provenance_mut(original);
                only.msg_hdr.msg_iovlen = count as usize;
                originals.get_mut()[0] = only;
            }
            // It is shorter than an element of messages.
            Length::Message => far.get(original, std::slice::from_mut(&mut originals.get_mut()[0].msg_hdr))?,
            _ => far.get(original, originals.get_mut())?,
        }
        let refusal = if kind == Kind::Buffers { libc::EINVAL } else { libc::EMSGSIZE };
        if originals.get().iter().any(|message| message.msg_hdr.msg_iovlen > COUNT_MAX) {
            return Err(-i64::from(refusal));
        }
        let buffers: usize = originals.get().iter().map(|message| message.msg_hdr.msg_iovlen).sum();
        let mut lists = Copied::<iovec>::new(far, buffers.max(1))?;
        lists.count = buffers;
        let mut at = 0;
        for message in originals.get() {
            let end = at + message.msg_hdr.msg_iovlen;
            far.get(message.msg_hdr.msg_iov as usize, &mut lists.get_mut()[at..end])?;
            at = end;
        }
        Self::mapped(far, (kind, buffer.access, original), originals, lists)
    }

    /// Makes what the kernel gets: the same, but for what is far.
    fn mapped(
        far: &'static Far,
        (kind, access, original): (Kind, Access, usize),
        originals: Copied<mmsghdr>,
        mut lists: Copied<iovec>,
    ) -> Result<Self, i64> {
        let is_sent = access == Access::In;
        if is_sent && kind != Kind::Buffers {
            shorten(lists.get_mut());
        }
        if !is_sent && let Some(first) = lists.get().iter().find(|buffer| buffer.iov_len > 0) {
            far.check_first(first.iov_base as usize)?;
        }
        let mut place = Place::default();
        for_each(originals.get(), lists.get(), |address, bytes| _ = place.of(address, bytes));
        let data = far.bounces.local(place.next.max(1))?;
        let mut headers = Copied::<mmsghdr>::new(far, originals.count.max(1))?;
        let mut mapped = Copied::<iovec>::new(far, lists.count.max(1))?;
        (headers.count, mapped.count) = (originals.count, lists.count);
        headers.get_mut().copy_from_slice(originals.get());
        mapped.get_mut().copy_from_slice(lists.get());

        // In the same order as above, so that all of it has room.
        let (mut place, mut at) = (Place::default(), 0);
        let mut stand_in = |address: usize, bytes: usize| -> Result<usize, i64> {
            let Some(offset) = place.of(address, bytes) else { return Ok(address) };
            let local = data.address() + offset;
            if is_sent {
                // SAFETY: there is room for it, and it is ours.
                let copy = unsafe {
                    std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(local), bytes)
                };
                far.get(address, copy)?;
            }
            Ok(local)
        };
        for message in headers.get_mut() {
            let header = &mut message.msg_hdr;
            let name = stand_in(header.msg_name as usize, header.msg_namelen as usize)?;
            let control = stand_in(header.msg_control as usize, header.msg_controllen)?;
            header.msg_name = std::ptr::with_exposed_provenance_mut(name);
            header.msg_control = std::ptr::with_exposed_provenance_mut(control);
            let buffers = &mut mapped.get_mut()[at..at + header.msg_iovlen];
            for buffer in &mut *buffers {
                let local = stand_in(buffer.iov_base as usize, buffer.iov_len)?;
                buffer.iov_base = std::ptr::with_exposed_provenance_mut(local);
            }
            header.msg_iov = buffers.as_mut_ptr();
            at += header.msg_iovlen;
        }
        Ok(Self { kind, access, original, headers, lists, mapped, originals, _data: data })
    }

    /// What the kernel gets in the place of the program's.
    pub(crate) fn address(&self) -> usize {
        if self.kind == Kind::Buffers { self.mapped.memory.address() } else { self.headers.memory.address() }
    }

    /// Gives the program what the kernel has written, after a call with this result.
    pub(crate) fn copy_back(&self, far: &'static Far, result: i64) -> Result<(), i64> {
        let Ok(result) = usize::try_from(result) else { return Ok(()) };
        let is_sent = self.access == Access::In;
        match self.kind {
            Kind::Buffers if is_sent => Ok(()),
            Kind::Buffers => self.scatter(far, 0..self.lists.count, result),
            Kind::Message if is_sent => Ok(()),
            Kind::Message => self.receive(far, 0, 0, result).map(|_| ()),
            Kind::Messages => {
                let mut at = 0;
                for number in 0..result.min(self.headers.count) {
                    let bytes = self.headers.get()[number].msg_len;
                    let place = self.original + number * size_of::<mmsghdr>() + offset_of!(mmsghdr, msg_len);
                    far.put(place, &[bytes])?;
                    if !is_sent {
                        at = self.receive(far, number, at, bytes as usize)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Gives the program a message that was received, with `bytes` bytes. Its buffers begin with the one at `first`;
    /// where the next message's do.
    fn receive(&self, far: &'static Far, number: usize, first: usize, bytes: usize) -> Result<usize, i64> {
        let (header, before) = (&self.headers.get()[number].msg_hdr, &self.originals.get()[number].msg_hdr);
        let place = self.original + number * size_of::<mmsghdr>();
        far.put(place + offset_of!(msghdr, msg_namelen), &[header.msg_namelen])?;
        far.put(place + offset_of!(msghdr, msg_controllen), &[header.msg_controllen])?;
        far.put(place + offset_of!(msghdr, msg_flags), &[header.msg_flags])?;
        let name = before.msg_namelen.min(header.msg_namelen) as usize;
        let control = before.msg_controllen.min(header.msg_controllen);
        move_back(far, before.msg_name as usize, header.msg_name as usize, name)?;
        move_back(far, before.msg_control as usize, header.msg_control as usize, control)?;
        self.scatter(far, first..first + header.msg_iovlen, bytes)?;
        Ok(first + header.msg_iovlen)
    }

    /// Gives the program `bytes` bytes in these of its buffers.
    fn scatter(&self, far: &'static Far, buffers: std::ops::Range<usize>, mut bytes: usize) -> Result<(), i64> {
        let pairs = self.lists.get()[buffers.clone()].iter().zip(&self.mapped.get()[buffers]);
        for (original, mapped) in pairs {
            let part = bytes.min(original.iov_len);
            move_back(far, original.iov_base as usize, mapped.iov_base as usize, part)?;
            bytes -= part;
        }
        Ok(())
    }
}

/// Copies from local memory to where it belongs, unless it is there.
fn move_back(far: &'static Far, to: usize, from: usize, bytes: usize) -> Result<(), i64> {
    if to == from || bytes == 0 {
        return Ok(());
    }
    // SAFETY: the local copy is that long.
    let copy = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), bytes) };
    far.put(to, copy)
}

/// Where far memory is copied to.
#[derive(Default)]
struct Place {
    next: usize,
}

impl Place {
    /// The offset for the copy; `None` if there is none to be made.
    fn of(&mut self, address: usize, bytes: usize) -> Option<usize> {
        const ALIGN: usize = 16;
        if !is_far(address) || bytes == 0 {
            return None;
        }
        let align = if bytes < SECTOR_BYTES { ALIGN } else { SECTOR_BYTES };
        let offset = self.next.next_multiple_of(align) + address % align;
        self.next = offset.saturating_add(bytes);
        Some(offset)
    }
}

/// All memory of messages, in an order that is always the same.
fn for_each(messages: &[mmsghdr], lists: &[iovec], mut each: impl FnMut(usize, usize)) {
    let mut at = 0;
    for message in messages {
        let header = &message.msg_hdr;
        each(header.msg_name as usize, header.msg_namelen as usize);
        each(header.msg_control as usize, header.msg_controllen);
        let end = at + header.msg_iovlen;
        lists[at..end].iter().for_each(|buffer| each(buffer.iov_base as usize, buffer.iov_len));
        at = end;
    }
}

/// Cuts what is sent to what is sent at a time.
fn shorten(lists: &mut [iovec]) {
    let mut room = SENT_MAX;
    for buffer in lists {
        buffer.iov_len = buffer.iov_len.min(room);
        room -= buffer.iov_len;
    }
}
