//! The symbolic dim algebra: properties of random expressions.

use std::collections::HashMap;

use mithril_ir::dim::{Dim, Relation, parse_dim};
use proptest::prelude::*;

/// An expression as written, evaluated without the algebra.
#[derive(Clone, Debug)]
enum Tree {
    Const(i64),
    Symbol(usize),
    Binary(Operator, Box<(Tree, Tree)>),
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
}

use Operator::*;

const SYMBOLS: [&str; 4] = ["a", "b", "n", "seq"];

impl Tree {
    fn dim(&self) -> Dim {
        match self {
            Tree::Const(value) => Dim::Const(*value),
            Tree::Symbol(at) => Dim::symbol(SYMBOLS[*at]),
            Tree::Binary(operator, operands) => {
                let (a, b) = (operands.0.dim(), operands.1.dim());
                match operator {
                    Add => a + b,
                    Sub => a - b,
                    Mul => a * b,
                    FloorDiv => a.floor_div(&b),
                    CeilDiv => a.ceil_div(&b),
                    Mod => a.modulo(&b),
                    Min => a.min(&b),
                    Max => a.max(&b),
                }
            }
        }
    }

    /// `None` where something is divided by zero.
    fn value(&self, symbols: &[i64]) -> Option<i128> {
        Some(match self {
            Tree::Const(value) => (*value).into(),
            Tree::Symbol(at) => symbols[*at].into(),
            Tree::Binary(operator, operands) => {
                let (a, b) = (operands.0.value(symbols)?, operands.1.value(symbols)?);
                // `div_euclid` rounds down only by a positive divisor.
                let floor = |a: i128, b: i128| match b {
                    0 => None,
                    1.. => Some(a.div_euclid(b)),
                    _ => Some((-a).div_euclid(-b)),
                };
                match operator {
                    Add => a + b,
                    Sub => a - b,
                    Mul => a * b,
                    FloorDiv => floor(a, b)?,
                    CeilDiv => -floor(-a, b)?,
                    Mod => a - b * floor(a, b)?,
                    Min => a.min(b),
                    Max => a.max(b),
                }
            }
        })
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    trees_of(vec![
        Add, Add, Add, Sub, Sub, Mul, Mul, FloorDiv, FloorDiv, CeilDiv, Mod, Mod, Min, Max,
    ])
}

fn trees_of(operators: Vec<Operator>) -> impl Strategy<Value = Tree> {
    let leaf =
        prop_oneof![(-6i64..=12).prop_map(Tree::Const), (0..SYMBOLS.len()).prop_map(Tree::Symbol)];
    let operator = prop::sample::select(operators);
    leaf.prop_recursive(4, 14, 2, move |inner| {
        (operator.clone(), inner.clone(), inner)
            .prop_map(|(operator, a, b)| Tree::Binary(operator, Box::new((a, b))))
    })
}

/// Normal forms that neither overflow nor divide by a literal zero.
fn known_dims() -> impl Strategy<Value = Dim> {
    trees().prop_map(|tree| tree.dim()).prop_filter("unknown", |dim| !dim.is_unknown())
}

fn points() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![0i64..=20, 0i64..=3], SYMBOLS.len())
}

fn evaluate(dim: &Dim, point: &[i64]) -> Option<i64> {
    let values: HashMap<&str, i64> = SYMBOLS.into_iter().zip(point.iter().copied()).collect();
    dim.evaluate(&|symbol| values.get(symbol.as_str()).copied())
}

