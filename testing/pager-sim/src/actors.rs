//! The actors: threads and unithreads that use far memory, the reclaimer, a host, and the owner, who changes everything
//! else.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::Rng;
use yonder_heap::{Live, Segment, Segments};
use yonder_pager::machine::Machine;
use yonder_pager::{Advice, GRANULE_BYTES, Installs, Liveness, Pager, PagingCause, Posting, ReclaimTurns, Turn};
use yonder_pagetable::{HASH_KEY_BYTES, PageHasher, Source, State};
use yonder_reclaim::{Policy, Shares};
use yonder_units::{Nanos, PAGE_BYTES, PageIndex};

use crate::machine::Simulated;
use crate::memory::{Access, Kind, Memory};
use crate::oracle;
use crate::program::{At, Region, WORDS, clear, forget, hold, load, look, store};
use crate::sabotage::Sabotage;
use crate::world::{Step, below, chance, is_sabotaged, park, say, stall, step, violate, with};

/// How long accesses may still fail for want of time once nothing is broken any more: writes that were put off come
/// again.
const SETTLE_TIME: Nanos = 60_000_000;
/// Smallest limit of local memory in pages, and how much it may grow.
pub(crate) const LIMIT_PAGES: u64 = 512;
pub(crate) const LIMIT_PAGES_MAX: u64 = 640;

/// Pages of a region of one's own.
const OWN_PAGES: usize = 16;
/// How long the settler sleeps at most: it has to see the end of the seed.
const SETTLER_SLEEP_MAX: Nanos = 10_000_000;

/// What actors share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) pager: Arc<Pager<Simulated>>,
    pub(crate) shared: Region,
    /// Read only, once it has been filled.
    pub(crate) sealed: Option<Region>,
    pub(crate) ports: Vec<u16>,
}

/// A new region of so many pages.
pub(crate) fn begin_region(pager: &Arc<Pager<Simulated>>, pages: usize) -> Region {
    let (remote, address) = with(|world| {
        let remote = world.far.allocate(pages as u64);
        world.regions += 1;
        (remote, world.regions << 32)
    });
    let memory = Memory::new(Kind::Region, address, pages);
    let mut key = [0; HASH_KEY_BYTES];
    if !is_sabotaged(Sabotage::WeakDigest) {
        with(|world| world.rng.fill(&mut key[..]));
    }
    let begun = pager.begin_region(memory, remote, PageHasher::new(&key)).expect("the model registers");
    begun.expect("there are few regions")
}

/// A region of one's own, whose paging is guided if the seed says so.
pub(crate) fn begin_own(pager: &Arc<Pager<Simulated>>) -> Region {
    let region = begin_region(pager, OWN_PAGES);
    if with(|world| world.settings.guides) {
        let address = region.memory().address;
        with(|world| world.oracle.guide(address));
        pager.guide_paging(&region, Arc::new(Owner { address }));
    }
    region
}

/// Knows what is live of a region: the words that were stored and not forgotten since.
struct Owner {
    address: usize,
}

