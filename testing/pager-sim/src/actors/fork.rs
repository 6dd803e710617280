//! Forks. A seed follows one process: after a fork it goes on as the parent, or as the child, in which only the thread
//! that has forked is left and everything else is as it stood.

use yonder_pager::PagingCause;
use yonder_pager::machine::Machine;
use yonder_pager::pagetable::{Source, State};
use yonder_units::{FrameIndex, PageIndex};

use super::Common;
use super::discards::discard;
use crate::machine::{Simulated, Space};
use crate::memory::{Access, Bytes};
use crate::oracle::{self, Word};
use crate::program::{At, Region, hold, load, look, store};
use crate::world::{below, say, violate, with};

/// Accesses of a child to what it has inherited, beside one to each word.
const CHILD_ACCESSES: u64 = 60;
/// Forks behind one another that a seed follows.
const GENERATIONS_MAX: u32 = 3;

/// Forks while nothing changes, and goes on as parent or child.
pub(super) fn fork(common: &Common) {
    let began = Simulated::now();
    let stopped = common.pager.stop();
    say(|| "forks".into());
    let is_followed = with(|world| {
        world.forks += 1;
        world.settings.follows_fork == Some(world.forks)
    });
    if is_followed {
        with(|world| world.become_child());
        say(|| "goes on as the child".into());
        inherited(common).iter().for_each(|region| region.memory().recall_all());
        stopped.go_on_as_child(Space(with(|world| world.process)));
        live_as_child(common);
        return;
    }
    look_at_child(common);
    drop(stopped);
    // Nobody gets anything done meanwhile.
    with(|world| world.stalled += world.now - began);
}

/// All regions that are there at a fork, in any order.
fn inherited(common: &Common) -> Vec<Region> {
    let mut regions: Vec<Region> = common.regions.lock().expect("no panic").clone();
    regions.extend(
        [Some(common.shared.clone()), common.sealed.as_ref().map(|sealed| sealed.region.clone())].into_iter().flatten(),
    );
    regions
}

/// Looks at each word where a child finds it, as long as the process has not forked yet.
fn look_at_child(common: &Common) {
    for region in inherited(common) {
        for word in with(|world| world.oracle.words_of(region.memory().address)) {
            if let Some(value) = value_in_child(common, &region, word) {
                oracle::check(word, value, with(|world| world.steps));
            }
        }
    }
}

/// What a child finds in a word; `None` if it cannot have its page.
fn value_in_child(common: &Common, region: &Region, word: Word) -> Option<u64> {
    let (page, at) = (PageIndex(word.1), usize::from(word.2));
    let in_page = |bytes: Bytes| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let in_frame = |frame: FrameIndex| in_page(common.pager.frame_memory().content(frame.offset()));
    // What is mapped the kernel copies, whatever its entry says.
    match (region.memory().load(page.offset() + at as u64), region.state(page)) {
        // Whoever has found the damage is taking it away: the child is told of it too.
        (_, State::Evicting) if with(|world| world.oracle.is_damaged((word.0, word.1))) => None,
        (_, State::Evicting) => violate(format!("page {} is swept while the process forks", page.0)),
        (Access::Done(value), _) => Some(value),
        (Access::Missing, State::Resident) => violate(format!("page {} is resident and not mapped in a child", page.0)),
        (Access::Missing, State::Untouched | State::Lent | State::Installing(Source::Zeros)) => Some(0),
        (Access::Missing, State::Standby(frame) | State::Installing(Source::Frame(frame))) => Some(in_frame(frame)),
        (Access::Missing, State::Remote | State::Fetching { .. }) => {
            with(|world| world.far.content(region.remote_address(page))).map(in_page)
        }
        (Access::Damaged | Access::Hidden, _) | (Access::Missing, State::Poisoned(_)) => None,
    }
}

/// A child uses what it has inherited, in any order; it may fork too.
fn live_as_child(common: &Common) {
    let regions = inherited(common);
    let mut words: Vec<(usize, Word)> = Vec::new();
    for (number, region) in regions.iter().enumerate() {
        words.extend(
            with(|world| world.oracle.words_of(region.memory().address)).into_iter().map(|word| (number, word)),
        );
    }
    if words.is_empty() {
        return;
    }
    let any = || words[below(words.len() as u64) as usize];
    for _ in 0..CHILD_ACCESSES {
        let (region, word) = any();
        use_in_child(common, &regions[region], word);
    }
    if below(3) == 0 && with(|world| world.process) < GENERATIONS_MAX {
        let stopped = common.pager.stop();
        with(|world| world.become_child());
        stopped.go_on_as_child(Space(with(|world| world.process)));
        live_as_child(common);
        return;
    }
    for (region, word) in &words {
        read_in_child(&regions[*region], *word);
    }
    for region in &regions {
        common.pager.end_region(region);
    }
}

fn use_in_child(common: &Common, region: &Region, word: Word) {
    let at = At { page: word.1, word: word.2 };
    let is_sealed = common.sealed.as_ref().is_some_and(|sealed| std::sync::Arc::ptr_eq(&sealed.region, region));
    match below(16) {
        0..3 if !is_sealed => _ = store(region, at),
        3 if !is_sealed => discard(common, region, at.page..at.page + 1),
        4 => hold(region, at, 1),
        5 if with(|world| world.settings.damages) && region.memory().damage(at.page as usize) => {
            say(|| format!("page {} of {:#x} is damaged", at.page, word.0));
            with(|world| world.oracle.damage((word.0, word.1)));
            read_in_child(region, word);
        }
        _ => read_in_child(region, word),
    }
}

/// Reads a word. Only what is neither here nor inherited cannot be had.
fn read_in_child(region: &Region, word: Word) {
    let at = At { page: word.1, word: word.2 };
    let result = if below(2) == 0 { load(region, at) } else { look(region, at) };
    let state = region.state(PageIndex(at.page));
    let is_far = matches!(state, State::Remote | State::Fetching { .. });
    if result == Err(PagingCause::Forked) && !is_far {
        violate(format!("a child cannot have page {} of {:#x}, which is {state:?}", at.page, word.0));
    }
}
