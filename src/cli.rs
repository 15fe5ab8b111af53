//! The subcommands of `tollgate`.

pub mod bench;
pub mod hit;
