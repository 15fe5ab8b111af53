//! The subcommands of `tollgate`.

pub mod hit;
