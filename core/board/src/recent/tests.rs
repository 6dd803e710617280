//! Tests of [`Recent`]: what is remembered, for how long, and that no party has another's forgotten.

use std::collections::HashMap;

use proptest::prelude::*;
use yonder_wire::Kind;

use super::*;

/// The party of most tests.
const ONE: Party = Party(1);
/// Another one.
const OTHER: Party = Party(2);

#[test]
fn a_second_attempt_gets_the_first_ones_result() {
    let mut recent = Recent::new(2);
    assert_eq!(recent.admit(ONE, 1, 10, 11), Admission::Execute);
    recent.record(ONE, 1, 'a', 12);
    assert_eq!(recent.admit(ONE, 1, 10, 13), Admission::Answer('a'));
    assert_eq!(recent.admit(ONE, 2, 10, 13), Admission::Execute, "each fragment is executed");
}

#[test]
fn what_may_have_been_forgotten_is_refused_and_what_is_newer_is_not() {
    let mut recent = Recent::new(WAYS);
    (1..=2 * WAYS as u64 + 1).for_each(|id| recent.record(ONE, id, (), 100 * id));
    assert_eq!(recent.admit(ONE, 1, 90, 2000), Admission::TooOld);
    assert_eq!(recent.admit(ONE, 99, 100, 2000), Admission::TooOld, "it could be what was executed at 100");
    assert_eq!(recent.admit(ONE, 99, 101, 2000), Admission::Execute);
    assert_eq!(recent.admit(ONE, 3, 1, 2000), Admission::Answer(()), "what is remembered is answered, however old");
    assert_eq!(recent.admit(ONE, 99, 2001, 2000), Admission::FromTheFuture);
}

#[test]
fn half_of_the_capacity_is_remembered_whatever_the_steps_between_ids() {
    const CAPACITY: usize = 7000;
    for step in [1, 3, 64, 256, 1024, 4096, 1 << 16] {
        for first in [1u64, 0x0edc_ba98_7654_3210, 1 << 62] {
            let mut recent = Recent::new(CAPACITY);
            let ids = |count: u64| (0..count).map(move |number| first + step * number);
            ids(2 * CAPACITY as u64).for_each(|id| recent.record(ONE, id, (), 5));
            let last = ids(2 * CAPACITY as u64).skip(3 * CAPACITY / 2);
            let lost = last.filter(|id| recent.admit(ONE, *id, 5, 9) != Admission::Answer(())).count();
            assert_eq!(lost, 0, "steps of {step} from {first}");
            let bytes = recent.bytes() - (VOIDED.places_max * size_of::<Voided>()) as u64;
            let places = WAYS * (recent.sets.len() + recent.kept.len());
            assert!(places <= CAPACITY * 3 / 2 + WAYS && bytes <= 40 * places as u64, "{bytes} bytes");
        }
    }
}

#[test]
#[should_panic(expected = "executed twice")]
fn executing_twice_is_our_bug() {
    let mut recent = Recent::new(2);
    recent.record(ONE, 1, (), 1);
    recent.record(ONE, 1, (), 2);
}

fn request(first_id: u64, time: u64) -> Header {
    Header { time, ..Header::request(Kind::Write, first_id, 0, 8) }
}

#[test]
fn final_refusals_are_remembered_and_passing_ones_are_not() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
    assert_eq!(recent.once(ONE, &request(1, 0), 1, || Err(ErrorCode::Busy)), Err(ErrorCode::Busy));
    assert_eq!(recent.once(ONE, &request(1, 0), 1, || Ok(7)), Ok(7));
    assert_eq!(recent.once(ONE, &request(1, 0), 2, || unreachable!("it was executed")), Ok(7));
    assert_eq!(recent.once(ONE, &request(2, 0), 1, || Err(ErrorCode::BadAddress)), Err(ErrorCode::BadAddress));
    assert_eq!(recent.once(ONE, &request(2, 0), 2, || Ok(7)), Err(ErrorCode::BadAddress));
    assert_eq!(recent.once(ONE, &request(3, 9), 2, || unreachable!("from the future")), Err(ErrorCode::Busy));
}

