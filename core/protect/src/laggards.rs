//! [`Laggards`]: the nodes for which writes wait so long that their places are evacuated.
//!
//! A write ends when all places have it, so one slow node slows all of them down, where a read asks another one. But to
//! move everything off a node costs more than to wait a while. So a node is left only if the writes that ended in a
//! window of time took it much longer on average than they took the others, in several windows one after another; and
//! it is left for a while, each time for longer, so that one that is slow now and then is not emptied and filled again
//! and again.
//!
//! Times are compared with those of the quicker half of nodes, in their last windows, or where the program writes to
//! one only with what was usual there, so that what the program or its link is short of makes no node a laggard. Nor
//! does a longer way: [`LATE`] is more than any way in one building. Nor is it enough that writes wait for one another
//! where the program writes the most: so is the time compared in which any was there, divided by their number.
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
/// How long one may last, where few writes end: after a longer one they begin anew. For as long a window says how a
/// node is.
const WINDOWS_WITHIN: Nanos = 10 * WINDOW;
/// Writes of a window that say something.
pub const WRITES_MIN: u64 = 8;
/// How long a node is left for the first time.
pub const LEFT_FOR: Nanos = 10_000_000_000;
/// The longest.
pub const LEFT_FOR_MAX: Nanos = 640_000_000_000;
/// After such a time it is as if it had never been left: two that are left in turn are each left for the longest.
const FORGOTTEN_AFTER: Nanos = 2 * LEFT_FOR_MAX;

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

/// Writes of one queue pair at a node, until the node is told of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ended {
    writes: Writes,
    /// When the first of them began, and the last ended.
    begun: Nanos,
    end: Nanos,
}

/// What is remembered of a node.
#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// At the end of the last window, and when that was.
    seen: Writes,
    seen_at: Nanos,
    late_windows: u8,
    /// Its last window, and when that ended.
    last: Option<(Mean, Nanos)>,
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

impl Ended {
    /// One has ended, about in their order: the time in which any was under way is what the ends and the first
    /// beginning make of it.
    #[inline]
    pub fn wrote(&mut self, begun: Nanos, end: Nanos) {
        let span = end.saturating_sub(begun);
        self.writes.count += 1;
        self.writes.time += span;
        if self.writes.count == 1 {
            (self.begun, self.end, self.writes.busy) = (begun, begun + span, span);
        } else {
            self.writes.busy += self.begun.saturating_sub(begun) + end.saturating_sub(begun.max(self.end));
            (self.begun, self.end) = (self.begun.min(begun), self.end.max(end));
        }
    }

