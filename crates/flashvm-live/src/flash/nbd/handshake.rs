//! The newstyle handshake of a connection, and whether an export can be a store.

use super::super::store::Part;
use super::socket::{Socket, Wait};
use super::trouble::Trouble;
use super::wire::{
    EXPORT_NAME_MAX, Export, GO_ASKS_FOR_BLOCK_SIZES, GREETING_BYTES, HandshakeOption,
    OPTION_REPLY_BYTES, OptionReply, answer_greeting, option, option_reply,
};
use flashvm_core::PAGE_SIZE;

/// Longest information that is looked at; the rest is of kinds that nobody asked for.
const INFO_BYTES: usize = 64;

/// The result of a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub(super) export: Export,
    /// Replies to reads are structured.
    pub(super) structured: bool,
}

/// Agrees with the server on the export of this name.
pub(super) fn agree(socket: &Socket, name: &str, wait: Wait) -> Result<Agreed, Trouble> {
    let greeting = socket.receive_array::<GREETING_BYTES>(wait)?;
    socket.send_bytes(&answer_greeting(&greeting)?, wait)?;
    let structured = HandshakeOption::StructuredReply;
    socket.send_bytes(&option(structured, 0), wait)?;
    let structured = loop {
        match reply(socket, structured, wait)? {
            OptionReply::Done => break true,
            OptionReply::Refused(_, rest) => {
                socket.skip(rest, wait)?;
                break false;
            }
            OptionReply::Info(rest) => socket.skip(rest, wait)?,
        }
    };
    let export = go(socket, name, wait)?;
    Ok(Agreed { export, structured })
}

fn reply(socket: &Socket, to: HandshakeOption, wait: Wait) -> Result<OptionReply, Trouble> {
    option_reply(&socket.receive_array::<OPTION_REPLY_BYTES>(wait)?, to)
}

/// Ends the handshake.
fn go(socket: &Socket, name: &str, wait: Wait) -> Result<Export, Trouble> {
    assert!(name.len() <= EXPORT_NAME_MAX, "checked with the address");
    let len = name.len() as u32;
    let data = 4 + len + GO_ASKS_FOR_BLOCK_SIZES.len() as u32;
    let header = option(HandshakeOption::Go, data);
    let len = len.to_be_bytes();
    let part = |bytes: &[u8]| Part {
        address: bytes.as_ptr() as usize,
        len: bytes.len(),
    };
    let mut parts = [
        part(&header),
        part(&len),
        part(name.as_bytes()),
        part(&GO_ASKS_FOR_BLOCK_SIZES),
    ];
    // SAFETY: all parts are locals or borrowed, and live over the call.
    unsafe { socket.send(&mut parts, wait)? };
    let mut export = Export::UNKNOWN;
    loop {
        match reply(socket, HandshakeOption::Go, wait)? {
            OptionReply::Done => return Ok(export),
            OptionReply::Refused(error, rest) => {
                socket.skip(rest, wait)?;
                return Err(Trouble::Refused(error));
            }
            OptionReply::Info(len) => {
                let mut info = [0; INFO_BYTES];
                let read = (len as usize).min(INFO_BYTES);
                let to = Part {
                    address: info.as_mut_ptr() as usize,
                    len: read,
                };
                // SAFETY: `to` is the start of `info`, a local that nothing else uses.
                unsafe { socket.receive(to, wait)? };
                socket.skip(len - read as u32, wait)?;
                export.learn(&info[..read])?;
            }
        }
    }
}

/// Checks that an export can be a store of `bytes` bytes.
pub(super) fn check(export: &Export, bytes: u64) -> Result<(), Trouble> {
    const PAGE: u32 = PAGE_SIZE as u32;
    if export.is_read_only() {
        return Err(Trouble::ReadOnly);
    }
    if export.unit > PAGE {
        return Err(Trouble::Unit(export.unit));
    }
    if export.payload_max < PAGE {
        return Err(Trouble::Payload(export.payload_max));
    }
    if export.bytes < bytes {
        return Err(Trouble::Small(export.bytes));
    }
    if !export.is_shared() {
        return Err(Trouble::NotShared);
    }
    Ok(())
}
