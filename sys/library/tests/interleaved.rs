//! Unithreads that are parked in the middle of a library's calls, of which others run meanwhile.
//!
//! A touch of a missing page is a signal that the test sends itself, with a handler that parks the unithread as paging
//! does.
//!
//! UNSAFETY: functions in C, and a signal that says what no access has done.

use std::ffi::{c_int, c_void};
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use yonder_library::{Library, call, try_call};
use yonder_trap::{Fault, FaultHandler, Verdict, register};
use yonder_unithread::{Pool, Resumed, in_no_yield_section, is_on_unithread, suspend};

/// A registered range that is never touched: `touch` says that it was.
const RANGE: usize = 0x6000_0000_0000;
/// From here on pages of it cannot be had.
const LOST: usize = RANGE + (1 << 19);
const UNITHREADS: usize = 24;

/// Touches that have parked their unithread, and those that could not.
static PARKED: AtomicUsize = AtomicUsize::new(0);
static WAITED: AtomicUsize = AtomicUsize::new(0);
/// The counters and the library's locks are for one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Parks whoever may be parked.
struct Parks;

impl FaultHandler for Parks {
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
        if fault.address >= LOST {
            return Verdict::Fail(NonZeroU32::MIN);
        }
        if is_on_unithread() && !in_no_yield_section() {
            PARKED.fetch_add(1, Ordering::Relaxed);
            suspend();
        } else {
            WAITED.fetch_add(1, Ordering::Relaxed);
        }
        Verdict::Retry
    }

    fn describe(&self, _fault: &Fault<'_>, _code: NonZeroU32, out: &mut dyn std::fmt::Write) {
        let _ = out.write_str("it never fails");
    }
}

/// A touch of a page that comes.
unsafe extern "C" fn touch() {
    raise(RANGE);
}

/// What the kernel does at a touch of a missing page.
fn raise(address: usize) {
    // SAFETY: the kernel reads one siginfo, in which the address lies behind three words and their padding; a thread
    // may send itself one of any kind.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (info.si_signo, info.si_code) = (libc::SIGBUS, libc::BUS_ADRERR);
        (&raw mut info).cast::<usize>().add(2).write(address);
        let (process, thread) = (libc::getpid(), libc::gettid());
        // With an error number that is the library's business alone.
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_tgsigqueueinfo => _,
            in("rdi") process, in("rsi") thread, in("rdx") libc::SIGBUS, in("r10") &raw const info,
            lateout("rcx") _, lateout("r11") _,
        );
    }
}

type Keeps = unsafe extern "C" fn(c_int, unsafe extern "C" fn()) -> c_int;

struct Stateful {
    keeps_thread_locals: Keeps,
    keeps_locks: Keeps,
}

/// The library in C next to this file, with its locks counted. `None` without a C compiler, and says so.
fn stateful() -> Option<&'static Stateful> {
    static STATEFUL: OnceLock<Option<Stateful>> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libstateful.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stateful.c");
        // With all relocations done and closed, as distributions build libraries.
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-Wl,-z,relro,-z,now", "-o"]).arg(&file).arg(source);
        let Ok(built) = compiler.status() else {
            println!("SKIP: no C compiler");
            return None;
        };
        assert!(built.success(), "{compiler:?}");
        let name = Box::leak(file.to_str().unwrap().to_owned().into_boxed_str());
        let library = Library::open(name, "none").unwrap();
        let counted = library.count_locks().unwrap();
        assert_eq!(counted, 5, "lock, trylock and unlock of mutexes, two functions of read-write locks");
        let function = |name| library.function(name, "none").unwrap();
        // SAFETY: both have this type.
        let [keeps_thread_locals, keeps_locks] = unsafe {
            [c"keeps_thread_locals", c"keeps_locks"]
                .map(|name| std::mem::transmute::<*mut c_void, Keeps>(function(name)))
        };
        register_range();
        Some(Stateful { keeps_thread_locals, keeps_locks })
    };
    STATEFUL.get_or_init(make).as_ref()
}

fn register_range() {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| std::mem::forget(register(RANGE, 1 << 20, Box::new(Parks)).unwrap()));
}

