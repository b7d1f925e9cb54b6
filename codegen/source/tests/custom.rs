//! Backends that are registered from data: what they spell, and which definitions are refused.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;

use cases::{Case, Random, operations};
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_ir::text::parse;
use mithril_passes::context::PassContext;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Pass;
use mithril_source::backends::{Backend, find};
use mithril_source::custom::{Definition, register};
use mithril_source::python::{Options, emit};

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, text)| ((*name).to_string(), (*text).to_string())).collect()
}

fn definition(name: &str) -> Definition {
    Definition {
        name: name.into(),
        label: name.into(),
        base: None,
        imports: pairs(&[("xp", "import arrays as xp")]),
        prelude: String::new(),
        spellings: Vec::new(),
        creation: Vec::new(),
        lacks: Vec::new(),
        missing: Vec::new(),
        differentiates: None,
    }
}

fn source(module: &Module, backend: &'static Backend) -> Result<String> {
    let legal = Legalize { target: backend.target };
    let module = legal.run(module, &mut PassContext::new("legalize"))?;
    Ok(emit(&module, backend, &Options::default())?.text)
}

#[test]
fn operations_are_spelled_or_decomposed() {
    let text = "mithril 1
func @main(%x: tensor<n x 4 x f32>) -> (y: tensor<n x 4 x f32>) {
  %0 = softplus(%x)
  %1 = softmax(%0)
  %y = relu(%1)
  return %y
}
";
    let module = parse(text).expect("a module");
    let mut given = definition("spelled");
    given.spellings = pairs(&[("relu", "_ramp({x})"), ("softmax", "xp.special.softmax({x})")]);
    given.prelude =
        "def _unused(x):\n    return x\n\ndef _ramp(x):\n    return xp.maximum(x, 0)\n".into();
    let backend = register(given).expect("a backend");
    let text = source(&module, backend).expect("source");
    assert!(text.contains("\nimport arrays as xp\n"), "{text}");
    assert!(text.contains("def _ramp(x):\n    return xp.maximum(x, 0)\n\n\ndef forward"), "{text}");
    assert!(text.contains("y = _ramp(xp.special.softmax("), "{text}");
    assert!(text.contains("xp.log1p("), "{text}");
    assert!(!text.contains("_unused"), "{text}");
    assert!(find("spelled") == Some(backend));
}

#[test]
fn a_base_gives_spellings_and_functions() {
    let text = "mithril 1
func @main(%x: tensor<3 x f32>) -> (y: tensor<3 x f32>) {
  %0 = sigmoid(%x)
  %y = sort(%0)
  return %y
}
";
    let module = parse(text).expect("a module");
    let mut given = definition("based");
    given.base = Some("numpy".into());
    given.imports = pairs(&[("np", "import other.numpy as np")]);
    given.prelude = "def _sort(x, axis, descending):\n    return np.own_sort(x)\n".into();
    let text = source(&module, register(given).expect("a backend")).expect("source");
    assert!(text.contains("\nimport other.numpy as np\n"), "{text}");
    assert!(text.contains("np.own_sort(x)") && !text.contains("np.sort("), "{text}");
    assert!(text.contains("def _sigmoid(x):"), "{text}");
}

#[test]
fn what_cannot_be_decomposed_is_an_error() {
    let text = "mithril 1
func @main(%x: tensor<3 x f32>) -> (y: tensor<3 x f32>) {
  %y = sort(%x)
  return %y
}
";
    let module = parse(text).expect("a module");
    let error = source(&module, register(definition("lacking")).expect("a backend"));
    let error = error.expect_err("there is no spelling").to_string();
    assert!(error.starts_with("Backend does not support operation sort"), "{error}");
    assert!(error.contains("got: sort for lacking"), "{error}");
}

#[test]
fn functions_that_the_framework_lacks_are_not_named() {
    let functions = definition("partial").functions().expect("names");
    for name in ["exp", "linalg", "linalg.det", "full", "where"] {
        assert!(functions.contains(name), "{name} of {functions:?}");
    }
    let text = "mithril 1
func @main(%x: tensor<3 x 3 x f32>) -> (y: tensor<3 x 3 x f32>) {
  %y = tril(%x)
  return %y
}
";
    let module = parse(text).expect("a module");
    let missing = vec!["tril".to_string()];
    let given = Definition { missing: missing.clone(), ..definition("partial") };
    let text = source(&module, register(given).expect("a backend")).expect("source");
    assert!(text.contains("xp.where(") && !text.contains("tril("), "{text}");
    let own = pairs(&[("tril", "@tril({x})")]);
    let given = Definition { missing, spellings: own, ..definition("partial_wrong") };
    let error = register(given).expect_err("a lacking function").to_string();
    assert!(error.contains("names `@tril`, which the array module lacks"), "{error}");
    let given = Definition { missing: vec!["full".into()], ..definition("partial_wrong") };
    let error = register(given).expect_err("a lacking function").to_string();
    assert!(error.contains("the array module has no function `full`"), "{error}");
    assert!(error.contains("give another one in `creation`"), "{error}");
}

