//! The owner: stops the node, damages memory, changes limits, quotas and advice, marks unreadable pages, seals a
//! region, and judges in the end.

use std::ops::Range;

use yonder_pager::Advice;
use yonder_pager::machine::Machine;
use yonder_pager::reclaim::{Policy, Shares};
use yonder_units::Nanos;

use super::fork::fork;
use super::regions::begin_region;
use super::{Common, SEALED_PAGES, Seal, check_all};
use crate::machine::Simulated;
use crate::oracle;
use crate::program::{At, load, store};
use crate::settings::Settings;
use crate::world::{below, chance, park, say, violate, with};

/// How long accesses may still fail for want of time once nothing is broken any more: writes that were put off come
/// again.
const RECOVERY_TIME: Nanos = 60_000_000;
/// Pages that are touched once more before they are protected against reading, at most.
const TOUCHED_MAX: usize = 4;
/// Pages of a region that does not live for long.
const SHORT_LIVED_PAGES: u32 = 8;

/// See the head of this file. Ends at once if the seed has followed a child.
pub(crate) fn owner(common: &mut Common) {
    while with(|world| world.busy) > 1 {
        let now = Simulated::now();
        park(now + 1_000 + below(60_000));
        change(common);
        if with(|world| world.process) > 0 {
            return;
        }
    }
    finish(common);
    with(|world| world.busy -= 1);
}

fn change(common: &mut Common) {
    let settings = with(|world| world.settings.clone());
    disturb_node(&settings);
    if settings.no_memory > 0 && below(30) == 0 {
        let until = Simulated::now() + below(12_000_000);
        say(|| format!("the kernel has no memory until {until}"));
        with(|world| {
            world.no_memory_until = until;
            world.stalled += until - world.now;
        });
    }
    if settings.damages && below(20) == 0 {
        damage(common, &settings);
    }
    if settings.seals && below(8) == 0 {
        seal(common);
    }
    if settings.changes {
        change_limits(common, &settings);
    }
    if settings.forks && below(8) == 0 {
        fork(common);
    }
}

fn disturb_node(settings: &Settings) {
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
    if settings.has_tiers {
        if chance(settings.outages) {
            let until = now + below(2_000_000);
            say(|| format!("the slower tier stops until {until}"));
            with(|world| world.far.stop_slow(until));
        }
        let page = below(u64::from(settings.region_pages()));
        with(|world| world.far.move_page(page));
    }
}

/// The hardware cannot read a page any more.
fn damage(common: &Common, settings: &Settings) {
    let (region, page) = match &common.sealed {
        Some(sealed) if below(4) == 0 => (&sealed.region, below(u64::from(SEALED_PAGES)) as u32),
        _ => (&common.shared, settings.shared_page(below(u64::from(settings.shared_pages)) as u32)),
    };
    if region.memory().damage(page as usize) {
        let address = region.memory().address;
        say(|| format!("page {page} of {address:#x} is damaged"));
        with(|world| world.oracle.damage((address, page)));
    }
}

/// Seals what is not sealed yet, while others read it.
fn seal(common: &mut Common) {
    let Some(sealed) = common.sealed.as_mut().filter(|sealed| sealed.is == Seal::ToBe) else { return };
    say(|| format!("seals {:#x}", sealed.region.memory().address));
    match common.pager.seal(&sealed.region) {
        Ok(()) => sealed.is = Seal::Done,
        Err(error) if !with(|world| world.settings.may_time_out()) => violate(format!("a seal fails: {error}")),
        Err(_) => {}
    }
}

