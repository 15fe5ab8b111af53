//! `tollgate serve`: settings and logging, then the server.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{EXIT_NO, EXIT_UNAVAILABLE, EXIT_USAGE, fail};
use crate::server::StartError;
use crate::settings::{Flags, Loaded, Settings, Shows};
use crate::telemetry;

const NO_RULES: &str = "there are no rules to serve: name a file or folder with --rules PATH, the \
                        setting rules.paths, or RUNTIME_ROOT";

/// Settings come from defaults, then the settings file, then the environment, then flags.
#[derive(Debug, Args)]
#[command(after_help = "Every setting also has a variable, such as TOLLGATE_STORE_TIMEOUT for \
    store.timeout; those of envoyproxy/ratelimit work too.\n\n\
    Examples:\n  \
    tollgate serve --rules rules.yaml\n  \
    tollgate serve --rules /etc/tollgate/rules --store redis://redis:6379\n  \
    tollgate serve --settings tollgate.yaml --print-settings")]
pub(super) struct ServeArgs {
    /// Rules file, or folder of them; may be given several times
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Where counters live: memory (the default), redis://host:port, rediss://… or unix:///path
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where gRPC listens [default: [::]:8081]
    #[arg(long, value_name = "HOST:PORT")]
    grpc_addr: Option<String>,
    /// Where HTTP listens [default: [::]:8080]
    #[arg(long, value_name = "HOST:PORT")]
    http_addr: Option<String>,
    /// Where the admin pages and metrics listen [default: 127.0.0.1:6070]
    #[arg(long, value_name = "HOST:PORT")]
    admin_addr: Option<String>,
    /// Settings file, TOML or YAML
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print every setting, where it came from, and which variables have no effect, and exit
    #[arg(long)]
    print_settings: bool,
    /// Least severe level that is logged: trace, debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How log lines are written: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Threads that serve gRPC, or auto for one per core
    #[arg(long, value_name = "NUMBER")]
    workers: Option<String>,
    /// Let several files add to one domain
    #[arg(long)]
    merge_domains: bool,
}

impl ServeArgs {
    fn flags(&self) -> Flags {
        let mut flags = Flags::default();
        let rules = self.rules.iter().map(|path| path.to_string_lossy().into_owned());
        flags.set("rules.paths", rules);
        for (key, value) in [
            ("store.url", &self.store),
            ("grpc.addr", &self.grpc_addr),
            ("http.addr", &self.http_addr),
            ("admin.addr", &self.admin_addr),
            ("log.level", &self.log_level),
            ("log.format", &self.log_format),
            ("grpc.workers", &self.workers),
        ] {
            flags.set(key, value.clone());
        }
        flags.set("rules.merge_domains", self.merge_domains.then(|| "true".to_owned()));
        flags
    }
}

pub(super) fn run(
    args: &ServeArgs,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    server: impl FnOnce(Settings) -> anyhow::Result<()>,
) -> ExitCode {
    // Other programs' variables may be any bytes; ours are then wrong in a way that a fault shows.
    let env = env.into_iter().map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    });
    let Loaded { settings, ignored, shown } =
        match Settings::load(args.settings.as_deref(), env, &args.flags()) {
            Ok(loaded) => loaded,
            Err(error) => return fail(EXIT_USAGE, &error),
        };
    if args.print_settings {
        return match show(&mut std::io::stdout(), &shown, &ignored) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(EXIT_UNAVAILABLE, &error),
        };
    }
    if settings.rules.sources.is_empty() {
        return fail(EXIT_USAGE, &NO_RULES);
    }
    if let Err(error) = telemetry::install(&settings.log) {
        return fail(EXIT_UNAVAILABLE, &error);
    }
    if !ignored.is_empty() {
        let variables = ignored.join(" ");
        tracing::warn!(%variables, "these environment variables are set and have no effect");
    }
    match server(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_rules = matches!(error.downcast_ref(), Some(StartError::Rules(_)));
            let code = if is_rules { EXIT_NO } else { EXIT_UNAVAILABLE };
            fail(code, &format_args!("{error:#}"))
        }
    }
}

fn show(out: &mut impl Write, shown: &Shows, ignored: &[String]) -> std::io::Result<()> {
    write!(out, "{shown}")?;
    if !ignored.is_empty() {
        writeln!(out, "\nset without effect: {}", ignored.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The exit code of `tollgate serve` with a server that ends at once, and whether it ran.
    #[track_caller]
    fn check(flags: &[&str], server: anyhow::Result<()>, code: u8, has_run: bool) {
        let args = ["tollgate", "serve"].iter().chain(flags);
        let Command::Serve(args) = Cli::try_parse_from(args).unwrap().command else {
            panic!("another command");
        };
        let served = Cell::new(false);
        let exit = run(&args, [], |_| {
            served.set(true);
            server
        });
        assert_eq!(format!("{exit:?}"), format!("{:?}", ExitCode::from(code)));
        assert_eq!(served.get(), has_run);
    }

    #[test]
    fn only_valid_settings_with_rules_reach_the_server() {
        check(&[], Ok(()), EXIT_USAGE, false);
        check(&["--rules", "x", "--store", "http://h"], Ok(()), EXIT_USAGE, false);
        check(&["--print-settings"], Ok(()), 0, false);
    }

    #[test]
    fn variables_without_effect_are_shown_with_the_settings() {
        let env = [("STATSD_HOST".to_owned(), "stats".to_owned())];
        let Loaded { shown, ignored, .. } = Settings::load(None, env, &Flags::default()).unwrap();
        let mut out = Vec::new();
        show(&mut out, &shown, &ignored).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\n\nset without effect: STATSD_HOST\n"), "{text}");
    }

    #[test]
    fn flags_reach_the_settings_and_a_failed_server_is_unavailable() {
        let flags = ["--rules", "a", "--rules", "b", "--merge-domains", "--workers", "3"];
        let args = ["tollgate", "serve"].iter().chain(&flags);
        let Command::Serve(args) = Cli::try_parse_from(args).unwrap().command else {
            panic!("another command");
        };
        let settings = Settings::load(None, [], &args.flags()).unwrap().settings;
        let paths: Vec<_> =
            settings.rules.sources.iter().map(|source| source.path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("a"), PathBuf::from("b")]);
        assert!(settings.rules.merge_domains);
        assert_eq!(settings.grpc.workers, 3);
        check(&["--rules", "a"], Err(anyhow::anyhow!("no port")), EXIT_UNAVAILABLE, true);
    }
}
