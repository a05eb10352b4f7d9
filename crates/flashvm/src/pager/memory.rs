//! Carrying out memory actions: how pages get into the region, into the shadow, and away.
//!
//! Everything here happens with the engine locked, so that its page states are the truth about
//! the address space whenever somebody else looks. What cannot be done yet, because the program
//! is changing its mappings at this moment (`EAGAIN`), is parked in order and retried.

use super::{Core, Pager};
use crate::sys::map;
use crate::sys::own::Mapping;
use flashvm_core::{Action, Event, PAGE_SIZE, PageId, PageState, Place, RUN_PAGES_MAX};
use rustix::io::Errno;
use rustix::mm::MprotectFlags;
use std::sync::atomic::Ordering;

/// Tries of a move that the kernel calls busy for the moment.
const MOVE_TRIES: u32 = 8;

/// An action that waits until the program's change of its mappings is through.
#[derive(Debug)]
pub(super) struct Parked {
    action: Action,
    /// The contents of a `Map`, whose read buffer is long in use again.
    contents: Option<Vec<u8>>,
}

impl Parked {
    /// The same for some of its pages.
    fn part(&self, from: PageId, pages: u32) -> Self {
        let mut action = self.action;
        let mut skipped = 0;
        if let Action::Zero { first, count, .. } | Action::Map { first, count, .. } = &mut action {
            skipped = (from.0 - first.0) as usize * PAGE_SIZE;
            (*first, *count) = (from, pages);
        }
        let bytes = skipped..skipped + pages as usize * PAGE_SIZE;
        Self {
            action,
            contents: self.contents.as_ref().map(|all| all[bytes].to_vec()),
        }
    }
}

/// The pages that a memory action is about.
fn pages(action: &Action) -> Option<(PageId, u32)> {
    match *action {
        Action::Zero { first, count, .. }
        | Action::Map { first, count, .. }
        | Action::Shadow { first, count }
        | Action::Drop { first, count } => Some((first, count)),
        Action::Restore { page }
        | Action::RestoreCopy { page, .. }
        | Action::Unprotect { page }
        | Action::Poison { page }
        | Action::Wake { page } => Some((page, 1)),
        Action::Read { .. }
        | Action::Scan { .. }
        | Action::Write { .. }
        | Action::Discard { .. } => None,
    }
}

impl Pager {
    /// Carries out one memory action, or parks it.
    pub(super) fn carry_out(&self, core: &mut Core, action: &Action) {
        let behind = !core.parked.is_empty() && {
            let (first, count) = pages(action).expect("a memory action");
            core.parked.iter().any(|parked| {
                let (other, others) = pages(&parked.action).expect("a memory action");
                first.0 < other.0 + others && other.0 < first.0 + count
            })
        };
        if behind {
            if let Action::Shadow { first, count } = *action {
                // Not there yet, so it cannot be moved away.
                for page in 0..count {
                    core.events.push_front(Event::Refused {
                        page: first.plus(page),
                    });
                }
            } else {
                let contents = self.contents_of(core, action);
                core.parked.push_back(Parked {
                    action: *action,
                    contents,
                });
            }
        } else if let Some(rest) = self.try_memory(core, action, None) {
            let contents = self.contents_of(core, &rest);
            core.parked.push_back(Parked {
                action: rest,
                contents,
            });
        }
    }

