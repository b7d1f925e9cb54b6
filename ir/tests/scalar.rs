//! The scalar primitives, their expressions and derivatives, and the text of elements.

mod golden;

use golden::{cases, dtype, elements};
use mithril_ir::dtype::DType;
use mithril_ir::scalar::expr::{Expr, Kind};
use mithril_ir::scalar::{DERIVATIVE_NAMES, Prim, Scalar, Signature, apply, round};
use mithril_ir::tensor::{Tensor, parse_element};

/// What no library can be asked: the defined results, `name dtype | x | y | … = result`.
const DEFINED: &str = "
    div i32       | 7 -7 7 5 -5 0 -2147483648   | 2 2 -2 0 0 0 -1     = 3 -3 -3 -1 -1 -1 -2147483648
    div u8        | 200 200 255                 | 7 0 255             = 28 255 1
    div u64       | 18446744073709551615 9      | 2 0 = 9223372036854775807 18446744073709551615
    floor_div i8  | 5 -5 0 -128 7 -7            | 0 0 0 -1 -2 2       = -1 -1 -1 -128 -4 -4
    floor_div u8  | 5                           | 0                   = 255
    floor_div f16 | 65504 -3                    | 0.0001 0.001        = inf -3000.0
    mod i8        | 5 -5 0 -128 7 -7            | 0 0 0 -1 -2 2       = 5 -5 0 0 -1 1
    mod u64       | 18446744073709551615        | 10                  = 5
    neg i8        | -128 5                      = -128 -5
    neg u8        | 1 0                         = 255 0
    abs i8        | -128 -5                     = -128 5
    sign i8       | -128 0 3                    = -1 0 1
    sign u64      | 18446744073709551615 0      = 1 0
    floor i8      | -3                          = -3
    shift_left i8 | 1 1 1 1 -1                  | 7 8 -1 0 1          = -128 0 0 1 -2
    shift_left u64  | 1 1                       | 63 64               = 9223372036854775808 0
    shift_right i8  | -128 -128 64 -1 1         | 7 8 -1 100 1        = -1 -1 0 -1 0
    shift_right u8  | 128 128 255               | 7 8 255             = 1 0 0
    shift_right u64 | 18446744073709551615 1    | 63 64               = 1 0
    pow i8        | 2 2 -1 -1 1 0 2 -2 3        | 7 8 -1 -2 -5 -1 -1 3 5 = -128 0 -1 1 1 0 0 -8 -13
    pow u8        | 3 0 2                       | 200 0 255           = 161 1 0
    min f32       | -0.0 0.0 nan 1.0 -inf       | 0.0 -0.0 1.0 nan 3.0 = -0.0 -0.0 nan nan -inf
    max f32       | -0.0 0.0 nan 1.0 -inf       | 0.0 -0.0 1.0 nan 3.0 = 0.0 0.0 nan nan 3.0
    min u64       | 18446744073709551615        | 1                   = 1
    max u64       | 18446744073709551615        | 1                   = 18446744073709551615
    min bool      | true true                   | false true          = false true
    add bool      | true true false             | true false false    = true true false
    mul bool      | true true false             | true false false    = true false false
    sub bool      | true true false             | true false true     = false true true
    not bool      | true false                  = false true
    not i8        | 0 5                         = -1 -6
    not u8        | 0 5                         = 255 250
    and i8        | -1 6                        | 5 3                 = 5 2
    xor bool      | true true                   | true false          = false true
    eq f32        | nan -0.0 1.0                | nan 0.0 1.0         = false true true
    ne f32        | nan -0.0 1.0                | nan 0.0 1.0         = true false false
    lt u64        | 18446744073709551615 1      | 1 18446744073709551615 = false true
    ge f32        | nan 2.0 inf                 | 1.0 2.0 inf         = false true true
    is_nan f16    | nan inf 1.0                 = true false false
    is_inf f16    | nan -inf 1.0                = false true false
    is_nan i8     | 1                           = false
    sqrt f64      | -1.0 5e-324 -0.0            = nan 2.2227587494850775e-162 -0.0
    mul f32       | 1e-40 1e-30 -1e-30          | 0.5 1e-30 1e-30     = 5e-41 0.0 -0.0
    exp i32       | 0 1 2 40                    = 1 2 7 2147483647
    and f32       | 1.0                         | 2.0                 = nan
    cast f32 i8   | nan inf -inf 127.9 -128.9 1e9 -0.5 = 0 127 -128 127 -128 127 0
    cast f64 u8   | nan -1.0 256.0 255.5        = 0 0 255 255
    cast f64 u64  | 1e30 -1.0 18446744073709549568.0 = 18446744073709551615 0 18446744073709549568
    cast f64 i64  | 1e30 -1e30 9007199254740993.0 = 9223372036854775807 -9223372036854775808 9007199254740992
    cast f32 bool | nan 0.0 -0.0 0.1            = true false false true
    cast i32 bool | 0 -7                        = false true
    cast bool f16 | true false                  = 1.0 0.0
    cast i32 i8   | 200 -129 1                  = -56 127 1
    cast u64 f32  | 18446744073709551615        = 1.8446744e19
    cast i32 u64  | -1                          = 18446744073709551615
    cast i32 i4   | 7 8 -9                      = 7 -8 7
    cast i32 u4   | 7 16 -1                     = 7 0 15
    cast f32 f8e4m3 | 448.0 464.0 465.0 inf     = 448.0 448.0 nan nan
    cast f32 f8e5m2 | 57344.0 61439.0 61440.0   = 57344.0 57344.0 inf
    select f32    | true false                  | 1.0 nan             | nan 2.0 = 1.0 2.0