/// Compares against the value as written, where that is defined.
fn check_value(dim: &Dim, value: Option<i128>, point: &[i64]) -> Result<(), TestCaseError> {
    if let Some(value) = value {
        prop_assert_eq!(evaluate(dim, point), i64::try_from(value).ok(), "{} at {:?}", dim, point);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn normal_form_keeps_the_value(tree in trees(), many in prop::collection::vec(points(), 8)) {
        let dim = tree.dim();
        for point in many {
            check_value(&dim, tree.value(&point), &point)?;
        }
    }

    #[test]
    fn substitution_commutes_with_evaluation(
        tree in trees(),
        inner in prop::collection::vec((0i64..4, 0i64..4, 0..SYMBOLS.len(), 0..SYMBOLS.len()), SYMBOLS.len()),
        point in points(),
    ) {
        let replacement: HashMap<&str, Dim> = SYMBOLS.into_iter().zip(inner.iter().map(|(p, q, x, y)| {
            Dim::symbol(SYMBOLS[*x]) * *p + Dim::symbol(SYMBOLS[*y]).floor_div(&Dim::from(2)) * *q
        })).collect();
        let outer: Vec<i64> = SYMBOLS.iter().map(|s| evaluate(&replacement[s], &point).unwrap()).collect();
        let substituted = tree.dim().substitute(&|symbol| replacement.get(symbol.as_str()).cloned());
        if !substituted.is_unknown() {
            check_value(&substituted, tree.value(&outer), &point)?;
        }
    }

    #[test]
    fn partial_evaluation_is_substitution(tree in trees(), point in points()) {
        let values: HashMap<&str, i64> = SYMBOLS.into_iter().zip(point.iter().copied()).collect();
        let folded = tree.dim().substitute(&|symbol| values.get(symbol.as_str()).copied().map(Dim::from));
        if let (Some(value), Some(folded)) = (tree.value(&point), folded.as_const()) {
            prop_assert_eq!(i128::from(folded), value);
        }
    }

    #[test]
    fn normal_form_is_stable(tree in trees()) {
        let dim = tree.dim();
        prop_assert_eq!(dim.substitute(&|_| None), dim.clone());
        prop_assert_eq!(dim.to_string().parse::<Dim>(), Ok(dim.clone()), "{}", dim);
        let mut input = &*format!("({dim}) x 784");
        prop_assert_eq!(parse_dim(&mut input).ok(), Some(dim));
        prop_assert_eq!(input, " x 784");
    }

    #[test]
    fn bounds_and_relations_hold(a in trees(), b in trees(), many in prop::collection::vec(points(), 8)) {
        let (x, y) = (a.dim(), b.dim());
        for point in many {
            let (Some(p), Some(q)) = (a.value(&point), b.value(&point)) else { continue };
            if let Some(bound) = x.lower_bound() {
                prop_assert!(p >= bound.into(), "{} is {} < {}", x, p, bound);
            }
            match x.compare(&y) {
                Relation::Equal => prop_assert_eq!(p, q),
                Relation::Different => prop_assert_ne!(p, q),
                Relation::Undecided => {}
            }
            if let Some(quotient) = x.exact_div(&y) {
                prop_assert_eq!(&quotient * &y, x.clone());
            }
        }
    }

    #[test]
    fn identities_of_rings(a in known_dims(), b in known_dims(), c in known_dims()) {
        prop_assert_eq!((&a + &b) * &c, &a * &c + &b * &c);
        prop_assert_eq!(&a * &b, &b * &a);
        prop_assert_eq!((&a * &b) * &c, &a * (&b * &c));
        prop_assert_eq!((&a + &b) + &c, &a + (&b + &c));
        prop_assert_eq!((&a - &b) + &b, a.clone());
        prop_assert_eq!((&a * &b).exact_div(&b), (b != Dim::Const(0)).then_some(a));
    }

    #[test]
    fn identities_of_division(
        a in known_dims(), b in known_dims(), c in known_dims(), k in 1i64..9, m in 1i64..9,
    ) {
        prop_assume!(b != Dim::Const(0));
        let multiple = &a * &b + &c;
        prop_assert_eq!(multiple.floor_div(&b), &a + c.floor_div(&b));
        prop_assert_eq!(multiple.modulo(&b), c.modulo(&b));
        prop_assert_eq!((-&a).floor_div(&-&b), a.floor_div(&b));
        let (k, m) = (Dim::Const(k), Dim::Const(m));
        prop_assert_eq!((&a * &k).modulo(&(&m * &k)), a.modulo(&m) * &k);
        prop_assert_eq!((&a * &k).floor_div(&(&m * &k)), a.floor_div(&m));
    }

    // These hold of polynomials alone: what is known of other atoms shows in one form and not in
    // the other.
    #[test]
    fn identities_of_nesting(
        a in trees_of(vec![Add, Sub, Mul]), b in trees_of(vec![Add, Sub, Mul]), c in trees_of(vec![Add, Sub, Mul]),
        k in 1i64..9, m in 1i64..9,
    ) {
        let (a, b, c) = (a.dim(), b.dim(), c.dim());
        let (k, m) = (Dim::Const(k), Dim::Const(m));
        prop_assert_eq!(a.floor_div(&k).floor_div(&m), a.floor_div(&(&k * &m)));
        prop_assert_eq!(a.modulo(&(&k * &m)).modulo(&k), a.modulo(&k));
        prop_assert_eq!(a.max(&b).max(&c), a.max(&b.max(&c)));
        prop_assert_eq!(a.min(&b).min(&c), a.min(&b.min(&c)));
    }

    #[test]
    fn identities_of_min_and_max(a in known_dims(), b in known_dims(), k in 0i64..9) {
        prop_assert_eq!(a.min(&b), b.min(&a));
        prop_assert_eq!(a.max(&b), b.max(&a));
        prop_assert_eq!(a.max(&b).max(&b), a.max(&b));
        prop_assert_eq!(a.min(&(&a + k)), a.clone());
        prop_assert_eq!(a.max(&(&a + k)), a + k);
    }
}
