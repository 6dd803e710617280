//! The far memory of the process: `yonder_memory_open`, `yonder_memory_close`, `yonder_memory_stats` and
//! `yonder_swap_advise` of `yonder.h`, and what the functions of `malloc` have of it.
//!
//! Who touches what: [`OPEN`] is behind its lock, which is taken when a thread uses far memory for the first time. From
//! then on the thread has a share of its own ([`MINE`]), and its calls take no lock of this file. Far memory is closed
//! only while nobody else has a share, so no call can be under way then.
//!
//! UNSAFETY: it exports functions that read C's pointers.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yonder::{Advice, Config, Deadlines, FarMemory, Prefetch, no_yield};
use yonder_paging::far_heap::{FarHeap, Magazine, NoHandlers, Share};
use yonder_trap::hold_back;

use crate::arguments::{Out, reference, text};
use crate::failure::{Failure, answer};

/// `yonder_memory_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct YonderMemoryConfig {
    /// Bytes of the struct.
    pub size: u64,
    /// URL of the far memory.
    pub far_url: *const c_char,
    /// Bytes that can be allocated.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// What is fetched before it is touched: one of YONDER_PREFETCH_...
    pub prefetch: u64,
    /// Nanoseconds after which a page that cannot be had ends the program.
    pub deadline_ns: u64,
}

/// `yonder_memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct YonderMemory {
    /// Bytes that can be allocated.
    pub memory_bytes: u64,
    /// Bytes of the pages in use.
    pub used_bytes: u64,
    /// Most of them.
    pub used_bytes_max: u64,
    /// Limit of local memory in bytes.
    pub local_limit_bytes: u64,
    /// Bytes of local memory in use.
    pub local_bytes: u64,
    /// Most of them.
    pub local_bytes_max: u64,
    /// Touches that waited for the node.
    pub major_faults: u64,
    /// Those that did not.
    pub minor_faults: u64,
    /// Bytes that came from the node.
    pub fetched_bytes: u64,
    /// Bytes that went there.
    pub written_bytes: u64,
}

const _: () = assert!(size_of::<YonderMemoryConfig>() == 48 && size_of::<YonderMemory>() == 80);

/// YONDER_PREFETCH_...
const PREFETCH: [Prefetch; 3] = [Prefetch::None, Prefetch::Readahead, Prefetch::Trend];

/// The far memory that is open.
static OPEN: Mutex<Option<Arc<FarHeap>>> = Mutex::new(None);
/// Where its bytes begin, and how many there are: for a look that takes no lock. None while nothing is open.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// A thread's share of the far memory that is open. The magazine goes back before the heap is let go.
struct Mine {
    share: Share,
    heap: Arc<FarHeap>,
}

impl Mine {
    /// A share of what is open, if anything is.
    #[cold]
    fn of_open() -> Option<Self> {
        let open = lock();
        let heap = Arc::clone(open.as_ref()?);
        Some(Self { share: Share::new(&heap), heap })
    }
}

fn lock() -> MutexGuard<'static, Option<Arc<FarHeap>>> {
    // What panics while it is held has not changed it.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` with the heap and this thread's magazine; `None` if no far memory is open. A light thread is not left
/// meanwhile: the others of its worker have the same magazine.
#[inline]
pub(crate) fn with_heap<T>(work: impl Fn(&Arc<FarHeap>, &mut Magazine) -> T) -> Option<T> {
    no_yield(|| with_mine(work))
}

/// Does `work`, which touches nothing far, with the heap; `None` if no far memory is open.
pub(crate) fn with_open<T>(work: impl FnOnce(&Arc<FarHeap>) -> T) -> Option<T> {
    no_yield(|| lock().as_ref().map(work))
}

#[inline]
fn with_mine<T>(work: impl Fn(&Arc<FarHeap>, &mut Magazine) -> T) -> Option<T> {
    let with_mine = |mine: &RefCell<Option<Mine>>| {
        let mut mine = mine.borrow_mut();
        if mine.is_none() {
            *mine = Mine::of_open();
        }
        let Mine { share, heap } = mine.as_mut()?;
        Some(work(heap, share.magazine()))
    };
    MINE.try_with(with_mine).unwrap_or_else(|_| {
        // The thread is ending and has given its magazine back already.
        let mut mine = Mine::of_open()?;
        Some(work(&mine.heap, mine.share.magazine()))
    })
}

/// Whether bytes that begin here are far.
pub(crate) fn is_far(address: usize) -> bool {
    let start = START.load(Ordering::Acquire);
    (address.wrapping_sub(start) as u64) < BYTES.load(Ordering::Relaxed)
}

/// What every function says that needs far memory, and there is none.
pub(crate) fn not_open() -> Failure {
    Failure::new(libc::ENXIO, "this process has no far memory: call yonder_memory_open() first")
}

