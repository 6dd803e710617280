//! The target `offloads`: calls of all shipped offloads with any arguments, in memory that refuses now and then.
//!
//! One caller is honest: `stores` knows what is in its key-value store and in its objects, and finds it there whatever
//! the other caller does. The `hostile` caller sends arguments that are almost right. A call is bounded in what it
//! reads and writes; one that may be repeated does the same twice; when both spaces end, their memory is given back.

mod hostile;
mod memory;
mod stores;

use yonder_offload::{Call, Effect, ONCE_ANSWER_BYTES_MAX, Offload, chase, frame, kv, mv};
use yonder_wire::{ErrorCode, PAYLOAD_BYTES_MAX};

use crate::script::Step;
use crate::{Target, Trail};
use memory::Memory;
use stores::Stores;

const STEP_BYTES: usize = 40;
pub(crate) const TARGET: Target = Target { name: "offloads", step_bytes: STEP_BYTES, bytes_max: 100 * STEP_BYTES, run };

/// Bytes that one caller may store: little, so that the limit is reached.
const CALLER_BYTES_MAX: u64 = 1 << 20;
/// Most accesses of memory in one call: a chase looks at each of 4,096 nodes a few times, a select reads rows in
/// pieces.
const ACCESSES_MAX: u64 = 50_000;
/// Most bytes that one call reads and writes: a select of all rows with three columns, and some.
const BYTES_MAX: u64 = 32 << 20;

fn run(data: &[u8], trail: &mut Trail) {
    let mut world = World::new();
    let mut stores = Stores::default();
    for mut step in Step::all(data, STEP_BYTES) {
        let refuse_after = if step.once_in(4) { Some(step.below(20) as u32) } else { None };
        let seen = match step.below(3) {
            0 => stores.act(&mut world, refuse_after, &mut step),
            _ => hostile::act(&mut world, refuse_after, &mut step),
        };
        trail.note(seen);
    }
    stores.check_all(&mut world);
    world.end();
}

/// The honest caller and the hostile one.
const HONEST: u32 = 1;
const HOSTILE: u32 = 2;

/// The offloads and their memory.
struct World {
    offloads: Vec<Box<dyn Offload>>,
    memory: Memory,
}

impl World {
    fn new() -> Self {
        let offloads: Vec<Box<dyn Offload>> = vec![
            Box::new(chase::PointerChase),
            Box::new(kv::KeyValueStore::new(7, CALLER_BYTES_MAX)),
            Box::new(mv::VersionStore::new(CALLER_BYTES_MAX)),
            Box::new(frame::Select::default()),
            Box::new(frame::Aggregate::default()),
        ];
        Self { offloads, memory: Memory::new(&[HONEST, HOSTILE]) }
    }

    /// Calls an offload once, or as often as that must do the same.
    fn call(&mut self, pid: u32, number: u64, arguments: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        let offload = self.offloads.iter().find(|offload| offload.number() == number).expect("it is shipped");
        let is_injected = self.memory.refuse_after.is_some();
        if offload.effect(arguments) == Effect::Once || is_injected {
            return self.call_once(pid, number, arguments);
        }
        let first = self.call_once(pid, number, arguments);
        let after = self.memory.of_caller(pid);
        let second = self.call_once(pid, number, arguments);
        assert_eq!(first, second, "a call that may be repeated answers something else");
        assert!(after == self.memory.of_caller(pid), "a call that may be repeated changes something twice");
        first
    }

    fn call_once(&mut self, pid: u32, number: u64, arguments: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        let others = self.memory.of_other_callers(pid);
        let offload = self.offloads.iter_mut().find(|offload| offload.number() == number).expect("it is shipped");
        let effect = offload.effect(arguments);
        self.memory.begin(pid);
        let mut answer = Vec::new();
        let result = offload.call(Call { pid, arguments, memory: &mut self.memory, answer: &mut answer });
        let (accesses, bytes) = (self.memory.accesses, self.memory.bytes);
        assert!(accesses <= ACCESSES_MAX && bytes <= BYTES_MAX, "{accesses} accesses of {bytes} bytes in one call");
        assert!(others == self.memory.of_other_callers(pid), "the memory of another caller was changed");
        match result {
            Err(code) => {
                assert_ne!(code, ErrorCode::None);
                Err(code)
            }
            Ok(()) => {
                let most = if effect == Effect::Once { ONCE_ANSWER_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
                assert!(answer.len() <= most, "an answer of {} bytes", answer.len());
                Ok(answer)
            }
        }
    }

    /// Both address spaces end.
    fn end(&mut self) {
        self.memory.refuse_after = None;
        for pid in [HONEST, HOSTILE] {
            self.memory.begin(pid);
            for offload in &mut self.offloads {
                offload.space_ended(pid, &mut self.memory);
            }
        }
        self.memory.check_given_back();
    }
}
