//! Tests of accounts: rates over time, limits, and who has which place.

use super::*;

const SECOND: NodeTime = 1_000_000_000;

fn limited(text: &str) -> Accounts {
    Accounts::new(text.parse().unwrap())
}

/// Requests that get through when one asks all the time, from `from` on for a second.
fn in_a_second(account: &Account, from: NodeTime, bytes: u64) -> u64 {
    let mut done = 0;
    for now in (from..from + SECOND).step_by(1000) {
        while account.admits(now) == Admission::Now {
            account.charge(1, bytes, now);
            done += 1;
        }
    }
    done
}

#[test]
fn a_rate_is_kept_and_nothing_is_saved_up() {
    let accounts = limited("requests=10k");
    let account = accounts.get(accounts.number_of(Source::of_tenant(3)));
    let burst = 10_000 * BURST / SECOND + 1;
    assert!((10_000..=10_000 + burst).contains(&in_a_second(account, SECOND, 0)));
    // A minute of silence is not made up for.
    assert!(in_a_second(account, 60 * SECOND, 0) <= 10_000 + burst);
}

#[test]
fn bytes_are_limited_and_a_large_request_is_paid_for_afterwards() {
    let accounts = limited("bytes=1MiB");
    let account = accounts.get(accounts.number_of(Source(7)));
    account.charge(1, 256 << 10, SECOND);
    let Admission::From(next) = account.admits(SECOND) else { panic!("it is in debt") };
    assert!((SECOND + SECOND / 5..SECOND + SECOND / 4).contains(&next), "{next}");
    // But no debt is for ever.
    account.charge(1, 1 << 30, SECOND);
    let Admission::From(next) = account.admits(SECOND) else { panic!("it is in debt") };
    assert_eq!(next, SECOND + DEBT_MAX);
    assert_eq!(account.admits(next), Admission::Now);
    let done = in_a_second(account, 100 * SECOND, 4096);
    assert!((256..=264).contains(&done), "{done}");
}

#[test]
fn work_is_limited_by_its_time() {
    let accounts = limited("work=100ms");
    let account = accounts.get(accounts.number_of(Source(7)));
    let mut worked = 0;
    for now in (SECOND..11 * SECOND).step_by(100_000) {
        if account.admits_work(now) {
            account.charge_work(Duration::from_millis(5), now);
            worked += 5;
        }
    }
    assert!((1000..=1010).contains(&worked), "{worked} ms in 10 s");
}

#[test]
fn who_has_no_limit_has_none_and_named_ones_have_their_own() {
    let accounts = limited("requests=10");
    accounts.limit(5, "memory=1MiB,requests=1M".parse().unwrap(), 100);
    // An older certificate that is still good says something else.
    accounts.limit(5, "".parse().unwrap(), 99);
    let (own, other) = (accounts.number_of(Source::of_tenant(5)), accounts.number_of(Source::of_tenant(6)));
    (0..1000).for_each(|_| accounts.get(own).charge(1, 0, SECOND));
    assert_eq!(accounts.get(own).admits(SECOND), Admission::Now);
    accounts.get(other).charge(2, 0, SECOND);
    assert_ne!(accounts.get(other).admits(SECOND), Admission::Now);
    let account = accounts.get(own);
    assert_eq!(account.take_memory(1 << 20), Ok(()));
    assert_eq!(account.take_memory(1), Err(ErrorCode::OutOfMemory));
    account.give_memory_back(1 << 20);
    assert_eq!((account.usage().memory_bytes, account.take_memory(4096)), (0, Ok(())));
    let without = Accounts::new(TenantLimits::default());
    without.get(AccountNumber::SHARED).charge(u64::MAX, u64::MAX, SECOND);
    assert_eq!(without.get(AccountNumber::SHARED).admits(SECOND), Admission::Now);
}

#[test]
fn connections_are_counted_up_to_a_limit() {
    let accounts = limited("connections=2");
    let account = accounts.get(accounts.number_of(Source(9)));
    assert!(account.connect() && account.connect() && !account.connect());
    account.disconnect();
    assert!(account.connect());
}

/// More hosts than there are places: each keeps its place, and those without share one.
#[test]
fn a_host_keeps_its_place() {
    let accounts = Accounts::new(TenantLimits::default());
    let first: Vec<AccountNumber> = (0..10_000).map(|host| accounts.number_of(Source(host))).collect();
    assert!((0..10_000).zip(&first).all(|(host, number)| accounts.number_of(Source(host)) == *number));
    let mut own: Vec<u32> = first.iter().map(|number| number.0).filter(|number| *number != 0).collect();
    own.sort_unstable();
    own.dedup();
    let shared = first.iter().filter(|number| **number == AccountNumber::SHARED).count();
    assert_eq!(own.len() + shared, 10_000, "two hosts have one account");
    assert!(own.len() > UNNAMED * 9 / 10);
    assert_eq!(accounts.number_of(Source(u64::MAX)), AccountNumber::SHARED);
}
