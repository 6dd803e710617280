//! [`simulate`]: threads that fault again and again, and the stages of each fault: delays, and resources that serve one
//! at a time.
//!
//! Threads think between faults, for exponential times. Invariant: whoever comes first to a resource is served first.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_simulation::EventQueue;
use yonder_units::Nanos;

/// A part of handling a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Takes that long, whoever else is there.
    Delay(Nanos),
    /// The resource of that number serves it for so long.
    Serve(usize, Nanos),
}

/// What is the same for all threads of an experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) threads: usize,
    /// Mean time from the end of a fault to the next one.
    pub(super) think_ns: Nanos,
    /// Faults of all threads together, without those of the warm-up, as many again for each thread as a tenth of its
    /// share.
    pub(super) faults: u64,
}

/// The mean latency of a fault, in nanoseconds: from its first stage to the end of the `measured`th.
pub(super) fn simulate(
    load: Load,
    resources: usize,
    stages: impl Fn(usize) -> Vec<Stage>,
    measured: usize,
    random: &mut ChaCha8Rng,
) -> f64 {
    let paths: Vec<Vec<Stage>> = (0..load.threads).map(stages).collect();
    let mut free = vec![0; resources];
    let mut began = vec![0; load.threads];
    let mut events: EventQueue<(usize, usize)> = EventQueue::new();
    for thread in 0..load.threads {
        events.after(think(load.think_ns, random), (thread, 0));
    }
    let (mut sum, mut faults) = (0.0, 0);
    let warm_up = load.faults / 10;
    while faults < warm_up + load.faults {
        let (thread, stage) = events.advance().expect("every thread has something to come");
        let now = events.now();
        if stage == 0 {
            began[thread] = now;
        }
        if stage == measured {
            if faults >= warm_up {
                sum += (now - began[thread]) as f64;
            }
            faults += 1;
        }
        match paths[thread].get(stage) {
            Some(Stage::Delay(delay)) => events.after(*delay, (thread, stage + 1)),
            Some(Stage::Serve(resource, service)) => {
                let end = now.max(free[*resource]) + service;
                free[*resource] = end;
                events.at(end, (thread, stage + 1));
            }
            None => events.after(think(load.think_ns, random), (thread, 0)),
        }
    }
    sum / load.faults as f64
}

fn think(mean: Nanos, random: &mut ChaCha8Rng) -> Nanos {
    let uniform: f64 = random.random();
    (-(1.0 - uniform).ln() * mean as f64) as Nanos
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn mean(threads: usize, stages: &[Stage], measured: usize) -> f64 {
        let load = Load { threads, think_ns: 1000, faults: 20_000 };
        simulate(load, 1, |_| stages.to_vec(), measured, &mut ChaCha8Rng::seed_from_u64(3))
    }

    #[test]
    fn one_thread_waits_for_nobody() {
        assert_eq!(mean(1, &[Stage::Delay(70), Stage::Serve(0, 300), Stage::Delay(30)], 3), 400.0);
        assert_eq!(mean(1, &[Stage::Delay(70), Stage::Serve(0, 300), Stage::Delay(30)], 2), 370.0);
    }

    #[test]
    fn a_resource_serves_one_at_a_time() {
        // Ten threads that want 300 ns each, with 1,000 between: the resource is never idle, so a round takes 3,000.
        let latency = mean(10, &[Stage::Serve(0, 300)], 1);
        assert!((latency - 2000.0).abs() < 60.0, "{latency}");
        assert_eq!(mean(10, &[Stage::Delay(300)], 1), 300.0, "a delay is nobody else's");
    }
}
