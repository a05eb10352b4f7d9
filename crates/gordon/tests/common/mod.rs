//! A world kept twice, in a heap and in plain Rust; `medium` records all writes so that the power can be cut at any
//! moment.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test uses its own part of this"
)]

pub mod medium;

use gordon::{
    Array, ByteArray, Collector, Error, Heap, Limits, Map, Options, Persist, Ref, Slice, Text, Tx,
    Var, Vector, View,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Opens a heap whose addresses were free for a while. Tests run at once in one process, and each new heap takes one of
/// 3,072 places: another test's may lie there now.
pub fn open_once_vacant(open: impl Fn() -> gordon::Result<Heap>) -> gordon::Result<Heap> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(Error::AddressTaken { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[derive(Clone, Copy, Persist)]
pub struct Node<'t> {
    value: u32,
    left: Option<Var<'t, Node<'t>>>,
    right: Option<Var<'t, Node<'t>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Persist)]
pub enum Mark<'t> {
    None,
    Number(i64),
    Named { name: Text<'t>, weight: f32 },
}

#[derive(Clone, Copy, Persist)]
pub struct World<'t> {
    map: Var<'t, Map<'t, u32, Text<'t>>>,
    lists: Array<'t, Option<Slice<'t, u32>>>,
    bytes: ByteArray<'t>,
    items: Var<'t, Vector<'t, u64>>,
    nodes: Var<'t, Vector<'t, Var<'t, Node<'t>>>>,
    mark: Var<'t, Mark<'t>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlainMark {
    None,
    Number(i64),
    Named(String, f32),
}

/// The same in plain Rust.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain {
    map: BTreeMap<u32, String>,
    lists: Vec<Option<Vec<u32>>>,
    bytes: Vec<u8>,
    items: Vec<u64>,
    nodes: Vec<(u32, Option<usize>, Option<usize>)>,
    mark: PlainMark,
}

const LISTS: usize = 6;
const BYTES: usize = 77;

impl Default for Plain {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            lists: vec![None; LISTS],
            bytes: vec![0; BYTES],
            items: Vec::new(),
            nodes: Vec::new(),
            mark: PlainMark::None,
        }
    }
}

/// A change of the world.
#[derive(Clone, Debug)]
pub enum Change {
    Insert(u32, String),
    Remove(u32),
    List(usize, Option<Vec<u32>>),
    Bytes(usize, Vec<u8>),
    Push(u64),
    Pop,
    Set(usize, u64),
    AddNode(u32),
    Link(usize, usize, bool),
    Unlink(usize, bool),
    Value(usize, u32),
    DropNodes,
    Number(i64),
    Name(String),
}

impl Change {
    pub fn random(rng: &mut Rng) -> Self {
        match rng.below(16) {
            0..3 => Self::Insert(rng.below(40) as u32, "x".repeat(rng.below(90))),
            3 => Self::Remove(rng.below(40) as u32),
            4..6 => {
                let list = (0..rng.below(60)).map(|n| n as u32 * 7).collect();
                Self::List(rng.below(LISTS), Some(list))
            }
            6 => Self::List(rng.below(LISTS), None),
            7 => {
                let start = rng.below(BYTES);
                let length = rng.below(BYTES - start + 1);
                Self::Bytes(start, (0..length).map(|_| rng.next() as u8).collect())
            }
            8 | 9 => Self::Push(rng.next()),
            10 => Self::Pop,
            11 => Self::Set(rng.below(70), rng.next()),
            12 => Self::AddNode(rng.next() as u32),
            13 => Self::Link(rng.below(20), rng.below(20), rng.next() & 1 == 0),
            14 => match rng.below(6) {
                0 => Self::DropNodes,
                1 => Self::Unlink(rng.below(20), rng.next() & 1 == 0),
                _ => Self::Value(rng.below(20), rng.next() as u32),
            },
            _ if rng.next() & 1 == 0 => Self::Number(rng.next() as i64),
            _ => Self::Name("é".repeat(rng.below(20))),
        }
    }
}

/// The root.
pub type Root<'t> = Ref<'t, World<'t>>;

/// Makes an empty world the root.
pub fn found(tx: &Tx<'_>) {
    let world = World {
        map: tx.var(Map::new()),
        lists: tx.array(&[None; LISTS]),
        bytes: tx.byte_array(&[0; BYTES]),
        items: tx.var(Vector::new(tx)),
        nodes: tx.var(Vector::new(tx)),
        mark: tx.var(Mark::None),
    };
    tx.set_root(tx.alloc(world));
}

impl Plain {
    /// Keys of the map.
    pub fn keys(&self) -> usize {
        self.map.len()
    }

