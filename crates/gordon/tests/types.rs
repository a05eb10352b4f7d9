//! A heap knows its types: a root of others is refused by what differs, and migrated.

#![allow(
    unreachable_pub,
    reason = "definitions in modules, as programs keep them"
)]

mod common;

use common::{Plain, Rng, small_options};
use gordon::flash::{MemoryMedium, Model};
use gordon::{Bytes, Catalogue, Collector, Error, Heap, Map, Persist, Ref, Slice, Text, Var};
use std::collections::HashMap;
use std::sync::Arc;

fn heap() -> Heap {
    Heap::emulated(
        Model::intel(1).fast(),
        64,
        small_options(Collector::AtCommit),
    )
    .expect("a heap")
}

/// The error of a program whose root is a `P`.
macro_rules! refused {
    ($heap:expr, $type:ty) => {{
        let error = $heap
            .view(|view| view.root::<$type>().map(|_| ()))
            .expect_err("another type");
        assert!(matches!(error, Error::RootType(_)), "{error}");
        let error = error.to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }};
}

#[track_caller]
fn names(error: &str, all: &[&str]) {
    for name in all {
        assert!(error.contains(name), "{error:?} does not name {name:?}");
    }
}

mod v1 {
    use gordon::{Map, Persist, Ref, Slice, Text, Var};

    #[derive(Clone, Copy, Persist)]
    pub struct Point {
        pub x: u16,
        pub y: i32,
    }

    #[derive(Clone, Copy, Persist)]
    pub enum Mark<'t> {
        None,
        At(Point),
        Named { name: Text<'t> },
    }

    #[derive(Clone, Copy, Persist)]
    pub struct Node<'t> {
        pub number: u32,
        pub next: Option<Var<'t, Node<'t>>>,
        pub mark: Mark<'t>,
    }

    #[derive(Clone, Copy, Persist)]
    pub struct World<'t> {
        pub nodes: Slice<'t, Var<'t, Node<'t>>>,
        pub kept: Ref<'t, Map<'t, u32, Text<'t>>>,
        pub count: u32,
        pub gone: u8,
        pub path: [Point; 2],
        pub two: (u8, Option<Point>),
    }
}

mod v2 {
    use gordon::{Map, Persist, Ref, Slice, Text, Var};

    /// Wider fields in another order, and one more.
    #[derive(Clone, Copy, Debug, PartialEq, Persist)]
    #[persist(was = "Point")]
    pub struct Place {
        pub y: i64,
        pub x: u32,
        #[persist(default = -7)]
        pub z: i8,
    }

    #[derive(Clone, Copy, Persist)]
    pub enum Mark<'t> {
        #[persist(was = "Named")]
        Called {
            name: Text<'t>,
            #[persist(default)]
            times: u64,
        },
        New(u8),
        None,
        At(Place),
    }

    #[derive(Clone, Copy, Persist)]
    pub struct Node<'t> {
        pub number: Option<u32>,
        pub next: Option<Var<'t, Node<'t>>>,
        pub mark: Mark<'t>,
    }

    #[derive(Clone, Copy, Persist)]
    #[persist(was = "World", dropped = "gone")]
    pub struct Universe<'t> {
        #[persist(was = "nodes")]
        pub all: Slice<'t, Var<'t, Node<'t>>>,
        pub kept: Ref<'t, Map<'t, u32, Text<'t>>>,
        #[persist(default)]
        pub head: Option<Var<'t, Node<'t>>>,
        pub count: u64,
        pub path: [Place; 2],
        pub two: (u8, Option<Place>),
    }
}

