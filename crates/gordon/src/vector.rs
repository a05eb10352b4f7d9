//! A persistent vector: a trie of 32 branches with the last elements apart, after Bagwell and
//! Hickey. A change copies a path and shares the rest, so a commit writes little.

use crate::Persist;
use crate::heap::Tx;
use crate::pointer::Slice;

const BITS: u32 = 5;
const WIDTH: usize = 1 << BITS;
const MASK: usize = WIDTH - 1;

/// An immutable sequence; a change makes a new sequence that shares the unchanged parts.
///
/// ```
/// # let model = gordon::flash::Model::intel(4);
/// # let heap = gordon::Heap::emulated(model, 8, gordon::Options::default())?;
/// use gordon::Vector;
///
/// heap.update(|tx| {
///     let short = Vector::new(tx).push(tx, 1_u32).push(tx, 2);
///     let long = short.push(tx, 3).set(tx, 0, 10);
///     assert_eq!(short.iter().collect::<Vec<_>>(), [1, 2]);
///     assert_eq!(long.iter().collect::<Vec<_>>(), [10, 2, 3]);
///     Ok(())
/// })?;
/// # Ok::<(), gordon::Error>(())
/// ```
#[derive(Persist)]
pub struct Vector<'t, T> {
    length: u64,
    shift: u32,
    trie: Option<Node<'t, T>>,
    tail: Slice<'t, T>,
}

#[derive(Persist)]
enum Node<'t, T> {
    Inner(Slice<'t, Node<'t, T>>),
    Leaf(Slice<'t, T>),
}

impl<T> Clone for Vector<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vector<'_, T> {}

impl<T> Clone for Node<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Node<'_, T> {}

impl<'t, T: Persist<'t> + std::fmt::Debug> std::fmt::Debug for Vector<'t, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'t, T: Persist<'t>> Node<'t, T> {
    /// `leaf` under a path of inner nodes for `shift` bits.
    fn path(tx: &Tx<'t>, shift: u32, leaf: Self) -> Self {
        (0..shift / BITS).fold(leaf, |node, _| Self::Inner(tx.slice(&[node])))
    }

    fn push_leaf(self, tx: &Tx<'t>, shift: u32, index: usize, leaf: Slice<'t, T>) -> Self {
        let Self::Inner(children) = self else {
            unreachable!("leaves are at the bottom, and nothing is pushed into them")
        };
        let mut copy: Vec<_> = children.iter().collect();
        let at = index >> shift & MASK;
        let below = shift - BITS;
        match copy.get_mut(at) {
            Some(child) => *child = child.push_leaf(tx, below, index, leaf),
            None => copy.push(Self::path(tx, below, Self::Leaf(leaf))),
        }
        Self::Inner(tx.slice(&copy))
    }

    fn set(self, tx: &Tx<'t>, shift: u32, index: usize, value: T) -> Self {
        match self {
            Self::Leaf(values) => Self::Leaf(replaced(tx, values, index & MASK, value)),
            Self::Inner(children) => {
                let at = index >> shift & MASK;
                let child = children.get(at).expect("a path to every element");
                let child = child.set(tx, shift - BITS, index, value);
                Self::Inner(replaced(tx, children, at, child))
            }
        }
    }

    /// The trie without its last leaf, and that leaf.
    fn pop_leaf(self, tx: &Tx<'t>) -> (Option<Self>, Slice<'t, T>) {
        match self {
            Self::Leaf(values) => (None, values),
            Self::Inner(children) => {
                let mut copy: Vec<_> = children.iter().collect();
                let last = copy.pop().expect("no inner node is empty");
                let (rest, leaf) = last.pop_leaf(tx);
                copy.extend(rest);
                (
                    (!copy.is_empty()).then(|| Self::Inner(tx.slice(&copy))),
                    leaf,
                )
            }
        }
    }
}

fn replaced<'t, T: Persist<'t>>(
    tx: &Tx<'t>,
    values: Slice<'t, T>,
    index: usize,
    value: T,
) -> Slice<'t, T> {
    let mut copy: Vec<_> = values.iter().collect();
    copy[index] = value;
    tx.slice(&copy)
}

impl<'t, T: Persist<'t>> Vector<'t, T> {
    /// An empty vector.
    pub fn new(tx: &Tx<'t>) -> Self {
        Self {
            length: 0,
            shift: 0,
            trie: None,
            tail: tx.slice(&[]),
        }
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Elements in the trie.
    fn in_trie(&self) -> usize {
        self.len() - self.tail.len()
    }

    /// The element at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        let in_trie = self.in_trie();
        if index >= in_trie {
            return self.tail.get(index - in_trie);
        }
        let mut shift = self.shift;
        let mut node = self.trie?;
        loop {
            match node {
                Node::Leaf(values) => return values.get(index & MASK),
                Node::Inner(children) => {
                    node = children.get(index >> shift & MASK)?;
                    shift = shift.saturating_sub(BITS);
                }
            }
        }
    }

    /// The vector with `value` at its end.
    #[must_use]
    pub fn push(&self, tx: &Tx<'t>, value: T) -> Self {
        let mut tail: Vec<_> = self.tail.iter().collect();
        tail.push(value);
        let mut longer = Self {
            length: self.length + 1,
            ..*self
        };
        longer.tail = tx.slice(&tail);
        if tail.len() < WIDTH {
            return longer;
        }
        let index = self.in_trie();
        let leaf = longer.tail;
        longer.tail = tx.slice(&[]);
        longer.trie = Some(match self.trie {
            None => Node::Leaf(leaf),
            Some(trie) if index == WIDTH << self.shift => {
                longer.shift += BITS;
                let path = Node::path(tx, self.shift, Node::Leaf(leaf));
                Node::Inner(tx.slice(&[trie, path]))
            }
            Some(trie) => trie.push_leaf(tx, self.shift, index, leaf),
        });
        longer
    }

    /// The vector without its last element, and that element.
    #[must_use]
    pub fn pop(&self, tx: &Tx<'t>) -> Option<(Self, T)> {
        let mut shorter = *self;
        if self.tail.len() == 0 {
            let (trie, tail) = self.trie?.pop_leaf(tx);
            (shorter.trie, shorter.tail) = (trie, tail);
            if trie.is_none() {
                shorter.shift = 0;
            }
            while let Some(Node::Inner(children)) = shorter.trie
                && shorter.shift > 0
                && children.len() == 1
            {
                shorter.trie = children.get(0);
                shorter.shift -= BITS;
            }
        }
        let mut values: Vec<_> = shorter.tail.iter().collect();
        let last = values.pop()?;
        shorter.tail = tx.slice(&values);
        shorter.length -= 1;
        Some((shorter, last))
    }

    /// The vector with `value` at `index`.
    ///
    /// # Panics
    /// There is no such element.
    #[must_use]
    pub fn set(&self, tx: &Tx<'t>, index: usize, value: T) -> Self {
        assert!(
            index < self.len(),
            "element {index} of a vector of {}",
            self.len()
        );
        let mut changed = *self;
        let in_trie = self.in_trie();
        if index >= in_trie {
            changed.tail = replaced(tx, self.tail, index - in_trie, value);
        } else {
            changed.trie = self.trie.map(|trie| trie.set(tx, self.shift, index, value));
        }
        changed
    }

    /// All elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<'t, T> {
        let vector = *self;
        (0..vector.len()).map(move |index| vector.get(index).expect("an element in range"))
    }
}
