//! What light threads share and wait for: [`Mutex`], [`Condvar`], [`Semaphore`], channels ([`channel`]), and
//! [`Lock`], which is a mutex without a value.
//!
//! A waiter parks until it is its turn: it does not poll, and it is woken once, for what it has been given. All waiters
//! queue in the order in which they came, and what is released goes to the first of them, past all that come later. An
//! ordinary thread may use all of it too, and blocks then. A guard or permit may be held across accesses to far memory,
//! whose faults park the holder.
//!
//! [`crate::sync`] has locks without queues, whose waiters yield and look again: for requests of a server, on whose
//! unithreads these here yield as well.

mod channel;
mod condvar;
mod lock;
mod lock_word;
mod mutex;
pub(super) mod queue;
mod semaphore;

pub use self::channel::{Receiver, RecvError, SendError, Sender, channel};
pub use self::condvar::{Condvar, WaitTimeout};
pub use self::lock::Lock;
pub use self::mutex::{Mutex, MutexGuard};
pub use self::semaphore::{Permit, Semaphore};
