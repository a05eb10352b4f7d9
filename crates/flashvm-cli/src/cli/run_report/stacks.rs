//! Stacks of major faults: unwound while the run goes on, outside of the program; turned into functions at its end.
//!
//! Unwinding uses the tables of the program and its libraries (`.eh_frame`), and frame pointers where there are none.
//! A sample ends where the copied part of the stack does, or at code without a file.

use crate::cli::object;
use ::object::{Object as _, ObjectSection as _, ObjectSegment as _};
use flashvm_live::control::StackSample;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Frames of a stack at most.
const FRAMES_MAX: usize = 64;
/// Larger sections are not read: their part of a stack is found without them, if at all.
const SECTION_BYTES_MAX: u64 = 32 << 20;
/// Processes whose mappings are kept at a time.
const PROCESSES_MAX: usize = 64;
/// Distinct stacks kept at most; the others become one.
const STACKS_MAX: usize = 5000;
/// Lines of source kept at most.
const LINES_MAX: usize = 100;
/// The frame of stacks beyond [`STACKS_MAX`], and of code without a name.
const OTHERS: &str = "(others)";
const UNKNOWN: &str = "(unknown)";

type Bytes = Arc<[u8]>;

/// The stacks of a run's major faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stacks {
    /// Samples taken, and major faults that they stand for.
    pub(crate) samples: u64,
    pub(crate) faults: u64,
    /// Functions, the outermost first, and major faults in them.
    pub(crate) stacks: Vec<(Vec<String>, u64)>,
    /// The innermost functions with the lines of their source, the most frequent first.
    pub(crate) lines: Vec<(Frame, u64)>,
}

/// A function, and where in its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frame {
    pub(crate) function: String,
    /// File and line, where debug information tells.
    pub(crate) line: Option<String>,
}

impl Frame {
    /// `f at g.c:31`, or `f`.
    pub(crate) fn text(&self) -> String {
        match &self.line {
            Some(line) => format!("{} at {line}", self.function),
            None => self.function.clone(),
        }
    }
}

/// A place in a file: the file's index, and the address as the file states it.
pub(super) type Place = (usize, u64);

/// The places of a stack, the innermost first; `None`: code without a file.
pub(super) type Stack = Vec<Option<Place>>;

/// What the unwinder needs of a file.
struct File {
    path: PathBuf,
    /// File offset, size and address of each segment with code.
    segments: Vec<(u64, u64, u64)>,
    text: Section,
    eh_frame: Section,
    eh_frame_hdr: Section,
}

/// A section's addresses and bytes, if it is there.
#[derive(Clone, Default)]
struct Section(Option<(std::ops::Range<u64>, Bytes)>);

impl File {
    /// Reads a file through `open_path`, which may be another way to `path`.
    fn read(path: &Path, open_path: &Path) -> Option<Self> {
        // Reads only the parts that are used: debug information can be large.
        let data = ::object::ReadCache::new(fs::File::open(open_path).ok()?);
        let object = ::object::File::parse(&data).ok()?;
        let section = |name: &str| {
            let section = object.section_by_name(name);
            let section = section.filter(|section| section.size() <= SECTION_BYTES_MAX);
            let found = section.and_then(|section| {
                let bytes: Bytes = section.data().ok()?.into();
                let start = section.address();
                Some((start..start + section.size(), bytes))
            });
            Section(found)
        };
        let is_code = |flags| match flags {
            ::object::SegmentFlags::Elf { p_flags, .. } => p_flags.contains(::object::elf::PF_X),
            _ => false,
        };
        let segments = object.segments().filter(|segment| is_code(segment.flags()));
        let segments = segments.map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size, segment.address())
        });
        Some(Self {
            path: path.to_owned(),
            segments: segments.collect(),
            text: section(".text"),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
        })
    }

    /// The address that the file states for an offset at which code is mapped: a segment is mapped from the page on in
    /// which it starts.
    fn stated(&self, offset: u64) -> Option<u64> {
        let has =
            |(start, size, _): &&(u64, u64, u64)| (start & !0xfff..start + size).contains(&offset);
        let (start, _, address) = self.segments.iter().find(has)?;
        Some(offset.wrapping_sub(*start).wrapping_add(*address))
    }

    fn module(&self, mapped: &Mapped, base: u64) -> Module<Bytes> {
        let range = |section: &Section| section.0.clone().map(|(range, _)| range);
        let bytes = |section: &Section| section.0.clone().map(|(_, bytes)| bytes);
        Module::new(
            self.path.display().to_string(),
            mapped.start..mapped.end,
            base,
            ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: range(&self.text),
                text: bytes(&self.text),
                eh_frame_svma: range(&self.eh_frame),
                eh_frame: bytes(&self.eh_frame),
                eh_frame_hdr_svma: range(&self.eh_frame_hdr),
                eh_frame_hdr: bytes(&self.eh_frame_hdr),
                ..Default::default()
            },
        )
    }
}

