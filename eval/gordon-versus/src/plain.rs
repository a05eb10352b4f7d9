//! The tree of `gordon::Map` in plain Rust: the same weight-balanced tree, its nodes shared in the
//! same way, in `Rc`s.

use std::cmp::Ordering;
use std::rc::Rc;

const DELTA: u64 = 3;
const GAMMA: u64 = 2;

type Tree = Option<Rc<Node>>;

#[derive(Debug)]
struct Node {
    left: Tree,
    right: Tree,
    size: u64,
    key: u64,
    value: u64,
}

/// A map of numbers.
#[derive(Debug, Default)]
pub(crate) struct Map {
    root: Tree,
}

fn size(tree: &Tree) -> u64 {
    tree.as_ref().map_or(0, |node| node.size)
}

fn node(left: Tree, (key, value): (u64, u64), right: Tree) -> Tree {
    let size = size(&left) + size(&right) + 1;
    Some(Rc::new(Node {
        left,
        right,
        size,
        key,
        value,
    }))
}

fn is_heavy(heavy: u64, light: u64) -> bool {
    (light + 1) * DELTA < heavy + 1
}

fn balanced(left: Tree, entry: (u64, u64), right: Tree) -> Tree {
    if is_heavy(size(&right), size(&left)) {
        let r = right.expect("a heavy tree");
        if size(&r.left) + 1 < (size(&r.right) + 1) * GAMMA {
            return node(
                node(left, entry, r.left.clone()),
                (r.key, r.value),
                r.right.clone(),
            );
        }
        let m = r.left.clone().expect("a heavy tree");
        let outer = node(m.right.clone(), (r.key, r.value), r.right.clone());
        return node(node(left, entry, m.left.clone()), (m.key, m.value), outer);
    }
    if is_heavy(size(&left), size(&right)) {
        let l = left.expect("a heavy tree");
        if size(&l.right) + 1 < (size(&l.left) + 1) * GAMMA {
            return node(
                l.left.clone(),
                (l.key, l.value),
                node(l.right.clone(), entry, right),
            );
        }
        let m = l.right.clone().expect("a heavy tree");
        let outer = node(l.left.clone(), (l.key, l.value), m.left.clone());
        return node(outer, (m.key, m.value), node(m.right.clone(), entry, right));
    }
    node(left, entry, right)
}

fn insert(tree: &Tree, key: u64, value: u64) -> Tree {
    let Some(n) = tree else {
        return node(None, (key, value), None);
    };
    let entry = (n.key, n.value);
    match key.cmp(&n.key) {
        Ordering::Less => balanced(insert(&n.left, key, value), entry, n.right.clone()),
        Ordering::Greater => balanced(n.left.clone(), entry, insert(&n.right, key, value)),
        Ordering::Equal => node(n.left.clone(), (key, value), n.right.clone()),
    }
}

impl Map {
    pub(crate) fn insert(&mut self, key: u64, value: u64) {
        self.root = insert(&self.root, key, value);
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let mut tree = &self.root;
        while let Some(node) = tree {
            tree = match key.cmp(&node.key) {
                Ordering::Less => &node.left,
                Ordering::Greater => &node.right,
                Ordering::Equal => return Some(node.value),
            };
        }
        None
    }
}
