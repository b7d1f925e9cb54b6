//! Shared by the tests: functions that compile and evaluate blocks.
#![allow(dead_code)]

use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, Role};
use mithril_ir::tensor::Tensor;
use mithril_ir::verify::verify;
use mithril_model::{Block, DimSpec, Literal, Model, Options, Source, lower};

/// A module that the verifier accepts.
pub fn compile(block: &Block, options: &Options) -> Module {
    let module = lower(block, options).unwrap_or_else(|e| panic!("{e}"));
    verify(&module).unwrap_or_else(|e| panic!("{e}\n{}", mithril_ir::text::print(&module)));
    module
}

pub fn f64s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64s(DType::F64, shape.to_vec(), values)
}

pub fn i64s(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_i64s(DType::I64, shape.to_vec(), values)
}

pub fn key() -> Tensor {
    Tensor::from_i64s(DType::U32, vec![2], &[0, 42])
}

/// Options with the shapes and dtypes of these inputs, in double precision.
pub fn options(inputs: &[(&str, Tensor)]) -> Options {
    let dims = |t: &Tensor| t.shape().iter().map(|d| DimSpec::Number(*d as u64)).collect();
    Options {
        dtype: DType::F64,
        shapes: inputs.iter().map(|(n, t)| (n.to_string(), dims(t))).collect(),
        dtypes: inputs.iter().map(|(n, t)| (n.to_string(), t.dtype())).collect(),
        ..Options::default()
    }
}

/// All results of a block, by name. All keys are equal. Arguments that are not given are 0.
pub fn run(block: &Block, inputs: &[(&str, Tensor)], options: &Options) -> Vec<(String, Tensor)> {
    let module = compile(block, options);
    let main = module.entry().unwrap();
    let args: Vec<Tensor> = main
        .arguments()
        .map(|(value, arg)| {
            let given = inputs.iter().find(|(n, _)| **n == *arg.name);
            match given {
                Some((_, tensor)) => tensor.clone(),
                None if arg.role == Role::Key => key(),
                None => {
                    let shape = main.ty(value).shape.as_fixed().unwrap();
                    let zeros = vec![0.0; shape.iter().product()];
                    Tensor::from_f64s(main.ty(value).dtype, shape, &zeros)
                }
            }
        })
        .collect();
    let results = evaluate(&module, main, &args).unwrap_or_else(|e| panic!("{e}"));
    let names = main.results.iter().map(|r| r.name.to_string());
    names.zip(results).collect()
}

/// The first result of a block on these inputs.
pub fn first(block: &Block, inputs: &[(&str, Tensor)]) -> Tensor {
    run(block, inputs, &options(inputs)).remove(0).1
}

/// A model that contains only this block. Its data inputs have the names of the block's terminals.
pub fn alone(block: Block) -> Result<Block> {
    let model = Model::new();
    model.connect(block)?;
    model.block()
}

pub fn weak(values: &[f64]) -> Source {
    Literal::weak(f64s(&[values.len()], values)).into()
}
