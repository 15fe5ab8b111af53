//! `tollgate completions`.

use std::io;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = "Example: tollgate completions bash > /etc/bash_completion.d/tollgate")]
pub(super) struct CompletionsArgs {
    /// Shell to complete for
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tollgate", &mut script);
    match io::Write::write_all(&mut io::stdout(), &script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => super::fail(super::EXIT_UNAVAILABLE, &error),
    }
}
