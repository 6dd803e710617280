//! [`Addresses`]: where controllers may be, of which one leads and so can be connected to.
//!
//! One that stands still can be connected to as well, for its system goes on. So while it is waited for an answer, it
//! is looked whether another one listens ([`Addresses::another_listens`]). That is then asked; the one that was silent
//! is asked again once the others have had their turn, for it may only have been slow. Until it answers, or does not
//! listen any more, or some time has passed, no other is left for it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How often it is looked whether another one listens.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long another one may take to be connected to when it is looked for.
const LOOK_TIME_MAX: Duration = Duration::from_millis(50);
/// How long connecting may take in the first round, where there are others; twice as long in each further one.
const CONNECT_TIME_MIN: Duration = Duration::from_secs(1);

/// The longest, of one that was silent.
const CONNECT_TIME_OF_SILENT_MAX: Duration = Duration::from_secs(2);
/// How long one that was silent is taken to be so.
const SILENT_TIME_MAX: Duration = Duration::from_secs(10);

/// Addresses, the best one first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    all: VecDeque<String>,
    /// Those that others were preferred to because they said nothing, and that have not answered since; and when.
    silent: BTreeMap<String, Instant>,
    /// How many have failed.
    failed: usize,
}

impl Addresses {
    /// Those in a text, which commas separate.
    pub(crate) fn parse(text: &str) -> Self {
        let all = text.split(',').map(|address| address.trim().to_owned()).collect();
        Self { all, silent: BTreeMap::new(), failed: 0 }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The one to try now.
    pub(crate) fn first(&self) -> &str {
        &self.all[0]
    }

    /// All, the way they are typed.
    pub(crate) fn text(&self) -> String {
        self.all.iter().map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Begins to try them, from the one that was good last.
    pub(crate) fn begin(&mut self) {
        self.failed = 0;
    }

    /// The first one has answered, or has said that it does not.
    pub(crate) fn answered(&mut self) {
        let Self { all, silent, .. } = self;
        silent.remove(&all[0]);
    }

    /// The first one has said nothing for as long as it had.
    pub(crate) fn was_silent(&mut self) {
        self.silent.insert(self.all[0].clone(), Instant::now());
    }

    /// The first one is silent: the others are to be tried before it.
    pub(crate) fn pass_silent(&mut self) {
        self.was_silent();
        self.begin();
        self.all.rotate_left(1);
    }

    /// The first one has failed: the next one is to be tried.
    pub(crate) fn pass(&mut self) {
        self.failed += 1;
        self.all.rotate_left(1);
    }

    /// How many have not failed since all of them had.
    pub(crate) fn left_in_round(&self) -> usize {
        self.count() - self.failed % self.count()
    }

    /// How long connecting may take where `left` is left: less where there are others to try.
    pub(crate) fn connect_time(&self, left: Duration) -> Duration {
        if self.count() == 1 {
            return left;
        }
        let rounds = u32::try_from(self.failed / self.count()).unwrap_or(u32::MAX);
        let grown = CONNECT_TIME_MIN.saturating_mul(2_u32.saturating_pow(rounds));
        // The others are to have their turns before a node's lease is over.
        let is_silent = self.silent.contains_key(&self.all[0]);
        left.min(if is_silent { grown.min(CONNECT_TIME_OF_SILENT_MAX) } else { grown })
    }

    /// Whether another one can be connected to than the first, which says nothing; that one is the next then. None that
    /// is silent itself counts.
    pub(crate) fn another_listens(&mut self) -> bool {
        for place in 1..self.count() {
            let listens = listens(&self.all[place]);
            if listens == Some(false) {
                self.silent.remove(&self.all[place]);
            } else if listens == Some(true)
                && self.silent.get(&self.all[place]).is_none_or(|since| since.elapsed() >= SILENT_TIME_MAX)
            {
                self.was_silent();
                let found = self.all.remove(place).expect("it is one of them");
                self.all.insert(1, found);
                return true;
            }
        }
        false
    }
}

/// Whether it can be connected to; None if nothing says so or otherwise.
fn listens(address: &str) -> Option<bool> {
    let tried = address.to_socket_addrs().ok()?.map(|at| TcpStream::connect_timeout(&at, LOOK_TIME_MAX));
    let (mut is_refused, mut is_unknown) = (false, false);
    for connected in tried {
        match connected {
            Ok(_) => return Some(true),
            Err(error) if is_refusal(&error) => is_refused = true,
            Err(_) => is_unknown = true,
        }
    }
    (is_refused && !is_unknown).then_some(false)
}

/// Whether nothing listens there: else it may be that something does, and says nothing, or not for long.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// Where nothing listens.
    fn nowhere() -> String {
        listener().1
    }

    #[test]
    fn another_one_that_listens_is_next_and_the_silent_one_has_its_turn_after_it() {
        let ((_silent, a), b, (_leads, c)) = (listener(), nowhere(), listener());
        let mut addresses = Addresses::parse(&format!("{a}, {b},{c}"));
        assert!(addresses.another_listens());
        assert_eq!(addresses.first(), a);
        addresses.pass();
        assert_eq!(addresses.first(), c);
        // One that is slow is not left for one that is silent, in this attempt or a later one.
        assert!(!addresses.another_listens());
        addresses.begin();
        assert!(!addresses.another_listens());
        addresses.pass();
        addresses.pass();
        assert_eq!(addresses.first(), a);
        addresses.answered();
        addresses.pass_silent();
        assert_eq!(addresses.first(), c);
        assert!(!addresses.another_listens());
    }

    #[test]
    fn one_that_was_silent_counts_again_once_it_has_not_listened() {
        let ((silent, a), (_leads, b)) = (listener(), listener());
        let mut addresses = Addresses::parse(&format!("{a},{b}"));
        addresses.pass_silent();
        assert!(!addresses.another_listens());
        drop(silent);
        assert!(!addresses.another_listens());
        let _leads = TcpListener::bind(&a).unwrap();
        assert!(addresses.another_listens());
    }

    #[test]
    fn where_no_other_listens_the_first_is_waited_for() {
        let ((_silent, a), b) = (listener(), nowhere());
        for text in [a.clone(), format!("{a},{b}")] {
            let mut addresses = Addresses::parse(&text);
            assert!(!addresses.another_listens());
            assert_eq!((addresses.first(), addresses.text()), (&*a, text));
        }
    }

    #[test]
    fn connecting_takes_little_where_there_are_others_and_more_in_each_round() {
        let minute = Duration::from_secs(60);
        assert_eq!(Addresses::parse("a:1").connect_time(minute), minute);
        let mut two = Addresses::parse("a:1,b:1");
        let mut times = Vec::new();
        for _ in 0..6 {
            times.push((two.left_in_round(), two.connect_time(minute).as_secs()));
            two.pass();
        }
        assert_eq!(times, [(2, 1), (1, 1), (2, 2), (1, 2), (2, 4), (1, 4)]);
        assert_eq!(two.connect_time(Duration::from_millis(1)), Duration::from_millis(1));
        (0..1000).for_each(|_| two.pass());
        assert_eq!(two.connect_time(minute), minute);
    }
}