";

fn scalar(dtype: DType, bits: u64) -> Scalar {
    match dtype.is_float() {
        true => Scalar::F(round::decode(dtype, bits)),
        false => Scalar::I(round::wrap(dtype, bits as i64)),
    }
}

/// The distance of two numbers in units of f64 spacing; 0 for two NaNs.
fn ulps(a: f64, b: f64) -> u64 {
    let place = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
    };
    if a.is_nan() && b.is_nan() { 0 } else { place(a).abs_diff(place(b)) }
}

fn check(text: &str) {
    for case in cases(text) {
        let words: Vec<&str> = case.name.split(' ').collect();
        let prim = Prim::from_name(words[0]).unwrap_or_else(|| panic!("no primitive {}", words[0]));
        let from = dtype(words[1]);
        let cast_to = words.get(2).map(|name| dtype(name));
        let out = match prim.signature() {
            Signature::Test => DType::Bool,
            _ => cast_to.unwrap_or(from),
        };
        let is_choice = |i: usize| prim == Prim::Select && i == 0;
        let operand = |(i, text): (usize, &String)| {
            let dtype = if is_choice(i) { DType::Bool } else { from };
            elements(dtype, text).into_iter().map(|b| scalar(dtype, b)).collect::<Vec<_>>()
        };
        let operands: Vec<Vec<Scalar>> = case.fields.iter().enumerate().map(operand).collect();
        for (i, want) in elements(out, &case.want).into_iter().enumerate() {
            let args: Vec<Scalar> = operands.iter().map(|o| o[i]).collect();
            let (got, want) = (apply(prim, from, &args, cast_to), scalar(out, want));
            let far = match (got, want) {
                (Scalar::I(a), Scalar::I(b)) => a != b,
                (Scalar::F(a), Scalar::F(b)) => {
                    ulps(a, b) > u64::from(from == DType::F64 && a != 0.0)
                }
                _ => true,
            };
            assert!(!far, "{} on {args:?}: {got:?}, want {want:?}", case.name);
        }
    }
}

#[test]
fn defined_results() {
    check(DEFINED);
}

#[test]
fn results_match_numpy_and_exact_arithmetic() {
    check(include_str!("golden/scalar.txt"));
}

#[test]
fn names_are_unique_and_tables_complete() {
    for &prim in Prim::ALL {
        assert_eq!(Prim::from_name(prim.name()), Some(prim));
        assert!((1..=3).contains(&prim.arity()) && prim.doc().ends_with('.'), "{prim:?}");
    }
}

