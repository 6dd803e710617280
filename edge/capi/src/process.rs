//! [`YonderProcess`] and [`YonderConfig`]: `yonder_process` and `yonder_config` of `yonder.h`, and their functions.
//!
//! UNSAFETY: it exports functions that read C's pointers, and hands out boxes as pointers.

use std::ffi::{c_char, c_int, c_uint};
use std::time::Duration;

use yonder::clib::{Process, ProcessConfig, Rights, Ticket};

use crate::arguments::{Out, bytes_mut, reference, text};
use crate::failure::{Failure, answer};

/// `yonder_process`.
pub struct YonderProcess {
    pub(crate) process: Process,
}

/// `yonder_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct YonderConfig {
    /// Bytes of the struct.
    pub size: u64,
    /// Nanoseconds after which the node ends the space of an owner that has gone; 0: never.
    pub lease_ns: u64,
    /// Nanoseconds after which an operation times out.
    pub deadline_ns: u64,
    /// Nanoseconds for which a thread spins before it sleeps.
    pub spin_ns: u64,
    /// Most asynchronous operations of a thread.
    pub pending_max: u64,
}

/// YONDER_PENDING_MAX.
const PENDING_MAX: u64 = 65536;
/// YONDER_RIGHTS_SAME.
const RIGHTS_SAME: u32 = 0;
/// Longest time that a thread can be told to spin; nobody sees the end of a longer one.
const SPIN_NS_MAX: u64 = u64::MAX / 2;

const _: () = assert!(size_of::<YonderConfig>() == 40);

/// What `config` asks for.
///
/// # Safety
/// `config` is NULL or points to a `yonder_config`.
unsafe fn process_config(config: *const YonderConfig) -> Result<ProcessConfig, Failure> {
    if config.is_null() {
        return Ok(ProcessConfig::default());
    }
    // SAFETY: it is not NULL, so its first field is there, which every version of the struct has.
    let size = unsafe { (&raw const (*config).size).read() };
    if size != size_of::<YonderConfig>() as u64 {
        let message = format!(
            "this library knows no yonder_config of {size} bytes: begin with YONDER_CONFIG_DEFAULT, and build with its header"
        );
        return Err(Failure::invalid(message));
    }
    // SAFETY: it has the size of the version that this library knows.
    let YonderConfig { lease_ns, deadline_ns, spin_ns, pending_max, .. } = unsafe { config.read() };
    if !(1..=PENDING_MAX).contains(&pending_max) {
        return Err(Failure::invalid(format!("pending_max is {pending_max}: give 1 to {PENDING_MAX}")));
    }
    Ok(ProcessConfig {
        lease: Duration::from_nanos(lease_ns),
        deadline: Duration::from_nanos(deadline_ns),
        pending_max: pending_max as usize,
        spin: Duration::from_nanos(spin_ns.min(SPIN_NS_MAX)),
    })
}

/// `yonder_process_create` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_process_create(
    url: *const c_char,
    config: *const YonderConfig,
    process: *mut *mut YonderProcess,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (url, config, out) =
            unsafe { (text(url, "url")?, process_config(config)?, Out::required(process, "process")?) };
        let process = Process::create_with(url, config)?;
        out.set(Box::into_raw(Box::new(YonderProcess { process })));
        Ok(0)
    })
}

/// `yonder_process_open` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_process_open(
    url: *const c_char,
    ticket: *const c_char,
    config: *const YonderConfig,
    process: *mut *mut YonderProcess,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (url, ticket) = unsafe { (text(url, "url")?, text(ticket, "ticket")?) };
        // SAFETY: likewise.
        let (config, out) = unsafe { (process_config(config)?, Out::required(process, "process")?) };
        let process = Process::open_with(url, ticket.parse::<Ticket>()?, config)?;
        out.set(Box::into_raw(Box::new(YonderProcess { process })));
        Ok(0)
    })
}

/// `yonder_process_close` of `yonder.h`.
///
/// # Safety
/// `process` is NULL or open, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_process_close(process: *mut YonderProcess) {
    answer(|| {
        if !process.is_null() {
            // SAFETY: it came from a box, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(process) });
        }
        Ok(0)
    });
}

/// `yonder_process_ticket` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_process_ticket(
    process: *mut YonderProcess,
    rights: c_uint,
    ticket: *mut c_char,
    ticket_bytes: usize,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (process, out) = unsafe {
            (reference(process, "process")?, bytes_mut(ticket.cast(), ticket_bytes, isize::MAX as usize, "ticket")?)
        };
        let granted = match (rights, Rights::from_number(rights)) {
            (RIGHTS_SAME, _) => process.process.own_ticket(),
            (_, Some(rights)) => process.process.ticket(rights)?,
            (_, None) => {
                return Err(Failure::invalid(format!("{rights} are no rights: give one of YONDER_RIGHTS_...")));
            }
        };
        let text = format!("{granted}\0");
        let Some(place) = out.get_mut(..text.len()) else {
            let message = format!("the ticket has {} bytes: make room for YONDER_TICKET_BYTES", text.len());
            return Err(Failure::new(libc::ERANGE, message));
        };
        place.copy_from_slice(text.as_bytes());
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_header_are_those_of_the_library() {
        let ProcessConfig { lease, deadline, pending_max, spin } = ProcessConfig::default();
        let [lease, deadline, spin] = [lease, deadline, spin].map(|time| time.as_nanos());
        let header = include_str!("../include/yonder.h");
        let expected = format!(
            "YONDER_CONFIG_DEFAULT {{ sizeof(yonder_config), UINT64_C({lease}), UINT64_C({deadline}), UINT64_C({spin}), {pending_max} }}"
        );
        assert!(header.contains(&expected), "{expected}");
        assert!(header.contains(&format!("#define YONDER_PENDING_MAX {PENDING_MAX}\n")));
        assert!(header.contains(&format!("#define YONDER_CALL_BYTES_MAX {}\n", crate::arguments::CALL_BYTES_MAX)));
        for (name, number) in [("SAME", RIGHTS_SAME), ("READ", Rights::Read as u32), ("OWNER", Rights::Owner as u32)] {
            assert!(header.contains(&format!("#define YONDER_RIGHTS_{name} {number} ")), "{name}");
        }
    }

    #[test]
    fn the_longest_ticket_fits() {
        for ticket in [Ticket::new(u32::MAX >> 1, u128::MAX), Ticket::of_controller(u32::MAX, u128::MAX)] {
            assert!(format!("{ticket}\0").len() <= 64);
        }
        assert!(include_str!("../include/yonder.h").contains("#define YONDER_TICKET_BYTES 64\n"));
    }
}