    /// Carries out the drops with which a list of actions begins, together. What is behind them.
    pub(super) fn drop_first<'a>(&self, core: &mut Core, actions: &'a [Action]) -> &'a [Action] {
        let mut ranges = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; map::DROP_RANGES_MAX];
        let mut count = 0;
        for (range, action) in ranges.iter_mut().zip(actions) {
            let Action::Drop {
                first,
                count: pages,
            } = *action
            else {
                break;
            };
            let start = if self.can_move {
                self.shadow_address(first)
            } else {
                self.address(first)
            };
            range.iov_base = start as *mut _;
            range.iov_len = pages as usize * PAGE_SIZE;
            count += 1;
        }
        map::drop_ranges(&ranges[..count])
            .unwrap_or_else(|error| self.die(&format!("dropping pages failed: {error}")));
        core.progress += count as u64;
        &actions[count..]
    }

    /// Retries what is parked. True if nothing is left.
    pub(super) fn retry_parked(&self, core: &mut Core) -> bool {
        while let Some(parked) = core.parked.pop_front() {
            let contents = parked
                .contents
                .as_ref()
                .map(|bytes| bytes.as_ptr() as usize);
            if let Some(rest) = self.try_memory(core, &parked.action, contents) {
                let contents = parked.contents.map(|mut bytes| {
                    let (_, left) = pages(&rest).expect("a memory action");
                    bytes.split_off(bytes.len() - left as usize * PAGE_SIZE)
                });
                core.parked.push_front(Parked {
                    action: rest,
                    contents,
                });
                return false;
            }
        }
        true
    }

    /// The program gave a range up: what is parked for it has become moot.
    pub(super) fn forget_parked(&self, core: &mut Core, first: PageId, count: u32) {
        let parked = std::mem::take(&mut core.parked);
        for parked in parked {
            let (at, pages) = pages(&parked.action).expect("a memory action");
            let start = at.0.max(first.0);
            let end = (at.0 + pages).min(first.0 + count);
            if start >= end || matches!(parked.action, Action::Drop { .. }) {
                core.parked.push_back(parked);
                continue;
            }
            if let Action::Restore { page } = parked.action {
                self.drop_shadow(page);
            }
            let _ = self.region.wake(
                self.address(PageId(start)),
                (end - start) as usize * PAGE_SIZE,
            );
            for part in [at.0..start, end..at.0 + pages] {
                if !part.is_empty() {
                    core.parked
                        .push_back(parked.part(PageId(part.start), part.end - part.start));
                }
            }
        }
    }

    pub(super) fn drop_shadow(&self, page: PageId) {
        map::drop_pages(self.shadow_address(page), PAGE_SIZE)
            .unwrap_or_else(|error| self.die(&format!("dropping a page failed: {error}")));
    }

    /// A page that was to be filled in is not to be there after all; whoever waits for it tries
    /// again.
    fn give_up_page(&self, core: &mut Core, page: PageId) {
        core.events.push_back(Event::Discard {
            first: page,
            count: 1,
        });
        let _ = self.region.wake(self.address(page), PAGE_SIZE);
    }

    /// The bytes that a `Map` is to place, copied out of its read buffer.
    fn contents_of(&self, core: &Core, action: &Action) -> Option<Vec<u8>> {
        let Action::Map {
            io, index, count, ..
        } = *action
        else {
            return None;
        };
        let source = core.read_buffer(io) + index as usize * PAGE_SIZE;
        // SAFETY: the read into this buffer has ended, and the buffer is not given back before
        // the actions of that event are done.
        Some(unsafe { map::bytes(source, count as usize * PAGE_SIZE) }.to_vec())
    }

    /// Tries a memory action; what is left of it to be retried.
    fn try_memory(
        &self,
        core: &mut Core,
        action: &Action,
        source: Option<usize>,
    ) -> Option<Action> {
        match *action {
            Action::Zero {
                first,
                count,
                protect,
            } if core.changes.touch(first, count) => {
                for done in 0..count {
                    let page = first.plus(done);
                    if core.is_rash(page) {
                        self.give_up_page(core, page);
                        continue;
                    }
                    let zeros = |_| self.zeros;
                    if self.place(core, Place::Region, page, 1, protect, zeros) == 0 {
                        return Some(Action::Zero {
                            first: page,
                            count: count - done,
                            protect,
                        });
                    }
                }
                None
            }
            Action::Zero {
                first,
                count,
                protect,
            } => {
                let zeros = |_| self.zeros;
                let done = self.place(core, Place::Region, first, count, protect, zeros);
                (done < count).then(|| Action::Zero {
                    first: first.plus(done),
                    count: count - done,
                    protect,
                })
            }
            Action::Map {
                io,
                index,
                first,
                count,
                place,
                protect,
            } => {
                let start =
                    source.unwrap_or_else(|| core.read_buffer(io) + index as usize * PAGE_SIZE);
                let at = |done: u32| start + done as usize * PAGE_SIZE;
                let done = self.place(core, place, first, count, protect, at);
                (done < count).then(|| Action::Map {
                    io,
                    index: index + done,
                    first: first.plus(done),
                    count: count - done,
                    place,
                    protect,
                })
            }
            Action::Shadow { first, count } => {
                self.shadow_run(core, first, count);
                None
            }
            Action::Restore { page } => self.restore(core, page).then_some(*action),
            Action::RestoreCopy { page, protect } => {
                let from = self.shadow_address(page);
                (self.place(core, Place::Region, page, 1, protect, |_| from) == 0)
                    .then_some(*action)
            }
            Action::Drop { .. } => {
                self.drop_first(core, std::slice::from_ref(action));
                None
            }
            Action::Unprotect { page } => {
                match self
                    .region
                    .write_protect(self.address(page), PAGE_SIZE, false)
                {
                    Err(Errno::AGAIN) => Some(*action),
                    Ok(()) => None,
                    // A mapping that is gone needs no protection lifted.
                    Err(_) => {
                        let _ = self.region.wake(self.address(page), PAGE_SIZE);
                        None
                    }
                }
            }
            Action::Poison { page } => {
                eprint_line(&format!(
                    "flashvm: process {}: the contents of the page at {:#x} are lost: it could not \
                     be read back from flash as it was written (SIGBUS)",
                    std::process::id(),
                    self.address(page)
                ));
                match self.region.poison(self.address(page), PAGE_SIZE) {
                    Err(Errno::AGAIN) => Some(*action),
                    Err(Errno::EXIST | Errno::NOENT) | Ok(()) => {
                        self.stats().pages_lost.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    Err(error) => self.die(&format!(
                        "a page is lost, and the kernel cannot deliver that as SIGBUS: {error}"
                    )),
                }
            }
            Action::Wake { page } => {
                let _ = self.region.wake(self.address(page), PAGE_SIZE);
                None
            }
            Action::Read { .. }
            | Action::Scan { .. }
            | Action::Write { .. }
            | Action::Discard { .. } => {
                unreachable!("a flash action")
            }
        }
    }

    /// Copies pages to where they are absent, and wakes. How many pages are dealt with.
    fn place(
        &self,
        core: &mut Core,
        place: Place,
        first: PageId,
        count: u32,
        protect: bool,
        source: impl Fn(u32) -> usize,
    ) -> u32 {
        let (uffd, base, protect) = match place {
            Place::Region => (&self.region, self.address(first), protect),
            Place::Shadow => (self.shadow_descriptor(), self.shadow_address(first), false),
        };
        let mut done = 0;
        // At most what the zeros to copy from are. And the kernel refuses a run that reaches
        // beyond a mapping as a whole.
        let mut run = count.min(RUN_PAGES_MAX);
        while done < count {
            let at = base + done as usize * PAGE_SIZE;
            let len = run.min(count - done) as usize * PAGE_SIZE;
            let (placed, result) = uffd.copy(at, source(done), len, protect);
            done += (placed / PAGE_SIZE) as u32;
            match result {
                Ok(()) => {}
                Err(Errno::AGAIN) if placed > 0 => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::EXIST) => {
                    // Resolved already, while a fork had the engine frozen, and so that the program
                    // could store to it: what it holds is not what would have been put there.
                    let page = first.plus(done);
                    core.resolved_already.remove(&page);
                    if protect {
                        core.events.push_back(Event::WriteProtectFault { page });
                    }
                    let _ = uffd.wake(base + done as usize * PAGE_SIZE, PAGE_SIZE);
                    done += 1;
                }
                Err(Errno::NOENT | Errno::INVAL) if run > 1 => run = 1,
                // No mapping: what was brought in ahead lies beyond its end, or it is gone.
                Err(Errno::NOENT | Errno::INVAL) => {
                    self.give_up_page(core, first.plus(done));
                    done += 1;
                }
                // The process is exiting.
                Err(Errno::SRCH) => return count,
                Err(error) => self.die(&format!("placing a page failed: {error}")),
            }
        }
        done
    }

    /// Moves what may leave of a run into the shadow; refusals become events.
    fn shadow_run(&self, core: &mut Core, first: PageId, count: u32) {
        let mut done = 0;
        while done < count {
            let free = core.pins.free_before(first.plus(done), count - done);
            if free > 0 {
                self.shadow_free_run(core, first.plus(done), free);
            }
            done += free;
            if done < count {
                let page = first.plus(done);
                core.events.push_front(Event::Refused { page });
                done += 1;
            }
        }
    }

    fn shadow_free_run(&self, core: &mut Core, first: PageId, count: u32) {
        if !self.can_move {
            let len = count as usize * PAGE_SIZE;
            if self
                .region
                .write_protect(self.address(first), len, true)
                .is_ok()
            {
                core.progress += 1;
            } else {
                for page in 0..count {
                    core.events.push_front(Event::Refused {
                        page: first.plus(page),
                    });
                }
            }
            return;
        }
        let mut done = 0;
        // Of the page that comes first.
        let mut tries = (first, 0);
        let mut unshared = None;
        // The kernel refuses a run that reaches beyond a mapping as a whole.
        let mut run = count;
        while done < count {
            let page = first.plus(done);
            let (dst, src) = (self.shadow_address(page), self.address(page));
            let len = run.min(count - done) as usize * PAGE_SIZE;
            let shadow = self.shadow_descriptor();
            let (moved, result) = shadow.relocate(dst, src, len);
            done += (moved / PAGE_SIZE) as u32;
            core.progress += moved as u64;
            let page = first.plus(done);
            if page != tries.0 {
                tries = (page, 0);
            }
            match result {
                Ok(()) => {}
                Err(_) if moved > 0 => {}
                Err(Errno::AGAIN) if tries.1 < MOVE_TRIES => tries.1 += 1,
                // A page that is just being copied by the kernel is absent for an instant.
                Err(Errno::NOENT) if self.own.is_present(self.address(page)) => {
                    core.events.push_front(Event::Refused { page });
                    done += 1;
                }
                Err(Errno::NOENT) => {
                    // Dropped behind our back (MADV_FREE does that late): it reads as zeros.
                    let (_, result) = self.shadow_descriptor().copy(
                        self.shadow_address(page),
                        self.zeros,
                        PAGE_SIZE,
                        false,
                    );
                    if result.is_err() {
                        core.events.push_front(Event::Refused { page });
                    }
                    done += 1;
                }
                Err(Errno::SRCH) => return,
                Err(Errno::INVAL) if run > 1 => run = 1,
                Err(Errno::INVAL) => {
                    let moved = self.shadow_protected(core, page, count - done);
                    if moved == 0 {
                        core.events.push_front(Event::Refused { page });
                    }
                    done += moved.max(1);
                    core.progress += u64::from(moved);
                }
                // Seen while another thread takes the page out of sharing. It was mapped until now:
                // if it still is, the region holds the truth; if not, it has been moved.
                Err(Errno::EXIST) if !self.own.is_present(self.address(page)) => done += 1,
                Err(Errno::EXIST) if tries.1 < MOVE_TRIES => {
                    self.drop_shadow(page);
                    tries.1 += 1;
                }
                Err(Errno::EXIST) => self.contradiction(core, page, Place::Shadow),
                // Shared with another process after a fork, or pinned. It is there, and nobody is
                // taking it away, so that looking at it cannot fault.
                Err(Errno::BUSY)
                    if unshared != Some(page)
                        && !core.changes.touch(page, 1)
                        && map::unshare(self.address(page)).is_ok() =>
                {
                    unshared = Some(page);
                }
                Err(_) => {
                    core.events.push_front(Event::Refused { page });
                    done += 1;
                }
            }
        }
    }

    /// Moves up to `most` pages into the shadow that the program may not store to, or not touch at
    /// all: the kernel moves only what is writable. How many have been moved.
    ///
    /// They become writable for the moment. Write-protection by userfaultfd stops stores meanwhile; a
    /// thread that is stopped finds the program's own protection when it tries again.
    fn shadow_protected(&self, core: &Core, first: PageId, most: u32) -> u32 {
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        let at = self.address(first);
        let Some(Mapping { end, prot, .. }) = self.own.mapping_at(at) else {
            return 0;
        };
        let prot = MprotectFlags::from_bits_retain(prot.bits());
        // Another thread may be about to change the protection that would be put back.
        if prot.contains(writable) || !core.changes.none() {
            return 0;
        }
        let len = (end - at).min(most as usize * PAGE_SIZE);
        if self.region.write_protect(at, len, true).is_err() {
            return 0;
        }
        let mut moved = 0;
        // Refused where that would make too many mappings.
        if map::protect(at, len, writable).is_ok() {
            let mut unshared = false;
            loop {
                let (bytes, result) = self.shadow_descriptor().relocate(
                    self.shadow_address(first) + moved,
                    at + moved,
                    len - moved,
                );
                moved += bytes;
                unshared &= bytes == 0;
                match result {
                    Err(_) if bytes > 0 => {}
                    Err(Errno::BUSY) if !unshared && map::unshare(at + moved).is_ok() => {
                        unshared = true;
                    }
                    _ => break,
                }
            }
            map::protect(at, len, prot)
                .unwrap_or_else(|error| self.die(&format!("a range lost its protection: {error}")));
        }
        let moved = (moved / PAGE_SIZE) as u32;
        for page in (moved..(len / PAGE_SIZE) as u32).map(|i| first.plus(i)) {
            if !core.engine.is_protected(page) {
                let _ = self
                    .region
                    .write_protect(self.address(page), PAGE_SIZE, false);
            }
        }
        moved
    }

    /// Moves a page back from the shadow. True if it has to be retried.
    fn restore(&self, core: &mut Core, page: PageId) -> bool {
        let (dst, src) = (self.address(page), self.shadow_address(page));
        for _ in 0..MOVE_TRIES {
            match self.region.relocate(dst, src, PAGE_SIZE).1 {
                Ok(()) => {
                    let _ = self.region.wake(dst, PAGE_SIZE);
                    return false;
                }
                Err(Errno::AGAIN) => {}
                Err(Errno::SRCH) => return false,
                Err(Errno::EXIST) if core.resolved_already.remove(&page) => {
                    self.drop_shadow(page);
                    return false;
                }
                Err(Errno::EXIST) => self.contradiction(core, page, Place::Region),
                // Shared after a fork, pinned, or the program made its range read-only: a copy
                // does as well.
                Err(_) => {
                    if self.place(core, Place::Region, page, 1, false, |_| src) == 0 {
                        return true;
                    }
                    self.drop_shadow(page);
                    return false;
                }
            }
        }
        true
    }

    /// A page is where the engine does not have it: which of two copies holds the program's data
    /// is anyone's guess.
    fn contradiction(&self, core: &Core, page: PageId, unexpected: Place) -> ! {
        let present = |there| if there { "present" } else { "absent" };
        self.die(&format!(
            "the page at {:#x} is not only where it should be, but also in the {} ({:?}; region: {}, \
             shadow: {}; {} actions are parked)",
            self.address(page),
            match unexpected {
                Place::Region => "region",
                Place::Shadow => "shadow",
            },
            core.engine.page_state(page),
            present(self.own.is_present(self.address(page))),
            present(self.own.is_present(self.shadow_address(page))),
            core.parked.len()
        ))
    }

    /// A missing page was touched that the engine has as mapped. If it is really not there, the
    /// program dropped it in a way that is not reported, and it reads as zeros.
    pub(super) fn resolve_spurious(&self, core: &mut Core, page: PageId) -> bool {
        if core.engine.page_state(page) != PageState::Mapped {
            return false;
        }
        let protect = core.engine.is_protected(page);
        let zero = Action::Zero {
            first: page,
            count: 1,
            protect,
        };
        self.carry_out(core, &zero);
        self.note_resolved(core, &zero);
        true
    }
}

/// Writes one line to standard error without allocating or buffering.
pub(crate) fn eprint_line(line: &str) {
    let mut bytes = [0u8; 512];
    let len = line.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&line.as_bytes()[..len]);
    bytes[len] = b'\n';
    // Standard error may be closed; then there is nobody to tell.
    let _ = rustix::io::write(rustix::stdio::stderr(), &bytes[..=len]);
}
