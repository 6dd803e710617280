//! [`Accounts`]: what each tenant of a node has and does, and how much of that it may.
//!
//! A table of a fixed size. Tenants that are known by name have places of their own; hosts, and users of the machine,
//! take one each as they come, until there is none: then they share the first. What an account does is bounded by
//! buckets that fill with time (one cache line), so that it costs a data thread one comparison unless there is a
//! limit. A bucket goes into debt by what was admitted, however large that was, and nothing more is until the debt is
//! paid: so no single request is too large. A debt has an end soon all the same, so that none loses its leases by it.
//!
//! Who touches what: any thread charges and counts; the slow path alone counts address spaces and what they reserve;
//! whoever made sure of a tenant sets its limits. Each number is one atomic, and none depends on another: under a race
//! a bucket is overdrawn by what the racing threads admit at that moment.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use yonder_units::{Narrow, saturating_nanos};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::limits::TenantLimits;
use crate::recent::NodeTime;
use crate::source::Source;

/// Places of those that are known by name; place 0 is of all that have no other.
const NAMED: usize = 1 << 10;
/// Places of hosts and users.
const UNNAMED: usize = 1 << 12;
/// Places that a host may take.
const WAY: usize = 8;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// How much faster than its rate a tenant may be for a moment.
const BURST: NodeTime = 20_000_000;
/// Longest time that a debt of requests and bytes takes to be paid, and one of work: limits of less than one request,
/// or one message, in that time are kept so far only. What cannot wait is no work that anyone is put off for
/// ([`may_be_put_off`]).
const DEBT_MAX: NodeTime = 500_000_000;
const DEBT_OF_WORK_MAX: NodeTime = 10_000_000_000;
/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// The place of an account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AccountNumber(u32);

impl AccountNumber {
    /// That of all who have no account of their own. What it has is counted, and not limited.
    pub const SHARED: Self = Self(0);

    /// The number.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// The account with a number that [`AccountNumber::get`] gave.
    pub(crate) const fn of(number: u32) -> Self {
        Self(number)
    }
}

/// What one is told who asks for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may.
    Now,
    /// Not before this time.
    From(NodeTime),
}

/// A bucket that is empty until a time. It has no capacity but [`BURST`].
#[derive(Default, Debug)]
struct Bucket(AtomicU64);

impl Bucket {
    #[inline]
    fn admits(&self, now: NodeTime) -> Admission {
        let due = self.0.load(Ordering::Relaxed).saturating_sub(BURST);
        if due <= now { Admission::Now } else { Admission::From(due) }
    }

    #[inline]
    fn charge(&self, cost: NodeTime, debt_max: NodeTime, now: NodeTime) {
        let last = now.saturating_add(debt_max + BURST);
        let later = |due: u64| Some(due.max(now).saturating_add(cost).min(last.max(due)));
        // It always stores.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

/// Rates, as times: 0 where there is no limit. With the buckets in one cache line.
#[derive(Default, Debug)]
#[repr(align(64))]
struct Rates {
    requests: Bucket,
    bytes: Bucket,
    work: Bucket,
    nanos_per_request: AtomicU32,
    picos_per_byte: AtomicU32,
    /// Nanoseconds of the bucket for each microsecond of work.
    nanos_per_micro: AtomicU32,
}

const _: () = assert!(size_of::<Rates>() == 64);

/// One account.
#[derive(Debug)]
pub struct Account {
    rates: Rates,
    /// The source, plus 1; 0 while it is of none.
    source: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    shed: AtomicU64,
    work_ns: AtomicU64,
    spaces: AtomicU32,
    connections: AtomicU32,
    reserved_bytes: AtomicU64,
    /// Counted after the fact, so for a moment it may be below 0.
    memory_bytes: AtomicI64,
    spaces_max: AtomicU32,
    connections_max: AtomicU32,
    reserved_max: AtomicU64,
    memory_max: AtomicU64,
    /// When the limits were said.
    limits_since: AtomicU64,
}

/// What an account has and has done, at one moment. Counts are since the start of the node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TenantUse {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of messages, both ways.
    pub bytes: u64,
    /// Requests refused, or dropped, because of a limit.
    pub shed: u64,
    /// Time of the slow path and of offloads, in nanoseconds.
    pub work_ns: u64,
    /// Address spaces now.
    pub spaces: u32,
    /// Connections now.
    pub connections: u32,
    /// Bytes of allocations now.
    pub reserved_bytes: u64,
    /// Bytes of the node's memory now.
    pub memory_bytes: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            rates: Rates::default(),
            source: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            work_ns: AtomicU64::new(0),
            spaces: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            reserved_bytes: AtomicU64::new(0),
            memory_bytes: AtomicI64::new(0),
            spaces_max: AtomicU32::new(u32::MAX),
            connections_max: AtomicU32::new(u32::MAX),
            reserved_max: AtomicU64::new(UNLIMITED),
            memory_max: AtomicU64::new(UNLIMITED),
            limits_since: AtomicU64::new(0),
        }
    }
}

