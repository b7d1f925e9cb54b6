//! The block table is complete: every block can be built, lowered and verified.

mod harness;

use harness::{compile, f64s, i64s};
use mithril_ir::graph::Role;
use mithril_ir::op::{self, Class};
use mithril_model::blocks::{self, Default, Kind, Meaning, Parameter, Range};
use mithril_model::{Block, Model, Setting, Source, block};

/// A value of each kind that most blocks accept.
fn sample(kind: Kind) -> Setting {
    match kind {
        Kind::Bool => true.into(),
        Kind::Int | Kind::IntOrNone => 1.into(),
        Kind::Count => 2.into(),
        Kind::Float(Range::Unit) => 0.5.into(),
        Kind::Float(_) => 2.0.into(),
        Kind::DType => mithril_ir::dtype::DType::F64.into(),
        Kind::Str => "ij,jk->ik".into(),
        Kind::OneOf(names) => names[0].into(),
        Kind::Ints => vec![1, 0].into(),
        Kind::Counts => 2.into(),
        Kind::Padding => 1.into(),
        Kind::Pairs => vec![vec![1, 2], vec![0, 1]].into(),
        Kind::Strs => vec!["a"].into(),
        Kind::Names => vec![vec!["a", "b"]].into(),
        Kind::Axes => 0.into(),
        Kind::Split => vec![0].into(),
        Kind::Floats => vec![1.0, 2.0].into(),
        Kind::Dim => 4.into(),
        Kind::Dims => vec![4, 4].into(),
        Kind::Index => 0.into(),
        Kind::Scalar => 3.into(),
        Kind::Block => block!(Relu()).unwrap().into(),
        Kind::Blocks => vec![block!(Relu()).unwrap(), block!(Tanh()).unwrap()].into(),
        Kind::BlocksOrNone => vec![block!(Relu()).unwrap(), block!(Tanh()).unwrap()].into(),
        Kind::Value => 1.0.into(),
        Kind::Init => "ones".into(),
    }
}

fn settings(entry: &blocks::Entry) -> Vec<(&'static str, Setting)> {
    // These are needed, although they have a default.
    let needed = |p: &&Parameter| {
        let named = [
            ("Arange", "stop"),
            ("Upsample", "size"),
            ("OneToMany", "steps"),
            ("EncoderDecoder", "steps"),
            ("Transformer", "dimension"),
            ("Transformer", "heads"),
            ("FractionalMaxPool2d", "output_size"),
            ("FractionalMaxPool3d", "output_size"),
        ];
        p.default == Default::Required || named.contains(&(entry.name, p.name))
    };
    let required = entry.parameters.iter().filter(needed);
    required
        .map(|p| {
            let value = match (entry.name, p.name) {
                ("ManyToOne" | "OneToMany" | "EncoderDecoder", "cell" | "encoder" | "decoder") => {
                    block!(LSTMCell(dimension = 4)).unwrap().into()
                }
                ("OneToMany" | "EncoderDecoder", "steps") => 2.into(),
                ("SpectralNorm" | "WeightNorm", "block") => {
                    block!(Linear(dimension = 4)).unwrap().into()
                }
                ("KernelizedSVM" | "GaussianProcessRegression", "kernel") => {
                    block!(RBFKernel()).unwrap().into()
                }
                ("MLP", "dimensions") => vec![3, 2].into(),
                ("Repeat" | "Roll" | "Cumsum" | "Cumprod", "axis") => 0.into(),
                ("SwapAxes", "first") => 0.into(),
                ("Unflatten", "sizes") => vec![2, 2].into(),
                (name, "dimension") if name.starts_with("Transformer") => 4.into(),
                ("TransformerEncoder", "layer") => {
                    block!(TransformerEncoderLayer(dimension = 4, heads = 2)).unwrap().into()
                }
                ("TransformerDecoder", "layer") => {
                    block!(TransformerDecoderLayer(dimension = 4, heads = 2)).unwrap().into()
                }
                ("AdaptiveLogSoftmax", "classes") => 4.into(),
                ("AdaptiveLogSoftmax", "cutoffs") => vec![1, 2].into(),
                ("AffineGrid", "size") => vec![2, 2].into(),
                ("While", "condition") => block!(IsNan()).unwrap().into(),
                ("ExpandDims" | "Flip", _) => 0.into(),
                ("RandInt", "low") => 0.into(),
                _ => sample(p.kind),
            };
            (p.name, value)
        })
        .collect()
}

