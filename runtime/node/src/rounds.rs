//! [`Rounds`]: whose turn it is among those that wait, by deficit round robin (Shreedhar and Varghese, 1995).
//!
//! What an item costs is known when it is done, so it is paid for afterwards: a party that has taken more than its
//! rounds gave owes the rest, and is passed over until further rounds have paid. So parties share by cost, whatever
//! their items are. Debts are forgiven while no one waits.
//!
//! A party has its items one after the other until its round is used up. One that had none, and has some again, goes
//! before all that were there, for what is left of its round (as new flows do in RFC 8290): who has little under way
//! does not wait for those who have much, and gets no more than they do by coming often. Of those who come each has one
//! item first, as they have come. So many may come that there is always a new one, and that they cannot all be
//! remembered: when half of the places are taken those who are not known go behind all others, and when all that are
//! known could have used up their rounds another round begins.
//!
//! Invariants: a party is kept while it has items, or has used some of its round; `waiting` counts all items.

use std::collections::VecDeque;

/// What one party has waiting.
pub(crate) trait Waiting: Default {
    /// What waits.
    type Item;

    /// The next item.
    fn pop(&mut self) -> Option<Self::Item>;

    /// How many wait.
    fn len(&self) -> usize;

    /// How much they take, of what is bounded.
    fn weight(&self) -> usize {
        self.len()
    }
}

impl<T> Waiting for VecDeque<T> {
    type Item = T;

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }

    fn len(&self) -> usize {
        Self::len(self)
    }
}

/// The parties; the next one first.
#[derive(Debug)]
pub(crate) struct Rounds<K, W> {
    parties: VecDeque<Party<K, W>>,
    waiting: usize,
    /// What was charged since the round began, for each item a quantum at most.
    spent: u64,
    /// Cost that a party gets in each round, and most that it keeps.
    quantum: i64,
    /// Parties that are kept at a time, those that only owe among them.
    parties_max: usize,
}

#[derive(Debug)]
struct Party<K, W> {
    key: K,
    waiting: W,
    /// Cost that it may still have in this round; below 0 it owes that.
    credit: i64,
    /// Whether it has come and had nothing yet.
    is_new: bool,
}

impl<K: Copy + PartialEq, W: Waiting> Rounds<K, W> {
    /// No one waits. If there are `parties_max` parties, those that only owe are forgotten.
    pub(crate) fn new(quantum: u32, parties_max: usize) -> Self {
        Self { parties: VecDeque::new(), waiting: 0, spent: 0, quantum: quantum.into(), parties_max }
    }

    /// All that waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Parties that have items.
    pub(crate) fn waiting_parties(&self) -> usize {
        self.parties.iter().filter(|party| party.waiting.len() > 0).count()
    }

    /// How much of what is bounded a party takes.
    pub(crate) fn weight_of(&self, key: K) -> usize {
        self.parties.iter().find(|party| party.key == key).map_or(0, |party| party.waiting.weight())
    }

    /// What waits of a party.
    pub(crate) fn len_of(&self, key: K) -> usize {
        self.parties.iter().find(|party| party.key == key).map_or(0, |party| party.waiting.len())
    }

    /// Lets `change` put items to those of a party, or take some away; what it says.
    pub(crate) fn change<R>(&mut self, key: K, change: impl FnOnce(&mut W) -> R) -> R {
        let known = self.place_of(key);
        let place = known.unwrap_or_else(|| {
            self.parties.push_back(Party { key, waiting: W::default(), credit: self.quantum, is_new: false });
            self.parties.len() - 1
        });
        let party = &mut self.parties[place];
        let before = party.waiting.len();
        let said = change(&mut party.waiting);
        let after = party.waiting.len();
        self.waiting = self.waiting - before + after;
        if after == 0 && party.credit == self.quantum {
            self.parties.remove(place);
        } else if before == 0
            && after > 0
            && party.credit > 0
            && (known.is_some() || self.parties.len() <= self.parties_max / 2)
        {
            let party = &mut self.parties[place];
            party.is_new = true;
            self.put_behind_new(place);
        }
        said
    }

    /// The party that takes most of what is bounded.
    pub(crate) fn heaviest(&self) -> Option<K> {
        self.parties.iter().max_by_key(|party| party.waiting.weight()).map(|party| party.key)
    }

    /// The next item, and whose it is: of the first party that owes nothing.
    pub(crate) fn next(&mut self) -> Option<(K, W::Item)> {
        if self.waiting == 0 {
            self.forgive();
            return None;
        }
        self.begin_rounds();
        let place = self.parties.iter().position(Party::may_go).expect("rounds are begun until one may go");
        let party = &mut self.parties[place];
        let next = (party.key, party.waiting.pop()?);
        self.waiting -= 1;
        if std::mem::take(&mut party.is_new) {
            self.put_behind_new(place);
        }
        Some(next)
    }