impl Liveness for Owner {
    fn live(&self, page: PageIndex) -> Live {
        let mut words = with(|world| world.oracle.live_words((self.address, page.0)));
        if is_sabotaged(Sabotage::ForgetfulOwner) {
            words.pop();
        }
        let mut segments: Vec<Segment> = Vec::new();
        for word in words {
            let (start, end) = (word / GRANULE_BYTES as u16 * GRANULE_BYTES as u16, word + 8);
            match segments.last_mut() {
                Some(last) if last.start + last.bytes >= start => last.bytes = end - last.start,
                _ => segments.push(Segment { start, bytes: end - start }),
            }
        }
        segments.iter_mut().for_each(|segment| segment.bytes = segment.bytes.next_multiple_of(GRANULE_BYTES as u16));
        if segments.is_empty() { Live::Nothing } else { Segments::new(&segments).map_or(Live::Whole, Live::Segments) }
    }
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

/// One access of a thread or a unithread. `own` are pages that nobody else uses.
fn operate(common: &Common, own: &Region, last: &mut u32) {
    match below(100) {
        0..22 => _ = load(&common.shared, anywhere(last)),
        22..44 => _ = look(&common.shared, anywhere(last)),
        44..67 => _ = store(&common.shared, anywhere(last)),
        67..68 => clear(&common.shared, anywhere(last).page),
        68..70 if with(|world| world.settings.holds) => {
            let (at, most) = (anywhere(last), with(|world| world.settings.region_pages()));
            hold(&common.shared, at, (1 + below(3) as u32).min(most - at.page));
        }
        70..76 if common.sealed.is_some() => {
            let sealed = common.sealed.as_ref().expect("asked for");
            let at = At { page: below(24) as u32, word: 0 };
            if below(2) == 0 { _ = load(sealed, at) } else { _ = look(sealed, at) }
        }
        _ => {
            let at = At { page: below(8) as u32, word: WORDS[below(WORDS.len() as u64) as usize] };
            match below(16) {
                5 => own.note_advice(0..OWN_PAGES as u32, Advice::Out),
                8..10 => churn(common, own, at),
                6 => clear(own, at.page),
                0 => discard(common, own, at.page, 1 + below(3) as u32),
                1..3 => _ = load(own, at),
                3 => _ = look(own, at),
                4 => forget(own, at),
                7 => check_all(own),
                _ => _ = store(own, at),
            }
        }
    }
}

/// Stores, sends the page away, forgets it, and does the same again: what the node has of it changes several times.
fn churn(common: &Common, own: &Region, at: At) {
    for _ in 0..1 + below(3) {
        let is_stored = store(own, at).is_ok();
        own.note_advice(at.page..at.page + 1, Advice::Out);
        stall(below(60_000));
        if !is_stored || load(own, at).is_err() {
            return;
        }
        own.note_advice(at.page..at.page + 1, Advice::Out);
        stall(below(30_000));
        discard(common, own, at.page, 1);
    }
}

/// Forgets pages that only the caller uses.
fn discard(common: &Common, own: &Region, page: u32, pages: u32) {
    let bytes = u64::from(pages) * PAGE_BYTES as u64;
    say(|| format!("discards pages {page}..{} of {:#x}", page + pages, own.memory().address));
    match common.pager.release(own, u64::from(page) * PAGE_BYTES as u64, bytes) {
        Ok(()) => {
            with(|world| {
                for page in page..page + pages {
                    world.oracle.zero((own.memory().address, page), world.steps);
                }
            });
            check_discarded(own, page..page + pages);
        }
        Err(error) => {
            if !with(|world| world.settings.may_time_out()) {
                violate(format!("a discard fails: {error}"));
            }
            with(|world| {
                for word in world.oracle.words_of(own.memory().address) {
                    if (page..page + pages).contains(&word.1) {
                        world.oracle.forget(word);
                    }
                }
            });
        }
    }
}

/// What the node has of pages whose discard it has agreed to, and of which nothing has been written since, is zeros.
/// Where paging is guided, bytes that nobody needs may be left: they are not fetched.
fn check_discarded(own: &Region, pages: std::ops::Range<u32>) {
    if with(|world| world.settings.guides) {
        return;
    }
    for page in pages.map(PageIndex) {
        let is_settled = own.state(page) == State::Untouched;
        let content = with(|world| world.far.content(own.remote_address(page)));
        if is_settled && content.is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0)) {
            violate(format!(
                "the node has something of page {} of {:#x}, which was discarded",
                page.0,
                own.memory().address
            ));
        }
    }
}

/// A thread that is no worker.
pub(crate) fn thread(common: &Common) {
    let own = begin_own(&common.pager);
    let mut last = below(u64::from(with(|world| world.settings.shared_pages))) as u32;
    for _ in 0..with(|world| world.settings.operations) {
        operate(common, &own, &mut last);
    }
    check_all(&own);
    common.pager.end_region(&own);
    with(|world| world.busy -= 1);
}

/// A unithread of a worker.
pub(crate) fn unithread(common: &Common, own: &Region) {
    let mut last = below(u64::from(with(|world| world.settings.shared_pages))) as u32;
    let operations = with(|world| world.settings.operations / world.settings.unithreads + 1);
    for _ in 0..operations {
        let no_yield = chance(50);
        with(|world| world.fibers[world.running].no_yield = no_yield);
        operate(common, own, &mut last);
        with(|world| world.fibers[world.running].no_yield = false);
    }
}

/// The loop of a worker over its unithreads, whose fibers these are.
pub(crate) fn worker(common: &Common, port: u16, unithreads: &[usize]) {
    let (mut ready, mut retry) = (Vec::new(), Vec::new());
    let mut runnable: VecDeque<u32> = (0..unithreads.len() as u32).collect();
    let mut left = unithreads.len();
    while left > 0 {
        let installs = if runnable.is_empty() { Installs::Own } else { Installs::HandOver };
        let now = Simulated::now();
        common.pager.poll_worker(port, now, (installs, Posting::AtOnce), &mut ready, &mut retry);
        runnable.extend(ready.drain(..));
        runnable.extend(retry.drain(..));
        let Some(token) = runnable.pop_front() else {
            step(Step::Wait);
            continue;
        };
        let fiber = unithreads[token as usize];
        with(|world| {
            let thread = world.fibers[world.running].thread;
            world.threads[thread].current = fiber;
        });
        yonder_unithread::suspend();
        if with(|world| world.over.remove(&fiber)) {
            left -= 1;
        }
    }
    with(|world| world.busy -= 1);
}

