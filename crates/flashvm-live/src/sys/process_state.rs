//! What `/proc/PID/stat` says of a process.

/// A process, as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessState {
    /// The kernel's letter for its state, `T` for a stopped one.
    pub letter: u8,
    /// The process id of its parent.
    pub parent: u32,
    /// Its threads.
    pub threads: u64,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl ProcessState {
    /// Reads it; `None`: there is no such process, or no `/proc`.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it has ended, and waits for its parent to notice.
    #[must_use]
    pub fn is_zombie(self) -> bool {
        matches!(self.letter, b'Z' | b'X' | b'x')
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The command, in parentheses, may itself contain spaces and parentheses.
        let rest = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
        let mut fields = str::from_utf8(rest).ok()?.split_ascii_whitespace();
        Some(Self {
            letter: *fields.next()?.as_bytes().first()?,
            parent: fields.next()?.parse().ok()?,
            threads: fields.nth(15)?.parse().ok()?,
            started: fields.nth(1)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_command() {
        let stat = b"17 (a ) b) S 11 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 18 4242 20\n";
        let state = ProcessState::parse(stat).unwrap();
        assert_eq!(
            state,
            ProcessState {
                letter: b'S',
                parent: 11,
                threads: 3,
                started: 4242
            }
        );
        assert!(!state.is_zombie());
        let zombie = str::from_utf8(stat).unwrap().replace(" S ", " Z ");
        assert!(ProcessState::parse(zombie.as_bytes()).unwrap().is_zombie());
        for broken in ["", "17", "17 (sh)", "17 (sh) S 1 2"] {
            assert_eq!(ProcessState::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn this_process_lives() {
        let own = ProcessState::of(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.threads > 0 && own.started > 0 && !own.is_zombie());
        assert_eq!(ProcessState::of(u32::MAX), None);
    }
}
