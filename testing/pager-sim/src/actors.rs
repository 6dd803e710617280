//! The actors: threads and unithreads that use far memory, and what they share.
//!
//! What they own is in `regions`, how they give pages back in `discards`, workers in `workers`, many threads at once in
//! `crowd`, the pager's own threads and what serves beside them in `servers`; the owner, who changes everything else,
//! is in `owner`, and forks in `fork`.

mod crowd;
mod discards;
mod fork;
mod owner;
mod regions;
mod servers;
mod workers;

use std::sync::{Arc, Mutex};

use rand::Rng;
use yonder_pager::machine::Machine;
use yonder_pager::{Advice, Pager, PagingCause};

use crate::machine::Simulated;
use crate::program::{At, Region, WORDS, bring, clear, forget, hold, load, look, store};
use crate::world::{below, park, with};

use crowd::crowd;
use discards::{churn, discard};
pub(crate) use owner::owner;
pub(crate) use regions::{Own, SharedObjects, begin_region};
pub(crate) use servers::{discarder, host, neighbour, reclaimer};
pub(crate) use workers::{unithread, workers};

/// Pages of the region that is sealed.
pub(crate) const SEALED_PAGES: u32 = 24;

/// Pages of a region of one's own.
const OWN_PAGES: usize = 16;

/// What actors share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) pager: Arc<Pager<Simulated>>,
    pub(crate) shared: Region,
    /// Read only, once it has been filled.
    pub(crate) sealed: Option<Sealed>,
    /// The regions that threads have for themselves.
    pub(crate) regions: Arc<Mutex<Vec<Region>>>,
}

/// A region that is only read.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub(crate) region: Region,
    pub(crate) is: Seal,
}

/// Whether the pager knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// It will be told while others read.
    ToBe,
    Done,
}

/// A random word of the shared pages: often one that was used before, or the next of a sequence.
fn anywhere(last: &mut u32) -> At {
    with(|world| {
        let pages = world.settings.shared_pages;
        *last = match world.rng.random_range(0..8) {
            0..3 => (*last + 1) % pages,
            3 | 4 => world.rng.random_range(0..pages.min(8)),
            _ => world.rng.random_range(0..pages),
        };
        let word = WORDS[world.rng.random_range(0..WORDS.len())];
        At { page: world.settings.shared_page(*last), word }
    })
}

fn hold_some(common: &Common, last: &mut u32) {
    let (at, most) = (anywhere(last), with(|world| world.settings.region_pages()));
    let pages = (1 + below(3) as u32).min(most - at.page);
    if below(4) == 0 { bring(&common.shared, at, pages) } else { hold(&common.shared, at, pages) }
}

/// One access of a thread or a unithread. `own` are pages that nobody else uses.
fn operate(common: &Common, own: &mut Own, last: &mut u32) {
    if below(16) == 0 {
        own.guide(common);
    }
    let own = &own.region;
    match below(100) {
        0..22 => _ = load(&common.shared, anywhere(last)),
        22..44 => _ = look(&common.shared, anywhere(last)),
        44..67 => _ = store(&common.shared, anywhere(last)),
        67..68 => clear(&common.shared, anywhere(last).page),
        68..70 if with(|world| world.settings.holds) => hold_some(common, last),
        70..76 if common.sealed.is_some() => {
            let sealed = &common.sealed.as_ref().expect("asked for").region;
            let at = At { page: below(u64::from(SEALED_PAGES)) as u32, word: 0 };
            if below(2) == 0 { _ = load(sealed, at) } else { _ = look(sealed, at) }
        }
        _ => {
            let at = At { page: below(8) as u32, word: WORDS[below(WORDS.len() as u64) as usize] };
            match below(16) {
                5 => own.note_advice(0..OWN_PAGES as u32, Advice::Out),
                8..10 => churn(common, own, at),
                6 => clear(own, at.page),
                0 => discard(common, own, at.page..at.page + 1 + below(3) as u32),
                1..3 => _ = load(own, at),
                3 => _ = look(own, at),
                4 => forget(own, at),
                7 => check_all(own),
                _ => _ = store(own, at),
            }
        }
    }
}

/// A thread that is no worker.
pub(crate) fn thread(common: &Common) {
    if with(|world| world.settings.is_crowd) {
        crowd(common);
        with(|world| world.busy -= 1);
        return;
    }
    let mut own = Own::begin(common);
    let mut last = below(u64::from(with(|world| world.settings.shared_pages))) as u32;
    if with(|world| world.settings.holds) {
        // Blocks are lent while there is room, which is soon over: then they are recalled.
        (0..4).for_each(|_| hold_some(common, &mut last));
    }
    for _ in 0..with(|world| world.settings.operations) {
        operate(common, &mut own, &mut last);
    }
    check_all(&own.region);
    own.end(common);
    with(|world| world.busy -= 1);
}

/// Reads every word of a region that was ever stored.
fn check_all(region: &Region) {
    let words = with(|world| world.oracle.words_of(region.memory().address));
    for (_, page, word) in words {
        let at = At { page, word };
        loop {
            let read = if below(2) == 0 { load(region, at) } else { look(region, at) };
            let is_over = match read {
                Ok(()) | Err(PagingCause::HardwareError | PagingCause::Poisoned) => true,
                // What was broken may take its time to be well again.
                Err(_) => with(|world| world.is_hostile || world.far.lease_is_over(world.now)),
            };
            if is_over {
                break;
            }
            park(Simulated::now() + 100_000);
        }
    }
}
