//! A persistent ordered map: a weight-balanced tree, after Adams, with the parameters that Hirai
//! and Yamamoto proved correct. A change copies a path and shares the rest.

use crate::Persist;
use crate::heap::Tx;
use crate::pointer::Ref;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

/// Bound on the ratio of the weights of two siblings.
const DELTA: u64 = 3;
/// Ratio below which a single rotation suffices.
const GAMMA: u64 = 2;

/// An immutable map ordered by key; a change makes a new map that shares the unchanged parts.
///
/// ```
/// # let model = gordon::flash::Model::intel(4);
/// # let heap = gordon::Heap::emulated(model, 8, gordon::Options::default())?;
/// use gordon::{Map, Ref};
///
/// heap.update(|tx| {
///     let ages = Map::new().insert(tx, tx.text("ada"), 36_u32).insert(tx, tx.text("bob"), 7);
///     tx.set_root(tx.alloc(ages));
///     assert_eq!(ages.get(&tx.text("ada")), Some(36));
///     assert_eq!(ages.remove(tx, &tx.text("ada")).len(), 1);
///     Ok(())
/// })?;
/// # Ok::<(), gordon::Error>(())
/// ```
#[derive(Persist)]
pub struct Map<'t, K, V> {
    root: Tree<'t, K, V>,
}

type Tree<'t, K, V> = Option<Ref<'t, Node<'t, K, V>>>;

#[derive(Persist)]
struct Node<'t, K, V> {
    left: Option<Ref<'t, Node<'t, K, V>>>,
    right: Option<Ref<'t, Node<'t, K, V>>>,
    size: u64,
    key: K,
    value: V,
}

impl<K, V> Clone for Map<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Map<'_, K, V> {}

impl<K: Copy, V: Copy> Clone for Node<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Copy, V: Copy> Copy for Node<'_, K, V> {}

impl<K, V> Default for Map<'_, K, V> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<'t, K, V> std::fmt::Debug for Map<'t, K, V>
where
    K: Persist<'t> + Ord + std::fmt::Debug,
    V: Persist<'t> + std::fmt::Debug,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn size<'t, K: Persist<'t>, V: Persist<'t>>(tree: Tree<'t, K, V>) -> u64 {
    tree.map_or(0, |node| node.read().size)
}

fn node<'t, K: Persist<'t>, V: Persist<'t>>(
    tx: &Tx<'t>,
    left: Tree<'t, K, V>,
    (key, value): (K, V),
    right: Tree<'t, K, V>,
) -> Tree<'t, K, V> {
    Some(tx.alloc(Node {
        left,
        right,
        size: size(left) + size(right) + 1,
        key,
        value,
    }))
}

fn is_heavy(heavy: u64, light: u64) -> bool {
    (light + 1) * DELTA < heavy + 1
}

/// A node of two trees, one of which may have one element too many or too few.
fn balanced<'t, K: Persist<'t>, V: Persist<'t>>(
    tx: &Tx<'t>,
    left: Tree<'t, K, V>,
    entry: (K, V),
    right: Tree<'t, K, V>,
) -> Tree<'t, K, V> {
    if is_heavy(size(right), size(left)) {
        let r = right.expect("a heavy tree").read();
        if size(r.left) + 1 < (size(r.right) + 1) * GAMMA {
            return node(tx, node(tx, left, entry, r.left), (r.key, r.value), r.right);
        }
        let m = r.left.expect("a heavy tree").read();
        let outer = node(tx, m.right, (r.key, r.value), r.right);
        return node(tx, node(tx, left, entry, m.left), (m.key, m.value), outer);
    }
    if is_heavy(size(left), size(right)) {
        let l = left.expect("a heavy tree").read();
        if size(l.right) + 1 < (size(l.left) + 1) * GAMMA {
            return node(
                tx,
                l.left,
                (l.key, l.value),
                node(tx, l.right, entry, right),
            );
        }
        let m = l.right.expect("a heavy tree").read();
        let outer = node(tx, l.left, (l.key, l.value), m.left);
        return node(tx, outer, (m.key, m.value), node(tx, m.right, entry, right));
    }
    node(tx, left, entry, right)
}

