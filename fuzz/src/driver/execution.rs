//! [`execute`]: one run of a target, and the [`Fault`] that it found.
//!
//! A fault is a panic. While a target runs here nothing of it is printed: the driver says what it was.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use yonder_unithread::panic_message;

use crate::{Target, Trail};

/// Why a target panicked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Where in the code.
    pub place: String,
    /// What it said.
    pub message: String,
}

thread_local! {
    /// Whether this thread runs a target, and the last panic of it.
    static RUNNING: RefCell<Option<Option<Fault>>> = const { RefCell::new(None) };
}

/// Runs the target once.
///
/// # Errors
/// The fault that it found.
pub fn execute(target: &Target, input: &[u8], trail: &mut Trail) -> Result<(), Fault> {
    static HOOK: Once = Once::new();
    HOOK.call_once(listen);
    trail.clear();
    RUNNING.set(Some(None));
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input, trail)));
    let fault = RUNNING.take().flatten();
    outcome.map_err(|_| fault.unwrap_or(Fault { place: String::new(), message: "it panicked".to_owned() }))
}

/// Has panics of targets noted, and others printed as before.
fn listen() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_ours = RUNNING.with_borrow_mut(|running| match running {
            Some(fault) => {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                *fault = Some(Fault { place, message: panic_message(info.payload()).to_owned() });
                true
            }
            None => false,
        });
        if !is_ours {
            before(info);
        }
    }));
}