#[test]
fn a_definition_is_registered_once() {
    let first = register(definition("once")).expect("a backend");
    assert!(std::ptr::eq(register(definition("once")).expect("the same"), first));
    let other = Definition { label: "Other".into(), ..definition("once") };
    let error = register(other).expect_err("another definition").to_string();
    assert!(error.contains("another backend `once` is registered"), "{error}");
}

#[test]
fn wrong_parts_and_long_templates_are_refused() {
    let error = |template: &str| {
        let given =
            Definition { spellings: pairs(&[("qr", template)]), ..definition("wrong_parts") };
        register(given).expect_err(template).to_string()
    };
    assert!(error("@qr({x})[2 / 2]").contains("takes a part of a call"));
    assert!(error("@qr({x})[{of} / 99]").contains("takes a part of a call"));
    assert!(error("@qr({x})[{of} / 0]").contains("takes a part of a call"));
    assert!(error(&"(".repeat(100)).contains("is too long"));
    assert!(error(&"-".repeat(5000)).contains("is too long"));
    assert!(error("@qr({x}, {padding})").contains("unknown slot `{padding}`"));
    assert!(error("@f({x}) if x is vacant; @qr({x})").contains("unknown word `vacant`"));
}

/// Whatever templates a definition has: it is refused, or source is written, or an error says why
/// not. Nothing panics.
#[test]
fn random_templates_do_no_harm() {
    let mut random = Random(5);
    let (mut registered, mut emitted) = (0, 0);
    for (number, op) in operations().enumerate() {
        let mut words: Vec<String> =
            ["@f(", "(", ")", "[", "]", ", ", " + ", "-", "~", "; ", " if "]
                .iter()
                .chain(&[
                    " is ", " == ", "half", "vacant", "summed", "default", "0", " / ", "1", "é",
                ])
                .chain(&[
                    "{dtype}",
                    "{device}",
                    "{padding}",
                    "{slices}",
                    "{left}",
                    "*",
                    "[, ",
                    "None",
                ])
                .chain(&["\"", "_g(", ".T", "{result}", "{bounds}", "{wanted.3}", "{target}", "="])
                .map(|word| (*word).to_string())
                .collect();
        for name in op.operands.iter().map(|o| o.name).chain(op.attrs.iter().map(|a| a.name)) {
            let forms = ["", ".number", ".array", ".last", ".tuple", ".front", ".word", ".one"];
            words.extend(forms.map(|form| format!("{{{name}{form}}}")));
            words.push(name.to_string());
        }
        for attempt in 0..20 {
            // Half of the templates are calls with random slots, which are often accepted.
            let mut template = String::new();
            if attempt % 2 == 0 {
                let slots: Vec<&String> = words.iter().filter(|w| w.starts_with('{')).collect();
                let count = 1 + random.below(3);
                let chosen: Vec<&str> = (0..count).map(|_| random.pick(&slots).as_str()).collect();
                template = format!("@f({})", chosen.join(", "));
            } else {
                for _ in 0..random.below(9) {
                    let word: &String = random.pick(&words);
                    template.push_str(word);
                }
            }
            let given = Definition {
                spellings: pairs(&[(op.name, &template)]),
                base: [None, Some("numpy"), Some("torch")][attempt / 2 % 3].map(String::from),
                ..definition(&format!("random_{number}_{attempt}"))
            };
            let Ok(backend) = register(given) else { continue };
            registered += 1;
            for _ in 0..2 {
                let case = Case::find(op, &mut random, None);
                let function = case.and_then(|case| case.function());
                emitted +=
                    usize::from(function.is_some_and(|f| source(&Module::of(f), backend).is_ok()));
            }
        }
    }
    assert!(registered > 500 && emitted > 500, "{registered} registered, {emitted} emitted");
}