/// A shape that the terminal of the block takes.
fn shape(block: &str, terminal: &str) -> &'static [usize] {
    match (block, terminal) {
        ("GridSample", "grid") => &[1, 4, 4, 2],
        ("Fold", _) => &[1, 4, 1],
        (_, "boundaries") => &[2],
        ("While", _) => &[],
        ("GaussianProcessLoss", "target") => &[4],
        ("GaussianProcessCore" | "GaussianProcessRegression", "label") => &[4],
        ("MaxUnpool2d", _) => &[1, 4, 2, 2],
        ("MaxUnpool1d", _) => &[1, 8, 2],
        ("MaxUnpool3d", _) => &[1, 2, 2, 2, 2],
        ("GroupedMatrixMultiply", "right") => &[4, 4, 4],
        ("AffineGrid", _) => &[4, 2, 3],
        ("AdaptiveLogSoftmax", "input") => &[4, 16],
        ("RNN" | "LSTM" | "GRU" | "ManyToOne", _) => &[4, 2, 2],
        ("CTC" | "EncoderDecoder", "input") => &[4, 2, 2],
        (name, _) if name.ends_with("1d") => &[1, 4, 4],
        (name, _) if name.ends_with("3d") => &[1, 4, 4, 4, 4],
        (name, _) if name.ends_with("2d") || IMAGES.contains(&name) => &[1, 4, 4, 4],
        _ => &[4, 4],
    }
}

/// Blocks of images without a number of axes in their names.
const IMAGES: &[&str] = &[
    "LpPool",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "ReflectionPad",
    "ReplicationPad",
    "CircularPad",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Upsample",
    "GridSample",
    "LocalResponseNorm",
];

/// Blocks whose indices are a matrix.
const MATRICES: &[&str] = &["TakeAlongAxis", "ScatterReduce", "EmbeddingBag", "MultiLabelMargin"];

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = blocks::table().map(|e| e.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn every_block_has_a_doc_and_a_known_operation() {
    for entry in blocks::table() {
        if let Meaning::Op(name) = entry.meaning {
            assert!(op::find(name).is_some(), "{}", entry.name);
        }
        assert!(entry.doc().len() > 3, "{}", entry.name);
    }
}

#[test]
fn every_block_is_lowered() {
    for entry in blocks::table() {
        let block = blocks::build(entry.name, vec![], settings(entry))
            .unwrap_or_else(|e| panic!("{}: {e}", entry.name));
        let names: Vec<&str> = block.inputs().iter().map(|t| &*t.name).collect();
        let is_present = |input: &&blocks::Input| {
            let present = block.settings().is_some_and(|settings| (input.present)(settings));
            input.role == Role::Data && present
        };
        for input in entry.inputs.iter().filter(is_present) {
            let known = names.contains(&input.name) || matches!(input.name, "shape" | "index");
            assert!(known, "{}: {} in {names:?}", entry.name, input.name);
        }
        let model = Model::new();
        let mut given: Vec<(String, Source)> = Vec::new();
        for terminal in block.inputs().iter().filter(|t| t.role == Role::Data && !t.optional) {
            let ones = |shape: &[usize]| f64s(shape, &vec![0.5; shape.iter().product()]);
            let matrix: Source = match terminal.class {
                Class::Int if entry.name.starts_with("MaxUnpool") => {
                    let places = (0..16).map(|i| i % 4).collect::<Vec<_>>();
                    i64s(shape(entry.name, "indices"), &places).into()
                }
                Class::Int if &*terminal.name == "shape" => i64s(&[2], &[4, 4]).into(),
                Class::Int if MATRICES.contains(&entry.name) => i64s(&[4, 4], &[1; 16]).into(),
                Class::Int if entry.name == "CTC" => i64s(&[4, 1], &[1, 1, 1, 1]).into(),
                Class::Int => i64s(&[4], &[0, 1, 2, 3]).into(),
                Class::Bool => {
                    let shape = if entry.name == "Cond" { vec![] } else { vec![4, 4] };
                    let ones = vec![1; shape.iter().product()];
                    let bool = mithril_ir::dtype::DType::Bool;
                    mithril_ir::tensor::Tensor::from_i64s(bool, shape, &ones).into()
                }
                _ => ones(shape(entry.name, &terminal.name)).into(),
            };
            let source = match terminal.list {
                true => Source::List(vec![matrix.clone(), matrix]),
                false => matrix,
            };
            given.push((terminal.name.to_string(), source));
        }
        let block: Block = block.connect(given).unwrap();
        model.connect(block).unwrap();
        let options = mithril_model::Options {
            dtype: mithril_ir::dtype::DType::F64,
            ..mithril_model::Options::default()
        };
        let sealed = model.block().unwrap_or_else(|e| panic!("{}: {e}", entry.name));
        compile(&sealed, &options);
    }
}
