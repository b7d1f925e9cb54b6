//! Sizes: values, constants, what has no value, text.

use mithril_runtime::size::Size::{self, Const, Symbol};
use proptest::prelude::*;

#[test]
fn sizes_have_values() {
    let n = || Symbol(0);
    let cases = [
        (n() + 1 + 2, 10, "(s0 + 1 + 2)"),
        (n() * 4 * n(), 196, "(s0*4*s0)"),
        (n().floor_div(2), 3, "(s0 floordiv 2)"),
        (n().ceil_div(2), 4, "((s0 + 2 + -1) floordiv 2)"),
        (n().modulo(4), 3, "(s0 mod 4)"),
        (n().min(5), 5, "min(s0, 5)"),
        (n().max(Symbol(1)), 11, "max(s0, s1)"),
    ];
    for (size, value, text) in cases {
        assert_eq!(size.eval(&[7, 11]), Some(value), "{size}");
        assert_eq!(size.to_string(), text);
    }
}

#[test]
fn constants_are_folded() {
    let four = Const(4);
    for (size, value) in [
        (four.clone() + 3, 7),
        (four.clone() * 3, 12),
        (four.clone().floor_div(-3), -2),
        (four.clone().modulo(-3), -2),
        (four.clone().ceil_div(3), 2),
        (four.clone().min(3).max(1), 3),
    ] {
        assert_eq!(size, Const(value));
    }
    assert_eq!(Symbol(0) * 1 + 0, Symbol(0));
    assert_eq!(Const(1) * Symbol(0), Symbol(0));
}

#[test]
fn undefined_sizes_are_none() {
    let none = [
        Const(i64::MAX) + Symbol(0),
        Const(i64::MIN) * Symbol(1),
        Const(i64::MIN).floor_div(Symbol(1)),
        Symbol(0).floor_div(0),
        Symbol(0).modulo(0),
        Const(1).floor_div(0),
        Symbol(2),
    ];
    for size in none {
        assert_eq!(size.eval(&[1, -1]), None, "{size}");
    }
    assert_eq!(Const(i64::MIN).modulo(-1), Const(0));
    assert_eq!((Symbol(4) + Symbol(1)).symbols(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn division_rounds_down(a: i32, b: i32) {
        prop_assume!(b != 0);
        let (a, b) = (i64::from(a), i64::from(b));
        let at = [a, b];
        let quotient = Symbol(0).floor_div(Symbol(1)).eval(&at).expect("a value");
        prop_assert_eq!(quotient, (a as f64 / b as f64).floor() as i64);
        let rest = Symbol(0).modulo(Symbol(1)).eval(&at).expect("a value");
        prop_assert_eq!(quotient * b + rest, a);
        prop_assert!(rest == 0 || (rest < 0) == (b < 0));
        prop_assert_eq!(Size::from(a).floor_div(b), Const(quotient));
    }
}
