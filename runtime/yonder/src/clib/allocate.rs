//! Allocation: [`Thread::ralloc`] and [`Thread::rfree`], on one node or in the regions of a controller.

use std::sync::Arc;

use yonder_wire::{AllocateRequest, Allocated, Backing, Body, ErrorCode, Kind, Permission};

use super::flows::Request;
use super::process::Place;
use super::{Buffer, ClibError, Thread};

/// How many regions are tried for one allocation.
const REGIONS_TRIED_MAX: usize = 16;

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
        let Place::Cluster(cluster) = &process.place else { return self.allocate_in(0, &request) };
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

    /// Frees the allocation that begins at `address`. One that is longer than a region of a controller is freed as a whole
    /// by the process that made it.
    pub fn rfree(&mut self, address: u64) -> Result<(), ClibError> {
        let process = Arc::clone(&self.process);
        if let Place::Cluster(cluster) = &process.place {
            for part in cluster.take_parts(address) {
                self.ask(&Request::at(Kind::Free, part, 0), &[])?;
            }
        }
        self.ask(&Request::at(Kind::Free, address, 0), &[]).map(drop)
    }

    /// Allocates in the address space from `near` on.
    fn allocate_in(&mut self, near: u64, request: &AllocateRequest) -> Result<(u64, Allocated), ClibError> {
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        let request = Request { near, body: &body, ..Request::at(Kind::Allocate, 0, 0) };
        let (header, payload) = self.ask(&request, &[])?;
        let allocated = Allocated::from_bytes(&payload).map_err(|_| ClibError::Refused(ErrorCode::Corrupt))?;
        Ok((header.address, allocated))
    }

    /// Allocates in one region, or the whole of several that follow one another, of which the last may be a part. Returns
    /// where the parts begin.
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
