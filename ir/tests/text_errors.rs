//! Every mistake in a text is reported with the problem, the location and a fix.

use mithril_ir::diagnostic::Diagnostic;
use mithril_ir::dtype::DType;
use mithril_ir::text::{check_targets, parse, parse_generic};

/// The error of a text in which `«…»` marks the place that it points at.
fn error(marked: &str) -> Diagnostic {
    let start = marked.find('«').expect("the place is marked");
    let end = marked.find('»').expect("the place ends") - '«'.len_utf8();
    let source = marked.replace(['«', '»'], "");
    let error = *parse(&source).expect_err("the text is wrong");
    let shown = error.render("test.mir", &source);
    assert_eq!(error.span, Some(start..end), "{shown}");
    error
}

/// A function around these lines.
fn body(lines: &str) -> String {
    format!(
        "mithril 1\nfunc @main(%x: tensor<batch x 4 x f32>, %y: tensor<4 x f32>) \
         -> (output: tensor<batch x 4 x f32>) {{\n  {lines}\n  return %x\n}}\n"
    )
}

fn check(marked: &str, what: &str, more: &str) {
    let error = error(marked);
    assert!(error.headline().contains(what), "{error}");
    assert!(error.to_string().contains(more), "{error}");
}

#[test]
fn versions() {
    check("«f»unc @main() -> () {}", "format version", "begin the file with `mithril 1`");
    check("mithril «one»", "format version is not a number", "got: `one`");
    let newer = parse("mithril 99 anything").unwrap_err();
    assert!(newer.headline().contains("newer"), "{newer}");
    assert!(newer.to_string().contains("install a newer Mithril"));
}

#[test]
fn names() {
    let cases = [
        ("%0 = «matmull»(%x, %y)", "there is no operation `matmull`", "did you mean `matmul`?"),
        ("%0 = softmax(%x) {«axes» = 1}", "no attribute `axes`", "did you mean `axis`?"),
        ("%0 = softmax(%x) {axis = 1, «axis» = 1}", "given twice", ""),
        ("%0 = exp(«%z»)", "the value `%z` is not defined", "did you mean"),
        ("%0 = exp(«%1»)\n%1 = exp(%x)", "`%1` is not defined", "below the one that defines it"),
        ("«%x» = exp(%x)", "`%x` is defined twice", ""),
        ("%0 = call(%x) {«callee = @mian»}", "no function `mian`", "did you mean `main`?"),
        ("%0 = cast(%x) {dtype = «f31»}", "no dtype `f31`", "f32"),
        ("%0 = exp(%x) : tensor<batch x 4 x «f31»>", "no dtype `f31`", "f32"),
        ("«%0 = call(%x, %y) {callee = @main}»", "must not be recursive", "`main` → `main`"),
    ];
    for (lines, what, more) in cases {
        check(&body(lines), what, more);
    }
    let twice = "mithril 1 func @a() -> () { return } «func @a»() -> () { return }";
    check(twice, "`a` is defined twice", "");
}

#[test]
fn types() {
    let cases = [
        (
            "%0 = exp(%x) : «tensor<batch x 5 x f32>»",
            "declared type of `%0`",
            "expected: tensor<batch x 4 x f32>",
        ),
        ("«%0 = concat(%x, %y) {axis = 0}»", "2 and 1 dims", ""),
        ("«%0 = add(%x)»", "wrong number of operands", "expected: 2"),
        ("%0 = cast(%y) {dtype = f64}\n«%1 = add(%x, %0)»", "differ in dtype", "cast"),
        (
            "«%0 = exp(%x) : tensor<batch x 4 x f32>, tensor<f32>»",
            "each result must have one type",
            "",
        ),
        ("%0 = «sum_to»(%x)", "needs the attribute `shape`", "expected: shape"),
        ("%0 = exp(%x) : tensor<batch «f»32>", "`x`", ""),
    ];
    for (lines, what, more) in cases {
        check(&body(lines), what, more);
    }
    let result = "mithril 1 func @f(%x: tensor<2 x f32>) -> (y: «tensor<3 x f32>») { return %x }";
    check(result, "type of the result `y`", "expected: tensor<2 x f32>");
    let count = "mithril 1 func @f(%x: tensor<2 x f32>) -> (y: tensor<2 x f32>) { «return» }";
    check(count, "number of results", "expected: 1");
    let missing = "mithril 1 «func @f»() -> (y: tensor<2 x f32>) { }";
    check(missing, "number of results", "expected: 1");
}

