//! Plots as SVG text: percentile curves, bandwidth bars, and lines over message sizes.
//!
//! The percentile axis is logarithmic in the remaining share, as in HdrHistogram's plotter: 90 %,
//! 99 % and 99.9 % are equally far apart. The latency axis is logarithmic too, because one plot
//! shows nanoseconds and milliseconds.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Outcome;
use super::rows::size;
use crate::report::TestResult;
use crate::{Latency, PathKind, Test, Wait};

/// A plot and its heading.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) svg: String,
}

/// Why a plot could not be drawn.
pub(super) type PlotError = Box<dyn Error + Send + Sync>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), PlotError>;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
/// The number of sizes that get a plot each. More sizes share one plot of lines over sizes.
const PLOTS_MAX: usize = 6;
/// The last percentile of a plot is 99.999 %: five nines.
const NINES_MAX: f64 = 5.0;
const FONT: (&str, u32) = ("sans-serif", 15);
const INK: RGBColor = RGBColor(51, 59, 71);
const BORDER: RGBColor = RGBColor(222, 226, 232);

/// Draws all plots of a run.
pub(super) fn all(outcome: &Outcome) -> Result<Vec<Plot>, PlotError> {
    let mut plots = Vec::new();
    let latencies = groups(outcome, true);
    if latencies.len() > PLOTS_MAX {
        plots.extend(plot_over_sizes(outcome, true)?);
    } else {
        for (bytes, mtu) in latencies {
            plots.extend(plot_percentiles(outcome, bytes, mtu)?);
        }
    }
    match groups(outcome, false).len() {
        0 => {}
        few if few <= PLOTS_MAX => plots.push(plot_bandwidths(outcome)?),
        _ => plots.extend(plot_over_sizes(outcome, false)?),
    }
    Ok(plots)
}

/// Returns the results that a plot shows. Results with every byte checked are left out: the check
/// dominates them. So is connection set-up, which is neither a round trip nor a bandwidth.
fn plotted_results(outcome: &Outcome, latency: bool) -> impl Iterator<Item = &TestResult> {
    let results = outcome.report.results.iter();
    results.filter(move |result| {
        let is_plotted = !result.validated && !result.test.is_connection_setup();
        is_plotted && result.test.is_latency() == latency
    })
}

/// Returns the sizes and MTUs of the plotted results, sorted.
fn groups(outcome: &Outcome, latency: bool) -> Vec<(u64, Option<u16>)> {
    let results = plotted_results(outcome, latency);
    let mut groups: Vec<_> = results.map(|result| (result.bytes, result.mtu)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// A plot of lines over a logarithmic vertical axis.
struct LineChart<'a> {
    title: String,
    x_desc: &'a str,
    y_desc: &'a str,
    x_range: Range<f64>,
    x_labels: usize,
    x_format: fn(f64) -> String,
    /// Draws a dot of this size at each point.
    dots: u32,
    lines: Vec<(&'a TestResult, Vec<(f64, f64)>)>,
}

impl LineChart<'_> {
    /// Draws the chart. Returns `None` if no point has a positive value.
    fn plot(self) -> Result<Option<Plot>, PlotError> {
        let values = self.lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let Some((low, high)) = bounds(values) else { return Ok(None) };
        let text = || FONT.into_font().color(&INK);
        let svg = render_svg(HEIGHT, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin(12)
                .margin_right(40)
                .x_label_area_size(44)
                .y_label_area_size(72)
                .build_cartesian_2d(self.x_range, (low..high).log_scale())?;
            chart
                .configure_mesh()
                .x_desc(self.x_desc)
                .y_desc(self.y_desc)
                .x_labels(self.x_labels)
                .x_label_formatter(&|x| (self.x_format)(*x))
                .y_label_formatter(&|y| format!("{y}"))
                .label_style(text())
                .light_line_style(RGBColor(240, 242, 245))
                .bold_line_style(BORDER)
                .axis_style(RGBColor(150, 158, 170))
                .draw()?;
            for (result, points) in &self.lines {
                let style = colour(result).stroke_width(2);
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), style).point_size(self.dots))?
                    .label(label(result))
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.9))
                .border_style(BORDER)
                .label_font(text())
                .draw()?;
            Ok(())
        })?;
        Ok(Some(Plot { title: self.title, svg }))
    }
}

/// Plots a percentile curve for each latency test of one size.
fn plot_percentiles(outcome: &Outcome, bytes: u64, mtu: Option<u16>) -> Result<Option<Plot>, PlotError> {
    let pairs = outcome.report.results.iter().zip(&outcome.latencies);
    let lines = pairs
        .filter(|(result, _)| result.bytes == bytes && result.mtu == mtu && !result.validated)
        .filter_map(|(result, latency)| Some((result, points(latency.as_ref()?))));
    let mtu = mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
    let chart = LineChart {
        title: format!("Round trips of {}{mtu}", size(bytes)),
        x_desc: "percentile",
        y_desc: "round trip, µs",
        x_range: 0.0..NINES_MAX,
        x_labels: NINES_MAX as usize + 1,
        x_format: percent,
        dots: 0,
        lines: lines.collect(),
    };
    chart.plot()
}

/// Returns the curve of a histogram: nines of the percentile, microseconds.
fn points(latency: &Latency) -> Vec<(f64, f64)> {
    let nines = |quantile: f64| if quantile < 1.0 { -(1.0 - quantile).log10() } else { NINES_MAX };
    let curve = latency.curve().into_iter().map(|(quantile, ns)| (nines(quantile), ns as f64 / 1000.0));
    curve.filter(|&(nines, us)| nines <= NINES_MAX && us > 0.0).collect()
}