    /// Nodes of the graph.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Applies a change here and to the heap.
    pub fn apply(&mut self, tx: &Tx<'_>, change: &Change) {
        let world = tx
            .root::<Root<'_>>()
            .expect("a world")
            .expect("a world")
            .read();
        match change {
            Change::Insert(key, text) => {
                self.map.insert(*key, text.clone());
                world
                    .map
                    .write(tx, world.map.read().insert(tx, *key, tx.text(text)));
            }
            Change::Remove(key) => {
                self.map.remove(key);
                world.map.write(tx, world.map.read().remove(tx, key));
            }
            Change::List(at, list) => {
                self.lists[*at].clone_from(list);
                world
                    .lists
                    .set(tx, *at, list.as_ref().map(|list| tx.slice(list)));
            }
            Change::Bytes(at, bytes) => {
                self.bytes[*at..at + bytes.len()].copy_from_slice(bytes);
                world.bytes.write(tx, *at, bytes);
            }
            Change::Push(item) => {
                self.items.push(*item);
                world.items.write(tx, world.items.read().push(tx, *item));
            }
            Change::Pop => {
                let popped = world.items.read().pop(tx);
                assert_eq!(popped.map(|(_, item)| item), self.items.pop());
                if let Some((items, _)) = popped {
                    world.items.write(tx, items);
                }
            }
            Change::Set(at, item) => {
                if let Some(slot) = self.items.get_mut(*at) {
                    *slot = *item;
                    world
                        .items
                        .write(tx, world.items.read().set(tx, *at, *item));
                }
            }
            Change::AddNode(value) => {
                self.nodes.push((*value, None, None));
                let node = tx.var(Node {
                    value: *value,
                    left: None,
                    right: None,
                });
                world.nodes.write(tx, world.nodes.read().push(tx, node));
            }
            Change::Link(from, to, left) => self.link(tx, &world, *from, Some(*to), *left),
            Change::Unlink(from, left) => self.link(tx, &world, *from, None, *left),
            Change::Value(at, value) => {
                if let Some(node) = self.nodes.get_mut(*at) {
                    node.0 = *value;
                    let var = world.nodes.read().get(*at).expect("a node");
                    var.write(
                        tx,
                        Node {
                            value: *value,
                            ..var.read()
                        },
                    );
                }
            }
            Change::DropNodes => {
                self.nodes.clear();
                world.nodes.write(tx, Vector::new(tx));
            }
            Change::Number(number) => {
                self.mark = PlainMark::Number(*number);
                world.mark.write(tx, Mark::Number(*number));
            }
            Change::Name(name) => {
                self.mark = PlainMark::Named(name.clone(), 0.5);
                world.mark.write(
                    tx,
                    Mark::Named {
                        name: tx.text(name),
                        weight: 0.5,
                    },
                );
            }
        }
    }

    fn link<'t>(
        &mut self,
        tx: &Tx<'t>,
        world: &World<'t>,
        from: usize,
        to: Option<usize>,
        left: bool,
    ) {
        let count = self.nodes.len();
        if from >= count || to.is_some_and(|to| to >= count) {
            return;
        }
        let nodes = world.nodes.read();
        let var = nodes.get(from).expect("a node");
        let target = to.map(|to| nodes.get(to).expect("a node"));
        let mut node = var.read();
        if left {
            self.nodes[from].1 = to;
            node.left = target;
        } else {
            self.nodes[from].2 = to;
            node.right = target;
        }
        var.write(tx, node);
    }

    /// The world in a heap. `None`: there is none.
    pub fn read<'t>(view: &View<'t>) -> Result<Option<Self>, Error> {
        let Some(world) = view.root::<Root<'_>>()? else {
            return Ok(None);
        };
        let world = world.read();
        let vars: Vec<_> = world.nodes.read().iter().collect();
        let index = |link: Option<Var<'t, Node<'t>>>| {
            link.map(|to| {
                vars.iter()
                    .position(|var| var.is_same(to))
                    .expect("a node of ours")
            })
        };
        let mut bytes = vec![0; world.bytes.len()];
        world.bytes.read(0, &mut bytes);
        Ok(Some(Self {
            map: world
                .map
                .read()
                .iter()
                .map(|(key, text)| (key, text.to_string()))
                .collect(),
            lists: (0..world.lists.len())
                .map(|at| {
                    world
                        .lists
                        .get(at)
                        .expect("in range")
                        .map(|list| list.iter().collect())
                })
                .collect(),
            bytes,
            items: world.items.read().iter().collect(),
            nodes: vars
                .iter()
                .map(|var| {
                    let node = var.read();
                    (node.value, index(node.left), index(node.right))
                })
                .collect(),
            mark: match world.mark.read() {
                Mark::None => PlainMark::None,
                Mark::Number(number) => PlainMark::Number(number),
                Mark::Named { name, weight } => PlainMark::Named(name.to_string(), weight),
            },
        }))
    }

    pub fn of(heap: &Heap) -> Option<Self> {
        heap.view(Self::read).expect("a readable heap")
    }
}

/// Limits under which collections of all kinds are frequent.
pub fn small_limits() -> Limits {
    Limits {
        new_bytes: 1 << 10,
        old_bytes: 4 << 10,
        persistent_bytes: Some(48 << 10),
        log_bytes: Some(48 << 10),
        slice_bytes: Some(1 << 10),
        whole_segments: true,
    }
}

pub fn small_options(collector: Collector) -> Options {
    Options {
        limits: Limits {
            // As in the paper, or not.
            whole_segments: collector != Collector::Stop,
            ..small_limits()
        },
        collector,
        ..Options::default()
    }
}