#[test]
fn what_is_given_up_is_never_executed_and_what_was_executed_stays() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
    assert_eq!((recent.abort(ONE, 1, &request(1, 0), 1), recent.abort(ONE, 1, &request(1, 0), 2)), (Ok(0), Ok(0)));
    assert_eq!(recent.once(ONE, &request(1, 0), 3, || unreachable!("given up")), Err(ErrorCode::Aborted));
    assert_eq!(recent.once(ONE, &request(2, 0), 3, || Ok(5)), Ok(5));
    assert_eq!(recent.abort(ONE, 1, &request(2, 0), 4), Ok(1));
    assert_eq!(recent.once(ONE, &request(2, 0), 5, || unreachable!("it was executed")), Ok(5));
    assert_eq!(recent.once(ONE, &request(3, 0), 5, || Err(ErrorCode::NotAllowed)), Err(ErrorCode::NotAllowed));
    assert_eq!(recent.abort(ONE, 1, &request(3, 0), 6), Ok(0), "a refused request was not executed");
}

#[test]
fn what_is_given_up_before_its_time_is_not_executed_when_that_has_come() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(WAYS);
    assert_eq!(recent.once(ONE, &request(1, 500), 10, || unreachable!("too early")), Err(ErrorCode::Busy));
    assert_eq!(
        (recent.abort(ONE, 1, &request(1, 500), 11), recent.abort(ONE, 1, &request(1, 500), 12)),
        (Ok(0), Ok(0))
    );
    // Many others, so that it would have been forgotten had it been remembered.
    for id in 100..200 {
        assert_eq!(recent.once(ONE, &request(id, 300 + id), 300 + id, || Ok(0)), Ok(0));
    }
    assert_eq!(recent.once(ONE, &request(1, 500), 499, || unreachable!("too early")), Err(ErrorCode::Busy));
    assert_eq!(recent.once(ONE, &request(1, 500), 500, || unreachable!("given up")), Err(ErrorCode::Aborted));
    for id in 200..300 {
        let _ = recent.once(ONE, &request(id, 501), 501 + id, || Ok(0));
    }
    assert_eq!(recent.once(ONE, &request(1, 500), 900, || unreachable!("forgotten")), Err(ErrorCode::TooOld));
}

#[test]
fn there_is_a_limit_to_what_is_voided_and_there_is_room_again() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);

    let (mut id, mut pid) = (0, 0);
    while recent.voided.len() < VOIDED.places_max {
        let before = recent.voided.len();
        while recent.abort(Party(pid), u64::from(pid), &request(1 + id, 100), 1) == Ok(0) {
            id += 1;
        }
        let few = before >= VOIDED.places_max * 3 / 4;
        let share = if few { VOIDED.few_max } else { VOIDED.of_one_max };
        assert_eq!(recent.voided.len(), before + share, "{pid} has had its share");
        pid += 1;
    }
    let stranger = 1 << 20;
    assert_eq!(
        recent.abort(Party(stranger), u64::from(stranger), &request(1 << 20, 100), 1),
        Err(ErrorCode::Busy),
        "there is no more room"
    );
    assert_eq!(
        recent.abort(Party(stranger), u64::from(stranger), &request(1 << 20, 101), 100),
        Ok(0),
        "there is again"
    );
    assert_eq!(
        recent.abort(Party(stranger), u64::from(stranger), &request(1 << 21, 101 + VOIDED_AHEAD_MAX), 100),
        Err(ErrorCode::Busy)
    );
}

