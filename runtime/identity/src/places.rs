//! [`Places`]: how many handshakes are under way, and which one gives way to a new one.
//!
//! Each has a thread, and may wait for its peer, so there is a bounded number. If all places are taken, the oldest goes
//! that has not shown who it is: of the source that has most, which is the new one's own if that has as many. So those
//! who only connect keep no member out for longer than a handshake takes, and a source keeps out itself first. One that
//! has lost its place still has its thread until that gets to run: of those there is a bounded number too, the last
//! part of which is for sources with few.
//!
//! What a source is, is for the server to say: a [`Host`] for those that nobody knows yet.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where something comes from on the network, as far as that is a place of its own: an IPv4 address, or the first half
/// of an IPv6 address, because a host may have all of the other half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(IpAddr);

impl Host {
    /// The host that has an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }

    /// The first of its addresses.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(formatter, "{address}"),
            IpAddr::V6(address) => write!(formatter, "{address}/64"),
        }
    }
}

/// The handshakes that are under way at a server, by source.
pub struct Places<S> {
    places_max: usize,
    taken: Mutex<Taken<S>>,
}

struct Taken<S> {
    /// The oldest first.
    visitors: Vec<Visitor<S>>,
    next: u64,
    /// How many have not ended yet, with a place or without, of each source that has any.
    living: Vec<(S, usize)>,
}

struct Visitor<S> {
    number: u64,
    source: S,
    deadline: Instant,
    /// To be shut down when its time is over, or its place is needed.
    socket: OwnedFd,
    /// Who it has shown to be.
    known: Option<String>,
}

/// For each place, those that have not ended yet.
const LIVING_PER_PLACE: usize = 2;
/// For each place, those that have not ended yet once sources with few have come.
const LIVING_PER_PLACE_MAX: usize = 3;
/// A source has few of them if it has less than one for so many places.
const FEW_DIVISOR: usize = 16;
/// Part of the places whose holders give way to none that one member may have.
const KNOWN_DIVISOR: usize = 8;

/// One that is under way. It ends with this.
pub struct Place<S: Copy + Eq> {
    places: Arc<Places<S>>,
    source: S,
    number: u64,
    deadline: Instant,
}

impl<S: Copy + Eq> Places<S> {
    /// At most `places_max` at a time.
    #[must_use]
    pub fn new(places_max: usize) -> Arc<Self> {
        Arc::new(Self { places_max, taken: Mutex::new(Taken { visitors: Vec::new(), next: 0, living: Vec::new() }) })
    }

    /// A place for one from `source` on this socket, if need be that of another one. `None` if all are of those who are
    /// known, or too many that have lost theirs have not ended yet: those keep out who has some of them himself.
    pub fn take(self: &Arc<Self>, source: S, socket: impl AsFd, deadline: Instant) -> Option<Place<S>> {
        let socket = socket.as_fd().try_clone_to_owned().ok()?;
        let mut taken = self.taken();
        if !taken.admits(source, self.places_max) {
            return None;
        }
        if taken.visitors.len() >= self.places_max {
            let goes = taken.who_goes_for(source)?;
            taken.visitors.remove(goes).end();
        }
        let number = taken.next;
        taken.next += 1;
        match taken.living.iter_mut().find(|(living, _)| *living == source) {
            Some((_, count)) => *count += 1,
            None => taken.living.push((source, 1)),
        }
        taken.visitors.push(Visitor { number, source, deadline, socket, known: None });
        Some(Place { places: Arc::clone(self), source, number, deadline })
    }

    /// Ends those whose time is over, and says when the next one's is.
    pub fn keep_deadlines(&self, now: Instant) -> Option<Instant> {
        let taken = self.taken();
        let is_over = |visitor: &&Visitor<S>| visitor.deadline <= now;
        taken.visitors.iter().filter(is_over).for_each(Visitor::end);
        taken.visitors.iter().map(|visitor| visitor.deadline).filter(|deadline| *deadline > now).min()
    }

    fn taken(&self) -> MutexGuard<'_, Taken<S>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Copy + Eq> Taken<S> {
    /// Whether another one of `source` may begin, by how many have not ended yet.
    fn admits(&self, source: S, places_max: usize) -> bool {
        let all: usize = self.living.iter().map(|(_, count)| count).sum();
        let own = self.living.iter().find(|(living, _)| *living == source).map_or(0, |(_, count)| *count);
        let has_few = own < places_max.div_ceil(FEW_DIVISOR);
        all < LIVING_PER_PLACE * places_max || (has_few && all < LIVING_PER_PLACE_MAX * places_max)
    }

    fn who_goes_for(&self, source: S) -> Option<usize> {
        let count = |source| self.visitors.iter().filter(|visitor| visitor.source == source).count();
        let most = self.visitors.iter().map(|visitor| visitor.source).max_by_key(|source| count(*source))?;
        // One with as many as any gives way itself.
        let from = if count(source) + 1 >= count(most) { source } else { most };
        let mut unknown = self.visitors.iter().enumerate().filter(|(_, visitor)| visitor.known.is_none());
        let goes = unknown.clone().find(|(_, visitor)| visitor.source == from).or_else(|| unknown.next());
        goes.map(|(place, _)| place)
    }
}

