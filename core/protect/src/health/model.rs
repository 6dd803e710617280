//! Models of [`Health`]: several who wait, hear and judge at once.

use std::sync::Arc;

use loom::thread;

use super::*;

#[test]
fn two_who_wait_for_the_same_time_add_it_once() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        let other = Arc::clone(&health);
        let thread = thread::spawn(move || other.wait(STEP_MIN));
        health.wait(STEP_MIN);
        thread.join().unwrap();
        assert_eq!(health.silence(), STEP_MIN);
    });
}

#[test]
fn who_is_heard_last_is_up_and_what_is_lost_stays_lost() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        health.silence.store(GIVE_UP_AFTER, Ordering::Relaxed);
        let others = [Arc::clone(&health), Arc::clone(&health)];
        let [judge, hear] = others;
        let judge = thread::spawn(move || judge.judge(Others::Heard));
        let hear = thread::spawn(move || hear.hear(1));
        health.lose();
        judge.join().unwrap();
        hear.join().unwrap();
        assert_eq!((health.state(), health.wants_probe(PROBE_EACH)), (State::Lost, false));
    });
}
