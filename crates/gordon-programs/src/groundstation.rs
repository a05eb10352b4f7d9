//! The groundstation's queue (sections 2.2 and 7.2.1): a packet is stable before it is relayed, and
//! stays until the host has acknowledged it. Written in the paper's mutation-intensive style.

use gordon::{ByteArray, Heap, Persist, Result, Tx, Var, View};

/// A packet that waits for its acknowledgement.
#[derive(Clone, Copy, Persist)]
struct Packet<'t> {
    data: ByteArray<'t>,
    next: Option<Var<'t, Packet<'t>>>,
    number: u64,
}

#[derive(Clone, Copy, Default, Persist)]
struct Queue<'t> {
    first: Option<Var<'t, Packet<'t>>>,
    last: Option<Var<'t, Packet<'t>>>,
    received: u64,
    acknowledged: u64,
}

type Root<'t> = Var<'t, Queue<'t>>;

fn queue<'t>(tx: &Tx<'t>) -> Result<Root<'t>> {
    Ok(match tx.root()? {
        Some(queue) => queue,
        None => {
            let queue = tx.var(Queue::default());
            tx.set_root(queue);
            queue
        }
    })
}

/// Appends a packet and removes those up to number `acknowledged`. Returns the packet's number,
/// from 1, when the packet is stable.
///
/// # Errors
/// Those of a commit.
pub fn receive(heap: &Heap, packet: &[u8], acknowledged: u64) -> Result<u64> {
    heap.update(|tx| {
        let root = queue(tx)?;
        remove(tx, root, acknowledged);
        let mut queue = root.read();
        queue.received += 1;
        let number = queue.received;
        let packet = tx.var(Packet {
            data: tx.byte_array(packet),
            next: None,
            number,
        });
        match queue.last {
            Some(last) => last.write(
                tx,
                Packet {
                    next: Some(packet),
                    ..last.read()
                },
            ),
            None => queue.first = Some(packet),
        }
        queue.last = Some(packet);
        root.write(tx, queue);
        Ok(number)
    })
}

/// Removes the packets up to number `acknowledged`, without a new packet.
///
/// # Errors
/// Those of a commit.
pub fn acknowledge(heap: &Heap, acknowledged: u64) -> Result<()> {
    heap.update(|tx| {
        let root = queue(tx)?;
        remove(tx, root, acknowledged);
        Ok(())
    })
}

fn remove<'t>(tx: &Tx<'t>, root: Root<'t>, acknowledged: u64) {
    let mut queue = root.read();
    while let Some(first) = queue.first
        && first.read().number <= acknowledged
    {
        let packet = first.read();
        queue.first = packet.next;
        queue.acknowledged = packet.number;
    }
    if queue.first.is_none() {
        queue.last = None;
    }
    root.write(tx, queue);
}

/// Packets that wait, each with its number.
pub type Pending = Vec<(u64, Vec<u8>)>;

/// Number of packets received so far, and those that wait.
///
/// # Errors
/// The heap holds something else.
pub fn pending(view: &View<'_>) -> Result<(u64, Pending)> {
    let Some(root) = view.root::<Root<'_>>()? else {
        return Ok((0, Vec::new()));
    };
    let queue = root.read();
    let mut pending = Vec::new();
    let mut next = queue.first;
    while let Some(packet) = next {
        let packet = packet.read();
        let mut data = vec![0; packet.data.len()];
        packet.data.read(0, &mut data);
        pending.push((packet.number, data));
        next = packet.next;
    }
    Ok((queue.received, pending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gordon::Options;
    use gordon::flash::Model;

    #[test]
    fn packets_stay_until_they_are_acknowledged() {
        let heap = Heap::emulated(Model::intel(4).fast(), 12, Options::default()).expect("a heap");
        let pending = || heap.view(pending).expect("a queue");
        assert_eq!(pending(), (0, vec![]));
        assert_eq!(receive(&heap, b"one", 0).expect("a commit"), 1);
        assert_eq!(receive(&heap, b"two", 0).expect("a commit"), 2);
        assert_eq!(receive(&heap, b"three", 1).expect("a commit"), 3);
        assert_eq!(
            pending(),
            (3, vec![(2, b"two".to_vec()), (3, b"three".to_vec())])
        );
        acknowledge(&heap, 3).expect("a commit");
        assert_eq!(pending(), (3, vec![]));
        assert_eq!(receive(&heap, b"", 3).expect("a commit"), 4);
        assert_eq!(pending(), (4, vec![(4, vec![])]));
    }
}
