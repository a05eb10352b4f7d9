//! The walk finds the ranges of calls in made-up memory, whose contents cannot lead it astray.

use super::super::table::{row, rows};
use super::*;
use Direction::{In, InOut, Out};
use proptest::prelude::*;
use std::collections::HashMap;

/// Memory with a few present pages; everything else is unreadable.
#[derive(Default)]
struct Fake {
    pages: HashMap<usize, Vec<u8>>,
    own: usize,
}

impl Fake {
    fn put(&mut self, address: usize, bytes: &[u8]) {
        for (i, &byte) in bytes.iter().enumerate() {
            let at = address + i;
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE]);
            page[at % PAGE] = byte;
        }
    }

    fn put_words(&mut self, address: usize, words: &[usize]) {
        for (i, word) in words.iter().enumerate() {
            self.put(address + i * WORD, &word.to_ne_bytes());
        }
    }
}

impl Memory for Fake {
    fn read(&self, address: usize, into: &mut [u8]) -> bool {
        for (i, byte) in into.iter_mut().enumerate() {
            let at = address + i;
            let Some(page) = self.pages.get(&(at / PAGE)) else {
                return false;
            };
            *byte = page[at % PAGE];
        }
        true
    }

    fn is_own_process(&self, process: usize) -> bool {
        process == self.own
    }
}

fn walked(number: i64, args: &[usize], memory: &Fake) -> Vec<(usize, usize, Direction)> {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let mut found = Vec::new();
    ranges(row(number).expect("a row"), &all, memory, &mut |range| {
        found.push((range.start, range.len, range.direction));
    });
    found
}

#[test]
fn lengths_come_from_arguments() {
    let none = Fake::default();
    assert_eq!(
        walked(libc::SYS_read, &[3, 0x5000, 77], &none),
        [(0x5000, 77, Out)]
    );
    assert_eq!(walked(libc::SYS_read, &[3, 0, 77], &none), []);
    assert_eq!(walked(libc::SYS_read, &[3, 0x5000, 0], &none), []);
    assert_eq!(
        walked(libc::SYS_msgrcv, &[3, 0x5000, 10], &none),
        [(0x5000, 18, Out)]
    );
    assert_eq!(
        walked(libc::SYS_ppoll, &[0x1000, 3, 0x2000, 0x3000, 8], &none),
        [(0x1000, 24, InOut), (0x2000, 16, InOut), (0x3000, 8, In)]
    );
    assert_eq!(
        walked(libc::SYS_mincore, &[0, 2 * PAGE + 1, 0x9000], &none),
        [(0x9000, 3, Out)]
    );
    // 65 descriptors take two words.
    assert_eq!(
        walked(libc::SYS_pselect6, &[65, 0x1000], &none),
        [(0x1000, 16, InOut)]
    );
    // Absurd lengths stay within the address space.
    let start = usize::MAX - 100;
    assert_eq!(
        walked(libc::SYS_poll, &[start, usize::MAX], &none),
        [(start, 100, InOut)]
    );
}

#[test]
fn lengths_come_from_memory() {
    let mut memory = Fake::default();
    memory.put(0x7004, &16u32.to_ne_bytes());
    assert_eq!(
        walked(libc::SYS_accept, &[3, 0x5000, 0x7004], &memory),
        [(0x7004, 4, InOut), (0x5000, 16, Out)]
    );
    // A handle of 12 bytes behind its header.
    memory.put(0x7100, &12u32.to_ne_bytes());
    assert_eq!(
        walked(libc::SYS_open_by_handle_at, &[3, 0x7100], &memory),
        [(0x7100, 20, In)]
    );
    // perf_event_attr has its size in its second `u32`; if that is unreadable, only the two are known.
    memory.put(0x7204, &128u32.to_ne_bytes());
    assert_eq!(
        walked(libc::SYS_perf_event_open, &[0x7200], &memory),
        [(0x7200, 128, In)]
    );
    assert_eq!(
        walked(libc::SYS_perf_event_open, &[0x9200], &memory),
        [(0x9200, 8, In)]
    );
}

