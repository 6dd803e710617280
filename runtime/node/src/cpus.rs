//! [`CpuList`]: CPUs that data threads have to themselves, as far as the node's other threads are concerned.
//!
//! Where CPUs are short, threads for allocations, offloads and sessions weigh as much as those that read and write, and
//! a request of the fast path waits for them. What data threads have alone they keep, whatever else is asked of the
//! node.

use std::fmt;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::NodeError;

/// Some CPUs, by number: `0`, `0-3` or `0-3,8`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(Vec<usize>);

/// Why a text is no list of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("type numbers of CPUs, such as 0-3,8, below {max}", max = CpuSet::MAX_CPU)]
pub struct NoCpuList;

impl FromStr for CpuList {
    type Err = NoCpuList;

    fn from_str(text: &str) -> Result<Self, NoCpuList> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|cpu| *cpu < CpuSet::MAX_CPU).ok_or(NoCpuList);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(NoCpuList);
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|one, next| one + 1 == *next);
        for (place, range) in ranges.enumerate() {
            let (comma, first, last) = (if place > 0 { "," } else { "" }, range[0], range[range.len() - 1]);
            if first == last {
                write!(formatter, "{comma}{first}")?;
            } else {
                write!(formatter, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

/// Which CPUs the threads of a node run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    /// Where data threads run.
    data: CpuSet,
    /// Where all others do.
    others: CpuSet,
}

impl Cpus {
    /// Those of `data` for data threads, and the others that this thread may use for others. Both must have some.
    pub(crate) fn of(data: &CpuList) -> Result<Self, NodeError> {
        let refused = |cause| NodeError::System { what: "its CPUs", cause };
        let allowed = sched_getaffinity(None).map_err(|errno| refused(errno.into()))?;
        Self::among(&allowed, data)
    }

    fn among(allowed: &CpuSet, data: &CpuList) -> Result<Self, NodeError> {
        let mut of_data = CpuSet::new();
        let mut others = *allowed;
        for cpu in &data.0 {
            if !allowed.is_set(*cpu) {
                return Err(NodeError::NoCpu { cpu: *cpu });
            }
            of_data.set(*cpu);
            others.unset(*cpu);
        }
        if others.count() == 0 {
            return Err(NodeError::AllCpus { typed: data.to_string() });
        }
        Ok(Self { data: of_data, others })
    }

    /// The body of a data thread, on its CPUs if it has some.
    pub(crate) fn for_data(cpus: Option<Self>, body: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        move || {
            if let Some(cpus) = cpus {
                set(&cpus.data);
            }
            body();
        }
    }

    /// Keeps the calling thread, and those that it starts meanwhile, off the data threads' CPUs until the result is
    /// dropped.
    pub(crate) fn leave(&self) -> Left {
        let before = sched_getaffinity(None).ok();
        set(&self.others);
        Left { before }
    }
}

/// A thread that leaves data threads their CPUs.
pub(crate) struct Left {
    before: Option<CpuSet>,
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set(before);
        }
    }
}

fn set(cpus: &CpuSet) {
    if let Err(errno) = sched_setaffinity(None, cpus) {
        tracing::warn!("a thread runs on CPUs that it was not to: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        for (typed, shown) in [("0", "0"), ("3,1,2", "1-3"), ("0-3,8", "0-3,8"), ("5-5,5", "5"), ("0,2-3", "0,2-3")] {
            assert_eq!(typed.parse::<CpuList>().map(|list| list.to_string()), Ok(shown.to_owned()));
        }
        for typed in ["", "a", "0,", "-1", "1-", "3-1", "0 1", "1024", "99999999999999999999"] {
            assert_eq!(typed.parse::<CpuList>(), Err(NoCpuList), "{typed}");
        }
    }

    #[test]
    fn data_threads_and_others_share_no_cpu() {
        let mut allowed = CpuSet::new();
        (0..4).for_each(|cpu| allowed.set(cpu));
        let of = |typed: &str| Cpus::among(&allowed, &typed.parse().unwrap());
        let cpus = of("1-2").unwrap();
        let listed = |set: &CpuSet| (0..8).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>();
        assert_eq!((listed(&cpus.data), listed(&cpus.others)), (vec![1, 2], vec![0, 3]));
        let refused = |typed| of(typed).unwrap_err().to_string();
        assert!(refused("4").contains("CPU 4") && refused("0-3").contains("--data-cpus 0-3 leaves none"));
    }
}