/// What `config` asks for: URL, bytes, and how it is paged.
///
/// # Safety
/// `config` is NULL or points to a `yonder_memory_config`, whose text lives as long as `'a`.
unsafe fn memory_config<'a>(config: *const YonderMemoryConfig) -> Result<(&'a str, u64, Config), Failure> {
    // SAFETY: as the caller promises; NULL is refused.
    let size = unsafe { *reference(config.cast::<u64>(), "config")? };
    if size != size_of::<YonderMemoryConfig>() as u64 {
        let message = format!(
            "this library knows no yonder_memory_config of {size} bytes: begin with YONDER_MEMORY_CONFIG_DEFAULT, and build with its header"
        );
        return Err(Failure::invalid(message));
    }
    // SAFETY: it has the size of the version that this library knows.
    let YonderMemoryConfig { far_url, memory_bytes, local_bytes, prefetch, deadline_ns, .. } = unsafe { config.read() };
    // SAFETY: as the caller promises.
    let url = unsafe { text(far_url, "config.far_url")? };
    let most = yonder_heap::HEAP_BYTES_MAX;
    if !(1..=most).contains(&memory_bytes) {
        return Err(Failure::invalid(format!("memory_bytes is {memory_bytes}: give 1 to {most}")));
    }
    let prefetch = usize::try_from(prefetch).ok().and_then(|number| PREFETCH.get(number));
    let prefetch = *prefetch.ok_or_else(|| Failure::invalid("prefetch is none of YONDER_PREFETCH_..."))?;
    let deadlines = Deadlines { fault: Duration::from_nanos(deadline_ns), ..Deadlines::default() };
    Ok((url, memory_bytes, Config { prefetch, deadlines, ..Config::with_local(local_bytes) }))
}

/// `yonder_memory_open` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_memory_open(config: *const YonderMemoryConfig) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (url, memory_bytes, config) = unsafe { memory_config(config)? };
        let mut open = lock();
        if open.is_some() {
            return Err(Failure::new(libc::EALREADY, "this process has far memory already: it can have one at a time"));
        }
        // The program's signal handlers may touch far memory.
        if !yonder_trap::is_installed() {
            yonder_trap::hold_signals();
        }
        let heap = hold_back(|| -> Result<FarHeap, Failure> {
            let region = FarMemory::open(url, config)?.region(memory_bytes)?;
            // They may not allocate, as with the C library's heap.
            let no_handlers =
                NoHandlers { in_changes: |code| code(), in_discards: |code| no_yield(|| hold_back(code)) };
            Ok(FarHeap::without_handlers(region, no_handlers))
        })?;
        heap.guide_paging();
        BYTES.store(heap.region().bytes(), Ordering::Relaxed);
        START.store(heap.region().address(), Ordering::Release);
        *open = Some(Arc::new(heap));
        Ok(0)
    })
}

/// `yonder_memory_close` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_memory_close() -> c_int {
    answer(|| {
        let mut open = lock();
        let heap = open.as_mut().filter(|heap| heap.is_of_this_process()).ok_or_else(not_open)?;
        // Where the thread is ending, its share has gone back before.
        let _ = MINE.try_with(RefCell::take);
        // Who holds the lock knows that nobody gets another share.
        let Some(heap) = Arc::get_mut(heap) else {
            return Err(Failure::new(libc::EBUSY, "other threads that have used far memory have not ended"));
        };
        if !heap.is_empty() {
            let used = heap.usage().used_bytes;
            let message = format!("something is still allocated in {used} bytes of far memory: free it first");
            return Err(Failure::new(libc::EBUSY, message));
        }
        BYTES.store(0, Ordering::Relaxed);
        hold_back(|| *open = None);
        Ok(0)
    })
}

/// `yonder_memory_stats` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_memory_stats(stats: *mut YonderMemory) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::required(stats, "stats")? };
        let seen = with_open(|heap| (heap.usage(), heap.region().far().stats()));
        let (usage, stats) = seen.ok_or_else(not_open)?;
        let page = yonder::units::PAGE_BYTES as u64;
        out.set(YonderMemory {
            memory_bytes: usage.bytes,
            used_bytes: usage.used_bytes,
            used_bytes_max: usage.peak_bytes,
            local_limit_bytes: stats.limit_pages * page,
            local_bytes: stats.charged_pages * page,
            local_bytes_max: stats.peak_pages * page,
            major_faults: stats.major_faults,
            minor_faults: stats.minor_faults,
            fetched_bytes: stats.fetched_bytes,
            written_bytes: stats.written_bytes,
        });
        Ok(0)
    })
}

/// `yonder_swap_advise` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_swap_advise(address: *const c_void, bytes: usize, out: c_int) -> c_int {
    answer(|| {
        let advice = if out == 0 { Advice::Ahead } else { Advice::Out };
        with_open(|heap| heap.region().far().swap_advise(address.addr(), bytes as u64, advice))
            .ok_or_else(not_open)??;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_settings_of_the_library() {
        let header = include_str!("../include/yonder.h");
        let deadline = Deadlines::default().fault.as_nanos();
        let default = format!(
            "YONDER_MEMORY_CONFIG_DEFAULT \\\n\t{{ sizeof(yonder_memory_config), NULL, 0, 0, YONDER_PREFETCH_READAHEAD, UINT64_C({deadline}) }}\n"
        );
        assert!(header.contains(&default), "{default}");
        assert_eq!(Prefetch::default(), Prefetch::Readahead);
        for (number, prefetch) in PREFETCH.iter().enumerate() {
            let name = format!("{prefetch:?}").to_uppercase();
            assert!(header.contains(&format!("#define YONDER_PREFETCH_{name} {number}")), "{name}");
        }
    }
}
