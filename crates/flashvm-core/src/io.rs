//! The requests in flight, with their pages in order.

use crate::ids::{IoId, Nanos, PageId, RUN_PAGES_MAX, SlotId};
use crate::pool::BlockId;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoKind {
    Read,
    Scan,
    Write,
    /// A read of the slots that an object of the pool lies in.
    ReadPacked,
    /// The write of a block of the pool.
    WriteBlock,
    /// The read of a block of the pool, back into RAM.
    ReadBlock,
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    /// The block of a [`IoKind::WriteBlock`] or [`IoKind::ReadBlock`].
    pub(crate) block: Option<BlockId>,
    /// A [`IoKind::Scan`] also compresses its pages.
    pub(crate) compress: bool,
    /// When a [`IoKind::Read`] or [`IoKind::ReadPacked`] began; 0 for other kinds.
    pub(crate) begun: Nanos,
    /// `None`: this entry is free.
    pub(crate) kind: Option<IoKind>,
    /// First slot; unused by scans.
    pub(crate) slot: SlotId,
    pages: [PageId; RUN_PAGES_MAX as usize],
    count: u32,
}

impl Io {
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages[..self.count as usize]
    }
}

/// All requests, indexed by id. An id is reused only after the event that ended its request has
/// been handled: the actions of that event still name the request's buffer.
#[derive(Default)]
pub(crate) struct IoTable {
    ios: Vec<Io>,
    free: Vec<IoId>,
    ended: Vec<IoId>,
}

impl IoTable {
    pub(crate) fn begin(&mut self, kind: IoKind, slot: SlotId, pages: &[PageId]) -> IoId {
        assert!(pages.len() <= RUN_PAGES_MAX as usize, "request too long");
        let mut io = Io {
            kind: Some(kind),
            slot,
            block: None,
            compress: false,
            begun: Nanos(0),
            pages: [PageId(0); RUN_PAGES_MAX as usize],
            count: u32::try_from(pages.len()).expect("at most RUN_PAGES_MAX"),
        };
        io.pages[..pages.len()].copy_from_slice(pages);
        if let Some(id) = self.free.pop() {
            self.ios[id.0 as usize] = io;
            return id;
        }
        let id = IoId(u32::try_from(self.ios.len()).expect("fewer requests than pages"));
        self.ios.push(io);
        id
    }

    /// Notes when a request began.
    pub(crate) fn started(&mut self, id: IoId, now: Nanos) {
        self.ios[id.0 as usize].begun = now;
    }

    /// Begins a scan.
    pub(crate) fn begin_scan(&mut self, pages: &[PageId], compress: bool) -> IoId {
        let id = self.begin(IoKind::Scan, SlotId(0), pages);
        self.ios[id.0 as usize].compress = compress;
        id
    }

    /// Begins the write or read of a block.
    pub(crate) fn begin_block(&mut self, kind: IoKind, slot: SlotId, block: BlockId) -> IoId {
        let id = self.begin(kind, slot, &[]);
        self.ios[id.0 as usize].block = Some(block);
        id
    }

    /// What a request does; `None`: it is not in flight.
    pub(crate) fn kind(&self, id: IoId) -> Option<IoKind> {
        self.ios[id.0 as usize].kind
    }

    /// Ends a request and returns it.
    ///
    /// # Panics
    /// If no such request is in flight: a bug in the executor.
    pub(crate) fn end(&mut self, id: IoId, kind: IoKind) -> Io {
        let io = self.ios[id.0 as usize];
        assert_eq!(io.kind, Some(kind), "request {} is not in flight", id.0);
        self.ios[id.0 as usize].kind = None;
        self.ended.push(id);
        io
    }

    /// Makes the ids that the last event freed available again.
    pub(crate) fn recycle(&mut self) {
        self.free.append(&mut self.ended);
    }

    pub(crate) fn get(&self, id: IoId) -> &Io {
        &self.ios[id.0 as usize]
    }

    /// The requests in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Io> {
        self.ios.iter().filter(|io| io.kind.is_some())
    }
}