/// A mapping with code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: PathBuf,
}

/// The mappings with code of files, in the text of `/proc/PID/maps`.
fn mappings(maps: &str) -> Vec<Mapped> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = |line: &str| {
        // The path may contain spaces: it is what follows the inode.
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.trim_start().split_once(' ')?;
            rest = behind;
            Some(word)
        };
        let (range, rights, offset) = (word()?, word()?, word()?);
        let (_device, _inode) = (word()?, word()?);
        let path = rest.trim_start();
        let is_gone = path.ends_with(" (deleted)") && path != object::MEMFD_NAME;
        if !rights.contains('x') || !path.starts_with('/') || is_gone {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        Some(Mapped {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            path: path.into(),
        })
    };
    maps.lines().filter_map(mapping).collect()
}

/// The code of a process.
struct Code {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    /// Mapped ranges: the file, and the address at which the file's address 0 would be.
    ranges: Vec<(std::ops::Range<u64>, usize, u64)>,
}

impl Code {
    fn place(&self, address: u64) -> Option<Place> {
        let has = |(range, _, _): &&(std::ops::Range<u64>, usize, u64)| range.contains(&address);
        let (_, file, base) = self.ranges.iter().find(has)?;
        Some((*file, address.wrapping_sub(*base)))
    }
}

/// Collects samples.
#[derive(Default)]
pub(super) struct StackCounter {
    files: Vec<File>,
    /// The index of each file that was tried; `None` if it could not be read.
    known: HashMap<PathBuf, Option<usize>>,
    processes: HashMap<u32, Code>,
    /// Faults by stack, the innermost place first.
    stacks: HashMap<Stack, u64>,
    samples: u64,
    faults: u64,
}

impl StackCounter {
    /// Counts faults at a stack.
    pub(super) fn add(&mut self, stack: Stack, faults: u64) {
        self.samples += 1;
        self.faults += faults;
        let is_full = self.stacks.len() >= STACKS_MAX && !self.stacks.contains_key(&stack);
        let stack = if is_full { Vec::new() } else { stack };
        *self.stacks.entry(stack).or_default() += faults;
    }

    /// Unwinds a sample.
    pub(super) fn stack_of(&mut self, sample: &StackSample) -> Stack {
        let known = self.processes.get(&sample.pid);
        // Unknown code: the process is new, has loaded a library, or is another program after an `exec`.
        if known.is_none_or(|code| code.place(sample.at.ip).is_none()) {
            self.look_at(sample.pid);
        }
        self.unwind(sample)
    }

    /// Reads the mappings of a process.
    fn look_at(&mut self, pid: u32) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        if maps.is_empty() {
            return;
        }
        let mut code = Code {
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            ranges: Vec::new(),
        };
        for mapped in mappings(&maps) {
            let Some(index) = self.file(pid, &mapped.path) else {
                continue;
            };
            let file = &self.files[index];
            let Some(stated) = file.stated(mapped.offset) else {
                continue;
            };
            let base = mapped.start.wrapping_sub(stated);
            code.unwinder.add_module(file.module(&mapped, base));
            code.ranges.push((mapped.start..mapped.end, index, base));
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(pid, code);
    }