impl<S> Visitor<S> {
    fn end(&self) {
        // It may have ended by itself.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl<S: Copy + Eq> Place<S> {
    /// Until when it must have ended.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// It has shown who it is, and gives way to none; unless the same one has many such places already.
    pub fn know(&self, who: &impl fmt::Display) {
        let (who, most) = (who.to_string(), self.places.places_max.div_ceil(KNOWN_DIVISOR));
        let visitors = &mut self.places.taken().visitors;
        if visitors.iter().filter(|visitor| visitor.known.as_ref() == Some(&who)).count() >= most {
            return;
        }
        if let Some(own) = visitors.iter_mut().find(|visitor| visitor.number == self.number) {
            own.known = Some(who);
        }
    }
}

impl<S: Copy + Eq> Drop for Place<S> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some((_, count)) = taken.living.iter_mut().find(|(living, _)| *living == self.source) {
            *count -= 1;
        }
        taken.living.retain(|(_, count)| *count > 0);
        taken.visitors.retain(|visitor| visitor.number != self.number);
    }
}

impl<S> fmt::Debug for Places<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Places").field("places_max", &self.places_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    struct Door {
        listener: TcpListener,
        places: Arc<Places<u8>>,
    }

    /// What a visitor holds, and what the server holds for it.
    type Visit = (TcpStream, Option<Place<u8>>);

    impl Door {
        fn new(places_max: usize) -> Self {
            Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), places: Places::new(places_max) }
        }

        fn come(&self, source: u8) -> Visit {
            let there = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            there.set_nonblocking(true).unwrap();
            let here = self.listener.accept().unwrap().0;
            (there, self.places.take(source, &here, Instant::now() + Duration::from_secs(3600)))
        }
    }

    fn is_out(visit: &mut Visit) -> bool {
        visit.1.is_none() || visit.0.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    #[test]
    fn one_who_only_connects_keeps_no_other_out() {
        let door = Door::new(4);
        let mut flood: Vec<_> = (0..4).map(|_| door.come(1)).collect();
        let mut member = door.come(2);
        assert!(!is_out(&mut member) && is_out(&mut flood[0]), "the oldest of the source with most goes");
        // However many come, they push out each other.
        flood.extend((0..50).map(|_| door.come(1)));
        assert!(!is_out(&mut member));
        assert_eq!(flood.iter_mut().filter_map(|visit| (!is_out(visit)).then_some(())).count(), 3);
    }

    /// Those whose threads do not get to run are not joined by any number of others.
    #[test]
    fn those_who_have_lost_their_place_are_bounded_too() {
        let door = Door::new(4);
        let mut flood: Vec<_> = (0..50).map(|_| door.come(1)).collect();
        assert_eq!(flood.iter().filter(|visit| visit.1.is_some()).count(), 8);
        // They keep out their own source, and others only once these have had the last part.
        let others: Vec<_> = (2..20).map(|source| door.come(source)).collect();
        assert_eq!(others.iter().filter(|visit| visit.1.is_some()).count(), 4);
        assert!(others.iter().take(4).all(|visit| visit.1.is_some()), "a flood keeps out who comes after it");
        flood.truncate(4);
        drop(others);
        assert!(door.come(1).1.is_some(), "they have ended");
    }

    #[test]
    fn one_who_has_shown_who_he_is_gives_way_to_none() {
        let door = Door::new(2);
        let mut members = [door.come(1), door.come(1)];
        members.iter().zip(["a", "b"]).for_each(|((_, place), who)| place.as_ref().unwrap().know(&who));
        assert!(is_out(&mut door.come(1)) && is_out(&mut door.come(2)));
        assert!(!members.iter_mut().any(is_out));
        let [first, _second] = members;
        drop(first.1);
        assert!(!is_out(&mut door.come(2)), "a place that is free is taken");
    }

    /// One member has so many places for good; its others give way.
    #[test]
    fn a_member_does_not_hold_all_places() {
        let door = Door::new(16);
        let members: Vec<_> = (0..16).map(|_| door.come(1)).collect();
        members.iter().for_each(|(_, place)| place.as_ref().unwrap().know(&"greedy"));
        // From then on the others have as many as the member, and push out each other.
        let mut others: Vec<_> = (0..8).map(|_| door.come(2)).collect();
        assert!(!others.iter_mut().any(is_out), "one member keeps all others out");
    }

    #[test]
    fn a_host_is_one_whatever_addresses_it_takes() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        let shown = ["10.0.0.1", "2001:db8:1:2::1"].map(|text| of(text).to_string());
        assert_eq!(shown, ["10.0.0.1", "2001:db8:1:2::/64"]);
    }

    #[test]
    fn one_whose_time_is_over_is_ended() {
        let door = Door::new(2);
        let mut visit = door.come(1);
        let deadline = visit.1.as_ref().unwrap().deadline();
        assert_eq!(door.places.keep_deadlines(Instant::now()), Some(deadline));
        assert!(!is_out(&mut visit));
        assert_eq!(door.places.keep_deadlines(deadline), None);
        assert!(is_out(&mut visit));
    }
}