    /// They are told, and others follow: where one queue pair after the other tells them, which was the last until
    /// `told_until`, what that has told is not told again. With when the last ended.
    pub fn tell(&mut self, told_until: impl FnOnce(Nanos) -> Nanos) -> Writes {
        let Self { writes, begun, end } = std::mem::take(self);
        if writes.count == 0 {
            return writes;
        }
        let idle = (end - begun).saturating_sub(writes.busy);
        let untold = end.saturating_sub(begun.max(told_until(end)));
        Writes { busy: untold.saturating_sub(idle), ..writes }
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

impl Node {
    /// Its mean in this window, or in one that has just been.
    fn mean(&self, now: Nanos, mean: Option<Mean>) -> Option<Mean> {
        let last = self.last.filter(|(_, ended)| now - ended <= WINDOWS_WITHIN);
        mean.or(last.map(|(mean, _)| mean)).filter(|_| self.left_until <= now)
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
            } else if now - node.left_until > FORGOTTEN_AFTER {
                node.times_left = 0;
            }
        }
        let mean = |(node, writes): (&Node, &Option<Writes>)| writes.as_ref()?.since(node.seen).mean();
        let means: Vec<Option<Mean>> = self.nodes.iter().zip(&writes).map(mean).collect();
        let compared: Vec<Option<Mean>> =
            self.nodes.iter().zip(&means).map(|(node, mean)| node.mean(now, *mean)).collect();
        let usual = Mean::usual(&compared);
        // Half of those that are written to at most: the others have to take what they had.
        let mut left = self.nodes.iter().filter(|node| node.left_until > now).count();
        let written = compared.iter().flatten().count() + left;
        let left_max = (written / 2).max(1);
        for ((node, writes), mean) in self.nodes.iter_mut().zip(writes).zip(means) {
            // Where too few have ended the window goes on.
            let (Some(mean), Some(writes)) = (mean, writes) else { continue };
            let is_late = usual.or(node.usual).is_some_and(|usual| mean.is_late(usual));
            if !is_late {
                let of = |usual: Nanos, mean: Nanos| usual - usual / 4 + mean / 4;
                let later = |usual: Mean| Mean { time: of(usual.time, mean.time), alone: of(usual.alone, mean.alone) };
                node.usual = Some(node.usual.map_or(mean, later));
            }
            node.last = Some((mean, now));
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
    fn time_is_counted_in_which_any_write_was_under_way() {
        let told = |spans: &[(Nanos, Nanos)], told_until: Nanos| {
            let mut ended = Ended::default();
            spans.iter().for_each(|(begun, end)| ended.wrote(*begun, *end));
            let last = spans.iter().map(|(_, end)| *end).max().unwrap_or(0);
            let writes = ended.tell(|end| {
                assert_eq!(end, last);
                told_until
            });
            assert_eq!(ended, Ended::default());
            (writes.count, writes.time, writes.busy)
        };
        assert_eq!(told(&[], 0), (0, 0, 0));
        assert_eq!(told(&[(10, 20), (30, 35)], 0), (2, 15, 15), "not in between");
        assert_eq!(told(&[(10, 20), (15, 30), (29, 31)], 0), (3, 27, 21));
        assert_eq!(told(&[(15, 20), (10, 30)], 0), (2, 25, 20));
        assert_eq!(told(&[(10, 20), (30, 40)], 25), (2, 20, 5), "what comes from several is about right");
        assert_eq!(told(&[(10, 20)], 50), (1, 10, 0));
    }

    /// Writes at random times, at a node that takes `each` for one however many there are.
    fn told_at_random(rate: u64, each: Nanos) -> Writes {
        let (mut ended, mut begun, mut dice) = (Ended::default(), SECOND, 88_172_645_463_325_252_u64);
        while begun < 2 * SECOND {
            ended.wrote(begun, begun + each);
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            begun += dice % (2 * SECOND / rate);
        }
        ended.tell(|_| 0)
    }

    #[test]
    fn a_quick_node_that_is_written_to_often_is_seldom_busy() {
        for rate in [100, 1_000, 5_000] {
            let (quick, slow) =
                (told_at_random(rate, QUICK).mean().unwrap(), told_at_random(rate, 100 * MS).mean().unwrap());
            assert!(slow.is_late(quick), "{rate} a second: {quick:?}, {slow:?}");
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

    /// Each node ends writes at its own pace, so that windows of no two end together.
    fn write_unevenly(nodes: &mut Nodes, span: Nanos, each: &[Nanos]) -> Vec<usize> {
        let until = nodes.now + span;
        while nodes.now < until {
            nodes.now += WINDOW / 4;
            for (number, each) in each.iter().enumerate() {
                let is_due = (nodes.now / (WINDOW / 4) + 2 * number as u64).is_multiple_of(3 + number as u64);
                nodes.writes[number] = more(nodes.writes[number], u64::from(is_due), *each);
            }
            nodes.laggards.saw(nodes.writes.iter().copied().map(Some), nodes.now);
        }
        (0..each.len()).filter(|node| nodes.laggards.is_left(*node, nodes.now)).collect()
    }

    #[test]
    fn windows_that_end_at_different_times_are_compared() {
        let mut nodes = Nodes::new(3);
        assert_eq!(write_unevenly(&mut nodes, 8 * SECOND, &[QUICK, QUICK, 100 * MS]), [2], "it was so from the start");
        let mut nodes = Nodes::new(3);
        assert!(write_unevenly(&mut nodes, 10 * SECOND, &[QUICK; 3]).is_empty());
        assert!(write_unevenly(&mut nodes, 20 * SECOND, &[60 * MS; 3]).is_empty(), "it is the program's link");
    }

    #[test]
    fn two_slow_nodes_are_emptied_into_one_another_less_and_less_often() {
        let mut nodes = Nodes::new(3);
        let (mut home, mut turns) = (0, Vec::new());
        while nodes.now < 6_000 * SECOND {
            nodes.now += WINDOW;
            // The places are at the quick one, and at one of the slow ones.
            for (number, each) in [(home, 100 * MS), (2, QUICK)] {
                nodes.writes[number] = more(nodes.writes[number], 50, each);
            }
            nodes.laggards.saw(nodes.writes.iter().copied().map(Some), nodes.now);
            if nodes.laggards.is_left(home, nodes.now) {
                home = 1 - home;
                turns.push(nodes.now / SECOND);
            }
        }
        let spans: Vec<Nanos> = turns.windows(2).map(|turns| turns[1] - turns[0]).collect();
        assert!(spans.is_sorted() && *spans.last().unwrap() >= LEFT_FOR_MAX / SECOND, "{turns:?}");
    }

    #[test]
    fn nodes_that_nothing_is_written_to_are_not_half_of_them() {
        let mut nodes = Nodes::new(9);
        for each in [[QUICK, QUICK, 100 * MS], [QUICK, 100 * MS, 100 * MS]] {
            for _ in 0..10 {
                nodes.now += WINDOW;
                for (writes, each) in nodes.writes.iter_mut().zip(each) {
                    *writes = more(*writes, 50, each);
                }
                nodes.laggards.saw(nodes.writes.iter().copied().map(Some), nodes.now);
            }
            assert_eq!((0..9).filter(|node| nodes.laggards.is_left(*node, nodes.now)).collect::<Vec<_>>(), [2]);
        }
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