    fn file(&mut self, pid: u32, path: &Path) -> Option<usize> {
        if let Some(known) = self.known.get(path) {
            return *known;
        }
        let its_path = match path.to_str() {
            Some(object::MEMFD_NAME) => object::memfd_of(std::process::id()),
            // As the process sees the path: it may be in a container.
            _ => Some(format!("/proc/{pid}/root{}", path.display()).into()),
        };
        let file = its_path.and_then(|its_path| File::read(path, &its_path));
        let index = file.map(|file| {
            self.files.push(file);
            self.files.len() - 1
        });
        self.known.insert(path.to_owned(), index);
        index
    }

    fn unwind(&mut self, sample: &StackSample) -> Stack {
        let at = sample.at;
        let Some(code) = self.processes.get_mut(&sample.pid) else {
            return vec![None];
        };
        let mut read = |address: u64| {
            let skip = address.checked_sub(at.sp).ok_or(())?;
            let word = sample
                .stack
                .get(skip as usize / 8)
                .filter(|_| skip % 8 == 0);
            word.copied().ok_or(())
        };
        let regs = UnwindRegsX86_64::new(at.ip, at.sp, at.fp);
        let mut frames = Vec::new();
        let mut iter = code
            .unwinder
            .iter_frames(at.ip, regs, &mut code.cache, &mut read);
        while frames.len() < FRAMES_MAX
            && let Ok(Some(frame)) = iter.next()
        {
            frames.push(frame.address_for_lookup());
        }
        let mut places: Vec<_> = frames.into_iter().map(|frame| code.place(frame)).collect();
        // Where unwinding lost its way.
        while places.len() > 1 && places.last() == Some(&None) {
            places.pop();
        }
        places
    }

    /// For the names of places.
    pub(super) fn names(&self) -> Names<'_> {
        Names::new(&self.files)
    }

    /// The stacks with the names of functions.
    pub(super) fn finish(&self, names: &mut Names<'_>) -> Stacks {
        let mut stacks: HashMap<Vec<String>, u64> = HashMap::new();
        let mut lines: HashMap<Frame, u64> = HashMap::new();
        for (places, faults) in &self.stacks {
            let mut stack: Vec<String> = Vec::new();
            for place in places.iter().rev() {
                match place {
                    Some(place) => {
                        let frames = names.of(*place).iter();
                        stack.extend(frames.map(|frame| frame.function.clone()));
                    }
                    None => stack.push(UNKNOWN.to_owned()),
                }
            }
            // Functions of a file without names.
            stack.dedup_by(|one, other| one == other && one.starts_with('['));
            if stack.is_empty() {
                stack.push(OTHERS.to_owned());
            }
            *stacks.entry(stack).or_default() += faults;
            if let Some(Some(inner)) = places.first()
                && let Some(frame) = names.of(*inner).last()
            {
                *lines.entry(frame.clone()).or_default() += faults;
            }
        }
        let mut stacks = Vec::from_iter(stacks);
        stacks.sort();
        let mut lines = Vec::from_iter(lines);
        lines.sort_by(|(one, a), (other, b)| (b, one).cmp(&(a, other)));
        lines.truncate(LINES_MAX);
        Stacks {
            samples: self.samples,
            faults: self.faults,
            stacks,
            lines,
        }
    }
}

/// Finds the functions of places.
pub(super) struct Names<'f> {
    files: &'f [File],
    loaders: HashMap<usize, Option<addr2line::Loader>>,
    found: HashMap<Place, Vec<Frame>>,
}

