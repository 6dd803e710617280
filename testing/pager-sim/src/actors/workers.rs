//! Workers and their unithreads. A worker may end and another begin, which gets a port that was used before.

use std::collections::VecDeque;

use yonder_pager::machine::Machine;
use yonder_pager::{Installs, PollMode, Posting};

use super::regions::Own;
use super::{Common, anywhere, operate};
use crate::machine::Simulated;
use crate::program::load;
use crate::world::{Step, below, chance, step, switch, with};

/// A unithread of a worker.
pub(crate) fn unithread(common: &Common, own: &mut Own, operations: usize) {
    let mut last = below(u64::from(with(|world| world.settings.shared_pages))) as u32;
    for _ in 0..operations {
        let no_yield = chance(50);
        with(|world| world.fibers[world.running].no_yield = no_yield);
        operate(common, own, &mut last);
        with(|world| world.fibers[world.running].no_yield = false);
    }
}

/// The thread of one worker after another. Each has unithreads of its own, whose fibers these are.
pub(crate) fn workers(common: &Common, of_each: &[Vec<usize>]) {
    for unithreads in of_each {
        let port = common.pager.add_port(unithreads.len()).expect("there are ports");
        bind(Some(port), unithreads);
        work(common, port, unithreads);
        bind(None, unithreads);
        common.pager.return_port(port);
        // No worker for a moment.
        _ = load(&common.shared, anywhere(&mut 0));
    }
    with(|world| world.busy -= 1);
}

/// Binds the thread that runs to a port, or to none.
fn bind(port: Option<u16>, unithreads: &[usize]) {
    with(|world| {
        let thread = world.fibers[world.running].thread;
        let before = std::mem::replace(&mut world.threads[thread].port, port);
        world.ports.retain(|other| Some(*other) != before);
        world.ports.extend(port);
        let (policy, port) = (world.settings.policy, port.unwrap_or(u16::MAX));
        for (token, fiber) in unithreads.iter().enumerate() {
            world.fibers[*fiber].bound = Some((port, token as u32, policy));
        }
    });
}

/// The loop of a worker over its unithreads.
fn work(common: &Common, port: u16, unithreads: &[usize]) {
    let (mut ready, mut retry) = (Vec::new(), Vec::new());
    let mut runnable: VecDeque<u32> = (0..unithreads.len() as u32).collect();
    let mut left = unithreads.len();
    while left > 0 {
        let installs = if runnable.is_empty() { Installs::Own } else { Installs::Delegated };
        let now = Simulated::now();
        common.pager.poll_worker(port, now, PollMode { installs, posting: Posting::AtOnce }, &mut ready, &mut retry);
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
        switch();
        if with(|world| world.over.remove(&fiber)) {
            left -= 1;
        }
    }
}
