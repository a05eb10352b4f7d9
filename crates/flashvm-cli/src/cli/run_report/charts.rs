//! The charts of the page, as SVG by plotters. They have no background, and colours that show on white and on black;
//! the page's style sets the colour of texts.

use super::heat::{Cell, Heat};
use crate::cli::units::{Size, latency};
use base64::Engine as _;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::collections::BTreeMap;

const WIDTH: u32 = 920;
const HEIGHT: u32 = 250;
const HEAT_HEIGHT: u32 = 360;
const GREY: RGBColor = RGBColor(128, 128, 128);

/// The colours of series, in order.
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(220, 80, 60),
    RGBColor(217, 150, 20),
    RGBColor(60, 130, 210),
    RGBColor(40, 160, 100),
    RGBColor(160, 100, 220),
    RGBColor(128, 128, 128),
];

/// Rows of a heat map's picture at most.
const HEAT_ROWS_MAX: usize = 180;

type DrawError = Box<dyn std::error::Error>;

/// A curve over the seconds of the run.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// The unit of the vertical axis.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// Events a second.
    Rate,
    Bytes,
    BytesRate,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{}/s", short(value)),
            Self::Bytes => Size(value.max(0.0) as u64).to_string(),
            Self::BytesRate => format!("{}/s", Size(value.max(0.0) as u64)),
        }
    }
}

/// A number with three digits and a suffix.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => {
            format!("{:.3}", value / 1e6)
                .chars()
                .take(4)
                .collect::<String>()
                + " M"
        }
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Curves from the same zero; `stacked`: each on top of those before.
pub(super) fn curves(curves: &[Curve], unit: Unit, stacked: bool) -> Result<String, DrawError> {
    let mut layers: Vec<(RGBColor, Vec<(f64, f64)>)> = Vec::new();
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let below = layers.last().filter(|_| stacked);
        let points = curve.points.iter().enumerate().map(|(at, &(x, y))| {
            let below = below.map_or(0.0, |(_, points)| points[at].1);
            (x, y + below)
        });
        layers.push((*colour, points.collect()));
    }
    let all = || layers.iter().flat_map(|(_, points)| points);
    let x_max = all().map(|point| point.0).fold(1e-3, f64::max);
    let y_max = all().map(|point| point.1).fold(0.0, f64::max);
    let y_max = if y_max > 0.0 { y_max * 1.05 } else { 1.0 };
    // Bytes in their largest unit, so that labels are round.
    let one = match unit {
        Unit::Rate => 1.0,
        Unit::Bytes | Unit::BytesRate => 1024_f64.powf((y_max.log2() / 10.0).floor().max(0.0)),
    };
    layers
        .iter_mut()
        .flat_map(|(_, points)| points)
        .for_each(|point| point.1 /= one);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(30)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max / one)?;
        mesh(&mut chart, &seconds, &|y: &f64| unit.shown(*y * one))?;
        // The highest layer first: the lower ones are drawn over it.
        for (colour, points) in layers.iter().rev() {
            if stacked {
                let fill = colour.mix(1.0);
                chart.draw_series(AreaSeries::new(points.iter().copied(), 0.0, fill))?;
            } else {
                chart.draw_series(LineSeries::new(
                    points.iter().copied(),
                    colour.stroke_width(2),
                ))?;
            }
        }
        area.present()?;
    }
    Ok(text)
}

fn seconds(x: &f64) -> String {
    match *x {
        x if x >= 600.0 => format!("{:.0} min", x / 60.0),
        x if x >= 10.0 || x == 0.0 => format!("{x:.0} s"),
        x => format!("{x:.1} s"),
    }
}

fn mesh<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    x_shown: &dyn Fn(&X::ValueType) -> String,
    y_shown: &dyn Fn(&Y::ValueType) -> String,
) -> Result<(), DrawError>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    chart
        .configure_mesh()
        .x_labels(10)
        .y_labels(6)
        .bold_line_style(GREY.mix(0.25))
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .x_label_formatter(&x_shown)
        .y_label_formatter(&y_shown)
        .draw()?;
    Ok(())
}

