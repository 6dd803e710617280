//! What is asked of the node itself: how full it is, and calls of its offloads.
//!
//! UNSAFETY: it exports functions that read C's pointers.

use std::ffi::{c_int, c_void};

use crate::arguments::{CALL_BYTES_MAX, Out, bytes, bytes_mut, check_range};
use crate::failure::Failure;
use crate::thread::{Inside, YonderThread, with};

/// `yonder_node`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct YonderNode {
    /// Bytes of the node's memory.
    pub memory_bytes: u64,
    /// Bytes of it that no address space has.
    pub free_bytes: u64,
    /// Bytes of all allocations.
    pub allocated_bytes: u64,
    /// Address spaces.
    pub spaces: u64,
}

const _: () = assert!(size_of::<YonderNode>() == 32);

/// `yonder_node_status` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_node_status(thread: *mut YonderThread, near: u64, status: *mut YonderNode) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::required(status, "status")? };
        let said = inside.thread.node_status_at(near)?;
        out.set(YonderNode {
            memory_bytes: said.memory_bytes,
            free_bytes: said.free_bytes,
            allocated_bytes: said.allocated_bytes,
            spaces: said.spaces,
        });
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_call` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_call(
    thread: *mut YonderThread,
    near: u64,
    offload: u64,
    arguments: *const c_void,
    argument_bytes: usize,
    answer: *mut c_void,
    answer_room: usize,
    answer_bytes: *mut usize,
) -> c_int {
    let work = |inside: &mut Inside| {
        // A place for the answer that cannot be used is refused before anything is executed.
        check_range(answer.cast(), answer_room, isize::MAX as usize, "answer")?;
        // SAFETY: as the caller promises. Arguments and answer may share memory: this slice is not used any more when
        // that of the answer is made.
        let arguments = unsafe { bytes(arguments.cast(), argument_bytes, CALL_BYTES_MAX, "arguments")? };
        let said = inside.thread.call_at(near, offload, arguments)?;
        // SAFETY: as the caller promises.
        let (room, length) = unsafe {
            (bytes_mut(answer.cast(), answer_room, isize::MAX as usize, "answer")?, Out::optional(answer_bytes))
        };
        let copied = said.len().min(room.len());
        room[..copied].copy_from_slice(&said[..copied]);
        length.set(said.len());
        if copied < said.len() {
            let message = format!("the answer has {} bytes, and there was room for {copied}", said.len());
            return Err(Failure::new(libc::EMSGSIZE, message));
        }
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}
