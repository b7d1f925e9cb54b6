//! The symbolic dim algebra, case by case.

use mithril_ir::dim::{Dim, ParseDimError, Relation, Symbol, parse_dim};
use winnow::error::ErrMode;

fn dim(text: &str) -> Dim {
    text.parse().unwrap_or_else(|error: ParseDimError| panic!("{error}"))
}

/// The text must read as a dim that prints as `normal`, and `normal` must read back as itself.
fn check(text: &str, normal: &str) {
    assert_eq!(dim(text).to_string(), normal, "of {text}");
    assert_eq!(dim(normal), dim(text), "reading back {normal}");
}

#[test]
fn sums_and_products() {
    let table = [
        ("7", "7"),
        ("-7", "-7"),
        ("?", "?"),
        ("batch", "batch"),
        ("1 + 4*batch", "4*batch + 1"),
        ("b*3*a*b - 2", "3*a*b*b - 2"),
        ("-a", "-a"),
        ("--a", "a"),
        ("2 - a - b*b", "-b*b - a + 2"),
        ("a - a", "0"),
        ("0*a", "0"),
        ("? + 1", "?"),
        ("0*?", "?"),
        ("(a + b)*(a - b)", "a*a - b*b"),
        (" ( a+b ) * c ", "a*c + b*c"),
        ("x1 + x.y + _z", "_z + x.y + x1"),
        ("min + max*min", "max*min + min"),
    ];
    for (text, normal) in table {
        check(text, normal);
    }
}

#[test]
fn floor_divisions() {
    let table = [
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("7//-2", "-4"),
        ("a//0", "?"),
        ("7//0", "?"),
        ("a//1", "a"),
        ("0//a", "0"),
        ("batch//2", "batch//2"),
        ("(6*a)//3", "2*a"),
        ("(6*a + 7)//3", "2*a + 2"),
        ("(6*a + b - 5)//3", "2*a + (b + 1)//3 - 2"),
        ("5*a//4", "a + a//4"),
        ("(b - a)//4", "-a + (3*a + b)//4"),
        ("a//-4", "-a + (3*a)//4"),
        ("(4*a + 3)//6", "(2*a + 1)//3"),
        ("(2*a + 1)//(4*a)", "0"),
        ("(2*a*b + 1)//(4*a)", "b//2"),
        ("a*b//b", "a"),
        ("(a*b + c)//b", "a + c//b"),
        ("a*b//(a*c)", "b//c"),
        ("(a*b + a)//(b + 1)", "a"),
        ("a//(a + 1)", "0"),
        ("b//(a + b + 1)", "0"),
        ("(a + b - 1)//b", "(a - 1)//b + 1"),
        ("(a//2)//3", "a//6"),
        ("(a//2 + 1)//2", "(a + 2)//4"),
        ("2*(a//2)", "2*(a//2)"),
        ("-(a//2) + b", "b - a//2"),
        ("-(a//2)", "-(a//2)"),
        ("(a//2)*(a//2)", "(a//2)*(a//2)"),
        ("a//(b//c)", "a//(b//c)"),
        ("(a%8)//8", "0"),
        ("(a%b)//b", "0"),
    ];
    for (text, normal) in table {
        check(text, normal);
    }
}

#[test]
fn other_normal_forms() {
    let table = [
        ("-7%2", "1"),
        ("7%-2", "-1"),
        ("a%0", "?"),
        ("7%0", "?"),
        ("a%1", "0"),
        ("batch%8", "batch%8"),
        ("(8*a)%8", "0"),
        ("(9*a + 11)%8", "(a + 3)%8"),
        ("a%-8", "-((7*a)%8)"),
        ("(4*a + 3)%6", "2*((2*a + 1)%3) + 1"),
        ("(2*a + 1)%(4*a)", "2*a + 1"),
        ("(a*b)%b", "0"),
        ("(a*b + c)%b", "c%b"),
        ("(a%16)%8", "a%8"),
        ("(a%8)%16", "a%8"),
        ("(3*(a%16) + b)%8", "(3*a + b)%8"),
        ("(2*(a%12))%8", "2*(a%4)"),
        ("(a%b)%b", "a%b"),
        // min and max
        ("min(3, a)", "min(a, 3)"),
        ("max(b, a)", "max(a, b)"),
        ("min(a, a)", "a"),
        ("min(a + 2, a)", "a"),
        ("max(a + 2, a)", "a + 2"),
        ("max(a, 0)", "a"),
        ("max(a - 1, 0)", "max(a - 1, 0)"),
        ("min(a, 0)", "0"),
        ("min(a%8, 8)", "a%8"),
        ("min(a + b, a)", "a"),
        ("min(a, min(c, min(3, b)), 5)", "min(a, b, c, 3)"),
        ("max(max(a, b), max(b, c))", "max(a, b, c)"),
        ("max(min(a, b), 3)", "max(min(a, b), 3)"),
        ("min(9223372036854775807, min(a, -9223372036854775808))", "-9223372036854775808"),
        ("max(min(a, 4), 4)", "4"),
        ("min(?, 0)", "?"),
        // coefficients at the ends of their range
        ("b - 9223372036854775807*a - a", "-9223372036854775808*a + b"),
        ("a - 9223372036854775807*b - b", "a + -9223372036854775808*b"),
        ("9223372036854775807*a//9223372036854775807", "a"),
    ];
    for (text, normal) in table {
        check(text, normal);
    }
}