/// Latencies by powers of two, with a logarithmic count.
pub(super) fn latencies(octaves: &[(u32, u64)]) -> Result<String, DrawError> {
    let first = octaves.first().map_or(0, |octave| octave.0);
    let last = octaves.last().map_or(1, |octave| octave.0 + 1);
    let most = octaves.iter().map(|octave| octave.1).max().unwrap_or(1);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let x = f64::from(first)..f64::from(last);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(30)
            .y_label_area_size(80)
            .build_cartesian_2d(x, (0.5..most as f64 * 1.5).log_scale())?;
        let at = |x: &f64| latency(x.exp2() as u64);
        mesh(&mut chart, &at, &|y: &f64| short(*y))?;
        let bars = octaves.iter().filter(|(_, count)| *count > 0);
        chart.draw_series(bars.map(|&(octave, count)| {
            let (left, right) = (f64::from(octave) + 0.04, f64::from(octave) + 0.96);
            Rectangle::new([(left, 0.5), (right, count as f64)], COLOURS[2].filled())
        }))?;
        area.present()?;
    }
    Ok(text)
}

/// The picture of one property of the heat: address by time. The cells are a picture inside the chart.
pub(super) fn heat(
    heat: &Heat,
    seconds_max: f64,
    colour: RGBColor,
    of: impl Fn(&Cell) -> u32,
) -> Result<String, DrawError> {
    let columns = heat.columns().max(1);
    let group = heat.rows.len().div_ceil(HEAT_ROWS_MAX).max(1);
    let rows = heat.rows.len().div_ceil(group).max(1);
    let mut cells = vec![0_u64; rows * columns];
    for (number, row) in heat.rows.iter().enumerate() {
        for (column, cell) in &row.cells {
            cells[number / group * columns + column] += u64::from(of(cell));
        }
    }
    let picture = picture(&cells, columns, colour)?;
    // A place in the memory of its process, without rows to which nothing happened.
    let label = |y: &f64| {
        let number = (*y).max(0.0) as usize * group;
        let row = heat.rows.get(number);
        let of_row = |row: &super::heat::HeatRow| {
            let own = heat
                .rows
                .iter()
                .take(number)
                .filter(|other| other.pid == row.pid);
            let bytes = own.count() as u64 * heat.row_bytes;
            format!("{} +{}", process(row.pid), Size(bytes))
        };
        row.map(of_row).unwrap_or_default()
    };
    let mut text = String::new();
    let (x, y);
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEAT_HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(30)
            .y_label_area_size(120)
            .build_cartesian_2d(0.0..seconds_max.max(1e-3), 0.0..rows as f64)?;
        mesh(&mut chart, &seconds, &label)?;
        (x, y) = chart.plotting_area().get_pixel_range();
        area.present()?;
    }
    // The picture ends with its last column, which is not the end of the run.
    let share = columns as f64 * heat.column_seconds / seconds_max.max(1e-3);
    let width = f64::from(x.end - x.start) * share.min(1.0);
    let image = format!(
        "<image x=\"{}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" preserveAspectRatio=\"none\" \
         href=\"data:image/png;base64,{picture}\"/>\n</svg>",
        x.start,
        y.start,
        y.end - y.start
    );
    let end = text.rfind("</svg>").unwrap_or(text.len());
    text.replace_range(end.., &image);
    Ok(text)
}

/// A process as labels name it.
pub(super) fn process(pid: u32) -> String {
    match pid {
        0 => "short-lived".to_owned(),
        pid => pid.to_string(),
    }
}

/// Cells as a picture with transparency, row 0 at the bottom: the logarithm of the count is the opacity.
fn picture(cells: &[u64], columns: usize, colour: RGBColor) -> Result<String, DrawError> {
    let most = cells.iter().max().copied().unwrap_or(0).max(1);
    let scale = ((most + 1) as f64).ln();
    let pixel = |&count: &u64| {
        let share = ((count + 1) as f64).ln() / scale;
        let opacity = if count == 0 {
            0.0
        } else {
            55.0 + 200.0 * share
        };
        [colour.0, colour.1, colour.2, opacity as u8]
    };
    let pixels: Vec<u8> = cells
        .chunks(columns)
        .rev()
        .flatten()
        .flat_map(pixel)
        .collect();
    let mut bytes = Vec::new();
    let (width, height) = (columns as u32, (cells.len() / columns) as u32);
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// A box of a flame graph: depth, start and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flame {
    name: String,
    depth: usize,
    start: u64,
    faults: u64,
}

