//! The C interface: what `include/yonder.h` and `include/yonder_threads.h` declare, over `yonder::clib`,
//! `runtime/paging` and `yonder::threads`.
//!
//! The headers are the contract, for users and for this crate; here each function reads its arguments, calls the Rust
//! API and turns what came of it into 0 or a negative errno. `process` and `thread` have the opaque types and their
//! functions, `pending` those of asynchronous operations, `node` and `word` what is left of address spaces; `memory`
//! has the far memory of the process and `malloc` what allocates from it, `scope` what catches its paging errors. Light
//! threads (`include/yonder_threads.h`) are in `light`, `lock`, `channel` and `socket`, whose pointers are `handle`'s;
//! `arguments` reads what C gives, `failure` maps errors, keeps the last message and stops panics, `turn` sees that
//! nothing is used by two at once.
//!
//! Invariants: no panic leaves a function. No pointer of the caller's is kept beyond a call, but in `buffer` and, for
//! the addresses of allocations, in `pending`. Every function of this crate that C can see is in a header, and the
//! other way round; a test compares them.

mod arguments;
mod buffer;
mod channel;
mod failure;
mod handle;
mod light;
mod lock;
mod malloc;
mod memory;
mod node;
mod pending;
mod process;
mod scope;
mod socket;
mod thread;
mod turn;
mod version;
mod word;

pub use channel::{
    YonderChannel, yonder_channel_close, yonder_channel_free, yonder_channel_new, yonder_channel_receive,
    yonder_channel_send, yonder_channel_try_receive,
};
pub use light::{
    YonderLightFunction, YonderLightThread, YonderThreadsConfig, yonder_detach, yonder_is_light_thread, yonder_join,
    yonder_sleep, yonder_spawn, yonder_threads_run, yonder_yield,
};
pub use lock::{
    YonderCond, YonderMutex, YonderSemaphore, yonder_cond_broadcast, yonder_cond_free, yonder_cond_new,
    yonder_cond_signal, yonder_cond_timedwait, yonder_cond_wait, yonder_mutex_free, yonder_mutex_lock,
    yonder_mutex_new, yonder_mutex_trylock, yonder_mutex_unlock, yonder_semaphore_acquire, yonder_semaphore_free,
    yonder_semaphore_new, yonder_semaphore_release, yonder_semaphore_try_acquire,
};
pub use malloc::{
    yonder_calloc, yonder_free, yonder_malloc, yonder_malloc_usable_size, yonder_memalign, yonder_realloc,
};
pub use memory::{
    YonderMemory, YonderMemoryConfig, yonder_memory_close, yonder_memory_open, yonder_memory_stats, yonder_swap_advise,
};
pub use node::{YonderNode, yonder_call, yonder_node_status};
pub use pending::{
    yonder_ralloc_async, yonder_rfence, yonder_rfree_async, yonder_rpoll, yonder_rread_async, yonder_rrelease,
    yonder_rwait, yonder_rwrite_async,
};
pub use process::{
    YonderConfig, YonderProcess, yonder_process_close, yonder_process_create, yonder_process_open,
    yonder_process_ticket,
};
pub use scope::{yonder_caught, yonder_caught_text, yonder_try_enter, yonder_try_leave};
pub use socket::{
    YonderSocket, yonder_accept, yonder_connect, yonder_listen, yonder_receive, yonder_send, yonder_socket_adopt,
    yonder_socket_close, yonder_socket_descriptor, yonder_socket_timeout,
};
pub use thread::{
    YonderThread, yonder_ralloc, yonder_rfree, yonder_rread, yonder_rwrite, yonder_thread_close, yonder_thread_open,
};
pub use version::{yonder_error_message, yonder_version};
pub use word::{yonder_compare_and_swap, yonder_fetch_add, yonder_rlock, yonder_runlock, yonder_test_and_set};
