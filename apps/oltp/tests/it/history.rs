//! Which transaction has read and replaced what, and whether there is an order of transactions in which that is right.
//!
//! Every version of a row is named by the transaction that wrote it; 0 is what was there before all. Who replaces a
//! version says which. So the versions of a row are a chain, and three kinds of edges say who comes before whom: the
//! writer of a version before those who read it, and before who replaces it, and those who read it before who replaces
//! it. A cycle has no order.

use std::collections::HashMap;
use std::fmt;

/// A version of a row: its table and key, and who wrote it.
type Version = (usize, u64, u64);

/// What a transaction has read and replaced.
#[derive(Clone, Default, Debug)]
pub(crate) struct Access {
    pub(crate) number: u64,
    read: Vec<Version>,
    replaced: Vec<Version>,
}

impl Access {
    pub(crate) fn of(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    pub(crate) fn reads(&mut self, table: usize, key: u64, writer: u64) {
        self.read.push((table, key, writer));
    }

    pub(crate) fn replaces(&mut self, table: usize, key: u64, writer: u64) {
        self.replaced.push((table, key, writer));
    }
}

/// Why there is no order.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Disorder {
    /// Two have replaced the same version: one of the two changes is lost.
    Lost(Version, u64, u64),
    /// Nobody who has committed wrote what somebody has read.
    Unwritten(Version),
    /// Of so many each comes before another of them.
    Cycle(usize),
    /// Of two of which one comes before the other, that one has the greater number.
    Number(u64, u64),
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(version, a, b) => write!(f, "both {a} and {b} have replaced {version:?}"),
            Self::Unwritten(version) => write!(f, "{version:?} was read and never committed"),
            Self::Cycle(count) => write!(f, "{count} transactions are in cycles or come after some"),
            Self::Number(a, b) => write!(f, "{a} comes before {b}, and its number does not"),
        }
    }
}

/// All that have committed, each with the number that the engine gave it.
pub(crate) struct History<Tid> {
    all: HashMap<u64, (Access, Tid)>,
}

impl<Tid: Ord> History<Tid> {
    pub(crate) fn new() -> Self {
        Self { all: HashMap::new() }
    }

    pub(crate) fn add(&mut self, access: Access, tid: Tid) {
        let before = self.all.insert(access.number, (access, tid));
        assert!(before.is_none(), "a transaction has committed twice");
    }

    /// Whether there is an order.
    pub(crate) fn check(&self) -> Result<(), Disorder> {
        let replacers = self.replacers()?;
        let mut after: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut edge = |from: u64, to: u64| {
            if from != 0 && from != to {
                after.entry(from).or_default().push(to);
            }
        };
        for (access, tid) in self.all.values() {
            for version in access.read.iter().chain(&access.replaced) {
                let writer = version.2;
                if writer != 0 {
                    let written = self.all.get(&writer).filter(|(by, _)| by.wrote(*version));
                    let (_, before) = written.ok_or(Disorder::Unwritten(*version))?;
                    if writer != access.number && before >= tid {
                        return Err(Disorder::Number(writer, access.number));
                    }
                }
                edge(writer, access.number);
            }
            for version in &access.read {
                replacers.get(version).into_iter().for_each(|replacer| edge(access.number, *replacer));
            }
        }
        self.sort(&after)
    }

    /// Who has replaced each version.
    fn replacers(&self) -> Result<HashMap<Version, u64>, Disorder> {
        let mut replacers = HashMap::new();
        for (access, _) in self.all.values() {
            for version in &access.replaced {
                if let Some(other) = replacers.insert(*version, access.number) {
                    return Err(Disorder::Lost(*version, other.min(access.number), other.max(access.number)));
                }
            }
        }
        Ok(replacers)
    }

    /// Takes away who comes after nobody, again and again: who is in a cycle stays.
    fn sort(&self, after: &HashMap<u64, Vec<u64>>) -> Result<(), Disorder> {
        let mut before: HashMap<u64, usize> = self.all.keys().map(|number| (*number, 0)).collect();
        after.values().flatten().for_each(|to| *before.get_mut(to).expect("it has committed") += 1);
        let mut free: Vec<u64> = before.iter().filter(|(_, count)| **count == 0).map(|(number, _)| *number).collect();
        let mut sorted = 0;
        while let Some(number) = free.pop() {
            sorted += 1;
            for to in after.get(&number).into_iter().flatten() {
                let count = before.get_mut(to).expect("it has committed");
                *count -= 1;
                if *count == 0 {
                    free.push(*to);
                }
            }
        }
        if sorted == self.all.len() { Ok(()) } else { Err(Disorder::Cycle(self.all.len() - sorted)) }
    }
}

impl Access {
    fn wrote(&self, (table, key, _): Version) -> bool {
        self.replaced.iter().any(|replaced| (replaced.0, replaced.1) == (table, key))
    }
}

mod tests {
    use super::*;

    fn check(all: &[(&[Version], &[Version])]) -> Result<(), Disorder> {
        let mut history = History::new();
        for (number, (read, replaced)) in (1..).zip(all) {
            history.add(Access { number, read: read.to_vec(), replaced: replaced.to_vec() }, number);
        }
        history.check()
    }

    const A: fn(u64) -> Version = |writer| (0, 1, writer);
    const B: fn(u64) -> Version = |writer| (0, 2, writer);

    #[test]
    fn what_has_an_order_passes() {
        let chain: [(&[_], &[_]); 3] = [(&[A(0)], &[A(0)]), (&[A(1), B(0)], &[B(0)]), (&[A(1), B(2)], &[A(1)])];
        assert_eq!(check(&chain), Ok(()));
    }

    #[test]
    fn lost_changes_are_seen() {
        assert_eq!(check(&[(&[A(0)], &[A(0)]), (&[A(0)], &[A(0)])]), Err(Disorder::Lost(A(0), 1, 2)));
    }

    #[test]
    fn two_that_each_read_what_the_other_replaces_are_seen() {
        assert_eq!(check(&[(&[A(0), B(0)], &[A(0)]), (&[A(0), B(0)], &[B(0)])]), Err(Disorder::Cycle(2)));
    }

    #[test]
    fn half_of_a_transaction_is_seen() {
        assert_eq!(check(&[(&[], &[A(0), B(0)]), (&[A(1), B(0)], &[])]), Err(Disorder::Cycle(2)));
    }

    #[test]
    fn what_nobody_wrote_and_numbers_out_of_order_are_seen() {
        assert_eq!(check(&[(&[A(7)], &[])]), Err(Disorder::Unwritten(A(7))));
        assert_eq!(check(&[(&[A(2)], &[]), (&[], &[A(0)])]), Err(Disorder::Number(2, 1)));
    }
}
