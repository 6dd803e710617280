//! [`Laggards`]: the nodes for which writes wait so long that their places are evacuated.
//!
//! A write ends when all places have it, so one slow node slows all of them down, where a read asks another one. But to
//! move everything off a node costs more than to wait a while. So a node is left only if the writes that ended in a
//! window of time took it much longer on average than they took the others, in several windows one after another; and
//! it is left for a while, each time for longer, so that one that is slow now and then is not emptied and filled again
//! and again.
//!
//! Times are compared with those of the quicker half of nodes, or where the program writes to one only with what was
//! usual there, so that what the program or its link is short of makes no node a laggard. Nor does a longer way:
//! [`LATE`] is more than any way in one building. Nor is it enough that writes wait for one another where the program
//! writes the most: so is the time compared in which any was there, divided by their number.
//!
//! It belongs to one supervisor.

use yonder_units::Nanos;

/// What a write takes longer than elsewhere before that says anything.
pub const LATE: Nanos = 10_000_000;
/// The same, of its part of the time in which any was there: a node that ends one each 0.1 ms is none.
pub const LATE_ALONE: Nanos = 100_000;
/// How many times as long it takes besides, with all that is before it.
pub const FACTOR: u64 = 4;
/// How long a window is, at least.
pub const WINDOW: Nanos = 200_000_000;
/// Windows one after another in which a node is late until it is left.
pub const WINDOWS: u8 = 3;
/// How long one may last, where few writes end: after a longer one they begin anew.
const WINDOWS_WITHIN: Nanos = 10 * WINDOW;
/// Writes of a window that say something.
pub const WRITES_MIN: u64 = 8;
/// How long a node is left for the first time.
pub const LEFT_FOR: Nanos = 10_000_000_000;
/// The longest.
pub const LEFT_FOR_MAX: Nanos = 640_000_000_000;

/// The writes of a node that have ended, all of them, and the time that they took together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Writes {
    /// How many have ended.
    pub count: u64,
    /// The sum of their times, in nanoseconds.
    pub time: u64,
    /// How long at least one of them was under way.
    pub busy: u64,
}

/// What is remembered of a node.
#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// At the end of the last window, and when that was.
    seen: Writes,
    seen_at: Nanos,
    late_windows: u8,
    /// Its windows that were not late, on average: the later ones count more.
    usual: Option<Mean>,
    /// How often it was left.
    times_left: u32,
    left_until: Nanos,
}

/// See the head of this file. Nodes are known by their numbers.
#[derive(Default, Debug)]
pub struct Laggards {
    nodes: Vec<Node>,
    window_ends: Nanos,
}

/// How long a write takes at a node.
#[derive(Clone, Copy, Debug)]
struct Mean {
    /// With all that is before it.
    time: Nanos,
    /// Its part of the time.
    alone: Nanos,
}

impl Writes {
    fn since(self, before: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(before.count),
            time: self.time.wrapping_sub(before.time),
            busy: self.busy.wrapping_sub(before.busy),
        }
    }

    /// That of one, if there are enough to tell.
    fn mean(self) -> Option<Mean> {
        let mean = || Mean { time: self.time / self.count, alone: self.busy / self.count };
        (self.count >= WRITES_MIN).then(mean)
    }
}

impl Mean {
    /// What is usual at the quicker half of several.
    fn usual(means: &[Option<Self>]) -> Option<Self> {
        let middle_of = |of: fn(&Self) -> Nanos| {
            let mut times: Vec<Nanos> = means.iter().flatten().map(of).collect();
            let middle = (times.len() > 1).then(|| (times.len() - 1) / 2)?;
            Some(*times.select_nth_unstable(middle).1)
        };
        Some(Self { time: middle_of(|mean| mean.time)?, alone: middle_of(|mean| mean.alone)? })
    }

    fn is_late(self, usual: Self) -> bool {
        self.time > usual.time.saturating_mul(FACTOR).saturating_add(LATE)
            && self.alone > usual.alone.saturating_add(LATE_ALONE)
    }
}