/// The reclaimer's thread.
pub(crate) fn reclaimer(pager: &Pager<Simulated>) {
    let mut turns = ReclaimTurns::default();
    while with(|world| world.busy) > 0 {
        match turns.take(pager) {
            Turn::Again => step(Step::Effect(50)),
            Turn::Yield => step(Step::Wait),
            Turn::Sleep(time) => park(Simulated::now() + time.as_nanos() as Nanos),
        }
    }
}

/// The thread that settles: asks again for discards that the node has not agreed to, and gives back what could not be
/// at once.
pub(crate) fn settler(pager: &Pager<Simulated>) {
    while with(|world| world.busy) > 0 {
        let until = pager.settle_turn().map_or(Nanos::MAX, |pause| Simulated::now() + pause.as_nanos() as Nanos / 100);
        park(until.min(Simulated::now() + SETTLER_SLEEP_MAX));
    }
}

/// A dispatcher: it hosts reclaim, and makes the installs of the workers' ports.
pub(crate) fn host(common: &Common) {
    common.ports.iter().for_each(|port| common.pager.help_port(*port, true));
    common.pager.begin_hosting();
    while with(|world| world.busy) > 0 {
        let mut has_worked = common.pager.reclaim_as_host(Simulated::now());
        for port in &common.ports {
            has_worked |= common.pager.install_for(*port);
        }
        if !has_worked {
            step(Step::Wait);
        }
    }
    common.ports.iter().for_each(|port| common.pager.help_port(*port, false));
    common.pager.end_hosting();
}

/// The owner: changes limits, quotas and advice, stops the node, and judges in the end.
pub(crate) fn owner(common: &Common) {
    while with(|world| world.busy) > 1 {
        let now = Simulated::now();
        park(now + 1_000 + below(60_000));
        change(common);
    }
    finish(common);
    with(|world| world.busy -= 1);
}

/// Forks, as far as the pager is concerned: everything is stopped for a moment, and what the child would have is looked
/// at.
fn fork(common: &Common) {
    let began = Simulated::now();
    let stopped = common.pager.stop();
    say(|| "forks".into());
    for region in [Some(&common.shared), common.sealed.as_ref()].into_iter().flatten() {
        for word in with(|world| world.oracle.words_of(region.memory().address)) {
            let (page, at) = (PageIndex(word.1), usize::from(word.2));
            let in_page =
                |bytes: crate::memory::Bytes| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            // What is mapped the kernel copies, whatever its entry says.
            let mapped = region.memory().load(page.offset() + at as u64);
            let value = match (mapped, region.state(page)) {
                // Whoever has found the damage is taking it away: the child is told of it too.
                (_, State::Evicting) if with(|world| world.oracle.is_damaged((word.0, word.1))) => continue,
                (_, State::Evicting) => violate(format!("page {} is swept while the process forks", page.0)),
                (Access::Damaged, _) => continue,
                (Access::Done(value), _) => value,
                (Access::Missing, State::Resident) => {
                    violate(format!("page {} is resident and not mapped in a child", page.0))
                }
                (Access::Missing, state) => match state {
                    State::Untouched | State::Installing(Source::Zeros) => 0,
                    State::Standby(frame) | State::Installing(Source::Frame(frame)) => {
                        in_page(common.pager.frame_memory().content(frame.offset()))
                    }
                    State::Remote | State::Fetching { .. } => {
                        let address = region.remote_address(page);
                        match with(|world| world.far.content(address)) {
                            Some(bytes) => in_page(bytes),
                            None => continue,
                        }
                    }
                    State::Poisoned(_) | State::Resident | State::Evicting => continue,
                },
            };
            oracle::check(word, value, with(|world| world.steps));
        }
    }
    drop(stopped);
    // Nobody gets anything done meanwhile.
    with(|world| world.stalled += world.now - began);
}

