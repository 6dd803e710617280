//! A soak with a second copy: it compares, and what it finds ends it.

use yonder::units::{PageId, PageIndex};
use yonder_fabric::{CleanDrop, ReadsAs, RemoteAddress, Vector};

use super::*;

fn settings(duration: Duration) -> SoakSettings {
    SoakSettings {
        far: "emu://?latency=5us&gbps=100&size=64MiB".to_owned(),
        memory: 16 << 20,
        local: 2 << 20,
        workers: 1,
        duration,
        seed: 1,
        deadline: yonder::Deadlines::default().fault,
        verify: SoakVerify::Full,
    }
}

/// The world, or `None` (and a line that says so) where userfaultfd is missing.
fn world(settings: &SoakSettings) -> Option<World> {
    World::open(settings).inspect_err(|error| println!("SKIP: {error}")).ok()
}

#[test]
fn what_is_dropped_as_clean_is_compared() {
    let settings = settings(Duration::from_millis(500));
    let Some(world) = world(&settings) else { return };
    let result = soak(&settings, &world, &mut |_, _| {}).unwrap();
    assert_eq!((result.mismatches, &result.first_wrong_drop), (0, &None));
    assert!(result.clean_drops_compared > 0, "{result:?}");
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!((&json["verify"], &json["mismatches"]), (&"full".into(), &0.into()));
    assert_eq!(json["clean_drops_compared"], result.clean_drops_compared);
}

#[test]
fn a_wrong_drop_ends_the_soak_and_is_named() {
    let settings = settings(Duration::from_secs(3600));
    let Some(world) = world(&settings) else { return };
    let page_id = PageId { region: 0, page: PageIndex(17) };
    let dropped = CleanDrop { page_id, address: RemoteAddress(0), vector: Vector::WHOLE, reads_as: ReadsAs::Fetched };
    let mut content = [0; PAGE_BYTES];
    content[770] = 1;
    let copies = world.copies.as_deref().unwrap();
    copies.compare(&dropped, &content);
    let result = soak(&settings, &world, &mut |_, _| {}).unwrap();
    assert_eq!(result.mismatches, 1);
    let said = result.first_wrong_drop.unwrap();
    assert!(said.contains("page 17 of region 0") && said.contains("at bytes 770..771"), "{said}");
}
