//! The `tollgate` binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The one call of the server.
    tollgate::cli::run(|_settings| anyhow::bail!("this build has no server"))
}
