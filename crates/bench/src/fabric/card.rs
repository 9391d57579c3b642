//! What ends tell each other before they connect, as text that crosses a pipe.

use anyhow::{Context, Result};
use fabric::{Endpoint, Lkey, MemoryRegion, Rkey};
use serde::{Deserialize, Serialize};

/// An end's memory and queue pairs, for others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Card {
    address: u64,
    len_bytes: u64,
    rkey: u32,
    endpoints: Vec<String>,
}

impl Card {
    /// The card of an end with this memory and these queue pairs.
    pub fn new(region: &MemoryRegion, endpoints: &[Endpoint]) -> Self {
        let endpoints = endpoints.iter().map(ToString::to_string).collect();
        Self { address: region.address, len_bytes: region.len_bytes, rkey: region.rkey.0, endpoints }
    }

    /// The memory, as far as peers may name it.
    pub fn region(&self) -> MemoryRegion {
        MemoryRegion { address: self.address, len_bytes: self.len_bytes, lkey: Lkey(0), rkey: Rkey(self.rkey) }
    }

    /// The queue pair of this number.
    ///
    /// # Errors
    /// If there is none, or its endpoint is no endpoint.
    pub fn endpoint(&self, number: usize) -> Result<Endpoint> {
        let text = self.endpoints.get(number).context("the other end has fewer connections")?;
        text.parse().map_err(|error| anyhow::anyhow!("the other end's address: {error}"))
    }
}
