//! The target `client`: the client of a node that answers anything, at any time, or not at all.
//!
//! Each step of an input is one thing that happens at a [`Lane`](lane::Lane): its owner submits, gives up or waits; a
//! message is sent; an answer comes, right or wrong. `ledger` knows what was submitted, sent and answered, and says
//! whether what the client reports may be: nothing completes twice, nothing is accepted that was not asked, nothing
//! completes before all of it was answered. In the end the node answers everything, and everything must end.

mod lane;
mod ledger;

use crate::script::Step;
use crate::{Target, Trail};
use lane::Lane;

const STEP_BYTES: usize = 16;
pub(crate) const TARGET: Target = Target { name: "client", step_bytes: STEP_BYTES, bytes_max: 200 * STEP_BYTES, run };

fn run(data: &[u8], trail: &mut Trail) {
    let mut steps = Step::all(data, STEP_BYTES);
    let Some(mut first) = steps.next() else { return };
    let mut lane = Lane::new(&mut first);
    for mut step in steps {
        let seen = lane.act(&mut step);
        lane.check();
        trail.note(seen);
    }
    lane.end();
}
