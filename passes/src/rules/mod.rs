//! Rewrite rules as data: directed, named, one line each, grouped by topic, written in Rust
//! expressions.

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
pub mod matched;
pub mod matching;
mod moved;
mod parts;
pub mod pattern;
mod powers;
mod windows;

use matched::Match;
use pattern::Pattern;

/// What a rule may change, from nothing to rounding and special values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Nothing: results have the same bits for all values, and gradients where they are finite.
    Exact,
    /// The same function on the reals, within the stated tolerance of a composite. It may turn an
    /// infinite or NaN result into a finite one, never the reverse.
    Recognise,
    /// The order of additions and multiplications.
    Reassociating,
    /// More than that; only if the user asks for it.
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
    /// From the strictest to the least strict.
    pub const ALL: [Class; 4] = [Class::Exact, Class::Recognise, Class::Reassociating, Class::Fast];

    /// The name of the option value that allows this class and the stricter ones.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Recognise => "recognise",
            Class::Reassociating => "reassociate",
            Class::Fast => "fast",
        }
    }
}

/// The axes of the first reduction of this name on the left side, and whether they are kept.
fn axes_of(m: &Match, name: &str) -> Option<Attrs> {
    let at = m.find(name)?;
    Some(vec![("axes", m.attr(at, "axes").clone()), ("keepdim", m.attr(at, "keepdim").clone())])
}

/// Checks rule names that a user gives.
/// Errors: a name that no rule has.
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

/// Attributes of an operation that a rule builds, by name; the others get their defaults.
pub type Attrs = Vec<(&'static str, Attr)>;

/// Rewrites `left` to `right`, wherever both have the same type and `when` holds.
pub struct Rule {
    pub name: &'static str,
    pub topic: &'static str,
    pub class: Class,
    pub left: Pattern,
    pub right: Pattern,
    /// A condition in addition to the pattern and the type.
    pub when: Option<fn(&Match) -> bool>,
    /// Whether the right side is better wherever the rule matches, so that `canonicalize` applies
    /// it.
    pub always: bool,
    /// Whether the left side is avoided wherever the rule matches, whatever it costs.
    pub supersedes: bool,
}

/// A rule that keeps the bits and whose right side is never worse.
fn exact(name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { always: true, ..choice(Class::Exact, name, left, right) }
}

/// A rule that is applied only if its right side costs less.
pub fn choice(class: Class, name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { name, topic: "", class, left, right, when: None, always: false, supersedes: false }
}

/// A rule that recognises a form that stays finite for more inputs, or that has a better gradient.
fn recognise(name: &'static str, left: Pattern, right: Pattern) -> Rule {
    Rule { supersedes: true, ..choice(Class::Recognise, name, left, right) }
}

impl Rule {
    fn when(self, when: fn(&Match) -> bool) -> Rule {
        Rule { when: Some(when), ..self }
    }
}

/// All rules, topic by topic, in the order in which they are tried.
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
        ("windows", windows::rules()),
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
            for op in left.root_ops() {
                let rules = by_root.entry(op).or_default();
                if !rules.iter().any(|known| known.name == rule.name) {
                    rules.push(rule);
                }
            }
        }
    }
    by_root
});

/// The rules whose left side has this operation at its root.
pub fn of_root(op: Op) -> &'static [&'static Rule] {
    BY_ROOT.get(&op).map_or(&[], |rules| rules)
}