/// A graph of nodes, with circles and shared nodes, and its numbers and links.
fn found(heap: &Heap, seed: u64) -> Vec<(u32, Option<usize>)> {
    use v1::{Mark, Node, Point, World};
    let mut rng = Rng(seed);
    let count = 1 + rng.below(60);
    let plain: Vec<_> = (0..count)
        .map(|_| {
            (
                rng.next() as u32,
                (rng.below(4) > 0).then(|| rng.below(count)),
            )
        })
        .collect();
    heap.update(|tx| {
        let point = |n: u32| Point {
            x: n as u16,
            y: -(n as i32 / 2),
        };
        let vars: Vec<_> = plain
            .iter()
            .map(|(number, _)| {
                let mark = match number % 3 {
                    0 => Mark::None,
                    1 => Mark::At(point(*number)),
                    _ => Mark::Named {
                        name: tx.text(&number.to_string()),
                    },
                };
                tx.var(Node {
                    number: *number,
                    next: None,
                    mark,
                })
            })
            .collect();
        for (var, (_, next)) in vars.iter().zip(&plain) {
            var.write(
                tx,
                Node {
                    next: next.map(|next| vars[next]),
                    ..var.read()
                },
            );
        }
        let kept = Map::new()
            .insert(tx, 5, tx.text("five"))
            .insert(tx, 6, tx.text("six"));
        tx.set_root(tx.alloc(World {
            nodes: tx.slice(&vars),
            kept: tx.alloc(kept),
            count: count as u32,
            gone: 1,
            path: [point(1), point(2)],
            two: (3, Some(point(4))),
        }));
        Ok(())
    })
    .expect("a commit");
    plain
}

#[test]
fn what_differs_is_named() {
    #[derive(Clone, Copy, Persist)]
    struct Note<'t> {
        text: Text<'t>,
        older: Option<Ref<'t, Note<'t>>>,
    }
    let heap = heap();
    heap.update(|tx| {
        tx.set_root(tx.alloc(Note {
            text: tx.text("a"),
            older: None,
        }));
        Ok(())
    })
    .expect("a commit");
    let types = heap
        .view(|view| view.types())
        .expect("a view")
        .expect("types");
    assert_eq!(
        types.to_string(),
        "struct Note { text: Text, older: Option<Ref<Note>> }"
    );
    assert_eq!(types, Catalogue::of::<Ref<'_, Note<'_>>>());
    let both = |new: &str| {
        [
            "has `struct Note { text: Text, older: Option<Ref<Note>> }`".to_owned(),
            format!("`{new}`"),
        ]
    };
    {
        #[derive(Clone, Copy, Persist)]
        struct Note<'t> {
            text: Text<'t>,
            older: Option<Ref<'t, Note<'t>>>,
            pinned: bool,
        }
        let error = refused!(heap, Ref<'_, Note<'_>>);
        let [old, new] = both("struct Note { text: Text, older: Option<Ref<Note>>, pinned: bool }");
        names(
            &error,
            &[
                &old,
                &new,
                "field `pinned: bool` of `Note` was added",
                "Tx::migrate",
            ],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Note<'t> {
            older: Option<Ref<'t, Note<'t>>>,
        }
        names(
            &refused!(heap, Ref<'_, Note<'_>>),
            &["field `text: Text` of `Note` was removed"],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Note<'t> {
            text: Bytes<'t>,
            older: Option<Var<'t, Note<'t>>>,
        }
        names(
            &refused!(heap, Ref<'_, Note<'_>>),
            &[
                "field `text` of `Note` was `Text`, is `Bytes`",
                "field `older` of `Note` was `Ref<Note>`, is `Var<Note>`",
            ],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Note<'t> {
            older: Option<Ref<'t, Note<'t>>>,
            text: Text<'t>,
        }
        names(
            &refused!(heap, Ref<'_, Note<'_>>),
            &["the fields of `Note` have another order"],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        #[persist(was = "Note")]
        struct Memo<'t> {
            #[persist(was = "text")]
            body: Text<'t>,
            older: Option<Ref<'t, Memo<'t>>>,
        }
        names(
            &refused!(heap, Ref<'_, Memo<'_>>),
            &[
                "`Note` is now `Memo`",
                "field `text` of `Memo` is now `body`",
            ],
        );
    }
    {
        type Older<'t> = Option<Ref<'t, Note<'t>>>;
        #[derive(Clone, Copy, Persist)]
        struct Note<'t> {
            text: Text<'t>,
            older: Older<'t>,
        }
        names(
            &refused!(heap, Ref<'_, Note<'_>>),
            &["the text of the definition of `Note` differs"],
        );
    }
    names(
        &refused!(heap, Var<'_, Note<'_>>),
        &["the root was `Ref<Note>`, is `Var<Note>`"],
    );
    heap.view(|view| {
        view.root::<Ref<'_, Note<'_>>>()
            .map(|root| assert!(root.is_some()))
    })
    .expect("as it was");
}

