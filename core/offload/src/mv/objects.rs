//! [`Objects`]: one caller's objects, in the offload's own space (Clio, section 6).
//!
//! ```text
//! segment of descriptors --> descriptor, 32 bytes:  serial u32, kept u32 | versions u64 | array u64 | places u64
//! array of places, a word for each --> record:      value bytes u64 | value
//! ```
//!
//! Version v is at place `v mod (kept + 1)`, whichever it is, so that reading one costs as much as any other. The place
//! more than are kept is the one that is written next: a version is written there before the counter of versions makes
//! it visible, and with it the oldest invisible. Arrays grow with their objects. Free descriptors have `kept` 0 and
//! form a list by `array`; the `serial` in an object's number tells it from those that had the descriptor before.
//!
//! Invariants: every change becomes visible by one write inside one page; what a refusal interrupts before that is
//! freed.

use yonder_units::Narrow;
use yonder_wire::{AtomicOperation, ErrorCode};
use zerocopy::IntoBytes;

use super::protocol::{
    ANSWER_HEAD_BYTES, Answer, Description, ObjectId, VALUE_BYTES_MAX, VERSIONS_KEPT_MAX, Version, value_head,
};
use crate::arena::{Arena, Own, SPAN_BYTES};
use crate::memory::Space;

const DESCRIPTOR_BYTES: u64 = 32;
/// Offset of the counter of versions in a descriptor.
const VERSIONS_OFFSET: u64 = 8;
/// Descriptors in a segment.
const SEGMENT_DESCRIPTORS: u64 = SPAN_BYTES / DESCRIPTOR_BYTES;
/// Bytes of a record before the value.
const RECORD_HEAD_BYTES: u64 = 8;
/// Places of an object's first array.
const PLACES_MIN: u64 = 4;
/// Ends the list of free descriptors.
const NO_DESCRIPTOR: u32 = u32::MAX;

const _: () = assert!(8 * (VERSIONS_KEPT_MAX as u64 + 1) <= SPAN_BYTES);
const _: () = assert!(RECORD_HEAD_BYTES + VALUE_BYTES_MAX as u64 <= SPAN_BYTES);

/// One caller's objects.
#[derive(Debug)]
pub(super) struct Objects {
    arena: Arena,
    segments: Vec<u64>,
    /// Descriptors that were ever used, since there was an object.
    descriptors: u32,
    /// The first free one of them.
    free: u32,
    objects: u64,
    /// Of the object that was created last. Objects of one descriptor differ by it.
    serial: u32,
}

#[derive(Clone, Copy, Debug)]
struct Descriptor {
    serial: u32,
    /// Versions that are kept; 0 if there is no object.
    kept: u32,
    versions: u64,
    array: u64,
    places: u64,
}

impl Descriptor {
    const fn free(serial: u32, next: u32) -> Self {
        Self { serial, kept: 0, versions: 0, array: next as u64, places: 0 }
    }

    fn read(address: u64, own: &mut Own<'_>) -> Result<Self, ErrorCode> {
        let mut words = [0u64; 4];
        own.read(address, words.as_mut_bytes())?;
        let [head, versions, array, places] = words.map(u64::from_le);
        Ok(Self { serial: (head & 0xffff_ffff) as u32, kept: (head >> 32) as u32, versions, array, places })
    }

    fn write(&self, address: u64, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        let head = u64::from(self.serial) | u64::from(self.kept) << 32;
        let words = [head, self.versions, self.array, self.places].map(u64::to_le);
        own.write(address, words.as_bytes())
    }

    fn oldest(&self) -> u64 {
        self.versions.saturating_sub(u64::from(self.kept))
    }

    fn describe(&self) -> Description {
        Description { oldest: self.oldest(), next: self.versions }
    }

    /// Place of a version in the array.
    fn place_of(&self, version: u64) -> u64 {
        version % (u64::from(self.kept) + 1)
    }

    fn address_of(&self, version: u64) -> u64 {
        self.array + 8 * self.place_of(version)
    }
}

