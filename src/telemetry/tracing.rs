//! Log lines: text for people, JSON with the field names of envoyproxy/ratelimit for machines.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::model::Timestamp;
use crate::settings::{LogFormat, LogSettings};

/// Logs to standard error from now on.
///
/// # Errors
///
/// The process logs already.
pub fn install(settings: &LogSettings) -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from_level(settings.level))
        .with_writer(std::io::stderr);
    match settings.format {
        LogFormat::Json => {
            tracing::subscriber::set_global_default(builder.event_format(JsonLines).finish())
        }
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            let text = builder.with_ansi(colours).with_target(false);
            tracing::subscriber::set_global_default(text.finish())
        }
    }
}

/// One JSON object a line.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let now = jiff::Timestamp::now();
        line.insert("@timestamp".to_owned(), json!(format!("{now:.9}")));
        let level = event.metadata().level().as_str().to_lowercase();
        line.insert("level".to_owned(), json!(level));
        let mut fields = Fields::default();
        event.record(&mut fields);
        line.insert("@message".to_owned(), json!(fields.message));
        line.extend(fields.others);
        writeln!(writer, "{}", Value::Object(line))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}

/// Lets one log line per reason and second through.
///
/// Reasons are a closed set of names, never what a caller sent.
#[derive(Debug, Default)]
pub struct RateLimited {
    reasons: Mutex<HashMap<&'static str, Reason>>,
}

#[derive(Debug)]
struct Reason {
    last: Timestamp,
    suppressed: u64,
}

impl RateLimited {
    /// Whether to log at `now`: the number of lines left out since the last one, if so.
    pub fn admit(&self, reason: &'static str, now: Timestamp) -> Option<u64> {
        const PAUSE: u64 = 1_000_000;
        let mut reasons = self.reasons.lock();
        let Some(known) = reasons.get_mut(reason) else {
            reasons.insert(reason, Reason { last: now, suppressed: 0 });
            return Some(0);
        };
        // A clock that was set back must not silence a reason until it has caught up.
        if now >= known.last && now.micros_since(known.last) < PAUSE {
            known.suppressed += 1;
            return None;
        }
        known.last = now;
        Some(std::mem::take(&mut known.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_line_per_reason_and_second_with_the_number_left_out() {
        let limited = RateLimited::default();
        let at = |millis: u64| Timestamp::from_micros(millis * 1_000);
        for (reason, millis, expected) in [
            ("store", 5_000, Some(0)),
            ("store", 5_001, None),
            ("domain", 5_001, Some(0)),
            ("store", 5_999, None),
            ("store", 6_000, Some(2)),
            ("store", 6_500, None),
            ("store", 9_000, Some(1)),
            ("store", 2_000, Some(0)),
        ] {
            assert_eq!(limited.admit(reason, at(millis)), expected, "{reason} at {millis} ms");
        }
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn json_lines_have_the_field_names_of_the_reference() {
        let buffer = Buffer::default();
        let sink = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || sink.clone())
            .event_format(JsonLines)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(reason = "timeout", suppressed = 3_u64, "store \"call\" failed");
        });
        let line: Value = serde_json::from_slice(&buffer.0.lock()).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["@message"], "store \"call\" failed");
        assert_eq!((&line["reason"], &line["suppressed"]), (&json!("timeout"), &json!(3)));
        let time = line["@timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{time}");
    }
}
