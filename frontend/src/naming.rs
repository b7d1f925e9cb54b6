//! Names: of blocks after their kinds, of symbols after terminals, and which ones are allowed.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};

/// The kind of a block in snake case: `MultiHeadAttention` → `multi_head_attention`,
/// `RMSNorm` → `rms_norm`, `BatchNorm1d` → `batch_norm1d`.
pub fn snake_case(kind: &str) -> String {
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

/// Refuses names that paths could not tell apart. Errors: an empty name, a dot in it.
pub fn check_name(name: &str, what: &str) -> Result<()> {
    if name.is_empty() {
        return Diagnostic::new(format!("the name of a {what} is empty")).err();
    }
    if name.contains('.') {
        return Diagnostic::new(format!(
            "the name of a {what} has a dot in it: dots join the names of nested blocks"
        ))
        .got(format!("`{name}`"))
        .hint(format!("`{}` would do", name.replace('.', "_")))
        .err();
    }
    Ok(())
}

/// A symbol of a dim from any text: what is not allowed in symbols becomes an underscore.
pub fn symbol(text: &str) -> Symbol {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut name: String = text.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    Symbol::from(name)
}

/// The symbol of a dim that an author named. Errors: an expression or another text that is no name,
/// which would be taken for one.
pub fn dim_symbol(name: &str) -> Result<Symbol> {
    if mithril_ir::text::is_identifier(name) {
        return Ok(symbol(name));
    }
    Diagnostic::new("Incompatible shapes during compilation: this is no name of a dim")
        .got(format!("\"{name}\""))
        .expected("ASCII letters, digits and underscores, such as \"batch\"; a size; None")
        .hint("dims that follow from others are inferred: name the inputs' dims alone")
        .err()
}

/// Names that are not taken yet, in time that does not grow with how many clash.
#[derive(Clone, Default)]
pub struct Unique {
    next: FxHashMap<String, u32>,
}

impl Unique {
    /// `base`, or `base_1`, `base_2`, … where `taken` says so.
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

/// What a child is called: its own name, or its kind in snake case, numbered where siblings share
/// one. The second name is the one keys are folded with: it stays when siblings are added.
/// Errors: two siblings of one given name.
pub fn siblings(kinds: &[(&str, Option<&Arc<str>>)]) -> Result<Vec<(Arc<str>, Arc<str>)>> {
    let mut given: FxHashSet<&str> = FxHashSet::default();
    let mut counts: FxHashMap<&str, (u32, u32)> = FxHashMap::default();
    for (kind, name) in kinds {
        match name {
            Some(name) if !given.insert(name) => {
                return Diagnostic::new(format!("two blocks are called `{name}`"))
                    .hint("give each its own name, or leave names out")
                    .err();
            }
            Some(_) => {}
            None => counts.entry(kind).or_default().0 += 1,
        }
    }
    let mut names = Vec::with_capacity(kinds.len());
    for (kind, name) in kinds {
        if let Some(name) = name {
            names.push(((*name).clone(), (*name).clone()));
            continue;
        }
        let base = snake_case(kind);
        let (count, next) = counts.get_mut(kind).expect("counted above");
        let mut numbered = || loop {
            let name = format!("{base}_{next}");
            *next += 1;
            if !given.contains(&*name) {
                return Arc::<str>::from(name);
            }
        };
        let stable = numbered();
        let name =
            if *count == 1 && !given.contains(&*base) { base.into() } else { stable.clone() };
        names.push((name, stable));
    }
    Ok(names)
}

/// The 32-bit FNV-1a hash of a block's name, which its random key is folded with.
pub fn fold_of(name: &str) -> u32 {
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
    fn siblings_are_numbered_where_they_share_a_kind() {
        let fc = Arc::from("linear_0");
        let named =
            siblings(&[("Linear", None), ("Relu", None), ("Linear", Some(&fc)), ("Linear", None)]);
        let names: Vec<_> = named.unwrap().iter().map(|(n, _)| n.to_string()).collect();
        assert_eq!(names, ["linear_1", "relu", "linear_0", "linear_2"]);
    }
}
