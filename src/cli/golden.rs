//! Compares what a command prints with files under `tests/golden`; `UPDATE_GOLDEN=1` rewrites
//! them.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

type Sink<'a> = &'a mut dyn Write;

/// Paths in `command`'s arguments are relative to the root of the crate, where tests run.
#[track_caller]
pub(super) fn check(
    name: &str,
    code: ExitCode,
    command: impl FnOnce(Sink<'_>, Sink<'_>) -> anyhow::Result<ExitCode>,
) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let got = command(&mut out, &mut err).unwrap();
    assert_eq!(format!("{got:?}"), format!("{code:?}"), "exit code");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let got = match err.is_empty() {
        true => text(out),
        false => format!("{}--- stderr\n{}", text(out), text(err)),
    };
    let path = Path::new("tests/golden").join(name).with_extension("txt");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &got).unwrap();
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "{}", path.display());
}
