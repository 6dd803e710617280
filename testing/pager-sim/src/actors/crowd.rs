//! A crowd: many threads that are no workers touch one far page after another, all at about the same time.

use yonder_pager::machine::Machine;
use yonder_units::Nanos;

use super::{Common, SEALED_PAGES};
use crate::machine::Simulated;
use crate::program::{At, load};
use crate::world::{below, park, with};

/// Time from one page to the next.
const ROUND: Nanos = 1_000_000;

/// A thread of the crowd.
pub(super) fn crowd(common: &Common) {
    let sealed = common.sealed.as_ref().expect("a crowd reads a sealed region");
    let began = Simulated::now();
    for page in 0..SEALED_PAGES.min(with(|world| world.settings.operations) as u32) {
        park(began + Nanos::from(page + 1) * ROUND + below(1_000));
        _ = load(&sealed.region, At { page, word: 0 });
    }
}
