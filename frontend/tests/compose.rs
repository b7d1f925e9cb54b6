//! Compositions as text of the IR.

use mithril::{DimSpec, Model, Options, block, lower};
use mithril_ir::text::print;
use mithril_ir::verify::verify;

#[test]
fn first() {
    let model1 = Model::new();
    model1
        .extend(block!(Linear(dimension = 32)).unwrap())
        .unwrap();
    model1.extend(block!(Relu()).unwrap()).unwrap();
    model1
        .extend(
            block!(Linear(dimension = 16))
                .unwrap()
                .output("output")
                .unwrap(),
        )
        .unwrap();
    let model2 = Model::new();
    model2
        .extend(block!(Linear(dimension = 32)).unwrap())
        .unwrap();
    model2.extend(block!(LeakyRelu()).unwrap()).unwrap();
    model2
        .extend(
            block!(Linear(dimension = 16))
                .unwrap()
                .output("output")
                .unwrap(),
        )
        .unwrap();
    let model = Model::new();
    model
        .extend(model1.seal().unwrap().output("output1").unwrap())
        .unwrap();
    model
        .extend(model2.seal().unwrap().output("output2").unwrap())
        .unwrap();
    let add = block!(Add())
        .unwrap()
        .connect([("left", "output1"), ("right", "output2")])
        .unwrap();
    model.extend(add.output("output").unwrap()).unwrap();
    let module =
        lower(&model.block().unwrap(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    verify(&module).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", print(&module));
    let module = lower(
        &model.block().unwrap(),
        &Options {
            shapes: vec![("input".into(), vec![DimSpec::Any, DimSpec::Number(7)])],
            ..Options::default()
        },
    )
    .unwrap_or_else(|e| panic!("{e}"));
    verify(&module).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", print(&module));
}