    /// No one waits, so no one owes anything.
    pub(crate) fn forgive(&mut self) {
        assert!(self.waiting == 0, "debts of those who wait");
        self.parties.clear();
        self.spent = 0;
    }

    /// An item of a party has cost so much. Once its round is used up, it goes behind all others.
    pub(crate) fn charge(&mut self, key: K, cost: u64) {
        self.spent += cost.min(self.quantum.unsigned_abs());
        let Some(place) = self.place_of(key) else { return };
        let party = &mut self.parties[place];
        // Nothing is free, so that no one stays the first for good.
        party.credit = party.credit.saturating_sub_unsigned(cost.max(1));
        if party.credit <= 0
            && let Some(mut party) = self.parties.remove(place)
        {
            party.is_new = false;
            self.parties.push_back(party);
        }
    }

    /// Puts a party before all others but those that have come and had nothing yet.
    fn put_behind_new(&mut self, place: usize) {
        let Some(party) = self.parties.remove(place) else { return };
        let place = self.parties.iter().take_while(|party| party.is_new).count();
        self.parties.insert(place, party);
    }

    fn place_of(&self, key: K) -> Option<usize> {
        self.parties.iter().position(|party| party.key == key)
    }

    /// Begins as many rounds as it takes until one of those that wait may go.
    fn begin_rounds(&mut self) {
        let quantum = self.quantum;
        let with_items = self.parties.iter().filter(|party| party.waiting.len() > 0);
        let until_one_may_go = with_items.map(|party| party.rounds_until_it_may_go(quantum)).min().unwrap_or(0);
        // Each of those that are known has at most its round, and what is left of the last item.
        let is_over = self.spent > 2 * quantum.unsigned_abs() * self.parties.len() as u64;
        let rounds = until_one_may_go.max(is_over.into());
        if rounds > 0 {
            self.spent = 0;
        }
        for party in &mut self.parties {
            party.credit = party.credit.saturating_add(rounds.saturating_mul(quantum)).min(quantum);
        }
        let is_full = self.parties.len() >= self.parties_max;
        // One that comes again in the same round has what is left of it, and not another.
        self.parties.retain(|party| party.waiting.len() > 0 || (party.credit < quantum && !is_full));
    }
}

impl<K, W: Waiting> Party<K, W> {
    fn may_go(&self) -> bool {
        self.waiting.len() > 0 && self.credit > 0
    }