#[test]
fn syntax() {
    let cases = [
        ("%0 = sort(%x) {axis = «1.5»}", "an integer", ""),
        ("%0 = sort(%x) {descending = «1»}", "`true` or `false`", ""),
        ("%0 = reshape(%x) {shape = [2 «,» 3]}", "`x` or `]`", "got: `,`"),
        ("%0 = exp(%x) @ «\"»abc", "is not closed on its line", "close it"),
        ("%0 = exp(%x) @ \"a«\\q»\"", "escape", ""),
        ("%0 = exp(%x «%»y)", "`,` or `)`", ""),
        ("%0 «e»xp(%x)", "`=` is expected here", "got: `exp`"),
        ("% «=» exp(%x)", "name of a value", ""),
        ("guard batch == «;»", "a dim is expected", ""),
        ("guard batch «<»= 3", "`==`", ""),
    ];
    for (lines, what, more) in cases {
        check(&body(lines), what, more);
    }
}

#[test]
fn tensors() {
    let cases = [
        ("%0 = constant() {value = dense<tensor<2 x f32>, [1.0, «x»]>}", "not a value of f32", ""),
        ("%0 = constant() {value = «dense<tensor<2 x f32>, [1.0]>»}", "takes 8 bytes, got 4", ""),
        ("%0 = constant() {value = dense<«tensor<n x f32>», 1.0>}", "must be constant", ""),
        ("%0 = constant() {value = dense<tensor<99999999999 x f32>, «1.0»>}", "too many", ""),
        ("%0 = constant() {value = dense<tensor<i8>, «300»>}", "out of range", ""),
        ("%0 = constant() {value = dense<tensor<f32>, hex«\"»0x>}", "hexadecimal", ""),
    ];
    for (lines, what, more) in cases {
        check(&body(lines), what, more);
    }
}

#[test]
fn functions() {
    check("mithril 1 «f»n @f() -> () {}", "`func`, `entry func` or `extern func`", "got: `fn`");
    check("mithril 1 func @f() -> () { return«»", "`}` is expected", "the end of the text");
    check("mithril 1 func @f() -> () { «return» return }", "may follow `return`", "");
    check("mithril 1 extern func @f() -> () { «r»eturn }", "`body`, `guard` or `}`", "");
}

#[test]
fn bodies() {
    let external = |body: &str| {
        format!("mithril 1 extern func @f(%x: tensor<f32>) -> (y: tensor<f32>) {{ {body} }}")
    };
    let cases = [
        ("«body numpy \" \"»", "the body for numpy is empty", ""),
        (
            "«body torch \"return {z}\"»",
            "names `{z}`, which is not an argument",
            "did you mean `x`?",
        ),
        ("«body torch \"return {rest}\"»", "not an argument of `f`", "a brace itself"),
        ("«body jax \"return {x\"»", "brace in the body for jax is not matched", "got: {x"),
        ("«body jax \"return x}\"»", "is not matched", "`{{` or `}}`"),
        ("body «\"»\"", "the name of a target", ""),
        ("body numpy «}»", "the lines of the body", ""),
    ];
    for (body, what, more) in cases {
        check(&external(body), what, more);
    }
    let twice = "mithril 1 «extern func @f»() -> () { body c \"a\" body c \"b\" }";
    check(twice, "two bodies for c", "");
    let own = "mithril 1 «func @f»() -> () { body numpy \"a\" body numpy \"b\" return }";
    check(own, "two bodies for numpy", "");
}