/// Every bit pattern of a narrow float survives, and every value rounds to itself.
#[test]
fn narrow_floats_round_trip() {
    for dtype in [DType::F16, DType::BF16, DType::F8E5M2, DType::F8E4M3] {
        for bits in 0..1u64 << dtype.bits() {
            let x = round::decode(dtype, bits);
            let other = match dtype {
                DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
                DType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
                _ => x,
            };
            assert!(ulps(x, other) == 0, "{dtype} {bits:#x}");
            if !x.is_nan() {
                assert_eq!(round::encode(dtype, x), bits, "{dtype} {x}");
                let tensor =
                    Tensor::from_bytes(dtype, vec![], bits.to_le_bytes()[..dtype.bytes()].to_vec());
                let text = tensor.expect("one element").element_text(0);
                assert_eq!(parse_element(dtype, &text), Ok(bits), "{dtype} {text}");
            }
        }
    }
}

#[test]
fn derivatives_agree_with_differences() {
    let near = [-1.7, -0.6, -0.2, 0.3, 0.55, 0.9, 1.4, 2.3];
    for &prim in Prim::ALL {
        if prim.signature() != Signature::Same {
            continue;
        }
        let value = |args: &[f64]| {
            let args: Vec<Scalar> = args.iter().map(|&v| Scalar::F(v)).collect();
            apply(prim, DType::F64, &args, None).float()
        };
        for x in near {
            for y in near.map(|v| v + 0.013) {
                let args = &[x, y][..prim.arity()];
                let vars = [x, y, 0.0, value(args)].map(Scalar::F);
                for (i, text) in prim.derivatives().iter().enumerate() {
                    let got = derivative(text).eval(DType::F64, &vars, &[]).float();
                    let (mut low, mut high) = (args.to_vec(), args.to_vec());
                    (low[i], high[i]) = (args[i] - 1e-6, args[i] + 1e-6);
                    let want = (value(&high) - value(&low)) / 2e-6;
                    let close = (got - want).abs() <= 1e-6 * (1.0 + want.abs());
                    assert!(
                        close || !want.is_finite(),
                        "{prim:?} by {i} at {args:?}: {got} {want}"
                    );
                }
            }
        }
    }
}