#[test]
fn text_ends_at_its_nul_or_where_memory_ends() {
    let mut memory = Fake::default();
    memory.put(0x1ffd, b"/tmp/x\0more");
    assert_eq!(
        walked(libc::SYS_chdir, &[0x1ffd], &memory),
        [(0x1ffd, 7, In)]
    );
    memory.put(0x4ff0, &[b'a'; 16]);
    assert_eq!(
        walked(libc::SYS_chdir, &[0x4ff0], &memory),
        [(0x4ff0, 17, In)]
    );
    assert_eq!(
        walked(libc::SYS_chdir, &[0x8000], &memory),
        [(0x8000, 1, In)]
    );
    for page in 0..=TEXT_MAX / PAGE {
        memory.put((100 + page) * PAGE, &[b'a'; PAGE]);
    }
    assert_eq!(
        walked(libc::SYS_chdir, &[100 * PAGE], &memory),
        [(100 * PAGE, TEXT_MAX, In)]
    );
}

#[test]
fn lists_of_text_end_at_null() {
    let mut memory = Fake::default();
    memory.put(0x1000, b"/bin/true\0-x\0");
    memory.put_words(0x2ff8, &[0x1000, 0x100a, 0]);
    assert_eq!(
        walked(libc::SYS_execve, &[0x1000, 0x2ff8, 0], &memory),
        [
            (0x1000, 10, In),
            (0x2ff8, 8, In),
            (0x1000, 10, In),
            (0x3000, 8, In),
            (0x100a, 3, In),
            (0x3008, 8, In)
        ]
    );
}

#[test]
fn a_list_without_an_end_stops() {
    let mut memory = Fake::default();
    for page in 0..4 {
        memory.put_words((10 + page) * PAGE, &[0x1000; PAGE / WORD]);
    }
    memory.put(0x1000, b"x\0");
    // To the end of the memory.
    assert_eq!(
        walked(libc::SYS_execve, &[0x1000, 10 * PAGE, 0], &memory).len(),
        1 + 4 * PAGE / WORD * 2 + 1
    );
}

#[test]
fn vectors_lead_to_their_buffers() {
    let mut memory = Fake::default();
    memory.put_words(0x1000, &[0x5000, 10, 0, 7, 0x6000, 0, 0x7000, 4096]);
    let found = walked(libc::SYS_readv, &[3, 0x1000, 4], &memory);
    assert_eq!(
        found,
        [(0x1000, 64, In), (0x5000, 10, Out), (0x7000, 4096, Out)]
    );
    let found = walked(libc::SYS_vmsplice, &[3, 0x1000, 1], &memory);
    assert_eq!(found, [(0x1000, 16, In), (0x5000, 10, InOut)]);
    // More than the kernel's limit.
    let found = walked(libc::SYS_writev, &[3, 0x1000, usize::MAX], &memory);
    assert_eq!(found[0], (0x1000, IOV_MAX * 16, In));
}

#[test]
fn vectors_of_another_process_are_not_followed() {
    let mut memory = Fake {
        own: 42,
        ..Fake::default()
    };
    memory.put_words(0x1000, &[0x5000, 10, 0x6000, 20]);
    let call = |process| [process, 0x1000, 1, 0x1010, 1];
    assert_eq!(
        walked(libc::SYS_process_vm_readv, &call(41), &memory),
        [(0x1000, 16, In), (0x5000, 10, Out), (0x1010, 16, In)]
    );
    assert_eq!(
        walked(libc::SYS_process_vm_writev, &call(42), &memory),
        [
            (0x1000, 16, In),
            (0x5000, 10, In),
            (0x1010, 16, In),
            (0x6000, 20, Out)
        ]
    );
}

fn put_message(memory: &mut Fake, at: usize) {
    memory.put_words(at, &[0x4000, 110, 0x5000, 2, 0x8000, 64, 0]);
    memory.put_words(0x5000, &[0x6000, 1000, 0x7000, 5]);
}