    /// Rounds that pay what it owes.
    fn rounds_until_it_may_go(&self, quantum: i64) -> i64 {
        if self.credit > 0 { 0 } else { self.credit.saturating_neg() / quantum + 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Lines = Rounds<u8, VecDeque<u64>>;

    fn put(rounds: &mut Lines, key: u8, cost: u64) {
        rounds.change(key, |line| line.push_back(cost));
    }

    proptest! {
        /// Parties that always have something, with items of any cost: each gets the same, but for an item and a round.
        #[test]
        fn parties_share_by_cost(costs in prop::collection::vec(1u64..5000, 2..6)) {
            let mut rounds = Lines::new(1000, 16);
            let keys = || (0u8..).zip(&costs);
            keys().for_each(|(key, cost)| put(&mut rounds, key, *cost));
            let mut taken: BTreeMap<u8, u64> = BTreeMap::new();
            for _ in 0..20_000 {
                let (key, cost) = rounds.next().unwrap();
                *taken.entry(key).or_default() += cost;
                rounds.charge(key, cost);
                put(&mut rounds, key, cost);
            }
            let (least, most) = (taken.values().min().unwrap(), taken.values().max().unwrap());
            prop_assert_eq!(taken.len(), costs.len());
            prop_assert!(most - least <= 2 * (5000 + 1000), "{:?} of {:?}", taken, costs);
        }

        /// Nothing is lost or invented, each party's items stay in order, and nothing stays behind.
        #[test]
        fn items_come_out_as_they_went_in(steps in prop::collection::vec((0u8..5, 0u64..9000), 0..300)) {
            let mut rounds = Lines::new(1000, 3);
            let mut model: BTreeMap<u8, VecDeque<u64>> = BTreeMap::new();
            for (key, cost) in steps {
                if cost < 6000 {
                    put(&mut rounds, key, cost);
                    model.entry(key).or_default().push_back(cost);
                } else if let Some((key, item)) = rounds.next() {
                    prop_assert_eq!(model.get_mut(&key).and_then(VecDeque::pop_front), Some(item));
                    rounds.charge(key, cost);
                } else {
                    prop_assert!(model.values().all(VecDeque::is_empty));
                }
                prop_assert_eq!(rounds.len(), model.values().map(VecDeque::len).sum::<usize>());
            }
            while let Some((key, item)) = rounds.next() {
                prop_assert_eq!(model.get_mut(&key).and_then(VecDeque::pop_front), Some(item));
            }
            prop_assert!(model.values().all(VecDeque::is_empty) && rounds.parties.is_empty());
        }
    }

    /// One that has an item now and then waits for none of the others', and gets no more than they do.
    #[test]
    fn who_comes_goes_first_until_its_round_is_used_up() {
        let mut rounds = Lines::new(1000, 16);
        (0..100).for_each(|_| put(&mut rounds, 1, 300));
        let mut order = Vec::new();
        for _ in 0..40 {
            put(&mut rounds, 2, 300);
            let (key, cost) = rounds.next().unwrap();
            rounds.charge(key, cost);
            order.push(key);
        }
        assert_eq!(order[..9], [1, 2, 2, 2, 2, 1, 1, 1, 2], "the one that has come, its round, and what was left");
        let of_first = order.iter().filter(|key| **key == 1).count();
        assert!((18..=22).contains(&of_first), "{order:?}");
        // Two that come are served as they have come.
        let mut rounds = Lines::new(1000, 16);
        (1..=4).for_each(|key| put(&mut rounds, key, 300));
        assert!((1..=4).all(|key| rounds.next().unwrap().0 == key));
        // One item at a time, after each that another has had: none of them waits for two of the other's.
        let mut rounds = Lines::new(1000, 16);
        (0..100).for_each(|_| put(&mut rounds, 1, 300));
        assert_eq!(rounds.next().unwrap().0, 1);
        for _ in 0..20 {
            put(&mut rounds, 2, 100);
            assert_eq!(rounds.next().unwrap().0, 2);
            rounds.charge(2, 100);
            assert_eq!(rounds.next().unwrap().0, 1);
            rounds.charge(1, 300);
        }
    }

    /// Two that come and go, so that one of them always has something left, get no more than one that waits.
    #[test]
    fn who_goes_and_comes_again_has_the_same_round() {
        for cost in [100, 900] {
            let mut rounds = Lines::new(1000, 16);
            (0..10_000).for_each(|_| put(&mut rounds, 0, 100));
            let mut taken = [0u64; 3];
            let mut absent = 1;
            put(&mut rounds, 2, cost);
            for _ in 0..2000 {
                let (key, spent) = rounds.next().unwrap();
                taken[usize::from(key)] += spent;
                rounds.charge(key, spent);
                if absent != 0 {
                    put(&mut rounds, absent, cost);
                }
                absent = key;
            }
            let share = taken[0] as f64 / taken.iter().sum::<u64>() as f64;
            assert!(share > 0.3, "{taken:?} at {cost}");
        }
    }

    /// So many come with one item each that there is always a new one, and the parties are too many to be kept.
    #[test]
    fn however_many_come_who_waits_has_some() {
        let mut rounds = Lines::new(1000, 128);
        (0..3000).for_each(|_| put(&mut rounds, 0, 300));
        let mut next = 0;
        let mut come = |rounds: &mut Lines| {
            put(rounds, 1 + next, 300);
            next = (next + 1) % 200;
        };
        (0..64).for_each(|_| come(&mut rounds));
        let (mut own, mut between, items) = (0, 0, 50_000);
        for _ in 0..items {
            let (key, cost) = rounds.next().unwrap();
            rounds.charge(key, cost);
            if key == 0 {
                (own, between) = (own + 1, 0);
            } else {
                between += 1;
                assert!(between <= 2000, "who waits is passed over");
                come(&mut rounds);
            }
        }
        assert!(own >= items / 201 / 2, "{own} of {items}, where 201 have the same");
    }

    /// One item at a time leaves no debt behind.
    #[test]
    fn a_debt_outlives_its_item_while_others_wait() {
        let mut rounds = Lines::new(1000, 16);
        (0..30).for_each(|_| put(&mut rounds, 1, 1000));
        put(&mut rounds, 2, 10_000);
        let mut order = Vec::new();
        while let Some((key, cost)) = rounds.next() {
            order.push(key);
            rounds.charge(key, cost);
            if key == 2 && order.len() < 30 {
                put(&mut rounds, 2, 10_000);
            }
        }
        let dear: Vec<usize> = order.iter().zip(0..).filter(|(key, _)| **key == 2).map(|(_, at)| at).collect();
        assert!(dear.len() > 2 && dear.windows(2).all(|pair| pair[1] - pair[0] >= 9), "{order:?}");
    }

    #[test]
    fn those_that_only_owe_are_forgotten_when_there_are_many() {
        let mut rounds = Lines::new(1000, 8);
        put(&mut rounds, 200, 1);
        for key in 0..100 {
            put(&mut rounds, key, 1);
            while let Some((next, _)) = rounds.next() {
                put(&mut rounds, 200, 1);
                if next == key {
                    break;
                }
                rounds.charge(next, 500);
            }
            rounds.charge(key, 1_000_000);
            assert!(rounds.parties.len() <= 9, "{} parties are kept", rounds.parties.len());
        }
    }
}
