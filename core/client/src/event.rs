//! [`event!`]: tells of what holds a lane up.
//!
//! With the feature `tracing` an event goes to the subscriber of the thread. Without it, which is the default, the
//! macro is nothing: its arguments are not even evaluated.

/// An event of `tracing`, at this level.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($event:tt)*) => { tracing::$level!($($event)*) };
}

/// Nothing.
#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($event:tt)*) => {{}};
}

pub(crate) use event;