#[test]
fn a_client_that_claims_two_times_for_one_request_does_not_stop_the_node() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
    assert_eq!(recent.abort(ONE, 1, &request(1, 50), 10), Ok(0));
    assert_eq!(recent.once(ONE, &request(1, 10), 20, || Ok(3)), Ok(3));
    assert_eq!(recent.once(ONE, &request(2, 60), 60, || Ok(4)), Ok(4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
    /// A network that delivers copies of requests at any later time, in any order: nothing is executed twice, and
    /// what is refused as too old was sent before something that was forgotten.
    #[test]
    fn nothing_is_executed_twice(
        capacity in 1usize..150,
        sends in prop::collection::vec((0u64..40, 0u32..3, prop::collection::vec(0u64..4000, 1..5)), 1..400),
    ) {
        let mut arrivals = Vec::new();
        let mut now = 0;
        for (id, (pause, party, delays)) in (1u64..).zip(&sends) {
            now += pause;
            arrivals.extend(delays.iter().map(|delay| (now + delay, id, now, *party)));
        }
        arrivals.sort_unstable();
        let (mut recent, mut executed) = (Recent::new(capacity), HashMap::new());
        for (at, id, first_sent, party) in arrivals {
            let party = Party(party);
            match recent.admit(party, id, first_sent, at) {
                Admission::Execute => {
                    prop_assert!(executed.insert(id, (at, party)).is_none(), "{id} was executed twice");
                    recent.record(party, id, at, at);
                }
                Admission::Answer(result) => prop_assert_eq!(executed.get(&id), Some(&(result, party))),
                Admission::TooOld => {
                    let slice = recent.slice_of(party);
                    let is_forgotten = |(at, of): &(u64, Party)| *at >= first_sent && recent.slice_of(*of) == slice;
                    prop_assert!(executed.values().any(is_forgotten), "another party has had it forgotten");
                }
                Admission::FromTheFuture => prop_assert!(false, "it was sent before it arrived"),
            }
        }
    }
}

/// The last operations of each party are remembered, as many as a half of its slice has room for, whatever another
/// does: also one that has all of its operations in the sets of one victim.
#[test]
fn no_party_has_what_another_did_forgotten() {
    const SETS: usize = SLICES * 16;
    let own = (WAYS * SETS / KEPT_DIVISOR / SLICES / 2) as u64;
    let everywhere: Vec<u64> = (0..20 * (WAYS * SETS) as u64).map(|id| (1 << 40) + id).collect();
    let sets: Vec<Set<char>> = vec![Set::EMPTY; SETS];
    let set = |id: u64| std::ptr::from_ref(set_of(&sets, id));
    let of_victim: Vec<_> = (0..own).map(|id| set(1000 + id)).collect();
    let aimed: Vec<u64> = everywhere.iter().copied().filter(|id| of_victim.contains(&set(*id))).collect();
    assert!(aimed.len() > 20 * WAYS && aimed.len() < everywhere.len() / 2);
    for flood in [everywhere, aimed] {
        let mut recent = Recent::new(WAYS * SETS);
        (0..own).for_each(|id| recent.record(ONE, 1000 + id, 'a', 5));
        flood.into_iter().for_each(|id| recent.record(OTHER, id, 'b', 10));
        for id in 0..own {
            assert_eq!(recent.admit(ONE, 1000 + id, 1, 20), Admission::Answer('a'), "{id} was forgotten");
        }
        assert_eq!(recent.admit(ONE, 7, 1, 20), Admission::Execute, "nothing of this party was forgotten");
        assert_eq!(recent.admit(OTHER, 1000, 1, 20), Admission::TooOld, "of the other much was");
    }
}

#[test]
fn what_was_given_up_early_is_remembered_with_what_its_party_did() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(WAYS * SLICES * 2);
    assert_eq!(recent.abort(ONE, 1, &request(1, 500), 10), Ok(0));
    assert_eq!(recent.once(OTHER, &request(2, 500), 500, || Ok(0)), Ok(0));
    (100..100_000).for_each(|id| assert_eq!(recent.once(OTHER, &request(id, 401 + id), 401 + id, || Ok(0)), Ok(0)));
    assert_eq!(recent.once(ONE, &request(1, 500), 200_000, || unreachable!("given up")), Err(ErrorCode::Aborted));
}

#[test]
fn who_has_no_right_learns_what_was_executed_and_leaves_no_trace() {
    let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(WAYS);
    assert_eq!(recent.once(ONE, &request(1, 0), 1, || Ok(7)), Ok(7));
    assert_eq!(recent.was_executed(ONE, &request(1, 0), 1), Ok(1));
    (2..1000).for_each(|id| assert_eq!(recent.was_executed(ONE, &request(id, 0), 1), Ok(0)));
    assert_eq!(recent.was_executed(ONE, &request(2, 9), 1), Ok(0));
    assert_eq!(recent.once(ONE, &request(1, 0), 1, || unreachable!("it was executed")), Ok(7));
}

#[test]
fn a_party_is_a_tenant_with_a_name_or_an_address_space() {
    let capabilities = crate::capability::Capabilities::new([3; 16].into());
    let of = |pid: u32, tenant: u16| {
        let claims = Claims::of(yonder_wire::Rights::Owner, 1, tenant);
        let capability = capabilities.of(crate::address::Pid::new(pid).unwrap(), claims);
        Party::of(&Header { pid, capability, ..request(1, 0) })
    };
    assert_eq!((of(70, 0), of(71, 0)), (Party(70), Party(71)));
    assert_eq!((of(70, 5), of(71, 5)), (Party(5), Party(5)), "all address spaces of a tenant are one party");
    assert_eq!(Party::of_source(Source::of_tenant(5)), Party(5));
    assert_eq!([7, 1 << 35 | 7, u64::MAX].map(|source| Party::of_source(Source(source))), [Party(0); 3]);
}
