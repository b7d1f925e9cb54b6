//! Finds names that are similar to a given one, for hints.

/// At most three candidates similar to `name`, best first. A candidate is similar if its edit
/// distance is small for its length (swapping two letters counts as one edit; case is ignored), or
/// if one name abbreviates the other: `dim` of `dimension`, `bias` of `use_bias`.
pub fn near_misses<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let near = |candidate: &'a str| {
        let longer = name.chars().count().max(candidate.chars().count());
        // One letter in four may differ, and at least one.
        let limit = (longer / 4).max(1);
        let distance = match shortened(candidate, name) || shortened(name, candidate) {
            true => 0,
            false => edit_distance(&name.to_lowercase(), &candidate.to_lowercase()),
        };
        (distance <= limit).then_some((distance, candidate))
    };
    let mut scored: Vec<(usize, &str)> = candidates.filter_map(near).collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// ``did you mean `a` or `b`?`` for the nearest candidates; `None` where none is similar.
pub fn did_you_mean<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = near_misses(name, candidates);
    let quoted: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// Whether `short` is a prefix of a word of `long`, as `eps` of `epsilon`. `Max` is not one of
/// `MaxPool`, since another word follows it.
fn shortened(long: &str, short: &str) -> bool {
    let begins = |word: &str| {
        let rest = word.strip_prefix(short);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()))
    };
    short.chars().count() >= 3 && long.split('_').any(begins)
}

/// The number of letters deleted, inserted, replaced, or swapped with the next one (optimal string
/// alignment: Boytsov, Indexing methods for approximate dictionary searching, 2011).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::near_misses;

    #[test]
    fn near_names_are_near() {
        let blocks = ["Add", "Concat", "Linear", "Max", "Relu", "Sequential", "Softmax", "Sum"];
        let near = |name| near_misses(name, blocks.into_iter());
        for (name, expected) in [
            ("Linaer", "Linear"),
            ("linear", "Linear"),
            ("ReLU", "Relu"),
            ("sequential", "Sequential"),
            ("Softmx", "Softmax"),
            ("Sequentail", "Sequential"),
        ] {
            assert_eq!(near(name), [expected], "{name}");
        }
        for name in ["Conv2d", "Adam", "MaxPool2d", "SGD", "LSTM", "DataLoader", "no_grad"] {
            assert_eq!(near(name), [""; 0], "{name}");
        }
        let words = ["dimension", "use_bias", "eps", "h"];
        let near = |name| near_misses(name, words.into_iter());
        for (name, expected) in
            [("dim", "dimension"), ("bias", "use_bias"), ("epsilon", "eps"), ("hh", "h")]
        {
            assert_eq!(near(name), [expected], "{name}");
        }
    }
}