impl Laggards {
    /// The writes of all nodes until now, by their numbers; none of those that are not asked any more. To be called
    /// again and again.
    pub fn saw(&mut self, writes: impl Iterator<Item = Option<Writes>>, now: Nanos) {
        if now < self.window_ends {
            return;
        }
        self.window_ends = now + WINDOW;
        let writes: Vec<Option<Writes>> = writes.collect();
        let new = writes.iter().skip(self.nodes.len());
        let begin =
            |writes: &Option<Writes>| Node { seen: writes.unwrap_or_default(), seen_at: now, ..Node::default() };
        self.nodes.extend(new.map(begin).collect::<Vec<_>>());
        for (node, writes) in self.nodes.iter_mut().zip(&writes) {
            // What comes of it still says how it was.
            if node.left_until > now {
                (node.seen, node.seen_at, node.late_windows) = (writes.unwrap_or(node.seen), now, 0);
            } else if now - node.left_until > LEFT_FOR_MAX {
                node.times_left = 0;
            }
        }
        let mean = |(node, writes): (&Node, &Option<Writes>)| writes.as_ref()?.since(node.seen).mean();
        let means: Vec<Option<Mean>> = self.nodes.iter().zip(&writes).map(mean).collect();
        let (usual, asked) = (Mean::usual(&means), writes.iter().flatten().count());
        // Half of them at most: the others have to take what they had.
        let mut left = self.nodes.iter().filter(|node| node.left_until > now).count();
        let left_max = (asked / 2).max(1);
        for ((node, writes), mean) in self.nodes.iter_mut().zip(writes).zip(means) {
            // Where too few have ended the window goes on.
            let (Some(mean), Some(writes)) = (mean, writes) else { continue };
            let is_late = usual.or(node.usual).is_some_and(|usual| mean.is_late(usual));
            if !is_late {
                let of = |usual: Nanos, mean: Nanos| usual - usual / 4 + mean / 4;
                let later = |usual: Mean| Mean { time: of(usual.time, mean.time), alone: of(usual.alone, mean.alone) };
                node.usual = Some(node.usual.map_or(mean, later));
            }
            // Windows that are long ago are not one after another.
            let before = if now - node.seen_at > WINDOWS_WITHIN { 0 } else { node.late_windows };
            (node.seen, node.seen_at) = (writes, now);
            node.late_windows = if is_late { before.saturating_add(1) } else { 0 };
            if node.late_windows >= WINDOWS && left < left_max {
                let span = LEFT_FOR.saturating_mul(1 << node.times_left.min(16)).min(LEFT_FOR_MAX);
                (node.late_windows, node.left_until) = (0, now + span);
                node.times_left += 1;
                left += 1;
            }
        }
    }

