//! `file:///path?size=64GiB`: far memory on a local disk, in a log (LightSwap, sections 4.1 and 5.1).
//!
//! If the path is that of a folder, each process has a file there without a name, which is gone with it. A named one is
//! this process's alone while it is open. It is written and read without the page cache, and grows with what is
//! allocated, up to `size` or what the disk has room for. What an earlier process has left in it is never read: its
//! page tables are gone. When the fabric ends, the file gives its space back.
//!
//! [`core/store`](yonder_store) decides; here are the disk, the thread that cleans, and the queue pairs.

mod cleaning;
mod gathering;
mod queue;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use yonder_mapping::Mapping;
use yonder_ring::{DirectFile, Ring};
use yonder_store::{BufferIndex, Disk, Geometry, Index, Log};
use yonder_units::{Narrow, PAGE_BYTES, PageIndex, format_bytes, parse_bytes};

use crate::background::Background;
use crate::ranges::Ranges;
use crate::url::{bad, query};
use crate::{Fabric, FabricError, Module, QueuePair, RemoteAddress};
use queue::FileQueuePair;

/// What `file://` may say, for messages.
const USAGE: &str = "type file:///path?size=64GiB, of a file or of a folder";
/// Bytes of a segment: what is cleaned at once.
const SEGMENT_BYTES: usize = 2 << 20;
/// First bytes of every file that is a store.
const MAGIC: &[u8; 24] = b"Yonder page store, v1\n\0\0";
/// Where the log begins: behind the page that says what the file is.
const LOG_OFFSET: u64 = PAGE_BYTES as u64;

/// Far memory in a file.
pub struct FileFabric {
    url: String,
    path: PathBuf,
    shared: Arc<Shared>,
    allocations: Mutex<Allocations>,
    /// Most bytes of the file.
    limit: u64,
    cleaning: Background,
}

/// The store: what queue pairs and the cleaner share.
struct Shared {
    file: Arc<DirectFile>,
    index: Index,
    log: Mutex<Log>,
}

