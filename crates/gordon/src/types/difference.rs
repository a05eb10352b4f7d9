//! What differs between the types of a heap and those of a program, and what of it can be migrated.
//!
//! Types are compared in pairs, from the root on. Values of a pair that is the same all the way down are the same words;
//! the others have to be converted.

use super::describe::{Field, Name, Variant};
use super::{Catalogue, Shape, TypeNumber};
use std::collections::{HashMap, HashSet, VecDeque};

/// A stored type, and the program's at the same place.
pub(crate) type Pair = (TypeNumber, TypeNumber);

/// Differences that an error names.
const NAMED: usize = 6;

/// One difference.
#[derive(Debug)]
struct Difference {
    text: String,
    /// What a migration lacks, if it cannot go over it.
    lacks: Option<String>,
    pair: Pair,
}

/// The differences between two catalogues.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    old: &'a Catalogue,
    new: &'a Catalogue,
    differences: Vec<Difference>,
    /// Pairs whose values are other words, or have other headers.
    changed: HashSet<Pair>,
    seen: HashSet<Pair>,
    /// The pairs that contain, or refer to, a pair.
    users: HashMap<Pair, Vec<Pair>>,
    queue: VecDeque<(Pair, String)>,
}

/// For each new name the place of the old one.
fn matched<O, N>(old: &[O], new: &[N], is: impl Fn(&N, &O) -> [bool; 2]) -> Vec<Option<usize>> {
    let find = |n: &N, way: usize| old.iter().position(|o| is(n, o)[way]);
    let mut taken: Vec<_> = new.iter().map(|n| find(n, 0)).collect();
    for (at, n) in new.iter().enumerate() {
        if taken[at].is_none() {
            taken[at] = find(n, 1).filter(|old| !taken.contains(&Some(*old)));
        }
    }
    taken
}

/// The old field for each new one.
pub(crate) fn fields_of(old: &[Field], new: &[Field]) -> Vec<Option<usize>> {
    matched(old, new, |n, o| [n.name == o.name, n.is_or_was(&o.name)])
}

/// The old variant for each new one.
pub(crate) fn variants_of(old: &[Variant], new: &[Variant]) -> Vec<Option<usize>> {
    matched(old, new, |n, o| [n.name == o.name, n.is_or_was(&o.name)])
}

/// Whether the places are those of the old order.
fn is_in_order(places: &[Option<usize>]) -> bool {
    places.iter().flatten().is_sorted()
}

impl<'a> Comparison<'a> {
    pub(crate) fn of(old: &'a Catalogue, new: &'a Catalogue) -> Self {
        let mut all = Self {
            old,
            new,
            differences: Vec::new(),
            changed: HashSet::new(),
            seen: HashSet::new(),
            users: HashMap::new(),
            queue: VecDeque::new(),
        };
        let root = (Catalogue::ROOT, Catalogue::ROOT);
        all.seen.insert(root);
        all.queue.push_back((root, "the root".to_owned()));
        while let Some((pair, place)) = all.queue.pop_front() {
            all.compare(pair, &place);
        }
        all.spread();
        all
    }

    /// Whether values of the pair are the same words all the way down.
    pub(crate) fn is_same(&self, pair: Pair) -> bool {
        !self.changed.contains(&pair)
    }

    /// Whether nothing differs.
    pub(crate) fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// The differences, after the two definitions that the first one is about.
    pub(crate) fn text(&self) -> String {
        let Some(first) = self.differences.first() else {
            return "nothing differs".to_owned();
        };
        let (old, new) = first.pair;
        let (old, new) = (self.old.definition(old), self.new.definition(new));
        let texts = self
            .differences
            .iter()
            .map(|difference| difference.text.clone());
        format!("the heap has `{old}`, the program `{new}`: {}", some(texts))
    }

