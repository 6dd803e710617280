//! Requests: their unithreads, the choice of a worker, the prediction of faults, and the clock that is read at each
//! step.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use yonder_dispatch::predict::{Outcome, Predictor};
use yonder_dispatch::{Chooser, DispatchPolicy, WorkerView};
use yonder_unithread::measure::unithread_ns;
use yonder_unithread::{Pool, Resumed, STACK_BYTES_DEFAULT};
use yonder_units::Residence;

/// Workers among which one is chosen: the machine of Adios' evaluation, and a large one.
const WORKERS: [u32; 2] = [8, 64];

/// The benchmarks of this file.
pub fn benches(criterion: &mut Criterion) {
    switch(criterion);
    choice(criterion);
    prediction(criterion);
    criterion.bench_function("clock", |bencher| bencher.iter(yonder_clock::now));
}

fn switch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unithread");
    group.bench_function("one switch", |bencher| {
        // What is measured is a number of switches there and back; one iteration is one way.
        bencher.iter_custom(|iterations| {
            let one_way_ns = unithread_ns(iterations.div_ceil(2)).expect("memory for a stack");
            Duration::from_nanos((one_way_ns * iterations as f64) as u64)
        });
    });
    let pool = Pool::new(1, STACK_BYTES_DEFAULT).expect("memory for a stack");
    group.bench_function("life of a request that never waits", |bencher| {
        bencher.iter(|| {
            let unithread = pool.take(black_box(1u64)).expect("the only one is back each time");
            match unithread.start(|payload| *payload += 1).resume() {
                Resumed::Finished(unithread) => unithread.into_payload(),
                Resumed::Suspended(_) | Resumed::Panicked(..) => unreachable!("it adds and ends"),
            }
        });
    });
    group.finish();
}

fn choice(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order of workers");
    for policy in [DispatchPolicy::RoundRobin, DispatchPolicy::PageFaultAware, DispatchPolicy::Predicted] {
        for count in WORKERS {
            let workers: Vec<WorkerView> =
                (0..count).map(|worker| WorkerView { room: worker % 3, outstanding: worker * 7 % 11 }).collect();
            let (mut chooser, mut order) = (Chooser::new(policy), Vec::with_capacity(workers.len()));
            let id = BenchmarkId::new(format!("{policy:?}"), count);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    chooser.order(black_box(&workers), &mut order);
                    chooser.dispatched(order[0], workers.len());
                    order[0]
                });
            });
        }
    }
    group.finish();
}

/// What a dispatcher pays for a request whose fault is predicted, apart from the look at the page table.
fn prediction(criterion: &mut Criterion) {
    const KEYS: u64 = 1 << 16;
    let mut predictor = Predictor::new(KEYS / 8);
    let mut key = 0;
    criterion.bench_function("predict a fault and learn", |bencher| {
        bencher.iter(|| {
            key = (key + 40_503) % KEYS;
            let forecast = predictor.predict(black_box(key), |_| Residence::Local);
            let outcome = Outcome { major_faults: (key % 4 == 0).into(), page_id: None };
            predictor.learn(key, forecast, outcome, |_| Residence::Local);
            forecast.prediction
        });
    });
}
