//! Plots as SVG text: percentile curves, bandwidth bars, and lines over message sizes.
//!
//! The percentile axis is logarithmic in what is left out, as HdrHistogram's plotter draws it: 90 %, 99 %, 99.9 %
//! are equally far apart. The latency axis is logarithmic too, since a floor and a sleeping kernel share one plot.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::output::{Outcome, size};
use crate::report::TestResult;
use crate::{Latency, PathKind, Test, Wait};

/// A plot with its heading.
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
/// More sizes than this are drawn as lines over sizes, not as a plot each.
const PLOTS_MAX: usize = 6;
/// The deepest percentile drawn is 99.999 %: five nines.
const NINES_MAX: f64 = 5.0;
const FONT: (&str, u32) = ("sans-serif", 15);
const INK: RGBColor = RGBColor(51, 59, 71);

/// Every plot that the results give.
pub(super) fn all(outcome: &Outcome) -> Result<Vec<Plot>, PlotError> {
    let mut plots = Vec::new();
    let latencies = groups(outcome, true);
    if latencies.len() > PLOTS_MAX {
        plots.push(plot_over_sizes(outcome, true)?);
    } else {
        for (bytes, mtu) in latencies {
            plots.extend(plot_percentiles(outcome, bytes, mtu)?);
        }
    }
    match groups(outcome, false).len() {
        0 => {}
        few if few <= PLOTS_MAX => plots.push(plot_bandwidths(outcome)?),
        _ => plots.push(plot_over_sizes(outcome, false)?),
    }
    Ok(plots)
}

/// Latencies or bandwidths; a run that checked every byte is no measure of speed.
fn plotted_results(outcome: &Outcome, latency: bool) -> impl Iterator<Item = &TestResult> {
    let results = outcome.report.results.iter();
    results.filter(move |result| result.test.is_latency() == latency && !result.validated)
}

/// The sizes and MTUs of latency or of bandwidth results, in order.
fn groups(outcome: &Outcome, latency: bool) -> Vec<(u64, Option<u16>)> {
    let results = plotted_results(outcome, latency);
    let mut groups: Vec<_> = results.map(|result| (result.bytes, result.mtu)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// One curve a latency test of one size.
fn plot_percentiles(outcome: &Outcome, bytes: u64, mtu: Option<u16>) -> Result<Option<Plot>, PlotError> {
    let pairs = outcome.report.results.iter().zip(&outcome.latencies);
    let curves: Vec<(&TestResult, Vec<(f64, f64)>)> = pairs
        .filter(|(result, _)| result.bytes == bytes && result.mtu == mtu && !result.validated)
        .filter_map(|(result, latency)| Some((result, points(latency.as_ref()?))))
        .collect();
    let Some((low, high)) = bounds(curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1)))
    else {
        return Ok(None);
    };
    let title = match mtu {
        Some(mtu) => format!("Round trips of {}, MTU {mtu}", size(bytes)),
        None => format!("Round trips of {}", size(bytes)),
    };
    let svg = render_svg(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..NINES_MAX, (low..high).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("percentile")
            .y_desc("round trip, µs")
            .x_labels(NINES_MAX as usize + 1)
            .x_label_formatter(&|nines| percent(*nines))
            .y_label_formatter(&|us| format!("{us}"))
            .label_style(FONT.into_font().color(&INK))
            .light_line_style(RGBColor(240, 242, 245))
            .bold_line_style(RGBColor(222, 226, 232))
            .axis_style(RGBColor(150, 158, 170))
            .draw()?;
        for (result, points) in &curves {
            let style = colour(result).stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(label(result))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.9))
            .border_style(RGBColor(222, 226, 232))
            .label_font(FONT.into_font().color(&INK))
            .draw()?;
        Ok(())
    })?;
    Ok(Some(Plot { title, svg }))
}

/// Quantiles as nines, nanoseconds as microseconds.
fn points(latency: &Latency) -> Vec<(f64, f64)> {
    let nines = |quantile: f64| if quantile < 1.0 { -(1.0 - quantile).log10() } else { NINES_MAX };
    let curve = latency.curve().into_iter().map(|(quantile, ns)| (nines(quantile), ns as f64 / 1000.0));
    curve.filter(|&(nines, us)| nines <= NINES_MAX && us > 0.0).collect()
}

/// 0 is 0 %, 1 is 90 %, 2 is 99 %.
fn percent(nines: f64) -> String {
    let decimals = (nines.round() as i32 - 2).max(0) as usize;
    format!("{:.decimals$}%", 100.0 * (1.0 - 10_f64.powf(-nines)))
}

/// A range that holds positive values with a little air, `None` of no values.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    (high > 0.0 && low.is_finite()).then_some((low * 0.8, high * 1.25))
}

