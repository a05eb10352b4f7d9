//! The editor's state (section 7.2.2): the text around the cursor as lists, so that a key creates a
//! few small immutable records and shares the rest. Every key ends with a commit. A state refers to
//! its predecessor: that is the unlimited undo.

use gordon::{Heap, Persist, Ref, Result, Text, Tx, View};

/// A list of characters, the one next to the cursor first.
#[derive(Clone, Copy, Persist)]
struct Chars<'t> {
    rest: Option<Ref<'t, Chars<'t>>>,
    first: char,
}

/// A list of lines, the one next to the cursor first.
#[derive(Clone, Copy, Persist)]
struct Lines<'t> {
    rest: Option<Ref<'t, Lines<'t>>>,
    first: Text<'t>,
}

/// The editor's complete state after a key.
#[derive(Clone, Copy, Persist)]
struct Session<'t> {
    above: Option<Ref<'t, Lines<'t>>>,
    left: Option<Ref<'t, Chars<'t>>>,
    right: Option<Ref<'t, Chars<'t>>>,
    below: Option<Ref<'t, Lines<'t>>>,
    before: Option<Ref<'t, Session<'t>>>,
    keys: u64,
    row: u32,
    column: u32,
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character is inserted.
    Insert(char),
    /// The line is split.
    Enter,
    /// The character to the left is deleted, or the lines are joined.
    Backspace,
    /// The character to the right is deleted, or the lines are joined.
    Delete,
    /// The cursor moves.
    Left,
    /// The cursor moves.
    Right,
    /// The cursor moves.
    Up,
    /// The cursor moves.
    Down,
    /// The cursor moves to the start of the line.
    Home,
    /// The cursor moves to the end of the line.
    End,
    /// The state before the last key that was not undone is restored.
    Undo,
}

/// The visible text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Lines around the cursor.
    pub lines: Vec<String>,
    /// The cursor's line among them.
    pub cursor_line: usize,
    /// Line of the cursor in the text, from 0.
    pub row: u32,
    /// Column of the cursor, from 0.
    pub column: u32,
    /// Keys since the start of the text.
    pub keys: u64,
}

type List<'t> = Option<Ref<'t, Chars<'t>>>;

fn push<'t>(tx: &Tx<'t>, rest: List<'t>, first: char) -> List<'t> {
    Some(tx.alloc(Chars { rest, first }))
}

fn chars(mut list: List<'_>) -> Vec<char> {
    let mut chars = Vec::new();
    while let Some(cell) = list {
        let cell = cell.read();
        chars.push(cell.first);
        list = cell.rest;
    }
    chars
}

fn lines<'t>(mut list: Option<Ref<'t, Lines<'t>>>, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(cell) = list
        && lines.len() < most
    {
        let cell = cell.read();
        lines.push(cell.first.to_string());
        list = cell.rest;
    }
    lines
}

fn list<'t>(tx: &Tx<'t>, chars: impl DoubleEndedIterator<Item = char>) -> List<'t> {
    chars.rev().fold(None, |rest, first| push(tx, rest, first))
}

impl<'t> Session<'t> {
    fn empty() -> Self {
        Self {
            above: None,
            left: None,
            right: None,
            below: None,
            before: None,
            keys: 0,
            row: 0,
            column: 0,
        }
    }

    /// The cursor's line.
    fn line(&self) -> String {
        chars(self.left)
            .into_iter()
            .rev()
            .chain(chars(self.right))
            .collect()
    }

    fn move_to(&mut self, tx: &Tx<'t>, line: &str, column: u32) {
        let column = (column as usize).min(line.chars().count());
        let split = line
            .char_indices()
            .nth(column)
            .map_or(line.len(), |(at, _)| at);
        let (left, right) = line.split_at(split);
        self.left = list(tx, left.chars().rev());
        self.right = list(tx, right.chars());
        self.column = column as u32;
    }

    fn up(&mut self, tx: &Tx<'t>, column: u32) {
        let Some(above) = self.above else { return };
        let above = above.read();
        self.below = Some(tx.alloc(Lines {
            rest: self.below,
            first: tx.text(&self.line()),
        }));
        self.above = above.rest;
        self.row -= 1;
        self.move_to(tx, &above.first, column);
    }

    fn down(&mut self, tx: &Tx<'t>, column: u32) {
        let Some(below) = self.below else { return };
        let below = below.read();
        self.above = Some(tx.alloc(Lines {
            rest: self.above,
            first: tx.text(&self.line()),
        }));
        self.below = below.rest;
        self.row += 1;
        self.move_to(tx, &below.first, column);
    }

