//! `tollgate schema`: the JSON Schema of rules files.

use std::io::Write;
use std::process::ExitCode;

use crate::rules::schema;

/// Print the JSON Schema of rules files.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// # Errors
///
/// The output can not be written.
pub fn run(_args: &Args, out: &mut dyn Write, _err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    writeln!(out, "{:#}", schema())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::golden;

    #[test]
    fn the_schema_is_printed() {
        golden::check("schema", ExitCode::SUCCESS, |out, err| run(&Args {}, out, err));
    }
}