impl Objects {
    pub(super) fn new(bytes_max: u64) -> Self {
        let (arena, segments) = (Arena::new(bytes_max), Vec::new());
        Self { arena, segments, descriptors: 0, free: NO_DESCRIPTOR, objects: 0, serial: 0 }
    }

    pub(super) fn create(&mut self, versions_kept: u32, own: &mut Own<'_>) -> Result<ObjectId, ErrorCode> {
        if !(1..=VERSIONS_KEPT_MAX).contains(&versions_kept) {
            return Err(ErrorCode::BadLength);
        }
        let created = self.try_create(versions_kept, own);
        if self.objects == 0 {
            self.clear(own);
        }
        created
    }

    fn try_create(&mut self, kept: u32, own: &mut Own<'_>) -> Result<ObjectId, ErrorCode> {
        let serial = self.serial.checked_add(1).ok_or(ErrorCode::OutOfMemory)?;
        let object = Descriptor { serial, kept, versions: 0, array: 0, places: 0 };
        let index = if self.free == NO_DESCRIPTOR {
            let index = self.descriptors;
            self.reserve_segment(own)?;
            object.write(self.address_of(index), own)?;
            self.descriptors += 1;
            index
        } else {
            let (index, address) = (self.free, self.address_of(self.free));
            let next = Descriptor::read(address, own)?.array;
            object.write(address, own)?;
            self.free = (next & 0xffff_ffff) as u32;
            index
        };
        self.serial = serial;
        self.objects += 1;
        Ok(ObjectId(u64::from(serial) << 32 | u64::from(index)))
    }