#[test]
fn a_prefix_of_longer_text() {
    let table = [
        ("batch x 784", "batch", " x 784"),
        ("(4*batch + 1) x f32>", "4*batch + 1", " x f32>"),
        ("784 x f32", "784", " x f32"),
        ("a -> b", "a", " -> b"),
        ("a, b", "a", ", b"),
        ("a <= 512", "a", " <= 512"),
        ("x x x", "x", " x x"),
    ];
    for (text, read, left) in table {
        let mut input = text;
        assert_eq!(parse_dim(&mut input).ok(), Some(dim(read)), "of {text}");
        assert_eq!(input, left, "of {text}");
    }
    assert!(matches!(parse_dim(&mut "*b x 784"), Err(ErrMode::Backtrack(_))));
    assert!(matches!(parse_dim(&mut "a + ]"), Err(ErrMode::Cut(_))));
}

#[test]
fn parse_errors() {
    let nested = "(".repeat(100_000);
    let table = [
        ("", "dim ``: expected a dim at byte 0, got the end"),
        ("4*", "dim `4*`: expected a dim at byte 2, got the end"),
        ("a + ]", "dim `a + ]`: expected a dim at byte 4, got `]`"),
        ("(a", "dim `(a`: expected `)` at byte 2, got the end"),
        ("min(a; b)", "dim `min(a; b)`: expected `)` at byte 5, got `;`"),
        ("a b", "dim `a b`: expected the end at byte 2, got `b`"),
        (
            "9223372036854775808",
            "dim `9223372036854775808`: expected an integer of 64 bits at byte 0, got `9`",
        ),
        ("é", "dim `é`: expected a dim at byte 0, got `é`"),
    ];
    for (text, message) in table {
        let error = text.parse::<Dim>().expect_err(text);
        assert_eq!(error.to_string(), message);
    }
    for text in [nested, "-".repeat(100_000), "min(".repeat(100_000)] {
        let error = text.parse::<Dim>().expect_err("too deep");
        assert_eq!(error.expected, "less nesting");
    }
}

/// Text of `count` parts with `separator` between them.
fn joined(count: usize, separator: &str, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect::<Vec<_>>().join(separator)
}