/// One bar a bandwidth result, grouped by size and MTU.
fn plot_bandwidths(outcome: &Outcome) -> Result<Plot, PlotError> {
    const ROW: i32 = 26;
    const LEFT: i32 = 300;
    const RIGHT: i32 = 110;
    let mut results: Vec<&TestResult> = plotted_results(outcome, false).collect();
    results.sort_by_key(|result| (result.mtu, result.bytes));
    let most = results.iter().filter_map(|result| result.gbit_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let height = results.len() as u32 * ROW as u32 + 16;
    let svg = render_svg_with_height(height, |area| {
        for (row, result) in results.iter().enumerate() {
            let (top, gbit) = (8 + row as i32 * ROW, result.gbit_per_s.unwrap_or(0.0));
            let bar_end = LEFT + (f64::from(WIDTH as i32 - LEFT - RIGHT) * gbit / most) as i32;
            let text = FONT.into_font().color(&INK);
            let mtu = result.mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
            let what = format!("{} {}{mtu}", label(result), size(result.bytes));
            area.draw(&Text::new(what, (8, top + 4), text.clone()))?;
            let bar = [(LEFT, top + 3), (bar_end.max(LEFT + 1), top + ROW - 5)];
            area.draw(&Rectangle::new(bar, colour(result).filled()))?;
            area.draw(&Text::new(format!("{gbit:.1} Gbit/s"), (bar_end + 8, top + 4), text))?;
        }
        Ok(())
    })?;
    Ok(Plot { title: "Goodput".to_owned(), svg })
}

/// One line a test over the sizes: median round trips, or bandwidths.
fn plot_over_sizes(outcome: &Outcome, latency: bool) -> Result<Plot, PlotError> {
    let results: Vec<&TestResult> = plotted_results(outcome, latency).collect();
    let mut names: Vec<(String, &TestResult)> = Vec::new();
    for result in &results {
        if !names.iter().any(|(name, _)| *name == label(result)) {
            names.push((label(result), result));
        }
    }
    let figure = |result: &TestResult| match latency {
        true => result.rtt_ns.map(|rtt| rtt.p50 as f64 / 1000.0),
        false => result.gbit_per_s,
    };
    let values = results.iter().filter_map(|result| figure(result)).filter(|&value| value > 0.0);
    let (low, high) = bounds(values).unwrap_or((0.1, 1.0));
    let sizes = results.iter().map(|result| result.bytes.max(1) as f64);
    let (least, most) = bounds(sizes).unwrap_or((1.0, 2.0));
    let svg = render_svg(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d((least..most).log_scale().base(2.0), (low..high).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("message size")
            .y_desc(if latency { "median round trip, µs" } else { "goodput, Gbit/s" })
            .x_label_formatter(&|bytes| size(bytes.round() as u64))
            .label_style(FONT.into_font().color(&INK))
            .light_line_style(RGBColor(240, 242, 245))
            .bold_line_style(RGBColor(222, 226, 232))
            .draw()?;
        for (name, first) in &names {
            let style = colour(first).stroke_width(2);
            let line = results.iter().filter(|result| label(result) == *name);
            let line = line.filter_map(|result| Some((result.bytes.max(1) as f64, figure(result)?)));
            chart
                .draw_series(LineSeries::new(line, style).point_size(3))?
                .label(name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.9))
            .border_style(RGBColor(222, 226, 232))
            .label_font(FONT.into_font().color(&INK))
            .draw()?;
        Ok(())
    })?;
    let title = if latency { "Median round trips over message sizes" } else { "Goodput over message sizes" };
    Ok(Plot { title: title.to_owned(), svg })
}

fn render_svg(draw: impl FnOnce(&Area<'_>) -> DrawResult) -> Result<String, PlotError> {
    render_svg_with_height(HEIGHT, draw)
}

fn render_svg_with_height(
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> DrawResult,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    // A view box lets the page scale the plot to its width.
    let fixed = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
    Ok(svg.replacen(&fixed, "<svg", 1))
}

/// The name and the path: one test may run over several.
fn label(result: &TestResult) -> String {
    let path = result.path.map_or_else(String::new, |path| format!(" ({})", path.name()));
    format!("{}{path}", result.name())
}

/// Ours in cool colours, the floor in grey, Linux in warm ones; a test has one colour in every plot.
fn colour(result: &TestResult) -> RGBColor {
    match (result.test, result.path, result.wait) {
        (Test::FrameLat | Test::FrameBw, ..) => RGBColor(120, 128, 140),
        (Test::SendLat | Test::SendBw, ..) => RGBColor(29, 91, 191),
        (Test::WriteLat | Test::WriteBw, ..) => RGBColor(13, 148, 136),
        (Test::ReadLat | Test::ReadBw, ..) => RGBColor(124, 58, 205),
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
    fn nines_are_percents() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(percent), ["0%", "90%", "99%", "99.9%", "99.999%"]);
    }

    #[test]
    fn a_range_of_nothing_is_no_range() {
        assert_eq!(bounds([].into_iter()), None);
        assert_eq!(bounds([0.0].into_iter()), None);
        let (low, high) = bounds([1.0, 4.0].into_iter()).expect("two values");
        assert!(low < 1.0 && high > 4.0);
    }
}
