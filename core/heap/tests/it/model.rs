//! Long runs of mixed steps against the oracle: short ones that proptest can shrink, long ones from a seed.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::world::{Step, World};

/// A size up to 2^26, each power of two as likely.
fn bytes_of(power: u32, fraction: u64) -> u64 {
    let top = 1u64 << power;
    top - fraction % (top / 2 + 1)
}

fn steps(power_max: u32) -> impl Strategy<Value = Step> {
    (any::<u8>(), 0..=power_max, any::<u64>(), prop_oneof![3 => Just(0u32), 1 => 0u32..15], any::<u32>(), 0usize..3)
        .prop_map(|(action, power, fraction, align_power, which, magazine)| Step {
            action,
            bytes: bytes_of(power, fraction),
            align_power,
            which,
            magazine,
        })
}

proptest! {
    #[test]
    fn a_small_heap_agrees_with_the_oracle(steps in prop::collection::vec(steps(14), 1..400), pages in 8u64..400) {
        let mut world = World::new(pages << 12);
        steps.into_iter().for_each(|step| world.step(step));
        world.check_all();
        world.end();
    }
}

/// `count` steps from `seed` on a heap of `bytes`, with up to `objects_max` objects of up to 2^`power_max` bytes.
fn long_run(seed: u64, bytes: u64, count: usize, objects_max: usize, power_max: u32) -> u64 {
    let (mut world, mut rng) = (World::new(bytes), SmallRng::seed_from_u64(seed));
    for number in 0..count {
        let full = world.objects() >= objects_max;
        let action = rng.random::<u8>();
        let power = if rng.random_bool(0.9) { rng.random_range(0..12) } else { rng.random_range(0..=power_max) };
        world.step(Step {
            action: if full && action < 100 { action + 100 } else { action },
            bytes: bytes_of(power, rng.random()),
            align_power: if rng.random_bool(0.8) { 0 } else { rng.random_range(0..22) },
            which: rng.random(),
            magazine: rng.random_range(0..3),
        });
        if number % 10_000 == 0 {
            world.check_all();
        }
    }
    world.check_all();
    let refused = world.refused;
    world.end();
    refused
}

#[test]
fn a_large_heap_agrees_with_the_oracle_for_long() {
    assert_eq!(long_run(1, 8 << 30, 80_000, 20_000, 26), 0, "a large heap has room");
}

#[test]
fn a_heap_that_is_full_again_and_again_agrees_with_the_oracle() {
    let refused = long_run(2, 4 << 20, 60_000, 100_000, 20);
    assert!(refused > 500, "it was full {refused} times");
}