fn change_limits(common: &Common, settings: &Settings) {
    let pages = settings.region_pages();
    let range = || {
        let first = settings.shared_page(below(u64::from(settings.shared_pages)) as u32);
        first..(first + 1 + below(40) as u32).min(pages)
    };
    match below(12) {
        0 if below(2) == 0 => {
            let pages = if below(3) == 0 { None } else { Some(below(settings.limit_pages_max())) };
            say(|| format!("sets a soft limit of {pages:?}"));
            common.pager.set_soft_limit(pages);
        }
        0 => {
            let limit = settings.limit_pages + below(settings.limit_pages_max() - settings.limit_pages + 1);
            let policy = Policy::new(limit, Shares::default()).expect("a limit that is allowed");
            let held = common.pager.set_limit(&policy);
            say(|| format!("sets a limit of {limit}: {held}"));
            if !held && !settings.may_time_out() && !settings.holds {
                violate(format!("a limit of {limit} pages does not come to hold"));
            }
        }
        1 | 2 => {
            let quota = if below(3) == 0 { None } else { Some(4 + below(settings.local_pages)) };
            say(|| format!("sets a quota of {quota:?}"));
            if below(2) == 0 { common.shared.set_quota(quota) } else { common.pager.set_process_quota(quota) }
        }
        3 | 4 if below(4) == 0 => common.shared.note_advice(0..pages, Advice::Out),
        3 | 4 => common.shared.note_advice(range(), Advice::Out),
        5 => {
            let advice = [Advice::Ahead, Advice::Ahead, Advice::Random, Advice::Normal][below(4) as usize];
            common.shared.note_advice(range(), advice);
        }
        6 => {
            let age = std::time::Duration::from_nanos(10_000 + below(1_000_000));
            common.pager.set_flush(age, 1 + below(64) as usize);
        }
        7 | 11 => hide(common, settings, range()),
        8 if common.sealed.is_some() => {
            let sealed = common.sealed.as_ref().expect("asked for");
            sealed.region.note_advice(0..SEALED_PAGES, Advice::Out);
        }
        9 => {
            let taken = common.pager.set_aside(&common.shared, range());
            say(|| format!("sets {taken} pages aside"));
        }
        _ => live_shortly(common),
    }
}

/// Protects pages against reading for a while, as `yonder run` does for programs.
fn hide(common: &Common, settings: &Settings, pages: Range<u32>) {
    say(|| format!("marks unreadable pages {pages:?}"));
    common.pager.mark_unreadable(&common.shared, pages.clone());
    // They may be touched yet, and stay then.
    for page in pages.clone().step_by(settings.spread as usize).take(TOUCHED_MAX) {
        _ = load(&common.shared, At { page, word: 0 });
    }
    park(Simulated::now() + below(10_000));
    let hide = |is_hidden| pages.clone().for_each(|page| common.shared.memory().hide(page as usize, is_hidden));
    hide(true);
    park(Simulated::now() + below([100_000, 400_000][below(2) as usize]));
    hide(false);
    common.shared.mark_readable(pages.clone());
}

/// A region that ends soon, perhaps with writes under way.
fn live_shortly(common: &Common) {
    let region = begin_region(&common.pager, SHORT_LIVED_PAGES as usize);
    for _ in 0..1 + below(3) {
        (0..SHORT_LIVED_PAGES).for_each(|page| _ = store(&region, At { page, word: 0 }));
        if below(4) > 0 {
            region.note_advice(0..SHORT_LIVED_PAGES, Advice::Out);
        }
        park(Simulated::now() + below([10_000, 400_000][below(2) as usize]));
        if below(2) == 0 {
            check_all(&region);
        }
    }
    common.pager.end_region(&region);
}

/// Nothing is broken from now on: everything is read, ended and accounted for.
fn finish(common: &Common) {
    with(|world| {
        world.is_hostile = false;
        world.recovered_at = world.now + RECOVERY_TIME;
        world.far.heal(world.now);
        world.threads.iter_mut().for_each(|thread| thread.stalled_until = 0);
    });
    common.shared.set_quota(None);
    common.pager.set_process_quota(None);
    common.pager.set_soft_limit(None);
    if !with(|world| world.far.lease_is_over(world.now)) {
        // Before everything is touched, and so found again.
        audit(common);
    }
    say(|| "everything is over: reads all".into());
    check_all(&common.shared);
    if let Some(sealed) = &common.sealed {
        check_all(&sealed.region);
    }
    // Without a node writes end with their region.
    if !with(|world| world.far.lease_is_over(world.now)) {
        audit(common);
    }
    common.pager.end_region(&common.shared);
    if let Some(sealed) = &common.sealed {
        common.pager.end_region(&sealed.region);
    }
    let audit = audit(common);
    // The ballast goes on.
    let (limit, cold) = with(|world| (world.settings.limit_pages, world.settings.ballast().cold.len() as u64));
    if audit.resident > limit || audit.standby > cold {
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
