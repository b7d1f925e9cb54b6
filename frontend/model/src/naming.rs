//! Names of blocks (from their kinds) and of symbols (from terminals), and checks for valid names.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::identity::Identity;

/// The kind of a block in snake case: `MultiHeadAttention` → `multi_head_attention`,
/// `RMSNorm` → `rms_norm`, `BatchNorm1d` → `batch_norm1d`.
pub fn snake_case(kind: &str) -> String {
    // An abbreviation with a lowercase letter inside.
    if kind == "MoE" {
        return "moe".to_string();
    }
    let chars: Vec<char> = kind.chars().collect();
    let mut out = String::with_capacity(kind.len() + 4);
    for (i, &c) in chars.iter().enumerate() {
        if c.is_uppercase() {
            let after_lower = i > 0 && chars[i - 1].is_lowercase();
            let after_digit = i > 0 && chars[i - 1].is_ascii_digit();
            let before_lower = chars.get(i + 1).is_some_and(|n| n.is_lowercase());
            let inside = i > 0 && chars[i - 1] != '_';
            if inside && (after_lower || after_digit || before_lower) {
                out.push('_');
            }
            out.extend(c.to_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// The name of a block without one. A kind may be the name of a Python class, which may be empty or
/// contain any character.
fn name_of_kind(kind: &str) -> String {
    match snake_case(kind).replace(['.', '\0'], "_") {
        name if name.is_empty() => snake_case("Model"),
        name => name,
    }
}

/// Rejects names that would make paths ambiguous or that cannot occur in source code. Errors: an
/// empty name; a name with a dot or a NUL character.
pub(crate) fn check_name(name: &str, what: &str) -> Result<()> {
    if name.is_empty() {
        return Diagnostic::of(ErrorKind::Name, format!("the name of a {what} is empty")).err();
    }
    if name.contains('.') {
        return Diagnostic::of(
            ErrorKind::Name,
            format!("the name of a {what} has a dot in it: dots join the names of nested blocks"),
        )
        .got(format!("`{name}`"))
        .hint(format!("use `{}`", name.replace('.', "_")))
        .err();
    }
    if name.contains('\0') {
        return Diagnostic::of(
            ErrorKind::Name,
            format!("the name of a {what} has a NUL character in it"),
        )
        .got(format!("{name:?}"))
        .hint(format!("use {:?}", name.replace('\0', "_")))
        .err();
    }
    Ok(())
}

/// Makes a dim symbol from any text. Characters that symbols do not allow become underscores.
pub fn symbol(text: &str) -> Symbol {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut name: String = text.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    Symbol::from(name)
}

/// The symbol for the name of a dim. Errors: text that is not an identifier, such as an expression.
pub(crate) fn dim_symbol(name: &str) -> Result<Symbol> {
    if mithril_ir::text::is_identifier(name) {
        return Ok(symbol(name));
    }
    Diagnostic::of(ErrorKind::Shapes, "this is not a name of a dim")
        .got(format!("{name:?}"))
        .expected("ASCII letters, digits and underscores, such as \"batch\"; a size; None")
        .hint("name only the dims of inputs: dims that follow from others are inferred")
        .err()
}

/// Generates unused names. The time per name does not grow with the number of clashes.
#[derive(Clone, Default)]
pub(crate) struct Unique {
    next: FxHashMap<String, u32>,
}

impl Unique {
    /// Returns `base`, or the first of `base_1`, `base_2`, … for which `taken` is false.
    pub fn name(&mut self, base: &str, taken: impl Fn(&str) -> bool) -> Arc<str> {
        if !taken(base) {
            return base.into();
        }
        let next = self.next.entry(base.to_string()).or_insert(1);
        loop {
            let name = format!("{base}_{next}");
            *next += 1;
            if !taken(&name) {
                return name.into();
            }
        }
    }
}

/// The properties of a model's child that determine its name.
pub(crate) struct Sibling<'a> {
    pub kind: &'a str,
    pub name: Option<&'a Arc<str>>,
    pub identity: Identity,
}

/// Two names for each child. The first is used in paths: the given name, or else the kind in snake
/// case, with a number if several unnamed children have that kind. A named block that is used again
/// gets a number as suffix. The second name determines the key fold; it does not change when
/// siblings are added. Errors: two different objects with the same given name.
pub(crate) fn siblings(all: &[Sibling]) -> Result<Vec<(Arc<str>, Arc<str>)>> {
    let mut given: FxHashMap<&str, Identity> = FxHashMap::default();
    let mut counts: FxHashMap<&str, (u32, u32)> = FxHashMap::default();
    for Sibling { kind, name, identity } in all {
        match name {
            Some(name) if given.insert(name, *identity).is_some_and(|own| own != *identity) => {
                return Diagnostic::of(ErrorKind::Name, format!("two blocks are called `{name}`"))
                    .got("two objects, each with params of its own")
                    .expected("one object for each name, which may be used several times")
                    .hint("give one of them another name")
                    .err();
            }
            Some(_) => {}
            None => counts.entry(kind).or_default().0 += 1,
        }
    }
    let mut taken: FxHashSet<Arc<str>> = given.keys().map(|name| (*name).into()).collect();
    let reuses = names_of_reuses(all, &mut taken);
    let mut names = Vec::with_capacity(all.len());
    for (Sibling { kind, name, .. }, reuse) in all.iter().zip(reuses) {
        if let Some(name) = reuse.as_ref().or(*name) {
            names.push((name.clone(), name.clone()));
            continue;
        }
        let base = name_of_kind(kind);
        let (count, next) = counts.get_mut(kind).expect("counted above");
        let mut numbered = || loop {
            let name = format!("{base}_{next}");
            *next += 1;
            if !taken.contains(&*name) {
                return Arc::<str>::from(name);
            }
        };
        let stable = numbered();
        let name =
            if *count == 1 && !taken.contains(&*base) { base.into() } else { stable.clone() };
        names.push((name, stable));
    }
    Ok(names)
}

/// For each further use of a named block, its name with a number; `None` for all other children.
fn names_of_reuses(all: &[Sibling], taken: &mut FxHashSet<Arc<str>>) -> Vec<Option<Arc<str>>> {
    let mut uses: FxHashMap<Arc<str>, u32> = FxHashMap::default();
    let mut next = |name: &Arc<str>| {
        // The number of uses so far.
        let number = uses.entry(name.clone()).or_default();
        *number += 1;
        if *number == 1 {
            return None;
        }
        loop {
            let own: Arc<str> = format!("{name}_{}", *number - 1).into();
            if taken.insert(own.clone()) {
                return Some(own);
            }
            *number += 1;
        }
    };
    all.iter().map(|sibling| next(sibling.name?)).collect()
}

/// Pairs the old and new names of params that were renamed because siblings were added or removed.
/// A block that is the only one of its kind is `linear`, the first of several `linear_0`.
///
/// `given` are the stored names, `own` the names of the model. Names in both are left out.
pub fn renamed<'a>(given: &[&'a str], own: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let unnumbered = |path: &str| {
        let segments = path.split('.').map(|name| name.strip_suffix("_0").unwrap_or(name));
        segments.collect::<Vec<_>>().join(".")
    };
    let only = |names: &[&'a str], others: &[&'a str]| {
        let others: FxHashSet<&str> = others.iter().copied().collect();
        let mut found: FxHashMap<String, Vec<&'a str>> = FxHashMap::default();
        for name in names.iter().filter(|name| !others.contains(*name)) {
            found.entry(unnumbered(name)).or_default().push(name);
        }
        found
    };
    let (old, new) = (only(given, own), only(own, given));
    let pairs = given.iter().filter_map(|name| {
        match (old.get(&unnumbered(name))?.as_slice(), new.get(&unnumbered(name))?.as_slice()) {
            ([one], [other]) if one == name => Some((*one, *other)),
            _ => None,
        }
    });
    pairs.collect()
}

/// The 32-bit FNV-1a hash of a block's name, which is folded into its random key.
pub(crate) fn fold_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_in_snake_case() {
        for (kind, name) in [
            ("Linear", "linear"),
            ("MLP", "mlp"),
            ("MoE", "moe"),
            ("LSTM", "lstm"),
            ("GPT2", "gpt2"),
            ("RMSNorm", "rms_norm"),
            ("KLDivergence", "kl_divergence"),
            ("BatchNorm1d", "batch_norm1d"),
            ("MultiHeadAttention", "multi_head_attention"),
            ("L1", "l1"),
            ("My_Model", "my_model"),
        ] {
            assert_eq!(snake_case(kind), name);
        }
    }

    #[test]
    fn names_of_kinds_are_parts_of_paths() {
        let names = ["MyBlock", "x.y", "", "."].map(name_of_kind);
        assert_eq!(names, ["my_block", "x_y", "model", "_"]);
    }

    #[test]
    fn siblings_of_one_kind_are_numbered() {
        let fc = Arc::from("linear_0");
        let all = [("Linear", None), ("Relu", None), ("Linear", Some(&fc)), ("Linear", None)];
        let all = all.map(|(kind, name)| Sibling { kind, name, identity: Identity::new() });
        let names: Vec<_> =
            siblings(&all).unwrap().iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["linear_1", "relu", "linear_0", "linear_2"]);
    }

    #[test]
    fn a_block_that_is_used_again_gets_a_number_as_suffix() {
        let (enc, taken) = (Arc::from("enc"), Arc::from("enc_1"));
        let (one, other) = (Identity::new(), Identity::new());
        let of = |name, identity| Sibling { kind: "Linear", name: Some(name), identity };
        let all = [of(&enc, one), of(&enc, one), of(&taken, other), of(&enc, one)];
        let names: Vec<_> =
            siblings(&all).unwrap().iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["enc", "enc_2", "enc_1", "enc_3"]);
        let unnamed = || Sibling { kind: "Enc", name: None, identity: Identity::new() };
        let all = [unnamed(), of(&enc, one), unnamed(), of(&enc, one)];
        let names: Vec<_> =
            siblings(&all).unwrap().iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["enc_0", "enc", "enc_2", "enc_1"]);
        assert!(siblings(&[of(&enc, one), of(&enc, other)]).is_err());
    }

    #[test]
    fn params_are_renamed_when_siblings_are_added() {
        let old = ["linear.w", "linear.b", "norm.w"];
        let new = ["linear_0.w", "linear_0.b", "linear_1.w", "norm.w"];
        assert_eq!(renamed(&old, &new), [("linear.w", "linear_0.w"), ("linear.b", "linear_0.b")]);
        assert_eq!(renamed(&["a_0.mlp.w"], &["a.mlp_0.w", "b.w"]), [("a_0.mlp.w", "a.mlp_0.w")]);
        // An ambiguous match is left alone, and so are other paths.
        assert_eq!(renamed(&["a_0.b.w"], &["a.b_0.w", "a.b.w"]), []);
        assert_eq!(renamed(&["linear.w"], &["linear_1.w"]), []);
    }
}