    /// What a migration lacks, if anything.
    pub(crate) fn lacks(&self) -> Option<String> {
        let lacking = |d: &Difference| d.lacks.as_ref().map(|lacks| format!("{}: {lacks}", d.text));
        let lacking: Vec<_> = self.differences.iter().filter_map(lacking).collect();
        (!lacking.is_empty()).then(|| some(lacking.into_iter()))
    }

    fn differ(&mut self, pair: Pair, text: String, lacks: Option<String>) {
        self.changed.insert(pair);
        self.differences.push(Difference { text, lacks, pair });
    }

    /// `user` contains, or refers to, `pair`, at a place.
    fn follow(&mut self, user: Pair, pair: Pair, place: &str) {
        self.users.entry(pair).or_default().push(user);
        if self.seen.insert(pair) {
            self.queue.push_back((pair, place.to_owned()));
        }
    }

    /// What contains something changed is changed.
    fn spread(&mut self) {
        let mut queue: Vec<Pair> = self.changed.iter().copied().collect();
        while let Some(pair) = queue.pop() {
            for user in self.users.get(&pair).into_iter().flatten() {
                if self.changed.insert(*user) {
                    queue.push(*user);
                }
            }
        }
    }

    fn compare(&mut self, pair: Pair, place: &str) {
        let (old, new) = (self.old, self.new);
        let (o, n) = pair;
        let before = self.differences.len();
        match (old.shape(o), new.shape(n)) {
            (Shape::Unit, Shape::Unit) => {}
            (Shape::Plain(one), Shape::Plain(other)) if one == other => {}
            (Shape::Plain(one), Shape::Plain(other)) if one.widens_to(*other) => {
                self.is_now(pair, place, None);
            }
            (Shape::Reference(one), Shape::Reference(other)) if one.name() == other.name() => {
                if let (Some(one), Some(other)) = (one.target(), other.target()) {
                    self.follow(pair, (one, other), place);
                }
            }
            (Shape::Option(one), Shape::Option(other)) => self.follow(pair, (*one, *other), place),
            (_, Shape::Option(other)) => {
                self.is_now(pair, place, None);
                self.follow(pair, (o, *other), place);
            }
            (Shape::Fixed(one, a), Shape::Fixed(other, b)) if a == b => {
                self.follow(pair, (*one, *other), place);
            }
            (Shape::Tuple(one), Shape::Tuple(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(other) {
                    self.follow(pair, (*one, *other), place);
                }
            }
            (Shape::Struct(one, from), Shape::Struct(other, to)) => {
                let related = || {
                    other.is_or_was(&one.name)
                        || from.is_empty() && to.is_empty()
                        || fields_of(from, to).iter().any(Option::is_some)
                };
                if !related() {
                    return self.is_now(pair, place, Some("no conversion is known"));
                }
                self.names(pair, one, other);
                let dropped = &other.dropped;
                self.fields(pair, &other.name, dropped, from, to);
            }
            (
                Shape::Enum {
                    name: one,
                    variants: from,
                    ..
                },
                Shape::Enum {
                    name: other,
                    variants: to,
                    ..
                },
            ) => {
                let places = variants_of(from, to);
                if !other.is_or_was(&one.name) && places.iter().all(Option::is_none) {
                    return self.is_now(pair, place, Some("no conversion is known"));
                }
                self.names(pair, one, other);
                self.variants(pair, other, from, to);
            }
            _ => self.is_now(pair, place, Some("no conversion is known")),
        }
        let is_object = matches!(new.shape(n), Shape::Struct(..) | Shape::Enum { .. });
        if old.get(o).schema != new.get(n).schema && before == self.differences.len() {
            self.changed.insert(pair);
            if is_object {
                // Such as another spelling of a field's type.
                let text = format!("the text of the definition of `{}` differs", new.name(n));
                self.differ(pair, text, None);
            }
        }
    }

    fn is_now(&mut self, pair: Pair, place: &str, lacks: Option<&str>) {
        let (old, new) = (self.old.name(pair.0), self.new.name(pair.1));
        let text = if old == new {
            format!("{place} is another `{new}`")
        } else {
            format!("{place} was `{old}`, is `{new}`")
        };
        self.differ(pair, text, lacks.map(str::to_owned));
    }

    fn names(&mut self, pair: Pair, old: &Name, new: &Name) {
        let (old, is) = (&old.name, new.is_or_was(&old.name));
        if *old != new.name {
            let lacks = (!is)
                .then(|| format!("give `{}` the attribute persist(was = \"{old}\")", new.name));
            self.differ(pair, format!("`{old}` is now `{}`", new.name), lacks);
        }
    }

    fn fields(
        &mut self,
        pair: Pair,
        owner: &str,
        dropped: &[String],
        old: &[Field],
        new: &[Field],
    ) {
        let places = fields_of(old, new);
        let (of_old, of_new) = (self.old, self.new);
        let lost = (0..old.len()).filter(|at| !places.contains(&Some(*at)));
        let lost: Vec<_> = lost.collect();
        for (at, (field, place)) in new.iter().zip(&places).enumerate() {
            let name = &field.name;
            match place {
                Some(place) => {
                    let was = &old[*place].name;
                    if was != name {
                        self.differ(
                            pair,
                            format!("field `{was}` of `{owner}` is now `{name}`"),
                            None,
                        );
                    }
                    let here = format!("field `{name}` of `{owner}`");
                    self.follow(pair, (old[*place].of, field.of), &here);
                }
                None => {
                    let of = of_new.name(field.of);
                    let text = format!("field `{name}: {of}` of `{owner}` was added");
                    // One in the place of another may be the other under a new name.
                    let renamed = lost.contains(&at).then(|| {
                        format!(
                            " for a new one, persist(was = \"{}\") for a new name",
                            old[at].name
                        )
                    });
                    let lacks = field.fill.is_none().then(|| {
                        let renamed = renamed.unwrap_or_default();
                        format!("give it the attribute persist(default){renamed}")
                    });
                    self.differ(pair, text, lacks);
                }
            }
        }
        for at in lost {
            let (name, of) = (&old[at].name, of_old.name(old[at].of));
            let lacks = (!dropped.contains(name)).then(|| {
                format!("give `{owner}` the attribute persist(dropped = \"{name}\") if its values may be lost")
            });
            self.differ(
                pair,
                format!("field `{name}: {of}` of `{owner}` was removed"),
                lacks,
            );
        }
        if !is_in_order(&places) {
            self.differ(
                pair,
                format!("the fields of `{owner}` have another order"),
                None,
            );
        }
    }

    fn variants(&mut self, pair: Pair, owner: &Name, old: &[Variant], new: &[Variant]) {
        let places = variants_of(old, new);
        let name = &owner.name;
        for (variant, place) in new.iter().zip(&places) {
            let own = format!("{name}::{}", variant.name);
            let Some(place) = place else {
                self.differ(pair, format!("variant `{own}` was added"), None);
                continue;
            };
            let before = &old[*place];
            if before.name != variant.name {
                self.differ(
                    pair,
                    format!("variant `{name}::{}` is now `{own}`", before.name),
                    None,
                );
            }
            self.fields(pair, &own, &owner.dropped, &before.fields, &variant.fields);
        }
        let lost = (0..old.len()).filter(|at| !places.contains(&Some(*at)));
        for at in lost {
            // A migration refuses values of it.
            self.differ(
                pair,
                format!("variant `{name}::{}` was removed", old[at].name),
                None,
            );
        }
        if !is_in_order(&places) {
            self.differ(
                pair,
                format!("the variants of `{name}` have another order"),
                None,
            );
        }
    }
}

/// The first few of some texts.
fn some(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    let more = texts.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    texts[..texts.len().min(NAMED)].join("; ") + &more
}
