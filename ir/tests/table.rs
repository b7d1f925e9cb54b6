//! The op table is complete: names, expressions, gradients and spellings hold together.

use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, ResultDef, Role};
use mithril_ir::op::{self, Gradient, Kind, Meaning};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = op::table().map(|op| op.0.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn expressions_parse() {
    for op in op::table() {
        if let Meaning::Scalar(_) = op.meaning {
            assert!(op::expr(op).is_some(), "{}", op.name);
            assert_eq!(op.kind, Kind::Elementwise, "{}", op.name);
        }
        if let Gradient::Partials(partials) = op.gradient {
            assert_eq!(partials.len(), op.operands.len(), "{}", op.name);
            for text in partials {
                op::parse(op, text, &["r"]);
            }
        }
    }
}

#[test]
fn every_primitive_has_an_operation() {
    for prim in mithril_ir::scalar::Prim::ALL {
        op::of_prim(*prim);
    }
}

#[test]
fn softmax_of_a_matrix() {
    let b = Builder::new("main");
    let x = b.arg("x", Role::Data, Type::new(DType::F64, Shape::fixed(&[2, 3])));
    let y = b.op("softmax", &[x], &[]).unwrap();
    let f = b.finish(vec![ResultDef { name: "output".into(), value: y, state: None }]).unwrap();
    let input = Tensor::from_f64s(DType::F64, vec![2, 3], &[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
    let out = evaluate(&Module::new(), &f, &[input]).unwrap();
    let got = out[0].to_f64s();
    assert!((got[0] - 0.09003057317038046).abs() < 1e-15 && (got[3] - 1.0 / 3.0).abs() < 1e-15);
}
