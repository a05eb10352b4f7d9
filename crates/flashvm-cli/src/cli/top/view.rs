//! The screen, drawn from a reading and the state of the viewer.

use super::columns;
use super::columns::Column;
use super::details::details;
use super::facts::{clock, facts};
use super::reading::{Entry, Reading, RunEntry};
use super::rows::{Row, RowId, rows};
use super::state::{Content, State};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState};

/// The smallest terminal in which the table can be read.
pub(super) const COLUMNS_MIN: u16 = 72;
pub(super) const LINES_MIN: u16 = 16;

/// Width of a line's name, in columns.
const NAME: u16 = 9;
/// Width of the bar of the budget, without its brackets.
const BAR: usize = 30;
/// Rows of the table that stay visible below the facts, at least.
const ROWS_MIN: u16 = 4;

const FOOTER: &str = "q quit  s sort  r reverse  f freeze  j/k choose  enter details  ? help";

/// Everything that is drawn, except the state of the viewer.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) reading: &'a Reading,
    /// Lines on runs that cannot be observed.
    pub(super) notices: &'a [String],
    /// Seconds between readings.
    pub(super) interval: f64,
    /// The single run that was watched has ended.
    pub(super) ended: bool,
    pub(super) color: bool,
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>, state: &State) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < LINES_MIN {
        let text = format!(
            "{} x {} is too small: flashvm top needs {COLUMNS_MIN} columns and {LINES_MIN} lines. q quits.",
            area.width, area.height
        );
        let text = Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true });
        frame.render_widget(text, area);
        return;
    }
    let rows = rows(scene.reading, state.sort, state.reversed);
    let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
    let place = state.place_in(&ids);
    let chosen = rows.get(place);
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(header(scene, state), head);
    frame.render_widget(Line::from(FOOTER).style(Modifier::DIM), foot);
    match (state.content, chosen) {
        (Content::Help, _) => help(frame, body),
        (_, None) => nothing(frame, scene, body),
        (Content::Details, Some(row)) => details(frame, scene, row, body),
        (Content::Table, Some(row)) => {
            let lines = facts_of(scene, row.run, &row.run.sum);
            let lines_most = body.height.saturating_sub(ROWS_MIN + 2);
            let [above, _, below] = Layout::vertical([
                Constraint::Length((lines.len() as u16).min(lines_most)),
                Constraint::Length(1),
                Constraint::Min(1),
            ])
            .areas(body);
            frame.render_widget(Paragraph::new(lines), above);
            table(frame, scene, state, &rows, place, below);
        }
    }
}

/// The first line: what is observed, and how it is sorted.
fn header(scene: &Scene<'_>, state: &State) -> Line<'static> {
    let runs = scene.reading.runs.len();
    let processes: usize = scene
        .reading
        .runs
        .iter()
        .map(|run| run.processes.len())
        .sum();
    let plural = |number: usize, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    };
    let order = if state.reversed { ", reversed" } else { "" };
    let mut spans = vec![
        Span::from("flashvm top").bold(),
        Span::from(format!(
            ": {}, {}; every {} s; by {}{order}",
            plural(runs, "run", "runs"),
            plural(processes, "process", "processes"),
            scene.interval,
            state.sort.heading(),
        )),
    ];
    if state.frozen {
        spans.extend([Span::from("  "), Span::from(" FROZEN ").reversed().bold()]);
    }
    if scene.ended {
        spans.extend([Span::from("  "), Span::from(" ENDED ").reversed().bold()]);
    }
    Line::from(spans)
}

/// Draws the screen for a reading without rows.
fn nothing(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let mut lines = vec![Line::from("")];
    lines.push(Line::from(match scene.ended {
        true => "The run has ended.",
        false => "No run of yours. Start one: flashvm run --ram 512M -- PROGRAM",
    }));
    lines.extend(
        scene
            .notices
            .iter()
            .map(|notice| Line::from(notice.as_str())),
    );
    frame.render_widget(Paragraph::new(lines), area);
}

/// A line of a name, padded to [`NAME`], and a text.
pub(super) fn named(name: &'static str, text: impl Into<Span<'static>>) -> Line<'static> {
    let width = usize::from(NAME);
    Line::from(vec![
        Span::from(format!("{name:<width$}")).bold(),
        text.into(),
    ])
}