/// The hash in the header of an object has the text of its own definition alone: only the catalogue tells these apart.
#[test]
fn a_type_far_from_the_root_differs() {
    mod one {
        use gordon::{Persist, Slice, Var};
        #[derive(Clone, Copy, Persist)]
        pub struct Leaf {
            pub weight: f32,
        }
        #[derive(Clone, Copy, Persist)]
        pub enum Tree<'t> {
            Leaf(Leaf),
            Inner(Slice<'t, Tree<'t>>),
        }
        #[derive(Clone, Copy, Persist)]
        pub struct Top<'t> {
            pub tree: Var<'t, Tree<'t>>,
        }
    }
    mod other {
        use gordon::{Persist, Slice, Var};
        #[derive(Clone, Copy, Persist)]
        pub struct Leaf {
            pub weight: u32,
        }
        #[derive(Clone, Copy, Persist)]
        pub enum Tree<'t> {
            Leaf(Leaf),
            Inner(Slice<'t, Tree<'t>>),
        }
        #[derive(Clone, Copy, Persist)]
        pub struct Top<'t> {
            pub tree: Var<'t, Tree<'t>>,
        }
    }
    let heap = heap();
    heap.update(|tx| {
        let leaf = one::Tree::Leaf(one::Leaf { weight: 0.5 });
        let tree = tx.var(one::Tree::Inner(tx.slice(&[leaf])));
        tx.set_root(tx.alloc(one::Top { tree }));
        Ok(())
    })
    .expect("a commit");
    assert_eq!(
        <one::Top<'_> as Persist>::SCHEMA,
        <other::Top<'_> as Persist>::SCHEMA
    );
    names(
        &refused!(heap, Ref<'_, other::Top<'_>>),
        &[
            "`struct Leaf { weight: f32 }`",
            "field `weight` of `Leaf` was `f32`, is `u32`",
        ],
    );
}