#[test]
fn float_dtype_is_chosen_by_the_caller() {
    let text = "mithril 1 func @f(%x: tensor<n x «float»>) -> (y: tensor<n x float>) { return %x }";
    check(text, "no dtype `float`", "loaded as blocks");
    let module = parse_generic(&text.replace(['«', '»'], ""), DType::F64).unwrap();
    let function = module.entry().unwrap();
    assert_eq!(function.ty(function.arg(0)).dtype, DType::F64);
}

#[test]
fn signatures() {
    let state = "mithril 1 «func @f»(%c: tensor<f32> state) -> (n: tensor<f32> state \"d\") \
                 { return %c }";
    check(state, "not a state argument", "did you mean `c`?");
    let twice = "mithril 1 «func @f»(%a: tensor<f32> \"x\", %b: tensor<f32> \"x\") -> () {return}";
    check(twice, "two arguments are called `x`", "");
    let fresh = "mithril 1
        extern func @unique(%x: tensor<n x f32>) -> (y: tensor<m x f32>)
        func @f(%x: tensor<4 x f32>) -> () { «%y = call(%x) {callee = @unique}» return }";
    check(fresh, "types of these results must be given", "give names to their new dims");
}

#[test]
fn rendering_underlines_the_text() {
    let source = body("%0 = matmull(%x, %y)");
    let error = parse(&source).unwrap_err();
    let expected = "  × there is no operation `matmull`
   ╭─[model.mir:3:8]
 2 │ func @main(%x: tensor<batch x 4 x f32>, %y: tensor<4 x f32>) -> (output: tensor<batch x 4 x f32>) {
 3 │   %0 = matmull(%x, %y)
   ·        ───┬───
   ·           ╰── here
 4 │   return %x
   ╰────
  help: did you mean `matmul`?
";
    assert_eq!(error.render("model.mir", &source), expected);
}

/// A line that is too long to be shown is cut around the place.
#[test]
fn long_lines() {
    let names = (0..20_000).map(|i| format!("a{i}")).collect::<Vec<_>>().join(", ");
    for (front, back) in [(&*names, ""), ("", &*names), (&*names, &*names), ("", "")] {
        let front = if front.is_empty() { String::new() } else { format!("{front}, ") };
        let source = format!("mithril 1\nfunc @main({front}é, {back}) -> () {{\n  return\n}}\n");
        let start = source.find('é').expect("it is there");
        let error = Diagnostic::new("wrong").span(start..start + 'é'.len_utf8());
        let shown = error.render("test.mir", &source);
        assert!(shown.len() < 2000, "{shown}");
        assert!(shown.contains('é') && shown.contains("here"), "{shown}");
        let column = source[10..start].chars().count() + 1;
        let is_cut = !front.is_empty() || !back.is_empty();
        assert_eq!(shown.contains(&format!("in column {column}")), is_cut, "{shown}");
    }
}

#[test]
fn targets_of_bodies() {
    let text = "mithril 1\nextern func @f(%x: tensor<float>) -> (y: tensor<float>) {\n  \
                body one \"a\"\n  body twoo \"b\"\n}\n";
    assert!(parse_generic(text, DType::F32).is_ok(), "any name is accepted");
    assert!(check_targets(text, &["one", "twoo"]).is_ok());
    let error = check_targets(text, &["one", "two"]).expect_err("there is no such target");
    assert_eq!(error.span.as_ref().map(|span| &text[span.clone()]), Some("body twoo \"b\""));
    let shown = error.to_string();
    assert!(shown.contains("there is no target `twoo` for a body"), "{shown}");
    assert!(shown.contains("expected: one of one, two"), "{shown}");
    assert!(shown.contains("did you mean `two`?"), "{shown}");
}