/// The lines on an entry: the run's title, the facts with the bar of the budget, the notices.
pub(super) fn facts_of(scene: &Scene<'_>, run: &RunEntry, entry: &Entry) -> Vec<Line<'static>> {
    let mut lines = vec![title(run)];
    for (name, text) in facts(run, entry, scene.reading) {
        let mut line = named(name, text);
        if name == "ram" {
            line.spans.insert(1, bar(run, scene.color));
        }
        if name == "trouble" && scene.color {
            line = line.style(Style::new().fg(Color::Red));
        }
        lines.push(line);
    }
    let notices = scene.notices.iter();
    lines.extend(notices.map(|notice| Line::from(notice.clone())));
    lines
}

fn title(run: &RunEntry) -> Line<'static> {
    let program = columns::name_first(&run.sum.command);
    named(
        "run",
        format!(
            "{} for {}, {}, {}: {program}",
            run.sum.pid,
            clock(run.elapsed),
            run.sum.total.deliveries,
            run.preset
        ),
    )
}

/// How full the budget is: `#` for frames with pages, `%` for frames of the pool.
fn bar(run: &RunEntry, color: bool) -> Span<'static> {
    let budget = u64::from(run.run.budget_frames).max(1);
    let cells = |frames: u64| (frames.min(budget) * BAR as u64 / budget) as usize;
    let used = cells(run.run.used_frames.into());
    let pool = cells(run.sum.total.gauges.pool_frames).min(used);
    let text = format!(
        "[{}{}{}] ",
        "#".repeat(used - pool),
        "%".repeat(pool),
        ".".repeat(BAR - used)
    );
    match color {
        true => Span::from(text).fg(Color::Cyan),
        false => Span::from(text),
    }
}

fn table(
    frame: &mut Frame<'_>,
    scene: &Scene<'_>,
    state: &State,
    rows: &[Row<'_>],
    place: usize,
    area: Rect,
) {
    let headings = Column::ALL.iter().map(|&column| {
        let cell = Cell::from(aligned(column, column.heading().to_owned()));
        match column == state.sort {
            true => cell.style(Modifier::REVERSED),
            false => cell,
        }
    });
    let cells = |row: &Row<'_>| {
        let cells = Column::ALL.iter().map(|&column| {
            let text = match (column, row.id.process) {
                (Column::Command, None) => format!("run of {}", row.run.processes.len()),
                _ => column.cell(row.entry, scene.reading),
            };
            Cell::from(aligned(column, text))
        });
        let of_run = row.id.process.is_none();
        let style = if of_run {
            Modifier::BOLD
        } else {
            Modifier::empty()
        };
        TableRow::new(cells.collect::<Vec<_>>()).style(style)
    };
    let widths = Column::ALL.iter().map(|&column| match column {
        Column::Command => Constraint::Min(column.width()),
        _ => Constraint::Length(column.width()),
    });
    let table = Table::new(rows.iter().map(cells).collect::<Vec<_>>(), widths)
        .header(TableRow::new(headings).style(Modifier::BOLD))
        .column_spacing(1)
        .row_highlight_style(Modifier::REVERSED)
        .highlight_symbol(">")
        .highlight_spacing(ratatui::widgets::HighlightSpacing::Always);
    let mut chosen = TableState::default().with_selected(Some(place));
    frame.render_stateful_widget(table, area, &mut chosen);
}

