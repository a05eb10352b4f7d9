//! Charts as SVG: lines over numbers, bars over names. The paper's values are pale.

use super::{Axis, Chart};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::fmt::Display;
use std::ops::Range;

const SIZE: (u32, u32) = (760, 440);
const MARGIN: i32 = 12;

type DrawError = Box<dyn std::error::Error>;

/// Draws a chart.
pub(super) fn svg(chart: &Chart) -> Result<String, DrawError> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (x, y) = (
            span(chart, &chart.x, |p| p.0),
            span(chart, &chart.y, |p| p.1),
        );
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(&chart.title, ("sans-serif", 18))
            .margin(MARGIN)
            .x_label_area_size(46)
            .y_label_area_size(70);
        // The kinds of axes are types: one branch per combination.
        match (chart.x.logarithmic, chart.y.logarithmic) {
            (false, false) => draw(builder.build_cartesian_2d(x, y)?, chart)?,
            (false, true) => draw(builder.build_cartesian_2d(x, y.log_scale())?, chart)?,
            (true, false) => draw(builder.build_cartesian_2d(x.log_scale(), y)?, chart)?,
            (true, true) => {
                draw(
                    builder.build_cartesian_2d(x.log_scale(), y.log_scale())?,
                    chart,
                )?;
            }
        }
        area.present()?;
    }
    Ok(text)
}

/// The range of an axis.
fn span(chart: &Chart, axis: &Axis, of: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
    if !axis.places.is_empty() {
        return -0.5..axis.places.len() as f64 - 0.5;
    }
    let values = chart.series.iter().flat_map(|series| &series.points);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.map(of) {
        (low, high) = (low.min(value), high.max(value));
    }
    if !low.is_finite() {
        return 0.0..1.0;
    }
    if axis.logarithmic {
        return low / 1.3..high * 1.3;
    }
    let low = low.min(0.0);
    // Room for the series' names above the bars.
    let room = if chart.x.places.is_empty() {
        0.06
    } else {
        0.35
    };
    low..(high + (high - low) * room).max(low + 1e-9)
}

fn draw<'a, X, Y>(
    mut context: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    chart: &Chart,
) -> Result<(), DrawError>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let places = &chart.x.places;
    let place = |at: &f64| {
        let index = at.round();
        let name = (index - at).abs() < 0.01 && index >= 0.0;
        let name = name.then(|| places.get(index as usize).cloned()).flatten();
        name.unwrap_or_default()
    };
    let number = |value: &f64| short(*value);
    let mut mesh = context.configure_mesh();
    mesh.x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .light_line_style(WHITE)
        .y_label_formatter(&number);
    if places.is_empty() {
        mesh.x_label_formatter(&number);
    } else {
        mesh.x_labels(2 * places.len() + 1)
            .x_label_formatter(&place);
    }
    mesh.draw()?;
    let lowest = span(chart, &chart.y, |p| p.1).start;
    let width = 0.8 / chart.series.len() as f64;
    for (index, series) in chart.series.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let colour = if series.paper {
            colour.mix(0.4)
        } else {
            colour
        };
        let bar = |&(x, y): &(f64, f64)| {
            let left = x - 0.4 + width * index as f64;
            Rectangle::new([(left, lowest), (left + width * 0.92, y)], colour.filled()).into_dyn()
        };
        let size = if series.paper { 6 } else { 3 };
        let point = |&at: &(f64, f64)| Circle::new(at, size, colour.filled()).into_dyn();
        let mut elements: Vec<_> = if places.is_empty() {
            series.points.iter().map(point).collect()
        } else {
            series.points.iter().map(bar).collect()
        };
        // The paper gives some points, not the curve between them.
        if places.is_empty() && !series.paper {
            let line = PathElement::new(series.points.clone(), colour.stroke_width(2));
            elements.push(line.into_dyn());
        }
        context
            .draw_series(elements)?
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A number in few characters.
fn short(value: f64) -> String {
    let with = |value: f64, unit: &dyn Display| match value.fract().abs() < 0.05 {
        true => format!("{value:.0}{unit}"),
        false => format!("{value:.1}{unit}"),
    };
    match value.abs() {
        v if v >= 1e6 => with(value / 1e6, &"M"),
        v if v >= 1e4 => with(value / 1e3, &"k"),
        v if v >= 10.0 || v == 0.0 => with(value, &""),
        _ => format!("{:.2}", value),
    }
}