/// Merges stacks into boxes: those with the same outer frames share a box.
fn flames(stacks: &[(Vec<String>, u64)]) -> Vec<Flame> {
    #[derive(Default)]
    struct Node<'s> {
        faults: u64,
        inner: BTreeMap<&'s str, Node<'s>>,
    }
    let mut root = Node::default();
    for (stack, faults) in stacks {
        root.faults += faults;
        let mut at = &mut root;
        for name in stack {
            at = at.inner.entry(name).or_default();
            at.faults += faults;
        }
    }
    let mut flames = vec![Flame {
        name: "all".to_owned(),
        depth: 0,
        start: 0,
        faults: root.faults,
    }];
    let mut open = vec![(root, 0, 0)];
    while let Some((node, depth, mut start)) = open.pop() {
        for (name, inner) in node.inner {
            flames.push(Flame {
                name: name.to_owned(),
                depth: depth + 1,
                start,
                faults: inner.faults,
            });
            let faults = inner.faults;
            open.push((inner, depth + 1, start));
            start += faults;
        }
    }
    flames
}

/// A flame graph, the outermost functions on top. Plotters gives boxes no titles, and the licence of inferno (CDDL) is none
/// of those in `deny.toml`: so this is written directly.
pub(super) fn flame_graph(stacks: &[(Vec<String>, u64)]) -> String {
    const ROW: usize = 18;
    const LETTER: f64 = 6.6;
    let flames = flames(stacks);
    let all = flames[0].faults.max(1) as f64;
    let visible = |flame: &&Flame| flame.faults as f64 / all * f64::from(WIDTH) >= 0.5;
    let depth = flames.iter().filter(visible).map(|flame| flame.depth).max();
    let height = (depth.unwrap_or(0) + 1) * ROW;
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" class=\"flames\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    for flame in flames.iter().filter(visible) {
        let x = flame.start as f64 / all * f64::from(WIDTH);
        let width = flame.faults as f64 / all * f64::from(WIDTH);
        let y = flame.depth * ROW;
        // A hue between red and yellow, by the name.
        let hue = flame
            .name
            .bytes()
            .fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte))
            % 50;
        let name = escaped(&flame.name);
        let share = flame.faults as f64 / all * 100.0;
        svg += &format!(
            "<g><title>{name}: {} major faults, {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" \
             height=\"{}\" fill=\"hsl({hue},75%,62%)\"/>",
            crate::cli::units::count(flame.faults),
            (width - 0.5).max(0.3),
            ROW - 1
        );
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            let label: String = if flame.name.chars().count() > letters {
                flame.name.chars().take(letters - 1).chain(['…']).collect()
            } else {
                flame.name.clone()
            };
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{}\">{}</text>",
                x + 3.0,
                y + ROW - 5,
                escaped(&label)
            );
        }
        svg += "</g>\n";
    }
    svg + "</svg>"
}

/// A text for HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_frames_are_shared() {
        let stack = |names: &[&str], faults| {
            let names = names.iter().map(|&name| name.to_owned());
            (names.collect(), faults)
        };
        let stacks = [
            stack(&["main", "b", "c"], 3),
            stack(&["main", "a"], 5),
            stack(&["main", "b"], 1),
            stack(&["thread"], 2),
        ];
        let mut found = flames(&stacks);
        found.sort_by_key(|flame| (flame.depth, flame.start));
        let found: Vec<_> = found
            .iter()
            .map(|flame| (&*flame.name, flame.depth, flame.start, flame.faults))
            .collect();
        let expected = [
            ("all", 0, 0, 11),
            ("main", 1, 0, 9),
            ("thread", 1, 9, 2),
            ("a", 2, 0, 5),
            ("b", 2, 5, 4),
            ("c", 3, 5, 3),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn names_of_the_program_are_no_markup() {
        let svg = flame_graph(&[(vec!["f<&\"x\">\u{1b}".to_owned()], 1)]);
        assert!(svg.contains("f&lt;&amp;&quot;x&quot;&gt;\\u{1b}"), "{svg}");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (15.0, "15"),
            (1500.0, "1.5 k"),
            (25_000.0, "25 k"),
            (1_250_000.0, "1.25 M"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
