//! The export has all that the heap has: the world is read from its lines again.

mod common;

use common::{Plain, Rng, small_options};
use gordon::flash::Model;
use gordon::{
    Array, ByteArray, Bytes, Collector, Error, Heap, Map, Persist, Ref, Text, Var, Vector, View,
};
use serde_json::Value;

fn heap() -> Heap {
    Heap::emulated(
        Model::intel(1).fast(),
        64,
        small_options(Collector::AtCommit),
    )
    .expect("a heap")
}

fn written(
    heap: &Heap,
    write: impl Fn(&View<'_>, &mut Vec<u8>) -> gordon::Result<()>,
) -> gordon::Result<String> {
    let mut out = Vec::new();
    heap.view(|view| write(view, &mut out))?;
    Ok(String::from_utf8(out).expect("JSON is UTF-8"))
}

fn tree(heap: &Heap) -> gordon::Result<String> {
    written(heap, |view, out| view.export_root(out)).map(|tree| tree.trim_end().to_owned())
}

fn lines(heap: &Heap) -> Vec<Value> {
    let lines = written(heap, |view, out| view.export(out)).expect("an export");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The tree of the root's value.
#[track_caller]
fn is_tree(heap: &Heap, expected: &str) {
    let tree = tree(heap).expect("a tree");
    assert_eq!(tree, expected);
    serde_json::from_str::<Value>(&tree).expect("JSON");
}

/// The values of a heap, found by the references of its lines.
struct Lines(Vec<Value>);

impl Lines {
    fn at<'a>(&'a self, reference: &'a Value) -> &'a Value {
        let id = reference["$ref"].as_u64().expect("a reference") as usize;
        assert_eq!(
            self.0[id]["id"], id,
            "lines are in the order of their numbers"
        );
        &self.0[id]["value"]
    }

    fn map(&self, tree: &Value, to: &mut Vec<(u64, String)>) {
        if tree.is_null() {
            return;
        }
        let node = self.at(tree);
        self.map(&node["left"], to);
        let text = self.at(&node["value"]).as_str().expect("a string");
        to.push((node["key"].as_u64().expect("a number"), text.to_owned()));
        self.map(&node["right"], to);
    }

    fn trie<'a>(&'a self, node: &'a Value, to: &mut Vec<&'a Value>) {
        if let Some(inner) = node.get("Inner") {
            self.at(inner)
                .as_array()
                .expect("nodes")
                .iter()
                .for_each(|node| self.trie(node, to));
        } else if let Some(leaf) = node.get("Leaf") {
            to.extend(self.at(leaf).as_array().expect("elements"));
        }
    }

    fn vector<'a>(&'a self, vector: &'a Value) -> Vec<&'a Value> {
        let mut all = Vec::new();
        self.trie(&vector["trie"], &mut all);
        all.extend(self.at(&vector["tail"]).as_array().expect("elements"));
        assert_eq!(
            all.len() as u64,
            vector["length"].as_u64().expect("a number")
        );
        all
    }

    /// The world, as `Plain` prints it.
    fn world(&self) -> String {
        let world = &self.0[0]["value"];
        let mut map = Vec::new();
        self.map(&self.at(&world["map"])["root"], &mut map);
        let number = |value: &Value| value.as_u64().expect("a number");
        let lists = self.at(&world["lists"]).as_array().expect("lists");
        let list = |list: &Value| {
            (!list.is_null()).then(|| {
                self.at(list)
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(number)
                    .collect::<Vec<_>>()
            })
        };
        let lists: Vec<_> = lists.iter().map(list).collect();
        let bytes = self.at(&world["bytes"])["$bytes"].as_str().expect("digits");
        let bytes: Vec<_> = (0..bytes.len() / 2)
            .map(|at| u8::from_str_radix(&bytes[2 * at..][..2], 16).expect("a byte"))
            .collect();
        let items: Vec<_> = self
            .vector(self.at(&world["items"]))
            .into_iter()
            .map(number)
            .collect();
        let vars = self.vector(self.at(&world["nodes"]));
        let link = |link: &Value| {
            (!link.is_null()).then(|| vars.iter().position(|var| **var == *link).expect("a node"))
        };
        let nodes: Vec<_> = vars
            .iter()
            .map(|var| {
                let node = self.at(var);
                (
                    number(&node["value"]),
                    link(&node["left"]),
                    link(&node["right"]),
                )
            })
            .collect();
        let mark = self.at(&world["mark"]);
        let mark = if mark == "None" {
            "None".to_owned()
        } else if let Some(number) = mark.get("Number") {
            format!("Number({number})")
        } else {
            let name = self.at(&mark["Named"]["name"]).as_str().expect("a string");
            format!(
                "Named({name:?}, {:?})",
                mark["Named"]["weight"].as_f64().expect("a number")
            )
        };
        let map: std::collections::BTreeMap<_, _> = map.into_iter().collect();
        format!(
            "Plain {{ map: {map:?}, lists: {lists:?}, bytes: {bytes:?}, items: {items:?}, nodes: {nodes:?}, mark: {mark} }}"
        )
    }
}

#[test]
fn the_world_is_read_from_its_lines() {
    for seed in 0..12 {
        let heap = heap();
        heap.update(|tx| {
            common::found(tx);
            Ok(())
        })
        .expect("a commit");
        let (mut plain, mut rng) = (Plain::default(), Rng(seed));
        for _ in 0..30 {
            heap.run(|tx| {
                for _ in 0..8 {
                    plain.apply(tx, &common::Change::random(&mut rng));
                }
                Ok(())
            })
            .expect("changes");
            assert_eq!(
                Lines(lines(&heap)).world(),
                format!("{plain:?}"),
                "seed {seed}"
            );
        }
        heap.commit().expect("a commit");
        assert_eq!(
            Lines(lines(&heap)).world(),
            format!("{plain:?}"),
            "seed {seed}"
        );
        let found = heap.view(|view| view.statistics()).expect("statistics");
        let objects: u64 = found.types.iter().map(|of| of.objects).sum();
        assert_eq!(objects, lines(&heap).len() as u64, "every object once");
    }
}

#[test]
fn plain_values_keep_all_their_digits() {
    let heap = heap();
    heap.update(|tx| {
        let naturals = (u8::MAX, u64::MAX, u128::MAX, usize::MAX);
        let integers = (i8::MIN, i64::MIN, i128::MIN, isize::MIN);
        let floats = (
            0.1_f32,
            0.1_f64,
            -0.0_f64,
            1e300_f64,
            f64::MIN_POSITIVE,
            f32::MAX,
        );
        let odd = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f32::NAN);
        tx.set_root(tx.alloc((naturals, integers, floats, odd, true, ('é', '"', '\u{1}'))));
        Ok(())
    })
    .expect("a commit");
    let naturals =
        "[255,18446744073709551615,340282366920938463463374607431768211455,18446744073709551615]";
    let integers =
        "[-128,-9223372036854775808,-170141183460469231731687303715884105728,-9223372036854775808]";
    let floats = "[0.1,0.1,-0.0,1e300,2.2250738585072014e-308,3.4028235e38]";
    let odd = r#"["NaN","Infinity","-Infinity","NaN"]"#;
    is_tree(
        &heap,
        &format!("[{naturals},{integers},{floats},{odd},true,[\"é\",\"\\\"\",\"\\u0001\"]]"),
    );
}

