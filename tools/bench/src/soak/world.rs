//! The far memory of a soak, and what troubles it meanwhile: its limit changes, and its fabric fails if it is emulated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder::{Config, Copies, Deadlines, EmuControl, EmuFabric, Fabric, FarError, FarMemory, SecondCopy, Verify};

use super::{PAGE, SoakSettings, SoakVerify};
use crate::BenchError;

/// Far memory, and what is known of its fabric.
pub(super) struct World {
    pub(super) far: FarMemory,
    pub(super) control: Option<Arc<EmuControl>>,
    pub(super) copies: Option<Arc<Copies>>,
}

impl World {
    pub(super) fn open(settings: &SoakSettings) -> Result<Self, BenchError> {
        let url = &settings.far;
        let (mut control, mut copies) = (None, None);
        let mut fabric: Arc<dyn Fabric> = if url.starts_with("emu://") {
            let emulated = EmuFabric::open(url).map_err(FarError::from)?;
            control = Some(emulated.control());
            Arc::new(emulated)
        } else {
            yonder::open(url).map_err(FarError::from)?
        };
        if settings.verify == SoakVerify::Full {
            let copy = SecondCopy::over(fabric);
            copies = Some(Arc::clone(copy.copies()));
            fabric = Arc::new(copy);
        }
        let config = Config {
            local_bytes_max: 3 * settings.local,
            deadlines: Deadlines { fault: settings.deadline, ..Deadlines::default() },
            verify: Verify::On,
            ..Config::with_local(settings.local)
        };
        Ok(Self { far: FarMemory::new(fabric, config)?, control, copies })
    }
}

/// What was seen of the limit.
pub(super) struct Watch {
    pub(super) breaches: u64,
    pub(super) changes: u64,
}

/// Changes the limit and the failures until told to stop, and watches the limit.
pub(super) fn trouble(settings: &SoakSettings, world: &World, stop: &AtomicBool) -> Watch {
    let (far, control) = (&world.far, world.control.as_deref());
    let mut watch = Watch { breaches: 0, changes: 0 };
    let mut random = SmallRng::seed_from_u64(settings.seed ^ 0xBAD);
    while !stop.load(Ordering::Acquire) {
        if let Some(control) = control {
            control.set_errors(random.random_range(0.0..0.02));
            control.set_drops(random.random_range(0.0..0.002));
            control.set_delay(random.random_range(10_000..2_000_000), random.random_range(0.0..0.02));
        }
        let limit = random.random_range(settings.local..=3 * settings.local) / PAGE * PAGE;
        let reached = far.set_local(limit).is_ok();
        watch.changes += u64::from(reached);
        // Only now: a lower limit is reached only with a node that takes writes.
        let dies = random.random_range(0..8) == 0;
        control.inspect(|control| control.set_dead(dies));
        for _ in 0..20 {
            if reached && far.stats().charged_pages > limit / PAGE {
                watch.breaches += 1;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        control.inspect(|control| control.set_dead(false));
    }
    if let Some(control) = control {
        control.set_drops(0.0);
        control.set_errors(0.0);
    }
    watch
}
