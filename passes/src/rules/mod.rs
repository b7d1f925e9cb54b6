//! Rewrite rules as data: directional, named, one line each, by topic, in the host's algebra.

use std::sync::LazyLock;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::op::Op;
use rustc_hash::FxHashMap;

use crate::pass::OptionValue;
use crate::target::Targets;

mod algebra;
mod arithmetic;
mod cast;
mod composites;
mod folds;
mod indices;
mod layout;
mod logic;
mod masks;
pub mod matching;
mod moved;
mod parts;
pub mod pattern;
mod powers;

use matching::Match;
use pattern::Pattern;

/// What a rule may change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Nothing: the same bits for all values, and no gradient that is finite.
    Exact,
    /// The same function on the reals, within a composite's stated tolerance; it may turn what is
    /// infinite or NaN finite, never the reverse.
    Recognise,
    /// The order of sums and products.
    Reassociating,
    /// More, where the user asks for it.
    Fast,
}

impl OptionValue for Class {
    fn parse(text: &str, _: Targets) -> std::result::Result<Class, String> {
        let found = Class::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| format!("one of {}", Class::ALL.map(Class::name).join(", ")))
    }

    fn print(&self) -> String {
        self.name().to_string()
    }
}

impl Class {
    /// From the strictest to the freest.
    pub const ALL: [Class; 4] = [Class::Exact, Class::Recognise, Class::Reassociating, Class::Fast];

    /// The name of what allows rules of this class and of those before it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Recognise => "recognise",
            Class::Reassociating => "reassociate",
            Class::Fast => "fast",
        }
    }
}

/// The axes of the first fold of this name on the left, and whether they stay.
fn fold_of(m: &Match, name: &str) -> Option<Attrs> {
    let at = m.find(name)?;
    Some(vec![("axes", m.attr(at, "axes").clone()), ("keepdim", m.attr(at, "keepdim").clone())])
}

/// Checks names of rules that a user gives. Errors: there is none of a name.
pub fn check_names(names: &[String]) -> Result<()> {
    let known = || RULES.iter().map(|rule| rule.name);
    match names.iter().find(|name| !known().any(|rule| rule == *name)) {
        None => Ok(()),
        Some(name) => {
            let mut error = Diagnostic::new(format!("there is no rule `{name}`"));
            error.hint = did_you_mean(name, known());
            error.err()
        }
    }
}

fn is_int(m: &Match) -> bool {
    m.dtype(0).is_int()
}

fn is_float(m: &Match) -> bool {
    m.dtype(0).is_float()
}

/// Attributes of the operation that a rule builds, by name; defaults fill the others.
pub type Attrs = Vec<(&'static str, Attr)>;

/// `left` becomes `right`, wherever the two have the same type and `when` holds.
pub struct Rule {
    pub name: &'static str,
    pub topic: &'static str,
    pub class: Class,
    pub left: Pattern,
    pub right: Pattern,
    /// A condition beside the pattern and the type.
    pub when: Option<fn(&Match) -> bool>,
    /// Whether the right side is better wherever the rule fits: `canonicalize` applies it then.
    pub always: bool,
    /// Whether the left side is not taken where the rule fits, whatever it costs.
    pub supersedes: bool,
}

/// A rule that keeps the bits, and whose right side is never worse.
fn exact(name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { always: true, ..choice(Class::Exact, name, left, right) }
}

/// A rule whose right side costs decide on.
pub fn choice(class: Class, name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { name, topic: "", class, left, right, when: None, always: false, supersedes: false }
}

/// A rule that finds a form which stays finite longer, or whose gradient is known in a better form.
fn recognise(name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { supersedes: true, ..choice(Class::Recognise, name, left, right) }
}

impl Rule {
    fn when(self, when: fn(&Match) -> bool) -> Rule {
        Rule { when: Some(when), ..self }
    }
}

/// Every rule, topic by topic, in the order they are tried.
pub static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let topics = [
        ("arithmetic", arithmetic::rules()),
        ("logic", logic::rules()),
        ("cast", cast::rules()),
        ("layout", layout::rules()),
        ("layout", layout::choices()),
        ("layout", layout::outward()),
        ("layout", parts::rules()),
        ("algebra", algebra::rules()),
        ("powers", powers::rules()),
        ("folds", folds::rules()),
        ("folds", moved::rules()),
        ("indices", indices::rules()),
        ("composites", composites::rules()),
    ];
    let named = |(topic, rules): (&'static str, Vec<Rule>)| {
        rules.into_iter().map(move |rule| Rule { topic, ..rule })
    };
    topics.into_iter().flat_map(named).collect()
});

static BY_ROOT: LazyLock<FxHashMap<Op, Vec<&'static Rule>>> = LazyLock::new(|| {
    let mut by_root: FxHashMap<Op, Vec<&'static Rule>> = FxHashMap::default();
    for rule in RULES.iter() {
        for left in rule.left.roots() {
            for op in left.heads() {
                let rules = by_root.entry(op).or_default();
                if !rules.iter().any(|known| known.name == rule.name) {
                    rules.push(rule);
                }
            }
        }
    }
    by_root
});

/// The rules whose left side is of this operation.
pub fn of_root(op: Op) -> &'static [&'static Rule] {
    BY_ROOT.get(&op).map_or(&[], |rules| rules)
}
