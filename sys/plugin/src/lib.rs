//! Guides as plug-ins: shared libraries with the C interface of `yonder_guide.h`, seen from both sides.
//!
//! The host opens a library with [`Loaded::open`], which checks it, and passes [`Loaded::maker`] on to whoever has
//! ports. A guide in Rust implements [`Guide`](yonder_guide::Guide) and says [`export_guide!`].
//!
//! ```text
//!   paging ---> Hosted: Guide --- yonder_touch --->  the library's functions, in C,
//!     ^           |                                  or those of `export_guide!` ---> a Guide in Rust
//!     |  Reach <--+ <------------ yonder_reach ----------------------------------------- Reach
//! ```
//!
//! Files: `interface` the structures; `loaded` what is checked; `hosted` a guide that calls C; `exported` a guide that
//! C calls.
//!
//! Invariants: a library is never unloaded, because a thread may be in it; nothing between the two sides allocates.
//!
//! Neighbours: `core/guide` says what a guide is; `preload/library` opens libraries, and `edge/cli` to check them.
//!
//! UNSAFETY: code and data of libraries that somebody else has compiled.

mod exported;
mod hosted;
mod interface;
mod loaded;

pub use exported::describe;
pub use interface::{
    RawArrived, RawGuide, RawPayoff, RawReach, RawTouch, STATE_ALIGN, STATE_BYTES_MAX, VERSION, cause, reading, verdict,
};
pub use loaded::{Loaded, PluginError};

/// Exports a type as this library's guide: it is [`Guide`](yonder_guide::Guide) and [`Default`], and no other type of
/// the library is exported. Its name is the package's.
///
/// The guide is made with [`Default::default`], on an ordinary stack, and never dropped. A panic ends the process.
#[macro_export]
macro_rules! export_guide {
    ($guide:ty) => {
        /// What the guide is found by.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "the name is that of the C interface")]
        pub static yonder_guide: $crate::RawGuide =
            $crate::describe::<$guide>(::core::concat!(::core::env!("CARGO_PKG_NAME"), "\0"));
    };
}
