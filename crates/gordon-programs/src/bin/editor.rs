//! `gordon-editor HEAP`: a text editor that commits every key. After a crash, or a kill, it resumes
//! after the last key. `--keys` reads keys from standard input instead of a terminal and answers
//! each with its number once it is stable: the interface of the crash tests.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use gordon::{Heap, Options};
use gordon_programs::editor::{Key, Screen, press, screen, text};
use gordon_programs::write_out;
use std::error::Error;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unicode_width::UnicodeWidthChar;

const HELP: &str = "\
A text editor that commits at every key.

Usage: gordon-editor HEAP            edit; HEAP is made (64 MiB) if it does not exist
       gordon-editor --text HEAP     write the text to standard output
       gordon-editor --keys HEAP     read keys from standard input, answer each with its number

Keys: arrows, Home, End, Backspace, Delete; Ctrl-Z undoes, without limit; Ctrl-Q leaves.

Example:
  gordon-editor notes.heap && gordon-editor --text notes.heap > notes.txt";

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Edit,
    Text,
    Keys,
}

fn main() -> ExitCode {
    let mut what = What::Edit;
    let mut path = None;
    for argument in std::env::args_os().skip(1) {
        match argument.to_str() {
            Some("--help" | "-h") => {
                return match write_out(&format!("{HELP}\n")) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => refuse(&format!("standard output: {error}")),
                };
            }
            Some("--text") => what = What::Text,
            Some("--keys") => what = What::Keys,
            Some(option) if option.starts_with('-') => {
                return refuse(&format!(
                    "unknown option '{option}': see gordon-editor --help"
                ));
            }
            _ if path.is_some() => return refuse("one heap at a time: see gordon-editor --help"),
            _ => path = Some(PathBuf::from(argument)),
        }
    }
    let Some(path) = path else {
        return refuse("no heap: write gordon-editor HEAP");
    };
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if what == What::Edit && !terminal {
        return refuse("standard input and output must be a terminal: see --text and --keys");
    }
    let done = open(&path, what).and_then(|heap| match what {
        What::Edit => edit(&heap),
        What::Text => Ok(write_out(&heap.view(text)?)?),
        What::Keys => keys(&heap),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&format!("{}: {error}", path.display())),
    }
}

fn refuse(line: &str) -> ExitCode {
    eprintln!("gordon-editor: {line}");
    ExitCode::from(2)
}

fn open(path: &Path, what: What) -> Result<Heap, Box<dyn Error>> {
    Ok(if path.exists() || what == What::Text {
        Heap::open(path, Options::default())?
    } else {
        Heap::create(path, 64 << 20, Options::default())?
    })
}

/// One key a line: a character, or a name in brackets.
fn keys(heap: &Heap) -> Result<(), Box<dyn Error>> {
    for (number, line) in io::stdin().lock().lines().enumerate() {
        let line = line?;
        let mut chars = line.chars();
        let key = match (line.as_str(), chars.next(), chars.next()) {
            ("[enter]", ..) => Key::Enter,
            ("[backspace]", ..) => Key::Backspace,
            ("[undo]", ..) => Key::Undo,
            ("[left]", ..) => Key::Left,
            ("[right]", ..) => Key::Right,
            ("[up]", ..) => Key::Up,
            ("[down]", ..) => Key::Down,
            (_, Some(c), None) => Key::Insert(c),
            _ => return Err(format!("'{line}' is no key").into()),
        };
        press(heap, key)?;
        write_out(&format!("{}\n", number + 1))?;
    }
    Ok(())
}

/// Restores the terminal however the editor ends.
struct Raw;

impl Raw {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), terminal::EnterAlternateScreen)?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Fails if the terminal has gone away; then there is nobody to tell.
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn edit(heap: &Heap) -> Result<(), Box<dyn Error>> {
    let raw = Raw::enter()?;
    loop {
        // If the terminal does not tell its size, assume the usual one.
        let (width, height) = match terminal::size() {
            Ok((width @ 1.., height @ 1..)) => (width, height),
            _ => (80, 24),
        };
        let (width, height) = (usize::from(width), usize::from(height));
        draw(
            &heap.view(|view| screen(view, height.saturating_sub(1).max(1)))?,
            width,
            height,
        )?;
        match crossterm::event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match meaning(key) {
                Meaning::Press(key) => press(heap, key)?,
                Meaning::Leave => break,
                Meaning::Nothing => {}
            },
            _ => {}
        }
    }
    drop(raw);
    Ok(())
}

enum Meaning {
    Press(Key),
    Leave,
    Nothing,
}

fn meaning(key: KeyEvent) -> Meaning {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Meaning::Press(match key.code {
        KeyCode::Char('q' | 'c') if control => return Meaning::Leave,
        KeyCode::Char('z') if control => Key::Undo,
        KeyCode::Char(_) if control => return Meaning::Nothing,
        KeyCode::Char(c) => Key::Insert(c),
        KeyCode::Tab => Key::Insert('\t'),
        KeyCode::Enter => Key::Enter,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return Meaning::Nothing,
    })
}

/// The printed form of a character, and its width in columns.
fn shown(c: char) -> (char, usize) {
    let c = if c.is_control() { ' ' } else { c };
    (c, c.width().unwrap_or(0))
}

/// The part of a line that fits into `width` columns, without its first `skip` characters.
fn part(line: &str, skip: usize, width: usize) -> String {
    let mut used = 0;
    let fits = |&(_, columns): &(char, usize)| {
        used += columns;
        used <= width
    };
    let part = line.chars().skip(skip).map(shown).take_while(fits);
    part.map(|(c, _)| c).collect()
}

fn draw(screen: &Screen, width: usize, height: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // Shows the part around the cursor of a line longer than the screen.
    let before: Vec<usize> = (screen.lines[screen.cursor_line].chars())
        .take(screen.column as usize)
        .map(|c| shown(c).1)
        .collect();
    let mut column: usize = before.iter().sum();
    let mut skip = 0;
    while column >= width.max(1) {
        column -= before[skip];
        skip += 1;
    }
    queue!(out, cursor::Hide)?;
    let status = format!(
        "line {}, column {}, {} keys, every one stable. Ctrl-Z undoes, Ctrl-Q leaves",
        screen.row + 1,
        screen.column + 1,
        screen.keys
    );
    let last = height.saturating_sub(1);
    for row in 0..height {
        let line = match screen.lines.get(row) {
            // The last row has the status, unless it is the only row.
            _ if row == last && row > 0 => part(&status, 0, width),
            Some(line) => part(line, skip, width),
            None => String::new(),
        };
        queue!(
            out,
            cursor::MoveTo(0, row as u16),
            terminal::Clear(terminal::ClearType::CurrentLine),
            style::Print(line)
        )?;
    }
    queue!(
        out,
        cursor::MoveTo(column as u16, screen.cursor_line as u16),
        cursor::Show
    )?;
    out.flush()
}
