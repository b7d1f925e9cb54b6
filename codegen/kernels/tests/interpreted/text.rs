//! The text form of loop code: printed code parses to the same code.

use mithril_ir::graph::Module;
use mithril_kernels::code::parse::parse;
use mithril_kernels::code::verify::verify;

use crate::cases::{Random, operations};
use crate::program::{Interpreted, LEVELS, isa};
use crate::uses::uses;

#[test]
fn kernels_of_every_operation_are_parsed_back() {
    let mut count = 0;
    for op in operations() {
        let mut random = Random::named(op.name, 700);
        for case in uses(op, &mut random).into_iter().take(2) {
            let Some(function) = case.symbolic().function() else { continue };
            for level in LEVELS {
                let made = Interpreted::new(&Module::of(function.clone()), &isa(level));
                for kernel in &made.plan.kernels {
                    let text = kernel.lowered.code.to_string();
                    let code = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    assert_eq!(code.to_string(), text);
                    verify(&code).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    count += 1;
                }
            }
        }
    }
    assert!(count > 1000, "{count} kernels were read");
}