#[test]
fn messages_have_all_their_parts() {
    let mut memory = Fake::default();
    put_message(&mut memory, 0x1000);
    for (number, own, direction) in [(libc::SYS_sendmsg, In, In), (libc::SYS_recvmsg, InOut, Out)] {
        assert_eq!(
            walked(number, &[3, 0x1000, 0], &memory),
            [
                (0x1000, 56, own),
                (0x4000, 110, direction),
                (0x8000, 64, direction),
                (0x5000, 32, In),
                (0x6000, 1000, direction),
                (0x7000, 5, direction)
            ]
        );
    }
}

#[test]
fn arrays_of_messages_are_written_either_way() {
    let mut memory = Fake::default();
    put_message(&mut memory, 0x1000);
    put_message(&mut memory, 0x1040);
    let found = walked(libc::SYS_sendmmsg, &[3, 0x1000, 2], &memory);
    assert_eq!(found.len(), 12);
    assert_eq!(found[0], (0x1000, 64, InOut));
    assert_eq!(found[6], (0x1040, 64, InOut));
    assert_eq!(found[7], (0x4000, 110, In));
    let found = walked(libc::SYS_recvmmsg, &[3, 0x1000, 1, 0, 0x9000], &memory);
    assert_eq!(found[1], (0x4000, 110, Out));
    assert_eq!(found[6], (0x9000, 16, InOut));
}

#[test]
fn control_blocks_lead_to_their_buffers() {
    let mut memory = Fake::default();
    memory.put_words(0x1000, &[0x2000, 0x2040, 0, 0x9999_0000, 0x2080]);
    memory.put_words(0x2000, &[0, 0, 0, 0x5000, 300, 0, 0, 0]);
    memory.put_words(0x2040, &[0, 0, 8, 0x3000, 1, 0, 0, 0]);
    memory.put_words(0x2080, &[0, 0, 2, 0x5000, 300, 0, 0, 0]);
    memory.put_words(0x3000, &[0x7000, 9]);
    assert_eq!(
        walked(libc::SYS_io_submit, &[1, 5, 0x1000], &memory),
        [
            (0x1000, 40, In),
            (0x2000, 64, InOut),
            (0x5000, 300, Out),
            (0x2040, 64, InOut),
            (0x3000, 16, In),
            (0x7000, 9, In),
            (0x9999_0000, 64, InOut),
            (0x2080, 64, InOut)
        ]
    );
}

#[test]
fn commands_decide() {
    let mut memory = Fake::default();
    assert_eq!(
        walked(libc::SYS_fcntl, &[3, 5, 0x1000], &memory),
        [(0x1000, 32, InOut)]
    );
    // F_SETFD takes a number; the high half of a command does not count.
    assert_eq!(walked(libc::SYS_fcntl, &[3, 2, 0x1000], &memory), []);
    assert_eq!(
        walked(
            libc::SYS_fcntl,
            &[3, 0xffff_0000_0000_0006, 0x1000],
            &memory
        ),
        [(0x1000, 32, In)]
    );
    // FUTEX_WAIT | FUTEX_PRIVATE_FLAG has a timeout, FUTEX_CMP_REQUEUE a number there.
    assert_eq!(
        walked(libc::SYS_futex, &[0x1000, 128, 1, 0x2000], &memory),
        [(0x1000, 4, InOut), (0x2000, 16, In)]
    );
    assert_eq!(
        walked(libc::SYS_futex, &[0x1000, 4, 1, 1, 0x3000], &memory),
        [(0x1000, 4, InOut), (0x3000, 4, InOut)]
    );
    // A filter of two instructions, at the level of sockets only.
    memory.put_words(0x1000, &[2, 0x6000]);
    assert_eq!(
        walked(libc::SYS_setsockopt, &[3, 1, 26, 0x1000, 16], &memory),
        [(0x1000, 16, In), (0x1000, 16, In), (0x6000, 16, In)]
    );
    assert_eq!(
        walked(libc::SYS_setsockopt, &[3, 6, 26, 0x1000, 16], &memory),
        [(0x1000, 16, In)]
    );
    // FIONREAD, and SIOCGIFCONF with room for 80 bytes.
    assert_eq!(
        walked(libc::SYS_ioctl, &[3, 0x541B, 0x1000], &memory),
        [(0x1000, 4, Out)]
    );
    memory.put_words(0x1000, &[80, 0x6000]);
    assert_eq!(
        walked(libc::SYS_ioctl, &[3, 0x8912, 0x1000], &memory),
        [(0x1000, 16, InOut), (0x6000, 80, Out)]
    );
}

