//! The target `board`: a memory node among honest and hostile clients.
//!
//! Each step of an input is one thing that happens. The `honest` client has a model of its memory: what it reads is
//! what it wrote, and what it sends again, or sends changed, cut or twice, is executed once. The `hostile` one sends
//! anything, with rights and without; nothing that the honest client has changes by it, or is seen in an answer. `node`
//! is the real board with memory, and looks at every answer; `ending` ends everything and looks for what is left
//! behind.

mod ending;
mod honest;
mod hostile;
mod node;
mod shell;

use xxhash_rust::xxh3::xxh3_128;

use crate::script::Step;
use crate::{Target, Trail};
use honest::Honest;
use hostile::Hostile;
use node::Node;
use shell::Shell;

const STEP_BYTES: usize = 24;
pub(crate) const TARGET: Target = Target { name: "board", step_bytes: STEP_BYTES, bytes_max: 120 * STEP_BYTES, run };

fn run(data: &[u8], trail: &mut Trail) {
    // Keys, secrets and names of requests are different for each input, so that no input can know them.
    let secret = xxh3_128(data);
    let mut node = Node::new(!secret);
    let mut honest = Honest::new(&mut node, secret);
    let mut hostile = Hostile::new(&mut node, &honest);
    let mut shell = Shell::default();
    for mut step in Step::all(data, STEP_BYTES) {
        let seen = match step.below(8) {
            0..3 => honest.act(&mut node, &mut step),
            3..7 => hostile.act(&mut node, &mut step),
            _ => shell.act(&mut node, &hostile, &mut step),
        };
        trail.note(seen);
    }
    honest.check_all(&mut node);
    hostile.check_shared(&mut node);
    shell.finish(&mut node);
    ending::check(&mut node);
}