/// What is out of the bounds of dims is refused before it takes time, memory or stack.
#[test]
fn bounds() {
    let sums = |count| joined(count, "*", |i| format!("(a{i} + b{i})"));
    let nested = |count| {
        let front: String = "(".repeat(count);
        front + "a" + &joined(count, "", |i| format!("*a{i}//(b + {i}))"))
    };
    let texts = [
        "9223372036854775807 + 1".to_string(),
        "9223372036854775807*a + a".to_string(),
        "-9223372036854775808//-1".to_string(),
        "4611686018427387904*2".to_string(),
        "(9223372036854775807*a + a - a)//9223372036854775807".to_string(),
        sums(20),
        sums(60),
        joined(100_000, " + ", |i| format!("a{i}")),
        joined(100_000, "*", |_| "a".into()),
        format!("min({})", joined(1000, ", ", |i| format!("a{i}"))),
        format!("{}//(a + b + c)", joined(400, "*", |_| "a".into())),
    ];
    let refused = move || {
        for text in texts {
            let error = text.parse::<Dim>().expect_err("out of bounds");
            let expected = "a dim of at most 1024 terms in 24 levels and of 64 bits";
            assert_eq!(error.expected, expected, "{:.80}", text);
        }
        let small = [
            sums(6),
            nested(24),
            nested(1),
            joined(400, " + ", |i| format!("a{i}")),
            joined(400, "*", |_| "a".into()),
            format!(
                "{} - {}",
                joined(30, " + ", |i| format!("a{i}//2")),
                joined(30, " - ", |i| format!("b{i}//2"))
            ),
        ];
        for text in small {
            let dim = text.parse::<Dim>().expect("within bounds");
            assert!(!dim.is_unknown());
            assert_eq!(dim.to_string().parse::<Dim>().expect("its own text"), dim);
            assert_eq!(dim.substitute(&|s| Some(Dim::symbol(s))), dim);
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(refused);
    thread.expect("there are threads").join().expect("none of it overflows the stack");
}

/// Arithmetic on dims beyond the bounds gives an unknown dim, as overflow does.
#[test]
fn results_out_of_bounds_are_unknown() {
    let sum = |i: usize| Dim::symbol(format!("a{i}")) + Dim::symbol(format!("b{i}"));
    assert!(!(0..6).map(sum).product::<Dim>().is_unknown());
    assert!((0..60).map(sum).product::<Dim>().is_unknown());
    assert!((0..100_000).map(sum).sum::<Dim>().is_unknown());
    let deeper = |dim: Dim, i: usize| (dim * 3 + 1).floor_div(&Dim::symbol(format!("b{i}")));
    assert!(!(0..20).fold(Dim::symbol("a"), deeper).is_unknown());
    assert!((0..100_000).fold(Dim::symbol("a"), deeper).is_unknown());
    let power = dim("a*a").substitute(&|_| Some((0..10).fold(dim("a"), |x, _| &x * &x)));
    assert!(power.is_unknown());
    assert_eq!(dim("9223372036854775807") + 1, Dim::Unknown);
    assert_eq!(dim("4611686018427387904") * 2, Dim::Unknown);
}

#[test]
fn relations() {
    use Relation::*;
    let table = [
        ("3", "3", Equal),
        ("3", "4", Different),
        ("a*(b + 1)", "a + b*a", Equal),
        ("a", "a + 1", Different),
        ("a", "a + b + 1", Different),
        ("a", "b", Undecided),
        ("a", "-1", Different),
        ("a", "0", Undecided),
        ("2*a", "4*b + 1", Different),
        ("a%8", "8", Different),
        ("?", "?", Undecided),
        ("?", "3", Undecided),
        ("9223372036854775807", "-9223372036854775808", Different),
    ];
    for (a, b, relation) in table {
        assert_eq!(dim(a).compare(&dim(b)), relation, "{a} and {b}");
        assert_eq!(dim(b).compare(&dim(a)), relation, "{b} and {a}");
    }
}

#[test]
fn exact_divisions() {
    let table = [
        ("6", "3", Some("2")),
        ("6", "-3", Some("-2")),
        ("6", "4", None),
        ("6", "0", None),
        ("0", "a", Some("0")),
        ("a*b", "a", Some("b")),
        ("2*a*b + 4*a", "2*a", Some("b + 2")),
        ("2*a*b + 3*a", "2*a", None),
        ("a*a - b*b", "b - a", Some("-a - b")),
        ("a + 1", "a", None),
        ("a", "a*b", None),
        ("?", "a", None),
        ("a", "?", None),
        ("3*min(a, b)", "min(a, b)", Some("3")),
    ];
    for (a, b, quotient) in table {
        assert_eq!(dim(a).exact_div(&dim(b)), quotient.map(dim), "{a} by {b}");
    }
}

#[test]
fn lower_bounds() {
    let table = [
        ("-3", Some(-3)),
        ("?", None),
        ("2*a*b + 1", Some(1)),
        ("-a", None),
        ("5 - a%4", Some(2)),
        ("(a + 9)//2", Some(4)),
        ("max(a - b, 2)", Some(2)),
        ("min(a + 4, 3)", Some(3)),
        ("min(a - b, 3)", None),
        ("(a%4 - 3)*(b%5)", Some(-12)),
        ("a - 2*(a//2)", Some(0)),
        ("a - 2*(a//3)", Some(0)),
        ("a + 1 - (a + 3)//2", Some(0)),
        ("a - 3*(a//2)", None),
    ];
    for (text, bound) in table {
        assert_eq!(dim(text).lower_bound(), bound, "of {text}");
    }
}

#[test]
fn ceiling_division() {
    let table =
        [("7", "2", "4"), ("-7", "2", "-3"), ("7", "-2", "-3"), ("4*a", "4", "a"), ("a", "0", "?")];
    for (a, b, quotient) in table {
        assert_eq!(dim(a).ceil_div(&dim(b)), dim(quotient), "{a} by {b}");
    }
    assert_eq!(dim("a").ceil_div(&dim("8")), dim("(a + 7)//8"));
    assert_eq!(dim("a").ceil_div(&dim("b")), dim("(a + b - 1)//b"));
}

#[test]
fn values() {
    assert!(size_of::<Dim>() <= 16);
    assert_eq!(dim("a").as_symbol().map(Symbol::as_str), Some("a"));
    for text in ["2*a", "a + 1", "a*a", "a//2", "3", "?"] {
        assert_eq!(dim(text).as_symbol(), None, "of {text}");
    }
    assert_eq!(Dim::from(usize::MAX), Dim::Unknown);
    assert_eq!([dim("a"), dim("2"), dim("b")].iter().product::<Dim>(), dim("2*a*b"));
    assert_eq!([dim("a"), dim("2"), dim("a")].iter().sum::<Dim>(), dim("2*a + 2"));
    let mut seen = Vec::new();
    dim("2*b*b + a//max(c, 2)").for_each_symbol(&mut |symbol| seen.push(symbol.to_string()));
    assert_eq!(seen, ["b", "a", "c"]);
    assert_eq!(dim("a//b").evaluate(&|_| Some(0)), None);
    assert_eq!(dim("a + b").evaluate(&|s| (s.as_str() == "a").then_some(1)), None);
    assert_eq!(dim("a*a").evaluate(&|_| Some(i64::MAX)), None);
    assert_eq!(dim("a + b - c").evaluate(&|_| Some(i64::MAX)), Some(i64::MAX));
    let atoms = ["3", "?", "a", "min(a, b)"].map(|text| dim(text).prints_as_atom());
    assert_eq!(atoms, [true; 4]);
    let others = ["-3", "2*a", "a//2", "a%2", "a + 1"].map(|text| dim(text).prints_as_atom());
    assert_eq!(others, [false; 5]);
}
