//! Random modules print, read back and mean the same; no text makes the parser panic.

mod cases;

use std::panic::catch_unwind;

use cases::Random;
use cases::modules::{arguments, module};
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::text::{parse, print};
use mithril_ir::verify::verify;
use proptest::prelude::*;

/// What random modules have none of.
const CALLS: &str = "mithril 1
func @main(%x: tensor<n x 4 x f32>, %c: tensor<4 x f32> state, %q: tensor<2 x i4>, %p: tensor<(k + 1) x f32>)
    -> (sum: tensor<n x 4 x f32>, next: tensor<4 x f32> state \"c\") where n <= 5 {
  %0 = custom_gradient(%x, %c) {callee = @first, vjp = @gradient} : tensor<n x 4 x f32>
  %1, %2 = scan(%c, %x) {callee = @step, carries = 1, sequences = 1, reverse = true} : tensor<4 x f32>, tensor<n x 4 x f32>
  %3 = call(%p) {callee = @half} : tensor<k x f32>
  %4 = constant() {value = dense<tensor<3 x i8>, hex\"00ff01\">} : tensor<3 x i8>
  return %0, %1
}
func @step(%c: tensor<*b x f32>, %x: tensor<*b x f32>) -> (c: tensor<*b x f32>, y: tensor<*b x f32>) {
  return %c, %x
}
func @first(%x: tensor<*b x f32>, %y: tensor<*c x f32>) -> (x: tensor<*b x f32>) {
  return %x
}
func @gradient(%x: tensor<*b x f32>, %y: tensor<*c x f32>, %r: tensor<*b x f32>, %g: tensor<*b x f32>)
    -> (dx: tensor<*b x f32>, dy: tensor<*c x f32>) {
  return %g, %y
}
extern func @half(%x: tensor<(m + 1) x f32>) -> (output: tensor<m x f32>) {
  body numpy \"n = len({x}) // 2\"
    \"return {x}[:n]\"
  body c \"for (;;) {{ }}\"
}
";

fn read(text: &str) -> Module {
    parse(text).unwrap_or_else(|e| panic!("{}\n{text}", e.render("test.mir", text)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn modules_read_back(seed: u64) {
        let module = module(&mut Random(seed));
        let text = print(&module);
        verify(&module).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let back = read(&text);
        verify(&back).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let again = print(&back);
        prop_assert_eq!(print(&read(&again)), again.clone());
        prop_assert_eq!(again, text);
        for (name, f) in &module.functions {
            let known = |m: &Module| m.functions[name].values.iter().map(|v| v.known.clone()).collect::<Vec<_>>();
            if !f.external {
                prop_assert_eq!(known(&module), known(&back), "{}", module);
            }
        }
    }

    #[test]
    fn modules_mean_the_same(seed: u64) {
        let random = &mut Random(seed);
        let module = module(random);
        let back = read(&print(&module));
        let entry = module.entry().unwrap();
        if let Some(args) = arguments(entry, random) {
            let (one, two) = (evaluate(&module, entry, &args), evaluate(&back, back.entry().unwrap(), &args));
            match (one, two) {
                (Ok(one), Ok(two)) => prop_assert_eq!(one, two),
                (Err(_), Err(_)) => {}
                (one, two) => prop_assert!(false, "{:?} {:?}", one, two),
            }
        }
    }

    #[test]
    fn no_text_panics(seed: u64) {
        let random = &mut Random(seed);
        let text = match random.chance(30) {
            true => CALLS.to_string(),
            false => print(&module(random)),
        };
        for _ in 0..8 {
            let broken = mutate(&text, random);
            let outcome = catch_unwind(|| match parse(&broken) {
                Ok(module) => drop(print(&module)),
                Err(error) => drop(error.render("test.mir", &broken)),
            });
            prop_assert!(outcome.is_ok(), "{}", broken);
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let text = format!("mithril 1\n{}", String::from_utf8_lossy(&bytes));
        let _ = parse(&text).map_err(|e| e.render("test.mir", &text));
    }
}

#[test]
fn calls_read_back() {
    verify(&read(CALLS)).unwrap_or_else(|e| panic!("{e}"));
}

/// The text with a few places changed: bytes, numbers, parts moved about.
fn mutate(text: &str, random: &mut Random) -> String {
    const PIECES: &[&str] = &[
        "-",
        "9223372036854775807",
        "-9223372036854775808",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        ",",
        "%",
        "\"",
        "\\",
        "//",
        "x",
        "*",
        "?",
        "?",
        "0",
        "1",
        "3",
        "é",
        " ",
        "\n",
        "n",
        "f32",
        "i4",
        "none",
        "@",
        "=",
        "nan",
        "1e999",
    ];
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + random.below(3) {
        let at = random.below(chars.len());
        let end = (at + random.below(12)).min(chars.len());
        match random.below(4) {
            0 => drop(chars.drain(at..end)),
            1 => drop(chars.splice(at..at, random.pick(PIECES).chars())),
            2 => {
                let one = (at + 1).min(chars.len());
                drop(chars.splice(at..one, random.pick(PIECES).chars()));
            }
            _ => {
                let part = chars[at..end].to_vec();
                let to = random.below(chars.len());
                drop(chars.splice(to..to, part));
            }
        }
    }
    chars.into_iter().collect()
}
