//! Draws latency by percentile and throughput over time, as SVG.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::outcome::Outcome;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 360.0;
const LATENCY: (f64, f64) = (80.0, 460.0);
const THROUGHPUT: (f64, f64) = (570.0, 930.0);
const SERVER_COLOUR: &str = "#1f6feb";
const BARE_COLOUR: &str = "#8b949e";
/// Marks of the percentile axis; each step is ten times closer to all calls.
const PERCENTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];
/// Points of a percentile curve from one decade to the next.
const POINTS_PER_DECADE: u32 = 20;

/// A line through points in the units of the axes.
struct Series {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// Maps values to the width or the height of a panel.
struct Axis {
    least: f64,
    most: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let share = (value - self.least) / (self.most - self.least);
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }
}

/// The chart of a run and of the runs of the empty server, if there are any.
pub(super) fn draw(label: &str, outcome: &Outcome, bare: &[Outcome]) -> String {
    let mut latencies = vec![Series {
        name: "server",
        colour: SERVER_COLOUR,
        points: curve(&outcome.tally.latency),
    }];
    let mut rates = vec![Series { name: "server", colour: SERVER_COLOUR, points: rate(outcome) }];
    if let Some((first, rest)) = bare.split_first() {
        let mut all = first.tally.latency.clone();
        for other in rest {
            all += &other.tally.latency;
        }
        latencies.push(Series { name: "empty server", colour: BARE_COLOUR, points: curve(&all) });
        rates.push(Series { name: "empty server", colour: BARE_COLOUR, points: rate(first) });
    }

    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _written = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12""#
    );
    svg.push_str(r#" font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>"#);
    text(
        &mut svg,
        80.0,
        28.0,
        "start",
        &format!("{label}: {:.0} calls/s", outcome.calls_per_second()),
    );
    latency_panel(&mut svg, &latencies);
    throughput_panel(&mut svg, &rates);
    for (index, series) in latencies.iter().enumerate() {
        let y = 28.0 + 18.0 * index as f64;
        let _written = write!(
            svg,
            r#"<rect x="800" y="{}" width="12" height="12" fill="{}"/>"#,
            y - 10.0,
            series.colour
        );
        text(&mut svg, 818.0, y, "start", series.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Decades of calls that are slower on one axis, log₁₀ of microseconds on the other.
fn curve(latency: &Histogram<u64>) -> Vec<(f64, f64)> {
    if latency.is_empty() {
        return Vec::new();
    }
    let steps = POINTS_PER_DECADE * 4 + 1;
    (0..steps)
        .map(|step| {
            let decades = f64::from(step) / f64::from(POINTS_PER_DECADE);
            let micros = latency.value_at_quantile(1.0 - 10_f64.powf(-decades)) as f64 / 1e3;
            (decades, micros.max(1.0).log10())
        })
        .collect()
}

/// Seconds, and calls per second in between.
fn rate(outcome: &Outcome) -> Vec<(f64, f64)> {
    outcome
        .progress
        .windows(2)
        .filter_map(|pair| {
            let [(from, before), (to, after)] = pair else { return None };
            let seconds = (*to - *from).as_secs_f64();
            // A sample cut short at the end says little.
            (seconds > 0.05).then(|| (to.as_secs_f64(), (after - before) as f64 / seconds))
        })
        .collect()
}

fn latency_panel(svg: &mut String, series: &[Series]) {
    let values = || series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let most = values().fold(1.0, f64::max).ceil();
    let least = values().fold(most, f64::min).floor().min(most - 1.0);
    let x = Axis { least: 0.0, most: 4.0, start: LATENCY.0, end: LATENCY.1 };
    let y = Axis { least, most, start: BOTTOM, end: TOP };
    text(svg, LATENCY.0, TOP - 12.0, "start", "latency by percentile, µs");
    for decade in least as i32..=most as i32 {
        let place = y.place(decade.into());
        line(svg, (LATENCY.0, place), (LATENCY.1, place));
        text(svg, LATENCY.0 - 8.0, place + 4.0, "end", &format!("{:.0}", 10_f64.powi(decade)));
    }
    for (quantile, name) in PERCENTILES {
        let place = x.place(-(1.0 - quantile).log10());
        line(svg, (place, TOP), (place, BOTTOM));
        text(svg, place, BOTTOM + 18.0, "middle", name);
    }
    plot(svg, series, &x, &y);
}

fn throughput_panel(svg: &mut String, series: &[Series]) {
    let points = || series.iter().flat_map(|series| &series.points);
    let longest = points().map(|point| point.0).fold(0.1, f64::max);
    let most = round_up(points().map(|point| point.1).fold(1.0, f64::max));
    let x = Axis { least: 0.0, most: longest, start: THROUGHPUT.0, end: THROUGHPUT.1 };
    let y = Axis { least: 0.0, most, start: BOTTOM, end: TOP };
    text(svg, THROUGHPUT.0, TOP - 12.0, "start", "calls/s over time, s");
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let place = y.place(most * share);
        line(svg, (THROUGHPUT.0, place), (THROUGHPUT.1, place));
        text(svg, THROUGHPUT.0 - 8.0, place + 4.0, "end", &format!("{:.0}", most * share));
        let moment = longest * share;
        text(svg, x.place(moment), BOTTOM + 18.0, "middle", &format!("{moment:.1}"));
    }
    plot(svg, series, &x, &y);
}

/// The next number that is 1, 2, 4 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0]
        .map(|step| step * decade)
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn plot(svg: &mut String, series: &[Series], x: &Axis, y: &Axis) {
    for series in series {
        let points: Vec<String> = series
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x.place(point.0), y.place(point.1)))
            .collect();
        let _written = write!(
            svg,
            r#"<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>"#,
            series.colour,
            points.join(" ")
        );
    }
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _written = write!(
        svg,
        r##"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="#d0d7de"/>"##,
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _written =
        write!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::calls::Tally;
    use super::super::outcome::Ending;
    use super::*;

    fn outcome(latencies: &[u64]) -> Outcome {
        let mut tally = Tally::try_new().unwrap();
        for nanos in latencies {
            tally.latency.record(*nanos).unwrap();
        }
        let second = Duration::from_secs(1);
        Outcome {
            tally,
            elapsed: second,
            ending: Ending::Complete,
            processes: Vec::new(),
            redis: None,
            client_cpu: Duration::ZERO,
            progress: vec![(Duration::ZERO, 0), (second, 1_000), (second * 2, 4_000)],
        }
    }

    #[test]
    fn a_run_without_answers_can_be_drawn() {
        let svg = draw("a <b> & c", &outcome(&[]), &[]);
        assert!(svg.contains("a &lt;b> &amp; c") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("empty server"), "{svg}");
    }

    #[test]
    fn both_servers_are_drawn() {
        let fast = outcome(&[50_000; 10]);
        let svg = draw("load", &outcome(&[100_000, 200_000, 9_000_000]), &[fast.clone(), fast]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert!(svg.contains("empty server") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        assert_eq!(rate(&outcome(&[])), [(1.0, 1_000.0), (2.0, 3_000.0)]);
        for (value, want) in [(1.0, 1.0), (3_000.0, 4_000.0), (81_000.0, 100_000.0)] {
            assert_eq!(round_up(value), want);
        }
    }
}