fn change(common: &Common) {
    let settings = with(|world| world.settings.clone());
    let now = Simulated::now();
    if chance(settings.outages) {
        let until = now + below([50_000, 1_000_000, 8_000_000][below(3) as usize]);
        let loses_power = settings.loses_power && below(4) == 0;
        say(|| format!("the node stops until {until}, its memory lost: {loses_power}"));
        with(|world| {
            world.oracle.has_lost_power |= loses_power;
            world.far.stop(until, loses_power);
        });
    }
    if settings.no_memory > 0 && below(30) == 0 {
        let until = now + below(12_000_000);
        say(|| format!("the kernel has no memory until {until}"));
        with(|world| {
            world.no_memory_until = until;
            world.stalled += until - now;
        });
    }
    if settings.has_tiers && chance(settings.outages) {
        let until = now + below(2_000_000);
        say(|| format!("the slower tier stops until {until}"));
        with(|world| world.far.stop_slow(until));
    }
    if settings.has_tiers {
        with(|world| {
            let page = world.rng.random_range(0..u64::from(world.settings.region_pages()));
            world.far.move_page(page);
        });
    }
    if settings.forks && below(8) == 0 {
        fork(common);
    }
    if settings.damages && below(20) == 0 {
        let page = settings.shared_page(below(u64::from(settings.shared_pages)) as u32);
        if common.shared.memory().damage(page as usize) {
            say(|| format!("page {page} is damaged"));
            with(|world| world.oracle.damage((common.shared.memory().address, page)));
        }
    }
    if !settings.changes {
        return;
    }
    let pages = settings.region_pages();
    let range = || {
        let first = settings.shared_page(below(u64::from(settings.shared_pages)) as u32);
        first..(first + 1 + below(40) as u32).min(pages)
    };
    match below(10) {
        0 => {
            let limit = LIMIT_PAGES + below(LIMIT_PAGES_MAX - LIMIT_PAGES + 1);
            let policy = Policy::new(limit, Shares::default()).expect("a limit that is allowed");
            let held = common.pager.set_limit(&policy);
            say(|| format!("sets a limit of {limit}: {held}"));
        }
        1 | 2 => {
            let quota = if below(3) == 0 { None } else { Some(4 + below(settings.local_pages)) };
            say(|| format!("sets a quota of {quota:?}"));
            if below(2) == 0 { common.shared.set_quota(quota) } else { common.pager.set_process_quota(quota) }
        }
        3 | 4 => common.shared.note_advice(range(), Advice::Out),
        5 => common.shared.note_advice(range(), Advice::Ahead),
        6 => {
            let age = std::time::Duration::from_nanos(10_000 + below(1_000_000));
            common.pager.set_flush(age, 1 + below(64) as usize);
        }
        7 => {
            let pages = range();
            common.pager.seclude(&common.shared, pages.clone());
            park(Simulated::now() + below(50_000));
            common.shared.reveal(pages);
        }
        _ => {
            let region = begin_region(&common.pager, 8);
            for _ in 0..1 + below(3) {
                (0..8).for_each(|page| _ = store(&region, At { page, word: 0 }));
                if below(4) > 0 {
                    let range = 0..8;
                    region.note_advice(range, Advice::Out);
                }
                park(Simulated::now() + below([10_000, 400_000][below(2) as usize]));
                if below(2) == 0 {
                    check_all(&region);
                }
            }
            common.pager.end_region(&region);
        }
    }
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

/// Nothing is broken from now on: everything is read, ended and accounted for.
fn finish(common: &Common) {
    with(|world| {
        world.is_hostile = false;
        world.settled_at = world.now + SETTLE_TIME;
        world.far.heal(world.now);
        world.threads.iter_mut().for_each(|thread| thread.stalled_until = 0);
    });
    common.shared.set_quota(None);
    common.pager.set_process_quota(None);
    if !with(|world| world.far.lease_is_over(world.now)) {
        // Before everything is touched, and so found again.
        audit(common);
    }
    say(|| "everything is over: reads all".into());
    check_all(&common.shared);
    if let Some(sealed) = &common.sealed {
        check_all(sealed);
    }
    // Without a node writes end with their region.
    if !with(|world| world.far.lease_is_over(world.now)) {
        audit(common);
    }
    common.pager.end_region(&common.shared);
    if let Some(sealed) = &common.sealed {
        common.pager.end_region(sealed);
    }
    let audit = audit(common);
    if audit.resident > crate::LIMIT_BALLAST_MAX || audit.standby > 0 {
        violate(format!("local memory is left when every region has ended: {audit:?}"));
    }
    oracle::check_limit();
}

/// Looks at the accounts when nothing is under way.
fn audit(common: &Common) -> yonder_pager::Audit {
    for _ in 0..10_000 {
        match common.pager.audit() {
            Ok(audit) if audit.writing == 0 => {
                let kept = audit.resident + audit.backed;
                let backed = crate::memory::backed();
                if backed > kept {
                    violate(format!("the kernel backs {backed} pages, and {kept} are accounted for"));
                }
                return audit;
            }
            Ok(_) => park(Simulated::now() + 50_000),
            Err(what) => violate(what),
        }
    }
    violate("writes do not end".into())
}
