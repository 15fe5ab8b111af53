//! What is asked: one request of Envoy's rate limit service, borrowed from whatever carried it.

use smallvec::SmallVec;

use super::limit::Unit;

/// Hits beyond this count as this many: the largest integer that Redis' Lua holds exactly.
pub const MAX_HITS: u64 = (1 << 53) - 1;

/// One `ShouldRateLimit` call (`envoy.service.ratelimit.v3.RateLimitRequest`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Namespace of the rules; not empty.
    pub domain: &'a str,
    /// At least one; each is matched and answered on its own.
    pub descriptors: SmallVec<[Descriptor<'a>; 4]>,
    /// Hits of every descriptor that brings none; 0 as sent stands for 1.
    pub hits_addend: u32,
}

/// A list of entries to look up in the rules tree, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descriptor<'a> {
    pub entries: SmallVec<[Entry<'a>; 4]>,
    /// A limit that replaces that of the rules for this call.
    pub limit: Option<LimitOverride>,
    /// Hits of this descriptor alone; `Some(0)` only looks.
    pub hits_addend: Option<u64>,
    /// The hits are given back instead of taken.
    pub is_negative_hits: bool,
}

/// A key and a value. Bytes, since proxies forward header values that are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// `RateLimitDescriptor.limit` of the request: always a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitOverride {
    pub requests_per_unit: u32,
    pub unit: Unit,
    /// How many units the window is long, at least 1.
    pub unit_multiplier: u32,
}

/// What one check does to its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    /// Takes this many, at least 1.
    Take(u64),
    /// Takes nothing; allowed while used ≤ limit.
    Look,
    /// Gives back this many, never above the limit; always allowed.
    Refund(u64),
}

impl Hits {
    /// Hits of `descriptor` in `request`: its own count wins, else the request's, where 0 is 1.
    pub fn of(request: &Request<'_>, descriptor: &Descriptor<'_>) -> Self {
        let count = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
        match count.min(MAX_HITS) {
            0 => Self::Look,
            hits if descriptor.is_negative_hits => Self::Refund(hits),
            hits => Self::Take(hits),
        }
    }

    /// Whether the caller named a number, so that the hits may be a late report of work done:
    /// a descriptor's own count, or 2 or more on the request.
    pub fn are_explicit(request: &Request<'_>, descriptor: &Descriptor<'_>) -> bool {
        descriptor.hits_addend.is_some() || request.hits_addend >= 2
    }

    /// The count without its direction.
    pub fn count(self) -> u64 {
        match self {
            Self::Take(hits) | Self::Refund(hits) => hits,
            Self::Look => 0,
        }
    }
}
