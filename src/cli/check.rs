//! `tollgate check`: all faults of rules files, or what they say.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::rules::{CompileOptions, Node, Rule, RuleSet, RulesError, load};
use crate::settings::RulesSource;
use crate::telemetry::RuleSeries;

/// Check rules files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tollgate check rules.yaml /etc/tollgate/rules")]
pub struct Args {
    /// Files, and folders that are read recursively
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How rules are read, as `serve` does by its settings.
#[derive(Debug, clap::Args)]
pub(super) struct Reading {
    /// Several files may add to one domain
    #[arg(long)]
    merge_domains: bool,
    /// Leave out files and folders whose name starts with a dot
    #[arg(long)]
    ignore_dotfiles: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Reading {
    pub(super) fn load(&self, paths: &[PathBuf]) -> Result<RuleSet, RulesError> {
        let source = |path: &PathBuf| RulesSource {
            path: path.clone(),
            ignore_dotfiles: self.ignore_dotfiles,
            swapped_link: None,
        };
        let sources: Vec<_> = paths.iter().map(source).collect();
        let options =
            CompileOptions { merge_domains: self.merge_domains, ..CompileOptions::default() };
        load(&sources, options, &RuleSeries::default())
    }
}

/// Exit code 1 for rules with faults.
///
/// # Errors
///
/// The output can not be written.
pub fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match (args.reading.load(&args.paths), args.output) {
        (Ok(rules), Output::Text) => write!(out, "{}", summary(&rules))?,
        (Ok(rules), Output::Json) => writeln!(out, "{:#}", to_json(&rules))?,
        (Err(error), output) => return show_faults(&error, output, out, err),
    }
    Ok(ExitCode::SUCCESS)
}

/// For people as compilers do, for programs in place of the answer.
pub(super) fn show_faults(
    error: &RulesError,
    output: Output,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match output {
        Output::Text => write!(err, "{}", error.render())?,
        Output::Json => {
            writeln!(out, "{:#}", json!({ "ok": false, "faults": error.to_json() }))?;
        }
    }
    Ok(ExitCode::FAILURE)
}

fn to_json(rules: &RuleSet) -> Value {
    let rule = |rule: &Arc<Rule>| {
        json!({
            "path": rule.path,
            "unlimited": rule.unlimited,
            "limits": rule.limits.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    json!({
        "ok": true,
        "version": rules.version,
        "domains": rules.domains().map(|(name, _)| name).collect::<Vec<_>>(),
        "rules": rules.rules().map(rule).collect::<Vec<_>>(),
    })
}

fn summary(rules: &RuleSet) -> String {
    let mut out = String::new();
    for (name, domain) in rules.domains() {
        out.push_str(name);
        out.push('\n');
        for node in domain.nodes() {
            tree(node, 1, &mut out);
        }
    }
    let limits = rules.rules().map(|rule| rule.limits.len()).sum();
    out.push_str(&format!(
        "{}, {}, {}, version {}\n",
        count(rules.domains().count(), "domain"),
        count(rules.rules().len(), "rule"),
        count(limits, "limit"),
        rules.version
    ));
    out
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn tree(node: &Node, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    out.push_str(&format!("{indent}{}\n", node.composite()));
    if let Some(rule) = node.rule() {
        for (flag, text) in [
            (rule.unlimited, "unlimited"),
            (!rule.unlimited && rule.limits.is_empty(), "no limit"),
            (rule.shadow_mode, "shadow mode"),
            (rule.quota_mode, "quota mode"),
        ] {
            if flag {
                out.push_str(&format!("{indent}  : {text}\n"));
            }
        }
        for limit in &rule.limits {
            out.push_str(&format!("{indent}  : {limit}\n"));
        }
    }
    for node in node.nodes() {
        tree(node, depth + 1, out);
    }
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

    #[track_caller]
    fn check(name: &str, code: ExitCode, args: &[&str]) {
        let command = Command::parse_from([&["check"], args].concat());
        golden::check(name, code, |out, err| run(&command.args, out, err));
    }

    #[test]
    fn good_rules_are_summed_up() {
        check("check-good", ExitCode::SUCCESS, &["tests/golden/good.yaml"]);
        check("check-good-json", ExitCode::SUCCESS, &["tests/golden/good.yaml", "--output=json"]);
    }

    #[test]
    fn all_faults_are_shown_with_their_lines() {
        check("check-bad", ExitCode::FAILURE, &["tests/golden/bad.yaml", "tests/golden/none"]);
        check("check-bad-json", ExitCode::FAILURE, &["tests/golden/bad.yaml", "--output=json"]);
    }

    #[test]
    fn domains_are_merged_on_demand() {
        let files = ["tests/golden/good.yaml", "tests/golden/more.yaml"];
        check("check-twice", ExitCode::FAILURE, &files);
        check("check-merged", ExitCode::SUCCESS, &[&files[..], &["--merge-domains"]].concat());
    }
}