/// Formats nines as a percentile: 0 is 0 %, 1 is 90 %, 2 is 99 %.
fn percent(nines: f64) -> String {
    let decimals = (nines.round() as i32 - 2).max(0) as usize;
    format!("{:.decimals$}%", 100.0 * (1.0 - 10_f64.powf(-nines)))
}

/// Returns a range around positive values with some margin, `None` if there are none.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    (high > 0.0 && low.is_finite()).then_some((low * 0.8, high * 1.25))
}

/// Plots a bar for each bandwidth result, ordered by MTU and size.
fn plot_bandwidths(outcome: &Outcome) -> Result<Plot, PlotError> {
    const ROW: i32 = 26;
    const LEFT: i32 = 300;
    const RIGHT: i32 = 110;
    let mut results: Vec<&TestResult> = plotted_results(outcome, false).collect();
    results.sort_by_key(|result| (result.mtu, result.bytes));
    let most = results.iter().filter_map(|result| result.gbit_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let height = results.len() as u32 * ROW as u32 + 16;
    let svg = render_svg(height, |area| {
        for (row, result) in results.iter().enumerate() {
            let (top, gbit) = (8 + row as i32 * ROW, result.gbit_per_s.unwrap_or(0.0));
            let bar_end = LEFT + (f64::from(WIDTH as i32 - LEFT - RIGHT) * gbit / most) as i32;
            let text = FONT.into_font().color(&INK);
            let mtu = result.mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
            let name = format!("{} {}{mtu}", label(result), size(result.bytes));
            area.draw(&Text::new(name, (8, top + 4), text.clone()))?;
            let bar = [(LEFT, top + 3), (bar_end.max(LEFT + 1), top + ROW - 5)];
            area.draw(&Rectangle::new(bar, colour(result).filled()))?;
            area.draw(&Text::new(format!("{gbit:.1} Gbit/s"), (bar_end + 8, top + 4), text))?;
        }
        Ok(())
    })?;
    Ok(Plot { title: "Goodput".to_owned(), svg })
}

/// Plots median round trips or bandwidths over the message sizes, a line for each test. The
/// horizontal axis is the binary logarithm of the size.
fn plot_over_sizes(outcome: &Outcome, latency: bool) -> Result<Option<Plot>, PlotError> {
    let figure = |result: &TestResult| match latency {
        true => result.rtt_ns.map(|rtt| rtt.p50 as f64 / 1000.0),
        false => result.gbit_per_s,
    };
    let mut lines: Vec<(&TestResult, Vec<(f64, f64)>)> = Vec::new();
    for result in plotted_results(outcome, latency) {
        let Some(value) = figure(result).filter(|&value| value > 0.0) else { continue };
        let point = ((result.bytes.max(1) as f64).log2(), value);
        match lines.iter_mut().find(|(first, _)| label(first) == label(result)) {
            Some((_, points)) => points.push(point),
            None => lines.push((result, vec![point])),
        }
    }
    let powers = lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let most = powers.clone().fold(1.0, f64::max);
    let least = powers.fold(most - 1.0, f64::min);
    let power_of_two = |x: f64| if x.fract() == 0.0 { size(1 << x as u64) } else { String::new() };
    let chart = LineChart {
        title: if latency { "Median round trips over message sizes" } else { "Goodput over message sizes" }
            .into(),
        x_desc: "message size",
        y_desc: if latency { "median round trip, µs" } else { "goodput, Gbit/s" },
        x_range: least - 0.3..most + 0.3,
        x_labels: 12,
        x_format: power_of_two,
        dots: 3,
        lines,
    };
    chart.plot()
}

fn render_svg(height: u32, draw: impl FnOnce(&Area<'_>) -> DrawResult) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    // Without a fixed width and height, the view box lets the page scale the plot.
    let fixed = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
    Ok(svg.replacen(&fixed, "<svg", 1))
}

/// Returns the name and the path: one test may run over several paths.
fn label(result: &TestResult) -> String {
    let path = result.path.map_or_else(String::new, |path| format!(" ({})", path));
    format!("{}{path}", result.name())
}

/// Returns the colour of a test, the same in every plot: cool for ironwarp, grey for raw frames,
/// warm for Linux.
fn colour(result: &TestResult) -> RGBColor {
    match (result.test, result.path, result.wait) {
        (Test::FrameLat | Test::FrameBw, ..) => RGBColor(120, 128, 140),
        (Test::SmoltcpLat | Test::SmoltcpBw, ..) => RGBColor(161, 98, 7),
        (Test::SendLat | Test::SendBw, ..) => RGBColor(29, 91, 191),
        (Test::SendInvLat, ..) => RGBColor(99, 102, 241),
        (Test::WriteLat | Test::WriteBw, ..) => RGBColor(13, 148, 136),
        (Test::ReadLat | Test::ReadBw | Test::ReadWriteBw, ..) => RGBColor(124, 58, 205),
        (Test::AtomicLat | Test::AtomicBw, ..) => RGBColor(190, 24, 93),
        (Test::ImmLat, ..) => RGBColor(2, 132, 199),
        (Test::WriteImmLat | Test::WriteImmBw, ..) => RGBColor(77, 124, 15),
        (_, Some(PathKind::Lo), _) => RGBColor(202, 138, 4),
        (_, _, Some(Wait::Block)) => RGBColor(220, 60, 50),
        _ => RGBColor(217, 119, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_formatted_as_percentiles() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(percent), ["0%", "90%", "99%", "99.9%", "99.999%"]);
    }

    #[test]
    fn bounds_need_a_positive_value() {
        assert_eq!(bounds([].into_iter()), None);
        assert_eq!(bounds([0.0].into_iter()), None);
        let (low, high) = bounds([1.0, 4.0].into_iter()).expect("two values");
        assert!(low < 1.0 && high > 4.0);
    }
}
