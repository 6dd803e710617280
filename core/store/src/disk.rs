//! [`Disk`]: what readers, writers and the cleaner ask of a disk and of the buffers before it.

/// A buffer of a [`Disk`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferIndex(pub u16);

/// A disk and the buffers of one user. Each transfer has one buffer, and its end is told to who began it.
pub trait Disk {
    /// Begins to read `bytes` at `offset` of the disk into the start of a buffer. The buffer belongs to the disk until
    /// the end is told.
    fn read(&mut self, buffer: BufferIndex, offset: u64, bytes: usize);

    /// Begins to write `bytes` from the start of a buffer to `offset` of the disk, likewise.
    fn write(&mut self, buffer: BufferIndex, offset: u64, bytes: usize);

    /// The content of a buffer that does not belong to the disk now.
    fn buffer(&mut self, buffer: BufferIndex) -> &mut [u8];

    /// Copies `bytes` from `start` of one buffer to `to_start` of another; the disk has neither now.
    fn copy(&mut self, from: BufferIndex, start: usize, to: BufferIndex, to_start: usize, bytes: usize);
}