#[test]
fn strings_bytes_options_and_enums() {
    #[derive(Clone, Copy, Persist)]
    struct Empty;
    #[derive(Clone, Copy, Persist)]
    struct Metres(f32);
    #[derive(Clone, Copy, Persist)]
    struct Maybe(Option<u8>);
    #[derive(Clone, Copy, Persist)]
    enum Kind<'t> {
        Unit,
        One(Text<'t>),
        Two(u8, bool),
        Named { r#type: Metres },
    }
    #[derive(Clone, Copy, Persist)]
    struct All<'t> {
        text: Text<'t>,
        bytes: Bytes<'t>,
        array: ByteArray<'t>,
        empty: (Empty, (), [u8; 0]),
        options: [Option<Option<u8>>; 3],
        maybe: [Option<Maybe>; 3],
        boxed: Option<Ref<'t, Option<u8>>>,
        kinds: Array<'t, Kind<'t>>,
    }
    let heap = heap();
    let text = "a \"b\"\\\n\r\t\u{0}\u{1f}é\u{2028}";
    heap.update(|tx| {
        tx.set_root(tx.alloc(All {
            text: tx.text(text),
            bytes: tx.bytes(&[0, 255, 16]),
            array: tx.byte_array(&[]),
            empty: (Empty, (), []),
            options: [None, Some(None), Some(Some(1))],
            maybe: [None, Some(Maybe(None)), Some(Maybe(Some(2)))],
            boxed: Some(tx.alloc(None)),
            kinds: tx.array(&[
                Kind::Unit,
                Kind::One(tx.text("x")),
                Kind::Two(7, false),
                Kind::Named {
                    r#type: Metres(1.5),
                },
            ]),
        }));
        Ok(())
    })
    .expect("a commit");
    let expected = concat!(
        r#"{"text":"a \"b\"\\\n\r\t\u0000\u001fé"#,
        "\u{2028}",
        r#"","bytes":{"$bytes":"00ff10"},"array":{"$bytes":""},"empty":[null,null,[]],"#,
        r#""options":[null,{"Some":null},{"Some":1}],"maybe":[null,{"Some":null},{"Some":2}],"#,
        r#""boxed":{"Some":null},"#,
        r#""kinds":["Unit",{"One":"x"},{"Two":[7,false]},{"Named":{"type":1.5}}]}"#
    );
    is_tree(&heap, expected);
    let parsed: Value = serde_json::from_str(expected).expect("JSON");
    assert_eq!(parsed["text"], text);
}