    /// Makes room for one more descriptor.
    fn reserve_segment(&mut self, own: &mut Own<'_>) -> Result<(), ErrorCode> {
        if self.descriptors == NO_DESCRIPTOR {
            return Err(ErrorCode::OutOfMemory);
        }
        if u64::from(self.descriptors) == self.segments.len() as u64 * SEGMENT_DESCRIPTORS {
            self.segments.push(self.arena.allocate(SPAN_BYTES.narrow_usize(), own)?);
        }
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        object: ObjectId,
        value: &[u8],
        own: &mut Own<'_>,
    ) -> Result<Answer<'static>, ErrorCode> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(ErrorCode::BadLength);
        }
        let Some((address, mut descriptor)) = self.find(object, own)? else { return Ok(Answer::NoObject) };
        let version = descriptor.versions;
        if descriptor.place_of(version) >= descriptor.places {
            descriptor = self.grow(address, descriptor, own)?;
        }
        let full = version >= u64::from(descriptor.kept);
        let retired = if full { Some(own.read_word(descriptor.address_of(descriptor.oldest()))?) } else { None };
        let bytes = [&(value.len() as u64).to_le_bytes()[..], value].concat();
        let record = self.arena.allocate(bytes.len(), own)?;
        let counter = address + VERSIONS_OFFSET;
        let appended = own
            .write(record, &bytes)
            .and_then(|()| own.write_word(descriptor.address_of(version), record))
            .and_then(|()| own.memory.atomic(Space::Own, counter, AtomicOperation::FetchAdd(1)));
        match appended {
            Ok(_) => retired.into_iter().for_each(|oldest| self.arena.free(oldest, own)),
            Err(_) => self.arena.free(record, own),
        }
        appended.map(Answer::Appended)
    }

    /// Gives an object a larger array. Its versions, and so what can be seen of it, stay as they are.
    fn grow(&mut self, address: u64, old: Descriptor, own: &mut Own<'_>) -> Result<Descriptor, ErrorCode> {
        let places = (2 * old.places).max(PLACES_MIN).min(u64::from(old.kept) + 1);
        let array = self.arena.allocate(8 * places.narrow_usize(), own)?;
        let grown = Descriptor { array, places, ..old };
        let mut words = vec![0; 8 * old.places.narrow_usize()];
        let moved = own
            .read(old.array, &mut words)
            .and_then(|()| own.write(array, &words))
            .and_then(|()| grown.write(address, own));
        match moved {
            Ok(()) if old.places > 0 => self.arena.free(old.array, own),
            Ok(()) => {}
            Err(_) => self.arena.free(array, own),
        }
        moved.map(|()| grown)
    }

    /// Puts a version in `answer`, with its head.
    pub(super) fn read(
        &self,
        object: ObjectId,
        version: Version,
        own: &mut Own<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let Some((_, descriptor)) = self.find(object, own)? else {
            Answer::NoObject.encode(answer);
            return Ok(());
        };
        let number = match version {
            Version::Latest => descriptor.versions.checked_sub(1),
            Version::Number(number) => Some(number),
        };
        let kept = descriptor.oldest()..descriptor.versions;
        let Some(number) = number.filter(|number| kept.contains(number)) else {
            Answer::NoVersion(descriptor.describe()).encode(answer);
            return Ok(());
        };
        let record = own.read_word(descriptor.address_of(number))?;
        let bytes = own.read_word(record)?.narrow_usize();
        if bytes > VALUE_BYTES_MAX {
            // No append writes such a record: the memory is not what was written.
            return Err(ErrorCode::System);
        }
        answer.extend(value_head(number, bytes));
        answer.resize(ANSWER_HEAD_BYTES + bytes, 0);
        own.read(record + RECORD_HEAD_BYTES, &mut answer[ANSWER_HEAD_BYTES..])
    }

    pub(super) fn delete(&mut self, object: ObjectId, own: &mut Own<'_>) -> Result<Answer<'static>, ErrorCode> {
        let Some((address, descriptor)) = self.find(object, own)? else { return Ok(Answer::NoObject) };
        let mut words = vec![0; 8 * descriptor.places.narrow_usize()];
        own.read(descriptor.array, &mut words)?;
        Descriptor::free(descriptor.serial, self.free).write(address, own)?;
        self.free = index_of(object);
        self.objects -= 1;
        if self.objects == 0 {
            self.clear(own);
            return Ok(Answer::Deleted);
        }
        let (records, _) = words.as_chunks::<8>();
        for version in descriptor.oldest()..descriptor.versions {
            let record = records[descriptor.place_of(version).narrow_usize()];
            self.arena.free(u64::from_le_bytes(record), own);
        }
        if descriptor.places > 0 {
            self.arena.free(descriptor.array, own);
        }
        Ok(Answer::Deleted)
    }

    pub(super) fn describe(&self, object: ObjectId, own: &mut Own<'_>) -> Result<Answer<'static>, ErrorCode> {
        let found = self.find(object, own)?;
        Ok(found.map_or(Answer::NoObject, |(_, descriptor)| Answer::Description(descriptor.describe())))
    }

    /// Forgets all objects and gives all memory back. Their numbers stay used.
    pub(super) fn clear(&mut self, own: &mut Own<'_>) {
        self.arena.clear(own);
        self.segments.clear();
        (self.descriptors, self.free, self.objects) = (0, NO_DESCRIPTOR, 0);
    }

    /// Blocks in use, and of those the segments; descriptors that were ever used.
    #[cfg(test)]
    pub(super) fn usage(&self) -> (u64, u64, u32) {
        (self.arena.blocks_in_use(), self.segments.len() as u64, self.descriptors)
    }

    /// The descriptor of an object, and its address.
    fn find(&self, object: ObjectId, own: &mut Own<'_>) -> Result<Option<(u64, Descriptor)>, ErrorCode> {
        let index = index_of(object);
        if index >= self.descriptors {
            return Ok(None);
        }
        let address = self.address_of(index);
        let descriptor = Descriptor::read(address, own)?;
        let exists = descriptor.kept > 0 && u64::from(descriptor.serial) == object.0 >> 32;
        Ok(exists.then_some((address, descriptor)))
    }

    fn address_of(&self, index: u32) -> u64 {
        let index = u64::from(index);
        self.segments[(index / SEGMENT_DESCRIPTORS) as usize] + index % SEGMENT_DESCRIPTORS * DESCRIPTOR_BYTES
    }
}

fn index_of(object: ObjectId) -> u32 {
    (object.0 & 0xffff_ffff) as u32
}
