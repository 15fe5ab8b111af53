//! Requests in few words.

use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

/// A descriptor of these entries.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |&(key, value): &(&str, &str)| Entry {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
    };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}
