//! Maps and vectors in a nested value: their entries and elements, not the nodes that hold them.

use super::Export;
use crate::error::{Error, Result};
use crate::heap::walk::Objects;
use crate::types::{Catalogue, Plain, Reference, Shape, TypeNumber, Value};

/// Levels of a vector's trie, and of a map's tree: more are damage.
const LEVELS: usize = 128;

/// What a visit of a value returns.
type Visit<'v, 'a> = &'v mut dyn FnMut(Value<'a>) -> Result<()>;

/// The module and the name of a struct.
fn is_named(types: &Catalogue, of: TypeNumber, path: [&str; 2]) -> bool {
    match types.shape(of) {
        Shape::Struct(name, _) => [name.module.as_str(), name.name.as_str()] == path,
        _ => false,
    }
}

/// The type of references to nodes of a map, if the type is one.
fn map_nodes(types: &Catalogue, map: TypeNumber) -> Option<TypeNumber> {
    let Shape::Struct(_, fields) = types.shape(map) else {
        return None;
    };
    let [root] = &fields[..] else { return None };
    let Shape::Option(nodes) = types.shape(root.of) else {
        return None;
    };
    let Some(Reference::Ref(node)) = types.reference(*nodes) else {
        return None;
    };
    let Shape::Struct(_, fields) = types.shape(node) else {
        return None;
    };
    let [left, right, _, _, _] = &fields[..] else {
        return None;
    };
    let good =
        is_named(types, map, ["gordon::map", "Map"]) && left.of == root.of && right.of == root.of;
    good.then_some(*nodes)
}

fn damaged(what: &str) -> Error {
    Error::corrupted(format!("{what} of more than {LEVELS} levels"))
}

impl<'a> Objects<'a> {
    /// Calls `visit` with the key and the value of each entry, in order.
    fn entries(
        self,
        nodes: TypeNumber,
        map: Value<'a>,
        visit: &mut dyn FnMut(Value<'a>, Value<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut path: Vec<[Value<'a>; 5]> = Vec::new();
        let mut tree = map.pointers[0];
        loop {
            while tree != 0 {
                if path.len() == LEVELS {
                    return Err(damaged("a map"));
                }
                let node = self.open(nodes, tree)?.values().next().expect("a record");
                let Shape::Struct(_, fields) = self.types.shape(node.of) else {
                    unreachable!("`map_nodes` has found a struct");
                };
                let mut parts = node.parts(self.types);
                let node: [_; 5] = std::array::from_fn(|at| parts.take(fields[at].of));
                tree = node[0].pointers[0];
                path.push(node);
            }
            let Some([_, right, _, key, value]) = path.pop() else {
                return Ok(());
            };
            visit(key, value)?;
            tree = right.pointers[0];
        }
    }

    /// Calls `visit` with the elements under a node of a vector. Nodes are enums of slices: of nodes, or of elements.
    fn elements(self, node: Value<'a>, levels: usize, visit: Visit<'_, 'a>) -> Result<()> {
        let Shape::Enum { variants, .. } = self.types.shape(node.of) else {
            return visit(node);
        };
        let (tag, variant) = node.variant(self.types, variants);
        let (variant, mut parts) = variant.ok_or_else(|| self.no_variant(node.of, tag))?;
        let [slice] = &variant.fields[..] else {
            return Err(Error::corrupted("a node of a vector without a slice"));
        };
        if levels == LEVELS {
            return Err(damaged("a vector"));
        }
        if !matches!(self.types.reference(slice.of), Some(Reference::Slice(_))) {
            return Err(Error::corrupted("a node of a vector without a slice"));
        }
        let slice = self.open(slice.of, parts.take(slice.of).pointers[0])?;
        let mut values = slice.values();
        if slice.reference.target() == Some(node.of) {
            values.try_for_each(|value| self.elements(value, levels + 1, visit))
        } else {
            values.try_for_each(visit)
        }
    }

    /// Whether the value is written as a string.
    fn is_string(self, value: Value<'_>) -> bool {
        let content =
            |fields: &[crate::types::Field], mut parts: crate::types::Parts<'_>| match fields {
                [field] if field.is_unnamed() => self.is_string(parts.take(field.of)),
                _ => false,
            };
        match self.types.shape(value.of) {
            Shape::Plain(Plain::Char) | Shape::Reference(Reference::Text) => true,
            Shape::Struct(_, fields) => content(fields, value.parts(self.types)),
            Shape::Enum {
                untagged, variants, ..
            } => match value.variant(self.types, variants).1 {
                Some((variant, parts)) if *untagged => content(&variant.fields, parts),
                Some((variant, _)) => variant.fields.is_empty(),
                None => false,
            },
            _ => false,
        }
    }
}

impl<'a> Export<'a, '_> {
    /// Writes a map or a vector; `false`: it is another struct.
    pub(super) fn is_collection(&mut self, value: Value<'a>) -> Result<bool> {
        let types = self.objects.types;
        if let Some(nodes) = map_nodes(types, value.of) {
            self.map(nodes, value)?;
            return Ok(true);
        }
        if !is_named(types, value.of, ["gordon::vector", "Vector"]) {
            return Ok(false);
        }
        let Shape::Struct(_, fields) = types.shape(value.of) else {
            return Ok(false);
        };
        let [.., trie, tail] = &fields[..] else {
            return Ok(false);
        };
        let (Shape::Option(node), Some(Reference::Slice(_))) =
            (types.shape(trie.of), types.reference(tail.of))
        else {
            return Ok(false);
        };
        let parts = value.parts(types).all(fields.iter().map(|field| field.of));
        let [.., trie, tail] = &parts[..] else {
            return Ok(false);
        };
        let objects = self.objects;
        self.text("[")?;
        let mut separator = "";
        let mut visit = |value: Value<'a>| {
            self.text(std::mem::replace(&mut separator, ","))?;
            self.value(value)
        };
        if let Some(node) = trie.some(types, *node) {
            objects.elements(node, 0, &mut visit)?;
        }
        let tail = objects.open(tail.of, tail.pointers[0])?;
        tail.values().try_for_each(visit)?;
        self.text("]")?;
        Ok(true)
    }

    fn map(&mut self, nodes: TypeNumber, map: Value<'a>) -> Result<()> {
        let objects = self.objects;
        let mut strings = true;
        objects.entries(nodes, map, &mut |key, _| {
            strings &= objects.is_string(key);
            Ok(())
        })?;
        let [open, between, close] = if strings {
            ["{", ":", "}"]
        } else {
            ["[", ",", "]"]
        };
        self.text(open)?;
        let mut separator = "";
        objects.entries(nodes, map, &mut |key, value| {
            self.text(std::mem::replace(&mut separator, ","))?;
            self.text(if strings { "" } else { "[" })?;
            self.value(key)?;
            self.text(between)?;
            self.value(value)?;
            self.text(if strings { "" } else { "]" })
        })?;
        self.text(close)
    }
}