#[test]
fn structures_lead_to_what_they_point_to() {
    let mut memory = Fake::default();
    memory.put_words(0x1000, &[0x6000, 8]);
    assert_eq!(
        walked(libc::SYS_pselect6, &[0, 0, 0, 0, 0, 0x1000], &memory),
        [(0x1000, 16, In), (0x6000, 8, In)]
    );
    memory.put_words(0x1000, &[1, 0x6000, 2, 1, 0x7000, 2]);
    assert_eq!(
        walked(libc::SYS_futex_waitv, &[0x1000, 2, 0, 0x9000], &memory),
        [
            (0x1000, 48, In),
            (0x6000, 4, InOut),
            (0x7000, 4, InOut),
            (0x9000, 16, In)
        ]
    );
    // sigev_notify is the upper half of the second word.
    memory.put_words(0x2000, &[0x6000, 2 << 32]);
    assert_eq!(
        walked(libc::SYS_mq_notify, &[3, 0x2000], &memory),
        [(0x2000, 64, In), (0x6000, 32, In)]
    );
    memory.put_words(0x2000, &[0x6000, 1 << 32]);
    assert_eq!(
        walked(libc::SYS_mq_notify, &[3, 0x2000], &memory),
        [(0x2000, 64, In)]
    );
}

/// Memory that is the same page everywhere below some address.
struct Everywhere {
    page: Vec<u8>,
    end: usize,
}

impl Everywhere {
    fn new(bytes: &[u8], end: usize) -> Self {
        let page = bytes.iter().copied().cycle().take(PAGE).collect();
        Self { page, end }
    }
}

impl Memory for Everywhere {
    fn read(&self, address: usize, into: &mut [u8]) -> bool {
        let (mut at, mut rest) = (address % PAGE, into);
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE - at));
            now.copy_from_slice(&self.page[at..at + now.len()]);
            (at, rest) = (0, later);
        }
        address < self.end
    }
}

/// Most ranges of a row: an array of messages, each with a full vector; or two lists of empty strings.
const VISITS_MAX: usize = (IOV_MAX + 1) * (IOV_MAX + 4) + 2 * 2 * TEXTS_MAX / WORD;

fn walk_garbage(row: &Row, args: &[usize; 6], memory: &impl Memory) {
    let mut visits = 0;
    ranges(row, args, memory, &mut |range| {
        visits += 1;
        assert!(range.start != 0 && range.len > 0 && range.len <= RANGE_MAX);
        assert!(range.start.checked_add(range.len).is_some());
    });
    assert!(visits <= VISITS_MAX, "{visits} ranges of {}", row.name);
}

fn argument() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..40usize,
        0x1000..0x9000usize,
        any::<usize>(),
        usize::MAX - 70..=usize::MAX
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn garbage_is_bounded(
        args in proptest::array::uniform6(argument()),
        words in proptest::collection::vec(argument(), 1..40),
        end in argument(),
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let memory = Everywhere::new(&bytes, end);
        for row in rows() {
            walk_garbage(row, &args, &memory);
        }
    }

    #[test]
    fn any_ioctl_is_bounded(request in any::<u32>(), at in argument(), bytes in any::<[u8; 24]>()) {
        let memory = Everywhere::new(&bytes, usize::MAX);
        let row = row(libc::SYS_ioctl).expect("a row");
        walk_garbage(row, &[3, request as usize, at, 0, 0, 0], &memory);
    }
}