#[test]
fn variants_are_named() {
    let heap = heap();
    heap.update(|tx| {
        #[derive(Clone, Copy, Persist)]
        enum Mark {
            Low,
            High(u8),
        }
        tx.set_root(tx.slice(&[Mark::Low, Mark::High(3)]));
        Ok(())
    })
    .expect("a commit");
    {
        #[derive(Clone, Copy, Persist)]
        enum Mark {
            Low,
            High(u8, bool),
            Higher,
        }
        names(
            &refused!(heap, Slice<'_, Mark>),
            &[
                "variant `Mark::Higher` was added",
                "field `1: bool` of `Mark::High` was added",
            ],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        enum Mark {
            High(u8),
        }
        names(
            &refused!(heap, Slice<'_, Mark>),
            &["variant `Mark::Low` was removed"],
        );
        let error = heap
            .update(|tx| tx.migrate::<Slice<'_, Mark>>())
            .expect_err("a value of it");
        names(
            &error.to_string(),
            &["Mark::Low", "a variant that the program does not have"],
        );
    }
}

/// The graph of `found` through a migration: numbers and links are as before.
fn check_migrated(heap: &Heap, plain: &[(u32, Option<usize>)]) {
    use v2::{Mark, Place, Universe};
    let point = |n: u32| Place {
        x: u32::from(n as u16),
        y: i64::from(-(n as i32 / 2)),
        z: -7,
    };
    heap.view(|view| {
        let world = view.root::<Ref<'_, Universe<'_>>>()?.expect("set").read();
        assert_eq!(world.count, plain.len() as u64);
        assert!(world.head.is_none());
        assert_eq!(world.path, [point(1), point(2)]);
        assert_eq!(world.two, (3, Some(point(4))));
        let kept: Vec<_> = world
            .kept
            .read()
            .iter()
            .map(|(key, text)| (key, text.to_string()))
            .collect();
        assert_eq!(kept, [(5, "five".to_owned()), (6, "six".to_owned())]);
        let vars: Vec<_> = world.all.iter().collect();
        let numbers: Vec<_> = vars
            .iter()
            .map(|var| {
                let node = var.read();
                let number = node.number.expect("an old number");
                match (number % 3, node.mark) {
                    (0, Mark::None) => {}
                    (1, Mark::At(place)) => assert_eq!(place, point(number)),
                    (2, Mark::Called { name, times: 0 }) => assert_eq!(&*name, number.to_string()),
                    (_, Mark::New(_)) => panic!("nobody made one"),
                    _ => panic!("the mark of {number}"),
                }
                let index = |next| {
                    vars.iter()
                        .position(|var| var.is_same(next))
                        .expect("one of the nodes")
                };
                (number, node.next.map(index))
            })
            .collect();
        assert_eq!(numbers, plain);
        Ok(())
    })
    .expect("a view");
}

#[test]
fn a_graph_is_migrated() {
    for seed in 0..40 {
        let heap = heap();
        let plain = found(&heap, seed);
        names(
            &refused!(heap, Ref<'_, v2::Universe<'_>>),
            &[
                "`World` is now `Universe`",
                "field `gone: u8` of `Universe` was removed",
            ],
        );
        heap.run(|tx| tx.migrate::<Ref<'_, v2::Universe<'_>>>())
            .expect("a migration");
        check_migrated(&heap, &plain);
        heap.abort().expect("an abort");
        refused!(heap, Ref<'_, v2::Universe<'_>>);
        assert!(
            heap.update(|tx| tx.migrate::<Ref<'_, v2::Universe<'_>>>())
                .expect("a migration"),
            "seed {seed}"
        );
        check_migrated(&heap, &plain);
        assert!(
            !heap
                .update(|tx| tx.migrate::<Ref<'_, v2::Universe<'_>>>())
                .expect("nothing to do")
        );
        heap.collect().expect("a collection");
        check_migrated(&heap, &plain);
        heap.report().expect("good");
        names(
            &refused!(heap, Ref<'_, v1::World<'_>>),
            &["`Universe` is now `World`"],
        );
    }
}

#[test]
fn a_migration_that_would_lose_something_says_so() {
    let refuse = |heap: &Heap, migrate: &dyn Fn(&gordon::Tx<'_>) -> gordon::Result<bool>| {
        let error = heap.update(|tx| migrate(tx)).expect_err("no migration");
        assert!(matches!(error, Error::Migration(_)), "{error}");
        error.to_string()
    };
    let heap = heap();
    heap.update(|tx| {
        #[derive(Clone, Copy, Persist)]
        struct Pair {
            one: u64,
            two: u8,
        }
        tx.set_root(tx.var(Pair { one: 1, two: 2 }));
        Ok(())
    })
    .expect("a commit");
    {
        #[derive(Clone, Copy, Persist)]
        struct Pair {
            one: u32,
            two: u8,
        }
        names(
            &refuse(&heap, &|tx| tx.migrate::<Var<'_, Pair>>()),
            &["field `one` of `Pair` was `u64`, is `u32`: no conversion"],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Pair {
            one: u64,
        }
        names(
            &refuse(&heap, &|tx| tx.migrate::<Var<'_, Pair>>()),
            &["persist(dropped = \"two\")"],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Pair {
            one: u64,
            three: u8,
        }
        names(
            &refuse(&heap, &|tx| tx.migrate::<Var<'_, Pair>>()),
            &[
                "persist(default) for a new one",
                "persist(was = \"two\") for a new name",
            ],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Couple {
            one: u64,
            two: u8,
        }
        names(
            &refuse(&heap, &|tx| tx.migrate::<Var<'_, Couple>>()),
            &["`Pair` is now `Couple`", "persist(was = \"Pair\")"],
        );
    }
    {
        #[derive(Clone, Copy, Persist)]
        struct Other {
            x: u64,
        }
        names(
            &refuse(&heap, &|tx| tx.migrate::<Var<'_, Other>>()),
            &["was `Pair`, is `Other`: no conversion"],
        );
    }
    names(
        &refuse(&heap, &|tx| tx.migrate::<Ref<'_, u64>>()),
        &["was `Var<Pair>`, is `Ref<u64>`"],
    );
}

/// Elements of sequences, options of references, numbers: what a migration converts in place.
#[test]
fn values_in_values_are_migrated() {
    mod one {
        use gordon::{Array, Persist, Slice, Text};
        #[derive(Clone, Copy, Persist)]
        pub struct Item<'t> {
            pub name: Text<'t>,
            pub size: i16,
        }
        #[derive(Clone, Copy, Persist)]
        pub struct Top<'t> {
            pub slice: Slice<'t, Item<'t>>,
            pub array: Array<'t, Option<Item<'t>>>,
            pub empty: Slice<'t, Item<'t>>,
            pub text: Text<'t>,
            pub ratio: f32,
        }
    }
    mod two {
        use gordon::{Array, Persist, Slice, Text};
        #[derive(Clone, Copy, Persist)]
        pub struct Item<'t> {
            #[persist(default)]
            pub note: Option<Text<'t>>,
            pub size: i128,
            pub name: Text<'t>,
        }
        #[derive(Clone, Copy, Persist)]
        pub struct Top<'t> {
            pub slice: Slice<'t, Item<'t>>,
            pub array: Array<'t, Option<Item<'t>>>,
            pub empty: Slice<'t, Item<'t>>,
            pub text: Option<Text<'t>>,
            pub ratio: f64,
        }
    }
    let heap = heap();
    heap.update(|tx| {
        let item = |n: i16| one::Item {
            name: tx.text(&n.to_string()),
            size: -n,
        };
        tx.set_root(tx.alloc(one::Top {
            slice: tx.slice(&[item(1), item(2), item(3)]),
            array: tx.array(&[Some(item(4)), None, Some(item(i16::MAX))]),
            empty: tx.slice(&[]),
            text: tx.text("kept"),
            ratio: 0.1,
        }));
        Ok(())
    })
    .expect("a commit");
    heap.update(|tx| {
        assert!(tx.migrate::<Ref<'_, two::Top<'_>>>()?);
        let top = tx.root::<Ref<'_, two::Top<'_>>>()?.expect("set").read();
        let plain = |item: two::Item<'_>| (item.name.to_string(), item.size, item.note.is_none());
        let item = |n: i128| (n.to_string(), -n, true);
        assert_eq!(
            top.slice.iter().map(plain).collect::<Vec<_>>(),
            [item(1), item(2), item(3)]
        );
        let array: Vec<_> = (0..3)
            .map(|at| top.array.get(at).expect("in range").map(plain))
            .collect();
        assert_eq!(array, [Some(item(4)), None, Some(item(i16::MAX.into()))]);
        assert_eq!(
            (top.empty.len(), top.text.as_deref(), top.ratio),
            (0, Some("kept"), f64::from(0.1_f32))
        );
        Ok(())
    })
    .expect("a migration");
    heap.report().expect("good");
}

#[test]
fn a_program_migrates_by_hand() {
    use v1::World;
    let heap = heap();
    let plain = found(&heap, 7);
    #[derive(Clone, Copy, Persist)]
    struct Numbers<'t> {
        sum: u64,
        all: Slice<'t, u32>,
    }
    heap.update(|tx| {
        let old = tx.root::<Ref<'_, World<'_>>>()?.expect("set").read();
        let all: Vec<u32> = old.nodes.iter().map(|node| node.read().number).collect();
        let sum = all.iter().map(|number| u64::from(*number)).sum();
        tx.set_root(tx.alloc(Numbers {
            sum,
            all: tx.slice(&all),
        }));
        Ok(())
    })
    .expect("a commit");
    heap.view(|view| {
        let numbers = view.root::<Ref<'_, Numbers<'_>>>()?.expect("set").read();
        assert!(
            numbers
                .all
                .iter()
                .eq(plain.iter().map(|(number, _)| *number))
        );
        assert_eq!(
            numbers.sum,
            plain
                .iter()
                .map(|(number, _)| u64::from(*number))
                .sum::<u64>()
        );
        Ok(())
    })
    .expect("a view");
    names(
        &refused!(heap, Ref<'_, World<'_>>),
        &["`struct Numbers", "`struct World"],
    );
}

#[test]
fn an_abort_takes_the_types_back() {
    let heap = heap();
    heap.update(|tx| {
        tx.set_root(tx.var(5_u64));
        Ok(())
    })
    .expect("a commit");
    let failed = heap.update(|tx| {
        tx.set_root(tx.var(5_i64));
        assert!(tx.root::<Var<'_, i64>>()?.is_some());
        assert!(tx.root::<Var<'_, u64>>().is_err());
        Err::<(), _>(Error::abort("on purpose"))
    });
    assert!(failed.is_err());
    names(&refused!(heap, Var<'_, i64>), &["was `u64`, is `i64`"]);
    heap.view(|view| {
        view.root::<Var<'_, u64>>()
            .map(|root| assert_eq!(root.expect("set").read(), 5))
    })
    .expect("back");
}

/// Counts of the objects of a world, by type.
#[test]
fn statistics_count_what_the_root_reaches() {
    let make = |length| Ok(Arc::new(MemoryMedium::new(length)?) as Arc<dyn gordon::flash::Medium>);
    let heap = Heap::create_in(make, 32 << 16, 1 << 16, small_options(Collector::AtCommit))
        .expect("a heap");
    assert!(matches!(
        heap.view(|view| view.statistics()),
        Err(Error::NoRoot)
    ));
    heap.update(|tx| {
        common::found(tx);
        Ok(())
    })
    .expect("a commit");
    let (mut plain, mut rng) = (Plain::default(), Rng(3));
    for _ in 0..30 {
        heap.update(|tx| {
            for _ in 0..9 {
                plain.apply(tx, &common::Change::random(&mut rng));
            }
            Ok(())
        })
        .expect("a commit");
        let found = heap.view(|view| view.statistics()).expect("statistics");
        let counts: HashMap<_, _> = found
            .types
            .iter()
            .map(|of| (of.name.as_str(), of.objects))
            .collect();
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        assert_eq!(
            (
                count("Ref<World>"),
                count("ByteArray"),
                count("Array<Option<Slice<u32>>>")
            ),
            (1, 1, 1)
        );
        assert_eq!(count("Ref<Node<u32, Text>>"), plain.keys() as u64);
        assert_eq!(count("Var<Node>"), plain.nodes() as u64);
        let report = heap.report().expect("good");
        let reachable: u64 = found.types.iter().map(|of| of.bytes).sum();
        let used = report.immutable_bytes + report.mutable_bytes;
        assert_eq!(reachable + found.own_bytes + found.garbage_bytes, used);
    }
    heap.collect().expect("a collection");
    let found = heap.view(|view| view.statistics()).expect("statistics");
    assert_eq!(found.garbage_bytes, 0, "a collection leaves none");
}
