//! The part of the handshake before TLS, for the supervisor, which speaks TLS for the processes of a run.

use super::trouble::Trouble;
use super::wire::{
    GREETING_BYTES, HandshakeOption, OPTION_REPLY_BYTES, OptionReply, answer_greeting, option,
    option_reply,
};
use std::io::{ErrorKind, Read, Write};

/// A server's greeting, for clients behind TLS: the server has greeted before.
pub const GREETING: [u8; GREETING_BYTES] = *b"NBDMAGICIHAVEOPT\x00\x03";

/// Asks a server that has just been connected to for TLS. The TLS handshake follows on the same stream.
///
/// # Errors
/// The server speaks no TLS, or is no NBD server; [`Trouble::NoAnswer`] when the stream's timeout passes.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), Trouble> {
    let mut greeting = [0; GREETING_BYTES];
    receive(stream, &mut greeting)?;
    let flags = answer_greeting(&greeting)?;
    send(stream, &[&flags[..], &option(HandshakeOption::StartTls, 0)])?;
    let mut reply = [0; OPTION_REPLY_BYTES];
    receive(stream, &mut reply)?;
    match option_reply(&reply, HandshakeOption::StartTls)? {
        OptionReply::Done => Ok(()),
        OptionReply::Refused(..) => Err(Trouble::NoTls),
        OptionReply::Info(_) => Err(Trouble::Protocol("information on TLS")),
    }
}

/// Ends the handshake without a choice, behind TLS: tells whether the server listens to this client.
///
/// # Errors
/// The stream's: the server may have refused the client's certificate by now.
pub fn abort(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    stream.write_all(&option(HandshakeOption::Abort, 0))?;
    stream.flush()?;
    let mut reply = [0; OPTION_REPLY_BYTES];
    match stream.read_exact(&mut reply) {
        // A server may close without a reply.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        other => other,
    }
}

fn receive(stream: &mut impl Read, to: &mut [u8]) -> Result<(), Trouble> {
    stream.read_exact(to).map_err(|error| trouble(&error))
}

fn send(stream: &mut impl Write, parts: &[&[u8]]) -> Result<(), Trouble> {
    let sent = stream.write_all(&parts.concat());
    sent.and_then(|()| stream.flush())
        .map_err(|error| trouble(&error))
}

/// An error of a stream with a timeout.
fn trouble(error: &std::io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::UnexpectedEof => Trouble::Closed,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Trouble::NoAnswer,
        _ => Trouble::Transfer(
            rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    /// What a server says, and what it has heard.
    struct Server {
        says: Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Server {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.says.read(to)
        }
    }

    impl Write for Server {
        fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
            self.heard.write(from)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn asked(says: Vec<u8>) -> (Result<(), Trouble>, Vec<u8>) {
        let says = Cursor::new(says);
        let heard = Vec::new();
        let mut server = Server { says, heard };
        (start_tls(&mut server), server.heard)
    }

    /// A greeting, and a reply of this kind to STARTTLS.
    fn says(kind: u32) -> Vec<u8> {
        let mut bytes = GREETING.to_vec();
        bytes.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        bytes.extend(5_u32.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes
    }

    #[test]
    fn tls_is_asked_for_as_the_document_says() {
        let (done, heard) = asked(says(1));
        assert_eq!(done, Ok(()));
        assert_eq!(
            heard,
            b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00"
        );
        assert_eq!(asked(says(1 << 31 | 1)).0, Err(Trouble::NoTls));
        assert_eq!(asked(says(1)[..20].to_vec()).0, Err(Trouble::Closed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_trouble(
            at: prop::sample::Index, value: u8, cut: prop::sample::Index, kind: u32,
        ) {
            let mut bytes = says(kind);
            *at.get_mut(&mut bytes) ^= value;
            bytes.truncate(cut.index(bytes.len() + 1));
            let _ = asked(bytes);
        }
    }
}