impl Account {
    fn limit(&self, limits: &TenantLimits) {
        let Rates { nanos_per_request, picos_per_byte, nanos_per_micro, .. } = &self.rates;
        let per = |whole: u64, rate: u64| u32::try_from(whole / rate.max(1)).unwrap_or(u32::MAX).max(1);
        let request = limits.requests.map_or(0, |rate| per(1_000_000_000, rate.into()));
        let byte = limits.bytes.map_or(0, |rate| per(1_000_000_000_000, rate));
        let micro = limits.work.map_or(0, |work| per(1_000_000_000_000, saturating_nanos(work)));
        nanos_per_request.store(request, Ordering::Relaxed);
        picos_per_byte.store(byte, Ordering::Relaxed);
        nanos_per_micro.store(micro, Ordering::Relaxed);
        self.spaces_max.store(limits.spaces.unwrap_or(u32::MAX), Ordering::Relaxed);
        self.connections_max.store(limits.connections.unwrap_or(u32::MAX), Ordering::Relaxed);
        self.reserved_max.store(limits.reserved_bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
        self.memory_max.store(limits.memory_bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Whether there is a limit of requests or bytes in a second.
    #[inline]
    #[must_use]
    pub fn has_rates(&self) -> bool {
        let Rates { nanos_per_request, picos_per_byte, .. } = &self.rates;
        (nanos_per_request.load(Ordering::Relaxed) | picos_per_byte.load(Ordering::Relaxed)) != 0
    }

    /// Whether requests may go on.
    #[inline]
    pub fn admits(&self, now: NodeTime) -> Admission {
        match (self.rates.requests.admits(now), self.rates.bytes.admits(now)) {
            (Admission::Now, Admission::Now) => Admission::Now,
            (Admission::From(one), Admission::From(other)) => Admission::From(one.max(other)),
            (Admission::From(one), _) | (_, Admission::From(one)) => Admission::From(one),
        }
    }

    /// Whether more may be asked of the slow path and of offloads.
    #[must_use]
    pub fn admits_work(&self, now: NodeTime) -> bool {
        self.rates.work.admits(now) == Admission::Now
    }

    /// Counts requests that were answered, and the bytes that they have read and written.
    pub fn charge(&self, requests: u64, bytes: u64, now: NodeTime) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let request = u64::from(self.rates.nanos_per_request.load(Ordering::Relaxed));
        if request > 0 {
            self.rates.requests.charge(requests.saturating_mul(request), DEBT_MAX, now);
        }
        let byte = u64::from(self.rates.picos_per_byte.load(Ordering::Relaxed));
        if byte > 0 {
            self.rates.bytes.charge(bytes.saturating_mul(byte) / 1000, DEBT_MAX, now);
        }
    }

    /// Counts time that the slow path or an offload took.
    pub fn charge_work(&self, took: Duration, now: NodeTime) {
        self.work_ns.fetch_add(saturating_nanos(took), Ordering::Relaxed);
        let micro = u64::from(self.rates.nanos_per_micro.load(Ordering::Relaxed));
        if micro > 0 {
            self.rates.work.charge(saturating_nanos(took).saturating_mul(micro) / 1000, DEBT_OF_WORK_MAX, now);
        }
    }

    /// Counts requests that were refused or dropped because of a limit.
    pub fn shed(&self, requests: u64) {
        self.shed.fetch_add(requests, Ordering::Relaxed);
    }

    /// Takes a place for a connection; false if it has as many as it may.
    #[must_use]
    pub fn connect(&self) -> bool {
        take(&self.connections, &self.connections_max)
    }

    /// One of its connections has ended.
    pub fn disconnect(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn has_room_for_space(&self) -> bool {
        self.spaces.load(Ordering::Relaxed) < self.spaces_max.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_space(&self) {
        self.spaces.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_space(&self) {
        self.spaces.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it may reserve as many bytes more.
    pub(crate) fn may_reserve(&self, bytes: u64) -> bool {
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        reserved.saturating_add(bytes) <= self.reserved_max.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn unreserve(&self, bytes: u64) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes memory, unless it would have more than it may.
    ///
    /// # Errors
    /// `OutOfMemory`, and nothing is taken.
    pub(crate) fn take_memory(&self, bytes: u64) -> Result<(), ErrorCode> {
        // What is refused was never counted: it would have others refused meanwhile.
        let most = self.memory_max.load(Ordering::Relaxed);
        let more = |has: i64| {
            let fits = has.max(0).cast_unsigned().saturating_add(bytes) <= most;
            fits.then_some(has.saturating_add_unsigned(bytes))
        };
        let taken = self.memory_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| ErrorCode::OutOfMemory)
    }

    pub(crate) fn give_memory_back(&self, bytes: u64) {
        self.memory_bytes.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// What it has and has done.
    #[must_use]
    pub fn usage(&self) -> TenantUse {
        TenantUse {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            shed: self.shed.load(Ordering::Relaxed),
            work_ns: self.work_ns.load(Ordering::Relaxed),
            spaces: self.spaces.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            reserved_bytes: self.reserved_bytes.load(Ordering::Relaxed),
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed).max(0).cast_unsigned(),
        }
    }
}

/// Whether a request may be put off because of a rate: not one that keeps an address space, or gives something back.
#[must_use]
pub fn may_be_put_off(header: &Header) -> bool {
    match header.kind {
        Kind::Ping => header.pid == 0,
        Kind::Free | Kind::DestroySpace | Kind::Abort => false,
        _ => true,
    }
}

fn take(places: &AtomicU32, most: &AtomicU32) -> bool {
    let most = most.load(Ordering::Relaxed);
    places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < most).then_some(taken + 1)).is_ok()
}

/// The accounts of a node.
#[derive(Debug)]
pub struct Accounts {
    accounts: Box<[Account]>,
    /// Limits of those without a name.
    others: TenantLimits,
}

impl Accounts {
    /// Accounts, with limits for each of those that no one has set others for.
    #[must_use]
    pub fn new(others: TenantLimits) -> Self {
        let accounts: Box<[Account]> = (0..NAMED + UNNAMED).map(|_| Account::default()).collect();
        accounts[1..].iter().for_each(|account| account.limit(&others));
        Self { accounts, others }
    }

    /// Sets limits of a tenant that is known by name, which were said at a time, unless others were said later: an
    /// older certificate of the tenant may still be good. Where they say nothing, those of all others hold.
    ///
    /// # Panics
    /// If `tenant` is 0, or not a number of a tenant.
    pub fn limit(&self, tenant: u16, limits: TenantLimits, since: u64) {
        assert!(tenant > 0, "tenants have numbers from 1 on");
        let account = &self.accounts[usize::from(tenant)];
        if account.limits_since.fetch_max(since, Ordering::Relaxed) <= since {
            account.limit(&limits.or(self.others));
        }
    }

    /// Where the account of a source is. One that is new takes a place, if there is one.
    #[inline]
    pub fn number_of(&self, source: Source) -> AccountNumber {
        match source.tenant() {
            Some(tenant) if usize::from(tenant) < NAMED => AccountNumber(tenant.into()),
            _ => self.number_of_unnamed(source),
        }
    }

    fn number_of_unnamed(&self, Source(source): Source) -> AccountNumber {
        let Some(wanted) = source.checked_add(1) else { return AccountNumber::SHARED };
        let first = (source.wrapping_mul(GOLDEN) >> u32::BITS).narrow_usize();
        for step in 0..WAY {
            let place = NAMED + (first + step) % UNNAMED;
            let word = &self.accounts[place].source;
            let taken = match word.load(Ordering::Relaxed) {
                0 => word
                    .compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|by| by, |_| wanted),
                taken => taken,
            };
            if taken == wanted {
                return AccountNumber(place.narrow_u32());
            }
        }
        AccountNumber::SHARED
    }

    /// The account at a place.
    #[inline]
    #[must_use]
    pub fn get(&self, number: AccountNumber) -> &Account {
        &self.accounts[number.0 as usize]
    }

    /// What the tenants that are known by name have and have done, those that have done nothing left out, by number.
    pub fn of_tenants(&self) -> impl Iterator<Item = (u16, TenantUse)> {
        let used = self.accounts[1..NAMED].iter().zip(1..).map(|(account, number)| (number, account.usage()));
        used.filter(|(_, usage)| *usage != TenantUse::default())
    }

    /// The same of all others, by source; those that share an account are left out.
    pub fn of_others(&self) -> impl Iterator<Item = (Source, TenantUse)> {
        self.accounts[NAMED..].iter().filter_map(|account| {
            let source = account.source.load(Ordering::Relaxed).checked_sub(1)?;
            Some((Source(source), account.usage())).filter(|(_, usage)| *usage != TenantUse::default())
        })
    }

    /// Bytes that they take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of_val::<[Account]>(&self.accounts) as u64
    }
}

#[cfg(test)]
mod tests;