    fn apply(&mut self, tx: &Tx<'t>, key: Key) {
        match key {
            Key::Insert(first) => {
                self.left = push(tx, self.left, first);
                self.column += 1;
            }
            Key::Enter => {
                let left: String = chars(self.left).into_iter().rev().collect();
                self.above = Some(tx.alloc(Lines {
                    rest: self.above,
                    first: tx.text(&left),
                }));
                self.left = None;
                self.row += 1;
                self.column = 0;
            }
            Key::Backspace => {
                if let Some(left) = self.left {
                    self.left = left.read().rest;
                    self.column -= 1;
                } else if let Some(above) = self.above {
                    let above = above.read();
                    self.above = above.rest;
                    self.left = list(tx, above.first.chars().rev());
                    self.row -= 1;
                    self.column = above.first.chars().count() as u32;
                }
            }
            Key::Delete => {
                if let Some(right) = self.right {
                    self.right = right.read().rest;
                } else if let Some(below) = self.below {
                    let below = below.read();
                    self.below = below.rest;
                    self.right = list(tx, below.first.chars());
                }
            }
            Key::Left => {
                if let Some(left) = self.left {
                    let left = left.read();
                    self.left = left.rest;
                    self.right = push(tx, self.right, left.first);
                    self.column -= 1;
                } else {
                    self.up(tx, u32::MAX);
                }
            }
            Key::Right => {
                if let Some(right) = self.right {
                    let right = right.read();
                    self.right = right.rest;
                    self.left = push(tx, self.left, right.first);
                    self.column += 1;
                } else {
                    self.down(tx, 0);
                }
            }
            Key::Up => self.up(tx, self.column),
            Key::Down => self.down(tx, self.column),
            Key::Home => self.move_to(tx, &self.line(), 0),
            Key::End => self.move_to(tx, &self.line(), u32::MAX),
            Key::Undo => unreachable!("undo takes another session, it does not change one"),
        }
    }
}

fn session<'t>(root: Option<Ref<'t, Session<'t>>>) -> Session<'t> {
    root.map_or_else(Session::empty, |root| root.read())
}

/// Makes a key's change stable.
///
/// # Errors
/// Those of a commit.
pub fn press(heap: &Heap, key: Key) -> Result<()> {
    heap.update(|tx| {
        let root = tx.root::<Ref<'_, Session<'_>>>()?;
        if key == Key::Undo {
            if let Some(before) = session(root).before {
                tx.set_root(before);
            }
            return Ok(());
        }
        let mut next = session(root);
        next.apply(tx, key);
        next.before = Some(root.unwrap_or_else(|| tx.alloc(Session::empty())));
        next.keys += 1;
        tx.set_root(tx.alloc(next));
        Ok(())
    })
}

/// The `height` lines around the cursor.
///
/// # Errors
/// The heap holds something else.
pub fn screen(view: &View<'_>, height: usize) -> Result<Screen> {
    let session = session(view.root()?);
    let mut above = lines(session.above, height.saturating_sub(1));
    above.reverse();
    let keep = above
        .len()
        .min(height / 2)
        .max((height - 1).min(above.len()) / 2);
    let mut shown = above.split_off(above.len() - keep);
    let cursor_line = shown.len();
    shown.push(session.line());
    shown.extend(lines(session.below, height.saturating_sub(shown.len())));
    Ok(Screen {
        lines: shown,
        cursor_line,
        row: session.row,
        column: session.column,
        keys: session.keys,
    })
}

/// The whole text.
///
/// # Errors
/// The heap holds something else.
pub fn text(view: &View<'_>) -> Result<String> {
    let session = session(view.root()?);
    let mut all = lines(session.above, usize::MAX);
    all.reverse();
    all.push(session.line());
    all.extend(lines(session.below, usize::MAX));
    Ok(all.join("\n"))
}

/// The keys that type `text`.
pub fn typing(text: &str) -> impl Iterator<Item = Key> {
    text.chars().map(|c| {
        if c == '\n' {
            Key::Enter
        } else {
            Key::Insert(c)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gordon::Options;
    use gordon::flash::Model;

    fn typed(keys: &[Key]) -> (String, Screen) {
        let heap = Heap::emulated(Model::intel(4).fast(), 12, Options::default()).expect("a heap");
        for &key in keys {
            press(&heap, key).expect("a commit");
        }
        heap.view(|view| Ok((text(view)?, screen(view, 10)?)))
            .expect("a session")
    }

    #[test]
    fn keys_do_what_they_say() {
        let mut keys: Vec<_> = typing("one\ntwo\nthree").collect();
        assert_eq!(typed(&keys).0, "one\ntwo\nthree");
        keys.extend([Key::Up, Key::Home, Key::Backspace]);
        assert_eq!(typed(&keys).0, "onetwo\nthree");
        keys.extend([Key::End, Key::Delete, Key::Left, Key::Insert('X')]);
        let (text, screen) = typed(&keys);
        assert_eq!(text, "onetwXothree");
        assert_eq!((screen.row, screen.column), (0, 6));
        keys.extend([Key::Right, Key::Enter, Key::Up, Key::Down]);
        assert_eq!(typed(&keys).0, "onetwXo\nthree");
    }

    #[test]
    fn undo_goes_back_to_the_beginning() {
        let mut keys: Vec<_> = typing("ab\nc").collect();
        for rest in ["ab\n", "ab", "a", "", ""] {
            keys.push(Key::Undo);
            assert_eq!(typed(&keys).0, rest);
        }
    }
}
