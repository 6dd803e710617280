//! Allocation: [`Thread::ralloc`] and [`Thread::rfree`], on one node or in the regions of a controller, and the same
//! asynchronously.
//!
//! In an address space of several nodes the controller is asked first, and that is waited for in asynchronous calls
//! too; what the node then does is not. What is longer than a region has parts on several nodes, and is done at once.

use std::sync::Arc;

use yonder_fabric::cluster::Cluster;
use yonder_wire::{AllocateRequest, Allocated, Backing, Body, ErrorCode, Kind, Permission};

use super::flows::Request;
use super::process::Backend;
use super::table::Content;
use super::{Buffer, ClibError, PendingAllocation, PendingFree, Thread};

/// How many regions are tried for one allocation.
const REGIONS_TRIED_MAX: usize = 16;

/// An asynchronous allocation: what is asked for, and what it has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    request: AllocateRequest,
    /// Regions that had no room.
    avoid: Vec<u32>,
    /// What the node has answered; before, nothing.
    pub(super) address: u64,
}

impl Allocation {
    fn new(request: AllocateRequest) -> Self {
        Self { request, avoid: Vec::new(), address: 0 }
    }

    /// The request to the node. What it carries is put into `body`.
    pub(super) fn request<'a>(&self, body: &'a mut [u8; AllocateRequest::BYTES]) -> Request<'a> {
        self.request.write_to(body);
        allocate(self.request.from, body)
    }

    /// Chooses a region of `cluster`, and returns where it begins.
    fn place(&mut self, cluster: &Cluster) -> Result<u64, ClibError> {
        let regions = cluster.place(self.request.bytes, &self.avoid)?;
        let from = u64::from(*regions.first().ok_or(ClibError::OutOfMemory)?) * cluster.region_bytes();
        self.request = AllocateRequest { from, to: from + cluster.region_bytes(), ..self.request };
        Ok(from)
    }

    /// Chooses another one after the node has refused with `code`, if that was for want of room.
    pub(super) fn place_again(&mut self, cluster: &Cluster, code: ErrorCode) -> Result<u64, ClibError> {
        if !is_full(code) || self.avoid.len() == REGIONS_TRIED_MAX {
            return Err(code.into());
        }
        self.avoid.push(cluster.region_of(self.request.from)?);
        self.place(cluster)
    }
}

/// Whether a refusal may mean that the region has no room for the allocation: the node has filled up since the
/// controller last heard of it.
pub(super) fn is_full(code: ErrorCode) -> bool {
    matches!(ClibError::from(code), ClibError::OutOfMemory | ClibError::BadRange(_))
}

/// The request for an allocation on the node that has `near`.
fn allocate(near: u64, body: &[u8]) -> Request<'_> {
    Request { near, body, ..Request::at(Kind::Allocate, 0, 0) }
}

impl<B: Buffer> Thread<B> {
    /// Allocates `bytes`, which read as zeros. Memory is taken page by page, when it is first written.
    pub fn ralloc(&mut self, bytes: u64, permission: Permission) -> Result<u64, ClibError> {
        self.ralloc_with(bytes, permission, Backing::OnDemand).map(|(address, _)| address)
    }