impl<'f> Names<'f> {
    fn new(files: &'f [File]) -> Self {
        Self {
            files,
            loaders: HashMap::new(),
            found: HashMap::new(),
        }
    }

    /// The function at a place, and those inlined into it, the outermost first. Our own object has none: its functions stand
    /// between those of the program and of the C library.
    pub(super) fn of(&mut self, place: Place) -> &[Frame] {
        let (file, address) = place;
        let path = &self.files[file].path;
        if path.ends_with(object::NAME) || path == Path::new(object::MEMFD_NAME) {
            return &[];
        }
        let loader = self.loaders.entry(file);
        let loader = loader.or_insert_with(|| addr2line::Loader::new(path).ok());
        let found = self.found.entry(place);
        found.or_insert_with(|| {
            let mut frames = loader
                .as_ref()
                .map_or_else(Vec::new, |l| frames(l, address));
            if frames.is_empty() {
                let file = path.file_name().unwrap_or_default();
                frames.push(Frame {
                    function: format!("[{}]", file.display()),
                    line: None,
                });
            }
            frames
        })
    }
}

fn frames(loader: &addr2line::Loader, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref();
            let Some(Ok(function)) = name.map(|name| name.demangle()) else {
                continue;
            };
            let line = frame.location.and_then(|at| {
                let file = at.file?.rsplit('/').next()?;
                Some(format!("{file}:{}", at.line?))
            });
            let function = function.into_owned();
            found.push(Frame { function, line });
        }
    }
    found.reverse();
    if found.is_empty() {
        let symbol = loader.find_symbol(address);
        found.extend(symbol.map(|name| Frame {
            function: addr2line::demangle_auto(name.into(), None).into_owned(),
            line: None,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_mappings() {
        let maps = "\
555500000000-555500001000 r--p 00000000 fe:00 12 /usr/bin/a program\n\
555500001000-555500003000 r-xp 00001000 fe:00 12 /usr/bin/a program\n\
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n\
7f0000001000-7f0000002000 r-xp 00000000 00:01 5 /memfd:x (deleted)\n\
7f0000003000-7f0000004000 r-xp 00003000 00:01 6 /memfd:libflashvm_preload.so (deleted)\n\
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";
        let expected = Mapped {
            start: 0x5555_0000_1000,
            end: 0x5555_0000_3000,
            offset: 0x1000,
            path: "/usr/bin/a program".into(),
        };
        let ours = Mapped {
            start: 0x7f00_0000_3000,
            end: 0x7f00_0000_4000,
            offset: 0x3000,
            path: object::MEMFD_NAME.into(),
        };
        assert_eq!(mappings(maps), [expected, ours]);
    }

    /// This test's own code: the file, its addresses and the function's name are found.
    #[test]
    fn a_function_of_this_program_has_its_name() {
        let own = code_is_found_in_mappings as fn() as usize as u64;
        let mut counter = StackCounter::default();
        let sample = StackSample {
            pid: std::process::id(),
            sampled: flashvm_live::control::Sampled::Faults(3),
            at: flashvm_live::control::Interrupted {
                ip: own,
                sp: 0,
                fp: 0,
            },
            stack: Vec::new(),
        };
        let stack = counter.stack_of(&sample);
        counter.add(stack.clone(), 3);
        counter.add(stack, 3);
        let stacks = counter.finish(&mut counter.names());
        assert_eq!((stacks.samples, stacks.faults), (2, 6));
        let [(stack, 6)] = &stacks.stacks[..] else {
            panic!("{stacks:?}")
        };
        // Functions inlined at that address follow. Where only the symbol table has the name, it has its path.
        let name = "code_is_found_in_mappings";
        let path = format!("{}::{name}", module_path!());
        assert!(stack[0] == name || stack[0] == path, "{stack:?}");
        let [(frame, 6)] = &stacks.lines[..] else {
            panic!("{stacks:?}")
        };
        assert_eq!(Some(&frame.function), stack.last());
    }
}
