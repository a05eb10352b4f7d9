//! What the viewer shows, and how keys change it.

use super::columns::Column;
use super::rows::RowId;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    NextColumn,
    Reverse,
    Freeze,
    Up,
    Down,
    Details,
    Help,
    Back,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// The chosen run, and the table.
    #[default]
    Table,
    /// The chosen row alone.
    Details,
    Help,
}

/// The state of the viewer.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) content: Content,
    pub(super) sort: Column,
    pub(super) reversed: bool,
    /// The screen keeps its reading.
    pub(super) frozen: bool,
    chosen: Option<RowId>,
    /// Where the chosen row was. When it is gone, the row in its place is chosen.
    place: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            content: Content::default(),
            sort: Column::Faults,
            reversed: false,
            frozen: false,
            chosen: None,
            place: 0,
        }
    }
}

impl State {
    /// The state at the beginning, with this row chosen.
    pub(super) fn on(row: RowId) -> Self {
        Self {
            chosen: Some(row),
            ..Self::default()
        }
    }

    /// The place of the chosen row among `rows`, or of the row that replaces it; 0 without rows.
    pub(super) fn place_in(&self, rows: &[RowId]) -> usize {
        let chosen = rows.iter().position(|row| Some(*row) == self.chosen);
        chosen.unwrap_or_else(|| self.place.min(rows.len().saturating_sub(1)))
    }

    /// Follows the chosen row to its place among `rows`. Without rows the choice is kept.
    pub(super) fn follow(&mut self, rows: &[RowId]) {
        self.place = self.place_in(rows);
        self.chosen = rows.get(self.place).copied().or(self.chosen);
    }

    /// Fulfils a wish; `rows` are those of the screen. False: the viewer ends.
    pub(super) fn fulfil(&mut self, wish: Wish, rows: &[RowId]) -> bool {
        match (wish, self.content) {
            (Wish::Quit, _) => return false,
            (Wish::Freeze, _) => self.frozen = !self.frozen,
            (Wish::Help, Content::Help) | (Wish::Details, Content::Details | Content::Help) => {
                self.content = Content::Table;
            }
            (Wish::Back, _) => self.content = Content::Table,
            (Wish::Help, _) => self.content = Content::Help,
            (Wish::Details, Content::Table) => self.content = Content::Details,
            (_, Content::Help) => {}
            (Wish::NextColumn, _) => self.sort = self.sort.next(),
            (Wish::Reverse, _) => self.reversed = !self.reversed,
            (Wish::Up, _) => self.choose(rows, self.place_in(rows).saturating_sub(1)),
            (Wish::Down, _) => self.choose(rows, self.place_in(rows) + 1),
        }
        true
    }

    fn choose(&mut self, rows: &[RowId], place: usize) {
        self.place = place.min(rows.len().saturating_sub(1));
        self.chosen = rows.get(self.place).copied();
    }
}

/// What an event of the terminal asks for, if anything.
pub(super) fn wish(event: &Event) -> Option<Wish> {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press | KeyEventKind::Repeat,
        ..
    }) = *event
    else {
        return None;
    };
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (code == KeyCode::Char('c')).then_some(Wish::Quit);
    }
    Some(match code {
        KeyCode::Char('q') => Wish::Quit,
        KeyCode::Char('s') => Wish::NextColumn,
        KeyCode::Char('r') => Wish::Reverse,
        KeyCode::Char('f' | ' ') => Wish::Freeze,
        KeyCode::Char('k') | KeyCode::Up => Wish::Up,
        KeyCode::Char('j') | KeyCode::Down => Wish::Down,
        KeyCode::Enter => Wish::Details,
        KeyCode::Char('?' | 'h') => Wish::Help,
        KeyCode::Esc => Wish::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: u32, process: u32) -> RowId {
        let process = (process > 0).then_some(process);
        RowId { run, process }
    }

    #[test]
    fn keys() {
        let key = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| key(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(Wish::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Quit)
        );
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(plain(KeyCode::Char('c')), None);
        for (one, two, wanted) in [
            (KeyCode::Char('f'), KeyCode::Char(' '), Wish::Freeze),
            (KeyCode::Char('j'), KeyCode::Down, Wish::Down),
            (KeyCode::Char('k'), KeyCode::Up, Wish::Up),
        ] {
            assert_eq!((plain(one), plain(two)), (Some(wanted), Some(wanted)));
        }
        assert_eq!(wish(&Event::Resize(80, 24)), None);
    }

    #[test]
    fn the_chosen_row_moves_with_its_process() {
        let mut state = State::default();
        let rows = [row(7, 0), row(7, 1), row(7, 2)];
        state.follow(&rows);
        assert_eq!(state.place_in(&rows), 0);
        for _ in 0..2 {
            assert!(state.fulfil(Wish::Down, &rows));
        }
        assert_eq!(state.place_in(&rows), 2);
        assert!(state.fulfil(Wish::Down, &rows));
        assert_eq!(state.place_in(&rows), 2, "there is no further row");
        let moved = [row(7, 0), row(7, 2), row(7, 1)];
        state.follow(&moved);
        assert_eq!(state.place_in(&moved), 1);
        // The chosen process ends: the row in its place is chosen.
        let gone = [row(7, 0), row(7, 1)];
        state.follow(&gone);
        assert_eq!(state.place_in(&gone), 1);
        state.follow(&[]);
        assert_eq!(state.place_in(&[]), 0);
        for wish in [Wish::Up, Wish::Down, Wish::Details] {
            assert!(state.fulfil(wish, &[]));
        }
    }

    #[test]
    fn pages_and_switches() {
        let mut state = State::default();
        let rows = [row(7, 0)];
        let mut press = |wish| {
            assert!(state.fulfil(wish, &rows));
            (state.content, state.sort, state.reversed, state.frozen)
        };
        assert_eq!(press(Wish::Details).0, Content::Details);
        assert_eq!(press(Wish::Help).0, Content::Help);
        assert_eq!(
            press(Wish::NextColumn).1,
            Column::Faults,
            "not from the help"
        );
        assert_eq!(press(Wish::Help).0, Content::Table);
        assert_eq!(press(Wish::Details).0, Content::Details);
        assert_eq!(press(Wish::Back).0, Content::Table);
        assert_eq!(press(Wish::NextColumn).1, Column::Major);
        assert!(press(Wish::Reverse).2);
        assert!(press(Wish::Freeze).3);
        assert!(!press(Wish::Freeze).3);
        assert!(!state.fulfil(Wish::Quit, &rows));
    }
}
