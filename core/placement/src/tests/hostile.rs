//! What clients and nodes say that no true one says, and what it may cost.

use super::*;

#[test]
fn a_request_that_avoids_more_regions_than_any_needs_to_is_refused() {
    let mut scene = Scene::new();
    scene.register(1, 400);
    let pid = scene.create();
    let place = |count: u32| {
        let avoid = (1..=count).map(|step| 64 * step).collect();
        Request::PlaceRegion { pid, key: keys(1).owner, bytes: 64 * REGION, avoid }
    };
    let most = u32::try_from(AVOIDED_PER_REQUEST_MAX).unwrap();
    let Answer::Placed { regions } = scene.answer(place(most)) else { panic!("as many are avoided") };
    assert_eq!((regions[0].region, regions.len()), (64 * most + 1, 64));
    let Answer::Refused(refusal) = scene.answer(place(most + 1)) else { panic!("more are not") };
    assert_eq!(refusal.to_string(), "a request that avoids 129 regions is not tried: avoid at most 128");
}