#[test]
fn maps_and_vectors_are_collections_in_a_tree() {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Persist)]
    #[persist(untagged)]
    enum Key<'t> {
        Number(i64),
        Text(Text<'t>),
    }
    let heap = heap();
    for count in [0, 1, 31, 32, 33, 1000, 1100] {
        heap.update(|tx| {
            let vector = (0..count).fold(Vector::new(tx), |vector, n| vector.push(tx, n));
            let names = (0..count).fold(Map::new(), |map, n| {
                map.insert(tx, tx.text(&format!("{n:04}")), n)
            });
            let numbers = Map::new().insert(tx, 2_u8, true).insert(tx, 1, false);
            let keys = Map::new().insert(tx, Key::Text(tx.text("a")), ());
            let mixed = keys.insert(tx, Key::Number(1), ());
            tx.set_root(tx.alloc((vector, names, numbers, keys, mixed)));
            Ok(())
        })
        .expect("a commit");
        let list: Vec<_> = (0..count).map(|n| n.to_string()).collect();
        let names: Vec<_> = (0..count).map(|n| format!("\"{n:04}\":{n}")).collect();
        is_tree(
            &heap,
            &format!(
                "[[{}],{{{}}},[[1,false],[2,true]],{{\"a\":null}},[[1,null],[\"a\",null]]]",
                list.join(","),
                names.join(",")
            ),
        );
        lines(&heap);
    }
}

#[derive(Clone, Copy, Persist)]
struct Link<'t> {
    next: Option<Var<'t, Link<'t>>>,
    other: Option<Text<'t>>,
}

#[test]
fn circles_and_depth_are_refused_in_a_tree_only() {
    let heap = heap();
    let chain = |length: usize, circle: bool| {
        heap.update(|tx| {
            let shared = Some(tx.text("shared"));
            let end = tx.var(Link {
                next: None,
                other: shared,
            });
            let first = (1..length).fold(end, |next, _| {
                tx.var(Link {
                    next: Some(next),
                    other: shared,
                })
            });
            if circle {
                end.write(
                    tx,
                    Link {
                        next: Some(first),
                        other: None,
                    },
                );
            }
            tx.set_root(first);
            Ok(())
        })
        .expect("a commit");
    };
    chain(3, false);
    is_tree(
        &heap,
        r#"{"next":{"next":{"next":null,"other":"shared"},"other":"shared"},"other":"shared"}"#,
    );
    assert_eq!(lines(&heap).len(), 4, "three links, one string");
    chain(3, true);
    let error = tree(&heap).expect_err("a circle");
    assert!(matches!(error, Error::NotATree(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("Var<Link> in it contains itself"),
        "{error}"
    );
    assert_eq!(lines(&heap).len(), 4);
    chain(20_000, false);
    let error = tree(&heap).expect_err("too deep");
    assert!(
        error.to_string().contains("more than 250 levels"),
        "{error}"
    );
    assert_eq!(lines(&heap).len(), 20_001);
}

#[test]
fn a_heap_without_a_root_or_a_writer_without_room() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("no room"))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let heap = heap();
    assert!(matches!(
        heap.view(|view| view.export(&mut Full)),
        Err(Error::NoRoot)
    ));
    assert!(matches!(tree(&heap), Err(Error::NoRoot)));
    heap.update(|tx| {
        tx.set_root(tx.var(5_u64));
        Ok(())
    })
    .expect("a commit");
    for error in [
        heap.view(|view| view.export(&mut Full))
            .expect_err("no room"),
        heap.view(|view| view.export_root(&mut Full))
            .expect_err("no room"),
    ] {
        assert!(error.to_string().contains("no room"), "{error}");
    }
}
