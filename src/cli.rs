//! The command line: flags to a command, the command's outcome to an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::settings::Settings;

pub mod bench;
pub mod check;
mod completions;
pub mod explain;
pub mod hit;
pub mod schema;
mod serve;

#[cfg(test)]
mod golden;

/// Exit code of an answer that is no: over the limit, or invalid.
pub const EXIT_NO: u8 = 1;
/// Exit code of a command that was used wrongly, wrong settings included.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a command that could not reach what it needs.
pub const EXIT_UNAVAILABLE: u8 = 3;

/// Rate-limit decisions for Envoy and anything that speaks gRPC or HTTP.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 fine, 1 the answer is no, 2 usage, 3 unavailable\n\n\
    Example: tollgate serve --rules rules.yaml")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve decisions over gRPC and HTTP
    Serve(Box<serve::ServeArgs>),
    /// Find every fault of rules files, or print what they say
    Check(check::Args),
    /// Show which rule a descriptor finds, and why
    Explain(explain::Args),
    /// Send calls to a running server and print its verdicts
    Hit(hit::HitArgs),
    /// Generate load for a rate limit server and judge its answers
    Bench(Box<bench::BenchArgs>),
    #[command(name = bench::bare::NAME, hide = true)]
    BenchBare(bench::bare::BareArgs),
    /// Print the JSON Schema of rules files
    Schema(schema::Args),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the command of the process' arguments; `server` runs the server until it is told to stop.
pub fn run(server: impl FnOnce(Settings) -> anyhow::Result<()>) -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args, std::env::vars_os(), server),
        Command::Check(args) => written(|out, err| check::run(&args, out, err)),
        Command::Explain(args) => written(|out, err| explain::run(&args, out, err)),
        Command::Hit(args) => hit::run_alone(&args),
        Command::Bench(args) => bench::run_alone(&args),
        Command::BenchBare(args) => bench::bare::run_alone(&args),
        Command::Schema(args) => written(|out, err| schema::run(&args, out, err)),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Runs a command that only writes; a reader that went away is no failure.
fn written(
    command: impl FnOnce(&mut dyn Write, &mut dyn Write) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let (out, err) = (&mut io::stdout().lock(), &mut io::stderr().lock());
    command(out, err).unwrap_or_else(|error| match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => fail(EXIT_UNAVAILABLE, &format_args!("{error:#}")),
    })
}

/// Says on standard error why a command failed.
#[expect(clippy::print_stderr, reason = "the one place where commands report failure")]
fn fail(code: u8, message: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_misspelt_flag_is_answered_with_the_right_one() {
        let error = Cli::try_parse_from(["tollgate", "serve", "--rule-s", "x"]).unwrap_err();
        assert!(error.to_string().contains("--rules"), "{error}");
        assert_eq!(error.exit_code(), i32::from(EXIT_USAGE));
    }
}