/// Threads of this process that do nothing but own thread-locals.
fn owners() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // A thread may have ended by now.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.trim() == "yonder-locals").count()
}

/// A call of the library by one unithread.
struct Task {
    number: c_int,
    body: fn(c_int) -> c_int,
    is_right: c_int,
}

/// How many of the unithreads find everything as it was. Each makes a call, and all take turns.
fn right(body: fn(c_int) -> c_int) -> usize {
    let pool = Arc::new(Pool::new(UNITHREADS, 64 << 10).unwrap());
    let start = |number| {
        let task = Task { number, body, is_right: 0 };
        let unithread = pool.take(task).unwrap_or_else(|_| panic!("there is room"));
        unithread.start(|task: &mut Task| task.is_right = (task.body)(task.number))
    };
    let mut running: Vec<_> = (1..=UNITHREADS as c_int).map(start).collect();
    let (mut right, mut ended) = (0, 0);
    while !running.is_empty() {
        let resumed: Vec<_> = running.drain(..).map(yonder_unithread::Running::resume).collect();
        for one in resumed {
            match one {
                Resumed::Suspended(again) => running.push(again),
                Resumed::Finished(mut over) => {
                    ended += 1;
                    right += over.payload_mut().is_right as usize;
                }
                Resumed::Panicked(..) => panic!("a call has panicked"),
            }
        }
    }
    assert_eq!(ended, UNITHREADS);
    right
}

/// Touches that have parked, and that have waited, in `work`.
fn touches(work: impl FnOnce()) -> (usize, usize) {
    let before = (PARKED.load(Ordering::Relaxed), WAITED.load(Ordering::Relaxed));
    work();
    (PARKED.load(Ordering::Relaxed) - before.0, WAITED.load(Ordering::Relaxed) - before.1)
}

#[test]
fn thread_locals_stay_as_they_were() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    if stateful().is_none() {
        return;
    }
    let (parked, waited) = touches(|| {
        // SAFETY: the library leaves a number and memory of the C library's in thread-locals.
        let apart = |number| unsafe { call(|| keep_thread_locals(number)) };
        assert_eq!(right(apart), UNITHREADS);
    });
    assert_eq!((parked, waited), (UNITHREADS * 20, 0));
    // What it is for: without, calls find each other's.
    assert!(right(keep_thread_locals) < UNITHREADS / 2);
}

fn keep_thread_locals(number: c_int) -> c_int {
    // SAFETY: the function may be called by any thread.
    unsafe { (stateful().expect("it was there").keeps_thread_locals)(number, touch) }
}

fn keep_locks(number: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { (stateful().expect("it was there").keeps_locks)(number, touch) }
}

#[test]
fn no_unithread_is_parked_with_a_lock() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    if stateful().is_none() {
        return;
    }
    let (parked, waited) = touches(|| {
        // SAFETY: the library leaves nothing in thread-locals.
        let apart = |number| unsafe { call(|| keep_locks(number)) };
        assert_eq!(right(apart), UNITHREADS);
    });
    // Of three touches one is before the locks.
    assert_eq!((parked, waited), (UNITHREADS * 20, UNITHREADS * 40));
}

#[test]
fn calls_that_fail_give_their_thread_locals_back() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    register_range();
    // SAFETY: nothing is in the frames, and nothing in thread-locals.
    let fails = |_| unsafe { try_call(|| raise(LOST)) }.is_err_and(|caught| caught.address == LOST).into();
    // SAFETY: as above.
    let comes = |_| unsafe { try_call(|| raise(RANGE)) }.is_ok().into();
    let before = owners();
    for _ in 0..3 {
        assert_eq!(right(fails), UNITHREADS);
    }
    // Others, of tests that are over, may end meanwhile.
    assert!(owners() <= before + 1, "{} of {} calls", owners() - before, 3 * UNITHREADS);
    assert_eq!(right(comes), UNITHREADS);
    assert!(owners() <= before + UNITHREADS);
    assert_eq!(right(fails), UNITHREADS);
    // On a thread there are none to be given.
    assert_eq!(fails(0), 1);
}
