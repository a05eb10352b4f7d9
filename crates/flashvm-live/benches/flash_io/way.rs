//! A way of doing I/O: operations in flight, each with a buffer of its own.

use crate::disk::Disk;

/// A read into, or a write from, one buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) write: bool,
    /// Byte offset in the file.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    /// Address of the buffer, which is left alone until the operation has ended.
    pub(crate) address: usize,
    /// The buffer's number.
    pub(crate) buffer: usize,
}

/// Carries out operations. A failed operation ends the bench.
pub(crate) trait Way: Send {
    /// Takes an operation over.
    fn push(&mut self, operation: Operation);
    /// Begins what was pushed.
    fn submit(&mut self);
    /// Appends the buffers whose operations have ended. Does not wait.
    fn reap(&mut self, ended: &mut Vec<usize>);
    /// Sleeps until an operation can be reaped. It may wake up too early.
    fn sleep(&mut self);
}

/// Opens a way for `depth` operations in flight. `None` if the kernel refuses it.
pub(crate) type Open = fn(&Disk, depth: usize) -> Option<Box<dyn Way>>;

/// Panics unless an operation has transferred all its bytes.
pub(crate) fn expect_whole(result: i64, bytes: usize) {
    assert_eq!(result, bytes as i64, "a transfer failed or ended early");
}

/// Sleeps until a descriptor is readable.
pub(crate) fn sleep_on(descriptor: i32) {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives over the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
    assert_eq!(ready, 1, "poll: {}", std::io::Error::last_os_error());
}