struct Allocations {
    ranges: Ranges,
    bytes: u64,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileFabric {
    /// Opens the store that `url` describes, and makes its file if there is none.
    pub fn open(url: &str) -> Result<Self, FabricError> {
        let (path, size) = parse(url)?;
        let system = |cause: String| FabricError::System { url: url.to_owned(), cause };
        let refused = |error: io::Error| system(format!("{}: {error}", path.display()));
        let file = DirectFile::open(path).map_err(|error| bad(url, &format!("{}", Named(path, error))))?;
        let mut header = Ring::new(Arc::new(file), 1, PAGE_BYTES).map_err(|error| system(error.to_string()))?;
        let file = Arc::clone(header.file());
        if file.bytes().map_err(refused)? > 0 && !is_store(&mut header) {
            return Err(bad(url, "holds something else: type the path of a new file, or remove that one"));
        }
        let room = room(path).map_err(refused)? + file.bytes().map_err(refused)?;
        let limit = size.unwrap_or(room).min(room);
        if size.is_some_and(|size| size > room) {
            let have = format_bytes(room);
            return Err(bad(url, &format!("asks for more than the disk has: type a size of at most {have}")));
        }
        let Some(geometry) = Geometry::fitting(limit.saturating_sub(LOG_OFFSET), SEGMENT_BYTES) else {
            let least = format_bytes(Geometry::keeping(1, SEGMENT_BYTES).bytes() + SEGMENT_BYTES as u64);
            return Err(bad(url, &format!("has no room for a log: type a size of at least {least}")));
        };
        file.reserve(LOG_OFFSET).map_err(refused)?;
        write_header(&mut header).map_err(refused)?;
        let index = Index::new(geometry.pages_max(), OsRng.try_next_u64().map_err(|error| system(error.to_string()))?);
        let none = Geometry { segments: 0, ..geometry };
        let shared = Arc::new(Shared { file, index, log: Mutex::new(Log::new(none)) });
        let cleaning = cleaning::start(&shared).map_err(|error| system(error.to_string()))?;
        let ranges = Ranges::new((geometry.pages_max() * PAGE_BYTES) as u64);
        let allocations = Mutex::new(Allocations { ranges, bytes: 0 });
        Ok(Self { url: url.to_owned(), path: path.to_owned(), shared, allocations, limit, cleaning })
    }

    fn system(&self, cause: String) -> FabricError {
        FabricError::System { url: self.url.clone(), cause }
    }

    fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Fabric::release`], unless another thread has memory given now: false then. What is not there is released.
    pub(crate) fn try_release(&self, start: RemoteAddress) -> bool {
        let Ok(mut allocations) = self.allocations.try_lock() else { return false };
        if let Some(bytes) = allocations.ranges.release(start.0) {
            allocations.bytes -= bytes;
            self.forget(start.0, bytes);
        }
        true
    }

    /// Forgets what is at `start`.
    fn forget(&self, start: u64, bytes: u64) {
        let pages = start / PAGE_BYTES as u64..(start + bytes) / PAGE_BYTES as u64;
        for page in pages.map(|page| PageIndex(page.narrow_u32())) {
            if let Some(location) = self.shared.index.forget(page) {
                self.shared.log().release(location);
            }
        }
    }
}

impl Fabric for FileFabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let waker = self.cleaning.waker();
        let made = FileQueuePair::new(module, &self.shared, waker, frames);
        Ok(Box::new(made.map_err(|error| self.system(error.to_string()))?))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let mut allocations = self.allocations();
        let full = || FabricError::OutOfMemory { url: self.url.clone(), bytes };
        let pages = ((allocations.bytes + bytes) / PAGE_BYTES as u64).narrow_usize();
        let geometry = Geometry::keeping(pages, SEGMENT_BYTES);
        let file_bytes = size_for((pages * PAGE_BYTES) as u64);
        if file_bytes > self.limit {
            return Err(full());
        }
        let start = allocations.ranges.allocate(bytes).ok_or_else(full)?;
        if geometry.segments > self.shared.log().geometry().segments {
            if let Err(error) = self.shared.file.reserve(file_bytes) {
                allocations.ranges.release(start);
                return Err(self.system(format!("{}: {error}", self.path.display())));
            }
            self.shared.log().grow(geometry.segments);
        }
        allocations.bytes += bytes;
        Ok(RemoteAddress(start))
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        let mut allocations = self.allocations();
        let bytes = allocations.ranges.release(start.0);
        let bytes = bytes.ok_or_else(|| self.system(format!("nothing is allocated at {}", start.0)))?;
        allocations.bytes -= bytes;
        self.forget(start.0, bytes);
        Ok(())
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        if !self.allocations().ranges.contains(start.0, bytes) {
            return Err(self.system(format!("nothing is allocated at {}", start.0)));
        }
        self.forget(start.0, bytes);
        Ok(())
    }

    fn loses_operations(&self) -> bool {
        // The kernel ends every transfer, and a disk that is busy is not helped by more of them.
        false
    }
}

impl Drop for FileFabric {
    fn drop(&mut self) {
        self.cleaning.stop();
        // A file that keeps its bytes is found to be a store the next time.
        let _ = self.shared.file.clear();
    }
}

/// The buffers of a ring as a disk.
struct RingDisk {
    ring: Ring,
}

impl Disk for RingDisk {
    fn read(&mut self, buffer: BufferIndex, offset: u64, bytes: usize) {
        self.ring.read(buffer.0, LOG_OFFSET + offset, bytes);
    }

    fn write(&mut self, buffer: BufferIndex, offset: u64, bytes: usize) {
        self.ring.write(buffer.0, LOG_OFFSET + offset, bytes);
    }

    fn buffer(&mut self, buffer: BufferIndex) -> &mut [u8] {
        self.ring.buffer(buffer.0)
    }

    fn copy(&mut self, from: BufferIndex, start: usize, to: BufferIndex, to_start: usize, bytes: usize) {
        self.ring.copy(from.0, start, to.0, to_start, bytes);
    }
}

/// An error of opening a file, behind its name.
struct Named<'path>(&'path Path, yonder_ring::OpenError);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "names {}, which {}", self.0.display(), self.1)
    }
}

/// Bytes of a file that keeps `bytes` of far memory.
pub(crate) fn size_for(bytes: u64) -> u64 {
    LOG_OFFSET + Geometry::keeping(bytes.div_ceil(PAGE_BYTES as u64).narrow_usize(), SEGMENT_BYTES).bytes()
}

/// The path, and the size if there is one.
fn parse(url: &str) -> Result<(&Path, Option<u64>), FabricError> {
    let rest = url.strip_prefix("file://").unwrap_or_default();
    let (path, settings) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    if !path.starts_with('/') {
        return Err(bad(url, &format!("is not an absolute path: {USAGE}")));
    }
    let mut size = None;
    for (key, value) in query(url, settings)? {
        match key.as_str() {
            "size" => size = Some(parse_bytes(&value).map_err(|error| bad(url, &format!("{error}: {USAGE}")))?),
            _ => return Err(bad(url, &format!("has an unknown setting '{key}': {USAGE}"))),
        }
    }
    Ok((Path::new(path), size))
}

/// Whether the file of `ring` begins as a store does.
fn is_store(ring: &mut Ring) -> bool {
    ring.read(0, 0, PAGE_BYTES);
    transfer(ring) && ring.buffer(0).starts_with(MAGIC)
}

fn write_header(ring: &mut Ring) -> io::Result<()> {
    let header = ring.buffer(0);
    header.fill(0);
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    ring.write(0, 0, PAGE_BYTES);
    if transfer(ring) { Ok(()) } else { Err(io::Error::other("its first page cannot be written")) }
}

/// Waits for the one transfer of `ring`. Whether it was done.
fn transfer(ring: &mut Ring) -> bool {
    loop {
        ring.wait();
        if let Some(ended) = ring.ended() {
            return ended.is_done;
        }
    }
}

/// Bytes that this user may still write to the disk of `path`.
fn room(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests;
