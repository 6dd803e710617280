//! Channels of light threads: `yonder_channel` of `yonder_threads.h`. A message is a pointer, which is only passed on.
//!
//! UNSAFETY: it exports functions that read C's pointers.

use std::ffi::{c_int, c_void};

use yonder::threads::sync::{Receiver, Sender, channel};

use crate::arguments::Out;
use crate::failure::{Failure, remember};
use crate::handle;
use crate::light::may_wait;

/// `yonder_channel`. Messages are addresses of C's pointers.
pub struct YonderChannel {
    sender: Sender<usize>,
    receiver: Receiver<usize>,
}

impl YonderChannel {
    /// The oldest message, or `nothing` if there may be one later.
    fn oldest(&self, nothing: Failure) -> Result<usize, Failure> {
        // Asked before the look: what was sent before the close is received.
        let was_closed = self.sender.is_closed();
        self.receiver.try_recv().ok_or_else(|| if was_closed { closed() } else { nothing })
    }
}

fn closed() -> Failure {
    Failure::new(libc::EPIPE, "the channel is closed")
}

/// `yonder_channel_new` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_channel_new(room: usize) -> *mut YonderChannel {
    if room == 0 {
        remember("a channel has room for at least one message");
        return std::ptr::null_mut();
    }
    let (sender, receiver) = channel(room);
    handle::new(YonderChannel { sender, receiver })
}

/// `yonder_channel_free` of `yonder_threads.h`.
///
/// # Safety
/// `channel` is NULL, or nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_channel_free(channel: *mut YonderChannel) {
    // SAFETY: as the caller promises.
    unsafe { handle::free(channel) };
}

/// `yonder_channel_send` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_channel_send(channel: *mut YonderChannel, message: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(channel, "channel", |channel| {
            let message = message.expose_provenance();
            match may_wait() {
                Ok(()) => channel.sender.send(message).map_err(|_| closed())?,
                Err(not) => {
                    let why = |_| if channel.sender.is_closed() { closed() } else { not };
                    channel.sender.try_send(message).map_err(why)?;
                }
            }
            Ok(0)
        })
    }
}

/// `yonder_channel_receive` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_channel_receive(channel: *mut YonderChannel, message: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(channel, "channel", |channel| {
            let out = Out::required(message, "message")?;
            let message = match may_wait() {
                Ok(()) => channel.receiver.recv().map_err(|_| closed())?,
                Err(not) => channel.oldest(not)?,
            };
            out.set(std::ptr::with_exposed_provenance_mut(message));
            Ok(0)
        })
    }
}

/// `yonder_channel_try_receive` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_channel_try_receive(channel: *mut YonderChannel, message: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(channel, "channel", |channel| {
            let out = Out::required(message, "message")?;
            out.set(std::ptr::with_exposed_provenance_mut(
                channel.oldest(Failure::new(libc::EAGAIN, "the channel is empty"))?,
            ));
            Ok(0)
        })
    }
}

/// `yonder_channel_close` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_channel_close(channel: *mut YonderChannel) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(channel, "channel", |channel| {
            channel.sender.close();
            Ok(0)
        })
    }
}