    /// Allocates `bytes`, and says how much it has become and how many ranges were tried for it.
    pub fn ralloc_with(
        &mut self,
        bytes: u64,
        permission: Permission,
        backing: Backing,
    ) -> Result<(u64, Allocated), ClibError> {
        let request = AllocateRequest { bytes, permission, backing, from: 0, to: 0 };
        let process = Arc::clone(&self.process);
        let Backend::Cluster(cluster) = &process.place else { return self.allocate_in(0, &request) };
        let (region_bytes, mut avoid) = (cluster.region_bytes(), Vec::new());
        loop {
            let regions = cluster.place(bytes, &avoid)?;
            let allocated = self.allocate_across(&regions, region_bytes, &request);
            match allocated {
                Ok((parts, allocated)) => {
                    let start = parts[0];
                    if parts.len() > 1 {
                        cluster.keep_parts(start, parts[1..].to_vec());
                    }
                    return Ok((start, allocated));
                }
                // The node has filled up since the controller last heard of it.
                Err(ClibError::OutOfMemory | ClibError::BadRange(_)) if avoid.len() < REGIONS_TRIED_MAX => {
                    avoid.extend(regions);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees the allocation that begins at `address`. One that is longer than a region of a controller is freed as a
    /// whole by the process that made it.
    pub fn rfree(&mut self, address: u64) -> Result<(), ClibError> {
        let process = Arc::clone(&self.process);
        if let Backend::Cluster(cluster) = &process.place {
            for part in cluster.take_parts(address) {
                self.ask(&Request::at(Kind::Free, part, 0), &[])?;
            }
        }
        self.ask(&Request::at(Kind::Free, address, 0), &[]).map(drop)
    }

    /// Begins to allocate `bytes`, as [`Thread::ralloc`] does. The result is the address. It may be sent with the next
    /// call only, and be executed before a release that was called earlier: where the memory of that is needed, a
    /// [`Thread::rfence`] goes between.
    ///
    /// In an address space of several nodes, the controller is waited for, and its refusal (such as
    /// [`ClibError::OutOfMemory`]) is returned here; more than a region is allocated at once.
    pub fn ralloc_async(&mut self, bytes: u64, permission: Permission) -> Result<PendingAllocation, ClibError> {
        self.ralloc_with_async(bytes, permission, Backing::OnDemand)
    }

    /// As [`Thread::ralloc_async`], with memory from the start if `backing` says so.
    pub fn ralloc_with_async(
        &mut self,
        bytes: u64,
        permission: Permission,
        backing: Backing,
    ) -> Result<PendingAllocation, ClibError> {
        self.check_room()?;
        let mut allocation = Allocation::new(AllocateRequest { bytes, permission, backing, from: 0, to: 0 });
        let process = Arc::clone(&self.process);
        let near = match &process.place {
            Backend::Node(_) => 0,
            Backend::Cluster(cluster) if bytes <= cluster.region_bytes() => allocation.place(cluster)?,
            Backend::Cluster(_) => {
                let done = self.ralloc_with(bytes, permission, backing);
                let done = done.map(|(address, _)| allocation.address = address);
                return self.ended(Content::Allocation(allocation), done).map(PendingAllocation::new);
            }
        };
        self.begin(Kind::Allocate, near, Content::Allocation(allocation)).map(PendingAllocation::new)
    }

    /// Begins to free the allocation that begins at `address`, as [`Thread::rfree`] does, after all that was called
    /// before for its pages. It may be sent with the next call only. One that is longer than a region of a controller
    /// is freed at once.
    pub fn rfree_async(&mut self, address: u64) -> Result<PendingFree, ClibError> {
        self.check_room()?;
        let has_parts = matches!(&self.process.place, Backend::Cluster(cluster) if cluster.has_parts(address));
        let index = if has_parts {
            let done = self.rfree(address);
            self.ended(Content::Free, done)
        } else {
            self.begin(Kind::Free, address, Content::Free)
        };
        index.map(PendingFree::new)
    }

    /// Allocates in the address space from `near` on.
    fn allocate_in(&mut self, near: u64, request: &AllocateRequest) -> Result<(u64, Allocated), ClibError> {
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        let (header, payload) = self.ask(&allocate(near, &body), &[])?;
        let allocated = Allocated::from_bytes(&payload).map_err(|_| ClibError::Refused(ErrorCode::Corrupt))?;
        Ok((header.address, allocated))
    }

    /// Allocates in one region, or the whole of several that follow one another, of which the last may be a part.
    /// Returns where the parts begin.
    fn allocate_across(
        &mut self,
        regions: &[u32],
        region_bytes: u64,
        request: &AllocateRequest,
    ) -> Result<(Vec<u64>, Allocated), ClibError> {
        let (mut parts, mut sum) = (Vec::with_capacity(regions.len()), Allocated { bytes: 0, retries: 0 });
        for region in regions {
            let from = u64::from(*region) * region_bytes;
            let bytes = (request.bytes - sum.bytes.min(request.bytes)).min(region_bytes);
            let part = AllocateRequest { bytes, from, to: from + region_bytes, ..*request };
            match self.allocate_in(from, &part) {
                Ok((start, allocated)) => {
                    parts.push(start);
                    sum = Allocated { bytes: sum.bytes + allocated.bytes, retries: sum.retries + allocated.retries };
                }
                Err(error) => {
                    for start in parts {
                        // The first error is the one that counts; what cannot be freed ends with the address space.
                        let _ = self.ask(&Request::at(Kind::Free, start, 0), &[]);
                    }
                    return Err(error);
                }
            }
        }
        Ok((parts, sum))
    }
}
