//! Generated from `proto/`; nothing here is written by hand.

#![expect(clippy::allow_attributes_without_reason, reason = "generated code")]

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                tonic::include_proto!("envoy.config.core.v3");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    tonic::include_proto!("envoy.extensions.common.ratelimit.v3");
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                tonic::include_proto!("envoy.service.ratelimit.v3");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            tonic::include_proto!("envoy.r#type.v3");
        }
    }
}

/// What reflection serves, see `build.rs`.
pub const REFLECTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reflection.bin"));
