//! Policies of the literature: all of local memory has pages, and each touch is seen.

use std::collections::{BinaryHeap, VecDeque};

use yonder_sizing::{Replayed, Trace};

/// A touch that never comes.
const NEVER: u32 = u32::MAX;

/// The pages of a trace, touch by touch.
fn pages_of(trace: &Trace) -> impl ExactSizeIterator<Item = u32> + DoubleEndedIterator + '_ {
    trace.touches().map(|touch| touch.page.0)
}

/// Which pages are here, and which have ever been.
struct Presence {
    here: Vec<bool>,
    ever: Vec<bool>,
    misses: u64,
}

impl Presence {
    fn new(numbers: usize) -> Self {
        Self { here: vec![false; numbers], ever: vec![false; numbers], misses: 0 }
    }

    /// A page that is not here comes.
    fn bring(&mut self, page: usize) {
        self.misses += u64::from(self.ever[page]);
        (self.here[page], self.ever[page]) = (true, true);
    }

    fn replayed(&self) -> Replayed {
        Replayed { misses: self.misses, ..Replayed::default() }
    }
}

/// Belady's: who is touched last of all leaves. Knows what comes.
pub(super) fn optimum(trace: &Trace, local: usize) -> Replayed {
    let (mut next, mut last) = (vec![NEVER; trace.len()], vec![NEVER; trace.numbers()]);
    for (at, page) in (0..trace.len()).zip(pages_of(trace)).rev() {
        next[at] = std::mem::replace(&mut last[page as usize], at as u32);
    }
    let (mut presence, mut pages) = (Presence::new(trace.numbers()), 0);
    // The next touch of each page, as of now; older entries of the heap are void.
    let (mut awaited, mut heap) = (vec![NEVER; trace.numbers()], BinaryHeap::new());
    for (at, page) in pages_of(trace).enumerate() {
        let here = page as usize;
        if !presence.here[here] {
            while pages == local {
                let (when, victim): (u32, u32) = heap.pop().expect("whoever is here has an entry");
                let victim = victim as usize;
                if presence.here[victim] && awaited[victim] == when {
                    presence.here[victim] = false;
                    pages -= 1;
                }
            }
            presence.bring(here);
            pages += 1;
        }
        awaited[here] = next[at];
        heap.push((next[at], page));
    }
    presence.replayed()
}

/// Who was touched longest ago leaves.
pub(super) fn lru(trace: &Trace, local: usize) -> Replayed {
    let (mut presence, mut pages) = (Presence::new(trace.numbers()), 0);
    // When each page was touched last; older entries of the queue are void.
    let (mut touched, mut queue) = (vec![NEVER; trace.numbers()], VecDeque::new());
    for (at, page) in (0u32..).zip(pages_of(trace)) {
        let here = page as usize;
        if !presence.here[here] {
            while pages == local {
                let (when, victim): (u32, u32) = queue.pop_front().expect("whoever is here has an entry");
                if touched[victim as usize] == when {
                    presence.here[victim as usize] = false;
                    pages -= 1;
                }
            }
            presence.bring(here);
            pages += 1;
        }
        touched[here] = at;
        queue.push_back((at, page));
    }
    presence.replayed()
}

/// A hand goes round: who was touched since it last came by stays for a round.
pub(super) fn clock(trace: &Trace, local: usize) -> Replayed {
    let mut presence = Presence::new(trace.numbers());
    let (mut is_touched, mut ring) = (vec![false; trace.numbers()], VecDeque::new());
    for page in pages_of(trace) {
        let here = page as usize;
        if presence.here[here] {
            is_touched[here] = true;
            continue;
        }
        while ring.len() == local {
            let victim: u32 = ring.pop_front().expect("local memory is not nothing");
            if std::mem::take(&mut is_touched[victim as usize]) {
                ring.push_back(victim);
            } else {
                presence.here[victim as usize] = false;
            }
        }
        presence.bring(here);
        is_touched[here] = false;
        ring.push_back(page);
    }
    presence.replayed()
}

/// S3-FIFO: a small queue, a main queue, and the names of who has left the small one (Yang et al., SOSP '23, section
/// 4).
pub(super) fn s3_fifo(trace: &Trace, local: usize) -> Replayed {
    const TOUCHES_MAX: u8 = 3;
    let small_pages = local / 10;
    let mut presence = Presence::new(trace.numbers());
    let mut touches = vec![0u8; trace.numbers()];
    let (mut small, mut main) = (VecDeque::new(), VecDeque::new());
    // Names, and which of them is still the page's.
    let (mut names, mut name_of, mut last_name) = (VecDeque::new(), vec![0u64; trace.numbers()], 0u64);
    for page in pages_of(trace) {
        let here = page as usize;
        if presence.here[here] {
            touches[here] = (touches[here] + 1).min(TOUCHES_MAX);
            continue;
        }
        while small.len() + main.len() >= local {
            if small.len() >= small_pages && !small.is_empty() || main.is_empty() {
                let victim: u32 = small.pop_front().expect("one of both has a page");
                let page = victim as usize;
                if touches[page] > 1 {
                    touches[page] = 0;
                    main.push_back(victim);
                    continue;
                }
                presence.here[page] = false;
                last_name += 1;
                name_of[page] = last_name;
                names.push_back((last_name, page));
                while names.len() > local - small_pages {
                    let (name, page) = names.pop_front().expect("there are some");
                    if name_of[page] == name {
                        name_of[page] = 0;
                    }
                }
            } else {
                let victim: u32 = main.pop_front().expect("it is not empty");
                let page = victim as usize;
                if touches[page] > 0 {
                    touches[page] -= 1;
                    main.push_back(victim);
                } else {
                    presence.here[page] = false;
                }
            }
        }
        presence.bring(here);
        touches[here] = 0;
        let is_known = std::mem::take(&mut name_of[here]) > 0;
        if is_known { main.push_back(page) } else { small.push_back(page) }
    }
    presence.replayed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(policy: super::super::Policy, local: usize, touches: &[u32]) -> u64 {
        policy(&super::super::trace(touches.iter().copied()), local).misses
    }

    #[test]
    fn known_sequences_have_known_misses() {
        // A circle of three in two pages: the optimum keeps one of them, LRU and CLOCK none.
        let circle = [1, 2, 3, 1, 2, 3, 1, 2, 3];
        assert_eq!(misses(optimum, 2, &circle), 3);
        assert_eq!(misses(lru, 2, &circle), 6);
        assert_eq!(misses(clock, 2, &circle), 6);
        // Who was touched again has a second chance.
        let again = [1, 2, 1, 3, 1, 4, 1];
        assert_eq!((misses(lru, 2, &again), misses(optimum, 2, &again)), (0, 0));
        assert_eq!(misses(clock, 2, &again), 0);
    }

    #[test]
    fn s3_fifo_keeps_what_comes_back_and_lets_a_scan_go_by() {
        let hot = (0..10u32).flat_map(|_| 0..10);
        let scan = (0..200u32).flat_map(|page| [100 + page, page % 10]);
        let touches: Vec<u32> = hot.chain(scan).collect();
        assert_eq!(misses(s3_fifo, 20, &touches), 0);
    }
}
