//! `tollgate explain`: which rule a descriptor gets, and why.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::check::{Output, Reading, show_faults};
use crate::key::KeyCodec;
use crate::model::Entry;
use crate::rules::explain;

/// Show which rule a descriptor gets, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tollgate explain --rules rules.yaml shop plan=free user_id=7")]
pub struct Args {
    /// File or folder of rules; may be given several times
    #[arg(long, required = true, value_name = "PATH")]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// What stands before each counter key
    #[arg(long, default_value = "", value_name = "TEXT")]
    key_prefix: String,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Domain of the call
    domain: String,
    /// Entries of the descriptor, outermost first
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = parse_entry)]
    entries: Vec<(String, String)>,
}

/// The first `=` splits.
fn parse_entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected `key=value`".to_owned()),
    }
}

/// Exit code 1 for rules with faults; a descriptor without a rule is an answer like any other.
///
/// # Errors
///
/// The output can not be written.
pub fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let rules = match args.reading.load(&args.rules) {
        Ok(rules) => rules,
        Err(error) => return show_faults(&error, args.output, out, err),
    };
    let entries: Vec<_> = args
        .entries
        .iter()
        .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
        .collect();
    let codec = KeyCodec::new(&args.key_prefix);
    let explanation = explain(&rules, &args.domain, &entries, &codec);
    match args.output {
        Output::Text => write!(out, "{explanation}")?,
        Output::Json => writeln!(out, "{:#}", explanation.to_json())?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::golden;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Result<Command, clap::Error> {
        Command::try_parse_from([&["explain", "--rules=tests/golden/good.yaml"], args].concat())
    }

    #[track_caller]
    fn check(name: &str, args: &[&str]) {
        let command = parse(args).unwrap();
        golden::check(name, ExitCode::SUCCESS, |out, err| run(&command.args, out, err));
    }

    #[test]
    fn each_level_shows_what_was_tried() {
        check("explain-several", &["shop", "user_id=42"]);
        check("explain-shared", &["shop", "path=/api/items", "method=GET"]);
        check("explain-specific", &["shop", "path=/api/v2/items", "verb=GET"]);
        check("explain-cidr", &["shop", "remote_address=10.1.2.3", "--output=json"]);
        check("explain-exempt", &["shop", "user_id=root", "--key-prefix=p:"]);
    }

    #[test]
    fn a_missing_rule_has_a_reason() {
        check("explain-no-domain", &["market", "user_id=42"]);
        check("explain-too-deep", &["shop", "user_id=42", "path=/"]);
        check("explain-not-deep", &["shop", "path=/api/v2"]);
        check("explain-no-entry", &["shop", "agent=curl=8", "--output=json"]);
    }

    #[test]
    fn entries_need_a_key_and_a_value() {
        assert!(parse(&["shop", "user_id"]).is_err());
        assert!(parse(&["shop", "=x"]).is_err());
        assert!(parse(&["shop"]).is_err());
    }
}