fn insert<'t, K: Persist<'t> + Ord, V: Persist<'t>>(
    tx: &Tx<'t>,
    tree: Tree<'t, K, V>,
    key: K,
    value: V,
) -> Tree<'t, K, V> {
    let Some(at) = tree else {
        return node(tx, None, (key, value), None);
    };
    let n = at.read();
    match key.cmp(&n.key) {
        Ordering::Less => balanced(
            tx,
            insert(tx, n.left, key, value),
            (n.key, n.value),
            n.right,
        ),
        Ordering::Greater => balanced(
            tx,
            n.left,
            (n.key, n.value),
            insert(tx, n.right, key, value),
        ),
        Ordering::Equal => node(tx, n.left, (key, value), n.right),
    }
}

/// A tree without its least element, and that element.
fn take_least<'t, K: Persist<'t>, V: Persist<'t>>(
    tx: &Tx<'t>,
    tree: Ref<'t, Node<'t, K, V>>,
) -> (Tree<'t, K, V>, (K, V)) {
    let n = tree.read();
    match n.left {
        None => (n.right, (n.key, n.value)),
        Some(left) => {
            let (left, least) = take_least(tx, left);
            (balanced(tx, left, (n.key, n.value), n.right), least)
        }
    }
}

/// The tree without `key`; `None` if it has no such key.
fn remove<'t, K: Persist<'t> + Ord, V: Persist<'t>>(
    tx: &Tx<'t>,
    tree: Tree<'t, K, V>,
    key: &K,
) -> Option<Tree<'t, K, V>> {
    let n = tree?.read();
    Some(match key.cmp(&n.key) {
        Ordering::Less => balanced(tx, remove(tx, n.left, key)?, (n.key, n.value), n.right),
        Ordering::Greater => balanced(tx, n.left, (n.key, n.value), remove(tx, n.right, key)?),
        Ordering::Equal => match n.right {
            None => n.left,
            Some(right) => {
                let (right, least) = take_least(tx, right);
                balanced(tx, n.left, least, right)
            }
        },
    })
}

impl<'t, K: Persist<'t> + Ord, V: Persist<'t>> Map<'t, K, V> {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        size(self.root) as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The value of `key`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        let mut tree = self.root;
        while let Some(at) = tree {
            let n = at.read();
            tree = match key.cmp(&n.key) {
                Ordering::Less => n.left,
                Ordering::Greater => n.right,
                Ordering::Equal => return Some(n.value),
            };
        }
        None
    }

    /// The map in which `key` has `value`.
    #[must_use]
    pub fn insert(&self, tx: &Tx<'t>, key: K, value: V) -> Self {
        Self {
            root: insert(tx, self.root, key, value),
        }
    }

    /// The map without `key`.
    #[must_use]
    pub fn remove(&self, tx: &Tx<'t>, key: &K) -> Self {
        remove(tx, self.root, key).map_or(*self, |root| Self { root })
    }

    /// All keys and values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + use<'t, K, V> {
        self.range(..)
    }

    /// The keys in `range` with their values, in order.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl Iterator<Item = (K, V)> + use<'t, K, V, R> {
        let mut path = Vec::new();
        let mut tree = self.root;
        while let Some(at) = tree {
            let n = at.read();
            let inside = match range.start_bound() {
                Bound::Included(start) => n.key >= *start,
                Bound::Excluded(start) => n.key > *start,
                Bound::Unbounded => true,
            };
            if inside {
                path.push(n);
            }
            tree = if inside { n.left } else { n.right };
        }
        std::iter::from_fn(move || {
            let n = path.pop()?;
            let mut tree = n.right;
            while let Some(at) = tree {
                let next = at.read();
                path.push(next);
                tree = next.left;
            }
            let inside = match range.end_bound() {
                Bound::Included(end) => n.key <= *end,
                Bound::Excluded(end) => n.key < *end,
                Bound::Unbounded => true,
            };
            inside.then_some((n.key, n.value))
        })
    }
}