fn derivative(text: &str) -> Expr {
    Expr::parse(text, &DERIVATIVE_NAMES, &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// At kinks, ties and zeros: primitive, operands, derivatives.
#[test]
fn derivatives_at_special_points() {
    let table: &[(Prim, &[f64], &[f64])] = &[
        (Prim::Max, &[2.0, 2.0], &[0.5, 0.5]),
        (Prim::Min, &[-0.0, 0.0], &[0.5, 0.5]),
        (Prim::Max, &[3.0, 2.0], &[1.0, 0.0]),
        (Prim::Abs, &[0.0], &[0.0]),
        (Prim::Pow, &[0.0, 0.0], &[0.0, 0.0]),
        (Prim::Pow, &[0.0, 1.0], &[1.0, 0.0]),
        (Prim::Pow, &[0.0, 2.0], &[0.0, 0.0]),
        (Prim::Pow, &[-3.0, 2.0], &[-6.0, f64::NAN]),
        (Prim::Pow, &[0.0, 0.5], &[f64::INFINITY, 0.0]),
        (Prim::Atan2, &[0.0, -0.0], &[0.0, 0.0]),
        (Prim::Sqrt, &[0.0], &[f64::INFINITY]),
        (Prim::Tanh, &[400.0], &[0.0]),
        (Prim::Exp, &[f64::NEG_INFINITY], &[0.0]),
        (Prim::Erf, &[f64::INFINITY], &[0.0]),
    ];
    for (prim, args, want) in table {
        let mut vars: Vec<Scalar> = args.iter().map(|&v| Scalar::F(v)).collect();
        let result = apply(*prim, DType::F64, &vars, None);
        vars.resize(3, Scalar::F(0.0));
        vars.push(result);
        for (text, want) in prim.derivatives().iter().zip(*want) {
            let got = derivative(text).eval(DType::F64, &vars, &[]).float();
            assert!(got == *want || got.is_nan() && want.is_nan(), "{prim:?} at {args:?}: {got}");
        }
    }
}

/// Expressions in x = 3, y = 2 (f64) and the attribute a = 0.5.
#[test]
fn expressions() {
    let table = [
        ("x * t where t = 1 / (1 + exp(-x))", 3.0 / (1.0 + (-3f64).exp())),
        ("u + v where u = v * 2; v = x", 9.0),
        ("-x ** 2", -9.0),
        ("2 ** -1", 0.5),
        ("2 ** y ** 3", 256.0),
        ("x - y - 1", 0.0),
        ("x // y * y + x % y", 3.0),
        ("-7 // 2", -4.0),
        ("a * x + 1.5e1", 16.5),
        ("select((x > y) & ~(x == 4), min(x, y), nan)", 2.0),
        ("select(is_nan(nan) | (x < y), pi, e)", std::f64::consts::PI),
        ("cast(x > y) + cast(x)", 4.0),
        ("-inf", f64::NEG_INFINITY),
        (".5 + 2.", 2.5),
    ];
    for (text, want) in table {
        let expr = Expr::parse(text, &["x", "y"], &["a"]).unwrap_or_else(|e| panic!("{e}"));
        let vars = [Scalar::F(3.0), Scalar::F(2.0)];
        let got = expr.eval(DType::F64, &vars, &[Scalar::F(0.5)]).float();
        assert!(ulps(got, want) <= 2, "{text}: {got}, want {want}");
        assert_eq!(expr.root() as usize, expr.nodes().len() - 1);
    }
}

/// Wrong expressions, each with a part of its error.
#[test]
fn wrong_expressions() {
    let deep = "(".repeat(5000);
    let table = [
        ("", "a value is missing, got the end"),
        ("x +", "column 4"),
        ("x + q", "unknown name `q`"),
        ("foo(x)", "no primitive `foo`"),
        ("exp(x, y)", "takes 1 operands, got 2"),
        ("x < y < 1", "do not chain"),
        ("(x < y) + 1", "a bool is used"),
        ("select(x, x + 1, y)", "a bool is used"),
        ("t where t = t + 1", "depends on itself"),
        ("x where t = 1", "`t` is not used"),
        ("t where t = 1; t = 2", "bound twice"),
        ("t where t 1", "`=` is missing"),
        ("x y", "an operator is missing"),
        ("x @ y", "unexpected `@`"),
        ("1.2.3", "not a number"),
        ("(x", "`)` is missing"),
        (&deep, "nested too deep"),
    ];
    for (text, want) in table {
        let error = Expr::parse(text, &["x", "y"], &[]).expect_err(text);
        assert!(error.contains(want), "{text}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[xy0-9.e+*/<>=~&|^%;,() a-z\u{e9}-]{0,30}") {
        let _ = Expr::parse(&text, &["x", "y"], &["a"]);
    }
}

/// Whatever the dtype is meant for: no primitive panics, and all results are values of the dtype.
#[test]
fn primitives_are_total() {
    let floats = [0.0, -0.0, 1.0, -2.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324];
    let ints = [0, 1, -1, 63, 64, i64::MIN, i64::MAX];
    for dtype in DType::ALL {
        let values: Vec<Scalar> = match dtype.is_float() {
            true => floats.map(|x| Scalar::number(dtype, x)).to_vec(),
            false => ints.map(|v| Scalar::I(round::wrap(dtype, v))).to_vec(),
        };
        for (&prim, &x) in Prim::ALL.iter().flat_map(|p| values.iter().map(move |v| (p, v))) {
            for &y in &values {
                let got = apply(prim, dtype, &[x, y, y][..prim.arity()], None);
                let out = if prim.signature() == Signature::Test { DType::Bool } else { dtype };
                let again = got.cast(out, out);
                let nan = got.float().is_nan() && again.float().is_nan();
                assert!(got == again || nan, "{prim:?} {dtype} on {x:?}, {y:?}: {got:?}");
            }
        }
    }
}

#[test]
fn expressions_know_what_is_bool() {
    let parse = |text| Expr::parse(text, &["x", "y"], &[]).unwrap_or_else(|e| panic!("{e}"));
    let kinds = |text| [0, 1].map(|i| parse(text).var_kind(i));
    let (value, bool) = (Some(Kind::Value), Some(Kind::Bool));
    assert_eq!(kinds("select(~x, y, 0)"), [bool, value]);
    assert_eq!(kinds("x & (y > 0)"), [bool, value]);
    assert_eq!(kinds("x & y"), [value, value]);
    assert_eq!(kinds("cast(x)"), [Some(Kind::Foreign), None]);
    assert_eq!(kinds("cast(x) * y"), [Some(Kind::Foreign), value]);
    assert!(parse("x < y").is_test() && !parse("x + y").is_test());
    assert_eq!(parse("x * x + x * x").nodes().len(), 3);
}

/// Every primitive is rounded to the dtype, and constants are cast to it.
#[test]
fn expressions_round_each_step() {
    let table = [
        (DType::F16, "x + 1 - x", 2048.0, 0.0),
        (DType::F32, "x + 0.1", 0.0, 0.1f32 as f64),
        (DType::I32, "x * 2.9", 3.0, 6.0),
        (DType::U8, "x + 1", 255.0, 0.0),
        (DType::F8E4M3, "x", 1.5, 1.5),
    ];
    for (dtype, text, x, want) in table {
        let expr = Expr::parse(text, &["x"], &[]).unwrap_or_else(|e| panic!("{e}"));
        let got = expr.eval(dtype, &[Scalar::number(dtype, x)], &[]);
        assert_eq!(got, Scalar::number(dtype, want), "{dtype} {text}");
    }
}

/// Elements: dtype, text as read, text as written (or the error).
#[test]
fn element_text() {
    let table = [
        (DType::F32, "0.1", "0.1"),
        (DType::F32, "1", "1.0"),
        (DType::F32, "-0.0", "-0.0"),
        (DType::F32, "16777216", "16777216.0"),
        (DType::F64, "1e300", "1e300"),
        (DType::F64, "-inf", "-inf"),
        (DType::F16, "nan", "nan"),
        (DType::F16, "0.1", "0.1"),
        (DType::F16, "65504", "65500.0"),
        (DType::BF16, "3.14159", "3.14"),
        (DType::F8E4M3, "448", "450.0"),
        (DType::U64, "18446744073709551615", "18446744073709551615"),
        (DType::I4, "-8", "-8"),
        (DType::Bool, "true", "true"),
        (DType::F32, "1e40", "1e40 is out of range for f32"),
        (DType::F16, "1e5", "1e5 is out of range for f16"),
        (DType::I8, "128", "128 is out of range for i8"),
        (DType::I4, "8", "8 is out of range for i4"),
        (DType::U8, "-1", "-1 is out of range for u8"),
        (DType::I8, "1.5", "`1.5` is not a value of i8"),
        (DType::Bool, "1", "`1` is not a value of bool"),
        (DType::F32, "infinity", "`infinity` is not a value of f32"),
    ];
    for (dtype, read, want) in table {
        let got = Tensor::parse_scalar(dtype, read).map(|t| t.element_text(0));
        assert_eq!(got.unwrap_or_else(|e| e), want);
    }
}

#[test]
fn tensors_compare_bits() {
    let f = |v| Tensor::scalar(DType::F32, v);
    assert_ne!(f(0.0), f(-0.0));
    assert_eq!(f(f64::NAN), f(-f64::NAN));
    assert_ne!(f(1.0), Tensor::scalar(DType::F64, 1.0));
    assert_eq!(Tensor::from_i64s(DType::I4, vec![2], &[-1, 9]).bytes()[..], [0xff, 0xf9]);
    assert!(Tensor::from_bytes(DType::F32, vec![2], vec![0; 7]).is_err());
    let packed = Tensor::from_bytes(DType::I4, vec![2], vec![0x0f, 0xf7]).expect("two bytes");
    assert_eq!(packed.to_i64s(), [-1, 7]);
    assert_eq!(format!("{:?}", f(1.5)), "f32[][1.5]");
}
