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

fn read(text: &str) -> Module {
    parse(text).unwrap_or_else(|e| panic!("{}\n{text}", e.render("test.mir", text)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

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
        let text = print(&module(random));
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
#[test]
fn show() {
    for s in 0..4 { println!("{}", module(&mut Random(s * 7 + 1))); }
    let mut ok = 0; let mut err = std::collections::BTreeMap::new(); let mut ops=0;
    for s in 0..500 { let r=&mut Random(s); let m = module(r); ops += m.functions.values().map(|f| f.ops.len()).sum::<usize>(); let e = m.entry().unwrap(); if let Some(a)=arguments(e, r) { match evaluate(&m,e,&a){Ok(_)=>ok+=1,Err(x)=>*err.entry(x.what.chars().take(60).collect::<String>()).or_insert(0)+=1} } }
    println!("{ok} ok {ops} ops {err:#?}");
}