    /// Whether places are moved off a node, and none are put there.
    #[must_use]
    pub fn is_left(&self, node: usize, now: Nanos) -> bool {
        self.nodes.get(node).is_some_and(|node| node.left_until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const SECOND: Nanos = 1_000 * MS;
    const QUICK: Nanos = MS / 10;

    /// Nodes, their writes until now, and the time.
    struct Nodes {
        laggards: Laggards,
        writes: Vec<Writes>,
        now: Nanos,
    }

    /// So many writes more in a window, under way at a time as far as they must be.
    fn more(writes: Writes, count: u64, each: Nanos) -> Writes {
        let (time, busy) = (count * each, (count * each).min(WINDOW));
        Writes { count: writes.count + count, time: writes.time + time, busy: writes.busy + busy }
    }

    impl Nodes {
        fn new(count: usize) -> Self {
            Self { laggards: Laggards::default(), writes: vec![Writes::default(); count], now: SECOND }
        }

        /// For so long each node ends `count` writes in each window, which take so long each.
        fn write(&mut self, span: Nanos, count: u64, each: &[Nanos]) -> Vec<usize> {
            let until = self.now + span;
            while self.now < until {
                self.now += WINDOW;
                for (writes, each) in self.writes.iter_mut().zip(each) {
                    *writes = more(*writes, count, *each);
                }
                self.laggards.saw(self.writes.iter().copied().map(Some), self.now);
            }
            (0..each.len()).filter(|node| self.laggards.is_left(*node, self.now)).collect()
        }
    }

    #[test]
    fn a_node_that_writes_wait_for_is_left() {
        let mut nodes = Nodes::new(3);
        assert!(nodes.write(10 * SECOND, 100, &[MS, 2 * MS, 5 * MS]).is_empty());
        assert!(nodes.write(2 * WINDOW, 100, &[QUICK, 2 * QUICK, 100 * MS]).is_empty(), "it may be for a moment");
        assert_eq!(nodes.write(WINDOW, 100, &[QUICK, 2 * QUICK, 100 * MS]), [2]);
    }

    #[test]
    fn what_all_are_makes_no_node_a_laggard() {
        let mut nodes = Nodes::new(3);
        assert!(nodes.write(10 * SECOND, 100, &[100 * MS, 120 * MS, 300 * MS]).is_empty());
        assert!(nodes.write(10 * SECOND, 100, &[QUICK, QUICK, 8 * MS]).is_empty(), "it is far away");
        assert!(nodes.write(10 * SECOND, 100, &[MS]).is_empty());
    }

    #[test]
    fn a_node_that_is_written_to_the_most_is_no_laggard() {
        let mut nodes = Nodes::new(3);
        for _ in 0..20 {
            nodes.now += WINDOW;
            for (writes, (count, each)) in nodes.writes.iter_mut().zip([(40, MS / 5), (40, MS / 5), (5_000, 40 * MS)]) {
                *writes = more(*writes, count, each);
            }
            nodes.laggards.saw(nodes.writes.iter().copied().map(Some), nodes.now);
        }
        assert!(!nodes.laggards.is_left(2, nodes.now), "it ends more than the others");
    }

    #[test]
    fn what_comes_in_bursts_is_no_laggard() {
        let mut nodes = Nodes::new(3);
        for burst in 0..20 {
            nodes.write(WINDOW, 9, &[QUICK, 2 * QUICK, 0]);
            if burst % 3 == 0 {
                // 2,000 at once, of which the node ends one each 20 us.
                let Writes { count, time, busy } = nodes.writes[2];
                nodes.writes[2] = Writes { count: count + 2_000, time: time + 2_000 * 20 * MS, busy: busy + 40 * MS };
            }
        }
        assert!(nodes.write(WINDOW, 9, &[QUICK, 2 * QUICK, 0]).is_empty());
    }

    #[test]
    fn what_a_node_took_while_it_was_left_is_not_held_against_it() {
        let mut nodes = Nodes::new(3);
        assert_eq!(nodes.write(SECOND, 50, &[QUICK, QUICK, 100 * MS]), [2]);
        nodes.write(LEFT_FOR - SECOND, 50, &[QUICK, QUICK, 100 * MS]);
        while nodes.write(WINDOW, 50, &[QUICK, QUICK, 100 * MS]) == [2] {}
        assert!(nodes.write(WINDOW, 50, &[QUICK, QUICK, 100 * MS]).is_empty());
    }

    #[test]
    fn few_writes_say_little_and_add_up() {
        let mut nodes = Nodes::new(3);
        assert!(nodes.write(5 * WINDOW, 1, &[QUICK, QUICK, 900 * MS]).is_empty());
        assert_eq!(nodes.write(30 * WINDOW, 1, &[QUICK, QUICK, 900 * MS]), [2]);
    }

    #[test]
    fn a_node_is_left_for_longer_each_time() {
        let mut nodes = Nodes::new(3);
        let mut spans = Vec::new();
        nodes.write(WINDOW, 50, &[QUICK; 3]);
        for _ in 0..8 {
            assert_eq!(nodes.write(u64::from(WINDOWS) * WINDOW, 50, &[QUICK, QUICK, 100 * MS]), [2]);
            let begun = nodes.now;
            while nodes.write(SECOND, 50, &[QUICK; 3]) == [2] {}
            spans.push((nodes.now - begun) / SECOND);
        }
        assert_eq!(spans, [10, 20, 40, 80, 160, 320, 640, 640]);
    }

    #[test]
    fn half_of_the_nodes_are_left_at_most() {
        let mut nodes = Nodes::new(5);
        let each = [QUICK, QUICK, QUICK, 100 * MS, 100 * MS];
        assert_eq!(nodes.write(SECOND, 50, &each), [3, 4]);
        assert!(nodes.write(300 * WINDOW, 50, &[QUICK, 100 * MS, 100 * MS, 100 * MS, QUICK]).len() < 3);
        let mut nodes = Nodes::new(2);
        assert_eq!(nodes.write(SECOND, 50, &[QUICK, 100 * MS]), [1]);
    }

    #[test]
    fn one_alone_is_compared_with_what_it_was() {
        let mut nodes = Nodes::new(1);
        assert!(nodes.write(10 * SECOND, 50, &[100 * MS]).is_empty());
        let mut nodes = Nodes::new(1);
        assert!(nodes.write(10 * SECOND, 50, &[QUICK]).is_empty());
        assert!(nodes.write(10 * SECOND, 50, &[2 * MS]).is_empty());
        assert_eq!(nodes.write(SECOND, 50, &[100 * MS]), [0]);
    }

    #[test]
    fn two_of_which_one_is_not_written_to_are_not_compared() {
        let mut nodes = Nodes::new(2);
        let mut write = |each: Nanos| {
            for _ in 0..10 {
                nodes.now += WINDOW;
                nodes.writes[1] = more(nodes.writes[1], 50, each);
                nodes.laggards.saw(nodes.writes.iter().copied().map(Some), nodes.now);
            }
            nodes.laggards.is_left(1, nodes.now)
        };
        assert_eq!([QUICK, MS, 100 * MS].map(&mut write), [false, false, true]);
    }
}
