//! What `yonder run` preloads into an unmodified program: its heap and its large anonymous mappings become far memory.
//!
//! ```text
//!   program, its libraries          the C library, the dynamic linker
//!         |  malloc, mmap, ...            |  read, write, ... of the program's buffers
//!         v                               v
//!   malloc, maps ---> far heap      transfers (by name), or the kernel's filter and SIGSYS
//!         |                               |
//!         v                               v
//!   a region of far memory <-------- calls: a local copy, or the pages held, while the kernel uses them
//! ```
//!
//! A touch of a page that is not here is a fault of the thread that touches it, which waits. Nothing of the program is
//! changed, and nothing of it is known: whatever a name or a filter cannot show is answered with an error, never with
//! memory that is not what it should be.
//!
//! Files: `far` when it begins; `auto` how much of it is local; `recorded` what it keeps of its faults; `heap`,
//! `malloc`, `maps`, `mapped`, `reserved` what is far; `calls`, `copies`, `bounce`, `lists`, `transfers`, `held`
//! system calls; `signals`, `older_signals`, `robust`, `process`, `forks`, `descriptors` what the program may do with
//! signals, mutexes, processes and descriptors, `refused` what it may not, `ending` its end, `go` and `zygote` whose
//! memory stays local; `callers` whose call it is; `libc_own` the C library behind, `functions` where it has what.
//!
//! Invariants:
//! - No code of this library touches far memory while it holds a lock, but for copies on behalf of the program.
//! - What this library needs for itself is always local.
//!
//! UNSAFETY: this is the C library's interface, and the start of a process.

mod advice;
mod auto;
mod bounce;
mod callers;
mod calls;
mod copies;
mod descriptors;
mod ending;
mod far;
mod forks;
mod functions;
mod go;
mod heap;
mod held;
mod libc_own;
mod lists;
mod locked;
mod malloc;
mod mapped;
mod maps;
mod older_signals;
mod process;
mod recorded;
mod refused;
mod reserved;
mod robust;
mod sampled;
mod signals;
mod transfers;
mod zygote;

use yonder_preload_protocol::Settings;

/// Runs before the program's own code does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
/// Runs after it.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    callers::find();
    forks::watch();
    let settings = Settings::read(|name| std::env::var(name).ok());
    if let Ok(Some(settings)) = &settings {
        ending::begin(settings);
    }
    match settings {
        Ok(Some(_)) if go::is_program() => {
            complain("a program in Go: its memory stays local, because its stacks have no room for handlers of faults");
        }
        Ok(Some(_)) if zygote::is_program() => {}
        Ok(Some(settings)) => {
            signals::let_ours_through();
            heap::key();
            far::arm(settings);
        }
        Ok(None) => {}
        Err(error) => complain(&format!("{} is not what `yonder run` sets", error.variable)),
    }
}

extern "C" fn end() {
    if let Some(far) = far::far() {
        far.ends();
    }
    ending::end();
}

/// Says something to whoever runs the program. Not by `write`, where a thread can be cancelled.
pub(crate) fn complain(what: &str) {
    let line = format!("yonder run: {what}\n");
    // SAFETY: the line is as long as it says. There is nobody to tell if it cannot be written.
    let _ = unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}