/// Aligns amounts to the right, commands to the left.
fn aligned(column: Column, text: String) -> Line<'static> {
    match column {
        Column::Command => Line::from(text),
        _ => Line::from(text).right_aligned(),
    }
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let keys = [
        ("q, Ctrl-C", "quit; the runs go on"),
        ("s, r", "sort by the next column; reverse"),
        ("f, space", "freeze, and go on"),
        ("j k, arrows", "choose a row; enter: its details"),
        ("?, Esc", "this page; back"),
    ];
    let line = |name: &str, text: &str| {
        Line::from(vec![
            Span::from(format!("{name:<13}")).bold(),
            Span::from(text.to_owned()),
        ])
    };
    let mut lines: Vec<_> = keys.iter().map(|(name, text)| line(name, text)).collect();
    let columns = Column::ALL.iter();
    lines.extend(columns.map(|column| line(column.heading(), column.meaning())));
    lines.push(line("bar", "# pages, % compressed pages, . free"));
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::state::Wish;
    use crate::cli::top::testing;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The lines on the screen, without trailing spaces.
    fn screen(width: u16, height: u16, color: bool, state: &State) -> Vec<String> {
        let reading = testing::reading();
        drawn(&reading, width, height, color, state).0
    }

    fn drawn(
        reading: &Reading,
        width: u16,
        height: u16,
        color: bool,
        state: &State,
    ) -> (Vec<String>, bool) {
        let scene = Scene {
            reading,
            notices: &[],
            interval: 1.0,
            ended: false,
            color,
        };
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("memory");
        let drawn = terminal.draw(|frame| draw(frame, &scene, state));
        drawn.expect("memory takes what is drawn");
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(width.max(1).into());
        let lines = rows.map(|row| {
            let text: String = row.iter().map(|cell| cell.symbol()).collect();
            text.trim_end().to_owned()
        });
        let has_color =
            |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        (lines.collect(), buffer.content().iter().any(has_color))
    }

    #[test]
    fn the_table_in_80_columns() {
        let lines = screen(80, 24, true, &State::default());
        let text = lines.join("\n");
        assert_eq!(
            lines[0],
            "flashvm top: 2 runs, 3 processes; every 1 s; by FAULT/s"
        );
        assert!(
            lines[1]
                .starts_with("run      4711 for 1:23, none, modern: python3 dictionary.py 2000000"),
            "{text}"
        );
        // 84 of 128 MiB are pages, 16 the pool's.
        assert_eq!(
            lines[2],
            "ram      [####################%%%.......] 100 MiB of 128 MiB"
        );
        let table: Vec<_> = lines
            .iter()
            .skip_while(|line| !line.contains("PID"))
            .collect();
        assert_eq!(
            table[0].split_ascii_whitespace().collect::<Vec<_>>(),
            Column::ALL.map(Column::heading)
        );
        let row = |at: usize| table[at].split_ascii_whitespace().collect::<Vec<_>>();
        assert_eq!(
            row(1),
            [
                ">", "4711", "100M", "64M", "200M", "6000", "600", "4.0M", "1.0M", "240us", "90%",
                "run", "of", "2"
            ],
            "{text}"
        );
        assert_eq!(row(2)[0], "4712");
        assert!(table[2].contains("python3 "), "{text}");
        assert_eq!(row(3)[0], "4713");
        assert_eq!((row(4)[0], row(5)[0]), ("900", "901"));
        assert!(lines[23].starts_with("q quit  s sort"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_small_terminal_says_so() {
        for (width, height) in [(40, 10), (80, 15), (71, 24)] {
            let lines = screen(width, height, true, &State::default());
            let text = lines.join(" ");
            assert!(
                text.contains("too small") && text.contains(&format!("{width} x {height}")),
                "{text}"
            );
        }
        // The smallest terminal shows rows.
        let text = screen(COLUMNS_MIN, LINES_MIN, true, &State::default()).join("\n");
        assert!(text.contains("4712") && text.contains("PID"), "{text}");
        for (width, height) in [(1, 1), (0, 0), (500, 200)] {
            screen(width, height, true, &State::default());
        }
    }

    #[test]
    fn details_have_kinds_and_latencies() {
        let reading = testing::reading();
        let rows = rows(&reading, Column::Faults, false);
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        let mut state = State::default();
        state.follow(&ids);
        assert!(state.fulfil(Wish::Down, &ids) && state.fulfil(Wish::Details, &ids));
        let text = screen(80, 24, true, &state).join("\n");
        assert!(
            text.contains("process 4712 of run 4711: /usr/bin/python3"),
            "{text}"
        );
        for line in [
            "from flash        500        1,000",
            "pool             2000        4,000",
            "first writes       20           40",
            "8.2us            980  ####",
            "262us             20  #",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn other_pages() {
        let mut state = State::default();
        assert!(state.fulfil(Wish::Help, &[]));
        let text = screen(80, 24, true, &state).join("\n");
        assert!(text.contains("quit; the runs go on"), "{text}");
        for column in Column::ALL {
            assert!(text.contains(column.meaning()), "{column:?}\n{text}");
        }
        let none = drawn(&Reading::default(), 80, 24, true, &State::default()).0;
        assert!(none.join("\n").contains("flashvm run --ram"), "{none:?}");
        let mut frozen = State::default();
        assert!(frozen.fulfil(Wish::Freeze, &[]) && frozen.fulfil(Wish::Reverse, &[]));
        let text = screen(80, 24, true, &frozen).join("\n");
        assert!(
            text.contains("FROZEN") && text.contains(", reversed"),
            "{text}"
        );
    }

    #[test]
    fn without_color_everything_is_said() {
        let reading = testing::reading();
        let state = State::default();
        let (plain, plain_has) = drawn(&reading, 80, 24, false, &state);
        let (colored, colored_has) = drawn(&reading, 80, 24, true, &state);
        assert_eq!(plain, colored);
        assert!(colored_has && !plain_has);
    }
}
