//! Threads that give pages of theirs back, and use them again.

use std::ops::Range;

use yonder_pager::Advice;
use yonder_pager::pagetable::State;
use yonder_units::{PAGE_BYTES, PageIndex};

use super::Common;
use crate::program::{At, Region, load, store};
use crate::world::{below, say, stall, violate, with};

/// Stores, sends the page away, forgets it, and does the same again: what the node has of it changes several times.
pub(super) fn churn(common: &Common, own: &Region, at: At) {
    for _ in 0..1 + below(3) {
        let is_stored = store(own, at).is_ok();
        own.note_advice(at.page..at.page + 1, Advice::Out);
        stall(below(60_000));
        if !is_stored || load(own, at).is_err() {
            return;
        }
        own.note_advice(at.page..at.page + 1, Advice::Out);
        stall(below(30_000));
        discard(common, own, at.page..at.page + 1);
    }
}

/// Forgets pages that only the caller uses.
pub(super) fn discard(common: &Common, own: &Region, pages: Range<u32>) {
    let address = own.memory().address;
    say(|| format!("discards pages {pages:?} of {address:#x}"));
    // Some are forgotten before others, and a fork may come in between.
    with(|world| {
        let words = world.oracle.words_of(address);
        words.into_iter().filter(|word| pages.contains(&word.1)).for_each(|word| world.oracle.forget(word));
    });
    let bytes = pages.len() as u64 * PAGE_BYTES as u64;
    match common.pager.release(own, PageIndex(pages.start).offset(), bytes) {
        Ok(()) => {
            with(|world| pages.clone().for_each(|page| world.oracle.zero((address, page), world.steps)));
            check_discarded(own, pages);
        }
        Err(error) => {
            if !with(|world| world.settings.may_time_out()) {
                violate(format!("a discard fails: {error}"));
            }
        }
    }
}

/// What the node has of pages whose discard it has agreed to, and of which nothing has been written since, is zeros.
/// Where paging is guided, bytes that nobody needs may be left: they are not fetched.
fn check_discarded(own: &Region, pages: Range<u32>) {
    // A child's is its parent's, and stays what it is.
    if with(|world| world.settings.guides || world.process > 0) {
        return;
    }
    for page in pages.map(PageIndex) {
        let is_untouched = own.state(page) == State::Untouched;
        let content = with(|world| world.far.content(own.remote_address(page)));
        if is_untouched && content.is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0)) {
            violate(format!(
                "the node has something of page {} of {:#x}, which was discarded",
                page.0,
                own.memory().address
            ));
        }
    }
}
