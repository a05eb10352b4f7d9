//! The details of one row: its facts, the kinds of faults, the latencies.

use super::compact;
use super::facts::KINDS;
use super::reading::Entry;
use super::rows::Row;
use super::view::{Scene, facts_of, named};
use crate::cli::units::count;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Draws the details of a row.
pub(super) fn details(frame: &mut Frame<'_>, scene: &Scene<'_>, row: &Row<'_>, area: Rect) {
    let who = match row.id.process {
        None => format!(
            "run {}: all {} processes",
            row.id.run,
            row.run.processes.len()
        ),
        Some(pid) => format!("process {pid} of run {}: {}", row.id.run, row.entry.command),
    };
    let mut lines = vec![Line::from(who.replace(|c: char| c.is_control(), " ")).bold()];
    // Skip the title and the budget: both are the run's.
    lines.extend(facts_of(scene, row.run, row.entry).into_iter().skip(2));
    let resident = compact::bytes(row.entry.resident_pages * crate::cli::summary::PAGE);
    lines.insert(1, named("resident", resident));
    let height = (lines.len() as u16).min(area.height);
    let [above, below] =
        Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(lines), above);
    let [left, _, right] = Layout::horizontal([
        Constraint::Length(34),
        Constraint::Length(2),
        Constraint::Min(20),
    ])
    .areas(below);
    frame.render_widget(Paragraph::new(kinds(scene, row.entry)), left);
    frame.render_widget(Paragraph::new(latencies(scene, row.entry, right)), right);
}

fn kinds(scene: &Scene<'_>, entry: &Entry) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(format!("{:<14}{:>7}{:>13}", "faults", "/s", "total")).bold()];
    lines.extend(KINDS.iter().map(|(name, number, _)| {
        Line::from(format!(
            "{name:<14}{:>7}{:>13}",
            compact::count(scene.reading.rate(number(&entry.recent))),
            count(number(&entry.total))
        ))
    }));
    lines
}

/// The latencies of the interval, or of all time if it had no faults: a bar an octave. If the octaves outnumber the
/// lines, several share a bar.
fn latencies(scene: &Scene<'_>, entry: &Entry, area: Rect) -> Vec<Line<'static>> {
    let (histogram, which) = match entry.recent.latency.total().0 {
        0 => (&entry.total.latency, "latency, since the beginning"),
        _ => (&entry.recent.latency, "latency, this interval"),
    };
    let mut lines = vec![Line::from(format!("{:<12}{:>8}  {which}", "up to", "faults")).bold()];
    let octaves = histogram.octaves();
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let a_line = octaves.len().div_ceil(room).max(1);
    let bins: Vec<(u32, u64)> = octaves
        .chunks(a_line)
        .map(|chunk| {
            let last = chunk.last().map_or(0, |(octave, _)| *octave);
            (last, chunk.iter().map(|(_, number)| number).sum())
        })
        .collect();
    let most = bins
        .iter()
        .map(|(_, number)| *number)
        .max()
        .unwrap_or(1)
        .max(1);
    let width = u64::from(area.width).saturating_sub(22);
    lines.extend(bins.iter().map(|&(octave, number)| {
        // A bin that is not empty gets at least one cell.
        let cells = (number * width / most).max(u64::from(number > 0));
        let bar = Span::from("#".repeat(cells as usize));
        let bar = if scene.color {
            bar.fg(Color::Cyan)
        } else {
            bar
        };
        let end = compact::latency(2_u64 << octave);
        Line::from(vec![
            Span::from(format!("{end:<12}{:>8}  ", compact::count(number as f64))),
            bar,
        ])
    }));
    lines
}
