//! The messages of errors in models, options and files.

use std::fmt::Write;

use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_model::{
    Block, Custom, DimSpec, IoKey, Loss, Model, Options, Setting, Source, TrainModel, block,
    blocks, lower,
};

fn linear(dimension: i64) -> Result<Block> {
    block!(Linear(dimension = dimension))
}

fn add(left: &str, right: &str) -> Result<Block> {
    block!(Add())?.connect([("left", left), ("right", right)])
}

fn compile(model: &Model, change: impl Fn(&mut Options)) -> Result<()> {
    let mut options = Options::default();
    change(&mut options);
    lower(&model.block()?, &options).map(drop)
}

fn shape(options: &mut Options, name: &str, dims: &[u64]) {
    let dims = dims.iter().map(|d| DimSpec::from(*d)).collect();
    options.shapes.push((name.into(), dims));
}

fn one(block: Block) -> Result<Model> {
    let model = Model::new();
    model.extend(block)?;
    Ok(model)
}

/// Compiles one block, for inputs of these shapes.
fn with_shapes(block: Block, shapes: &[(&str, &[u64])]) -> Result<()> {
    compile(&one(block)?, |options| {
        for (name, dims) in shapes {
            shape(options, name, dims);
        }
    })
}

/// The sum of two branches of different widths.
fn branches() -> Result<Model> {
    let model = Model::new();
    model.connect(linear(32)?.connect([("input", "x"), ("output", "a")])?)?;
    model.connect(linear(16)?.connect([("input", "x"), ("output", "b")])?)?;
    model.connect(add("a", "b")?.output("y")?)?;
    Ok(model)
}

type Case = (&'static str, fn() -> Result<()>);

const CONSTRUCTORS: &[Case] = &[
    ("an unknown block", || blocks::build("Linaer", vec![], vec![]).map(drop)),
    ("an unknown parameter", || block!(Linear(dimesion = 3)).map(drop)),
    ("a parameter left out", || block!(Linear()).map(drop)),
    ("a parameter of another kind", || block!(Linear(dimension = "three")).map(drop)),
    ("a parameter out of range", || block!(Linear(dimension = 0)).map(drop)),
    ("a parameter given twice", || {
        let named = vec![("dimension", 3.into())];
        blocks::build("Linear", vec![3.into()], named).map(drop)
    }),
    ("too many parameters", || blocks::build("Relu", vec![1.into()], vec![]).map(drop)),
    ("a terminal as parameter", || block!(Relu(input = "x")).map(drop)),
    ("branches with other outputs", || {
        let then = one(block!(Relu())?.connect([("input", "x"), ("output", "y")])?)?.block()?;
        block!(Cond(then = then, otherwise = block!(Relu())?)).map(drop)
    }),
    ("a loop of a body with several outputs", || {
        let body = block!(MaxPool2d(kernel_size = 2, return_indices = true))?;
        block!(While(condition = block!(IsNan())?, body = body)).map(drop)
    }),
    ("a loop whose condition draws numbers", || {
        block!(While(condition = block!(Dropout(rate = 0.5))?, body = block!(Relu())?)).map(drop)
    }),
    ("more experts for a token than there are", || block!(MoE(experts = 2, k = 3)).map(drop)),
    ("classes of clusters that are not in order", || {
        block!(AdaptiveLogSoftmax(classes = 10, cutoffs = vec![4, 2])).map(drop)
    }),
    ("a distance of one input", || {
        block!(TripletMarginWithDistance(distance = block!(Relu())?)).map(drop)
    }),
    ("neither a size nor a ratio", || block!(FractionalMaxPool2d(kernel_size = 2)).map(drop)),
    ("lengths without a sequence", || {
        let carry = vec![vec!["left", "output"]];
        let over: Vec<&str> = Vec::new();
        let body = block!(Add())?;
        block!(Scan(body = body, carry = carry, over = over, use_lengths = true)).map(drop)
    }),
    ("an affine grid of one axis", || block!(AffineGrid(size = 4)).map(drop)),
    ("a decoder of layers that read no context", || {
        let layer = block!(TransformerEncoderLayer(dimension = 8, heads = 2))?;
        block!(TransformerDecoder(layer = layer, layers = 2)).map(drop)
    }),
    ("a norm of a transform that does not exist", || block!(FFT(norm = "orthogonal")).map(drop)),
    ("a stride of 0", || block!(MaxPool2d(kernel_size = 2, stride = 0)).map(drop)),
    ("groups that do not divide the filters", || {
        block!(Conv1d(filters = 4, kernel_size = 3, groups = 3)).map(drop)
    }),
    ("an output padding as large as the stride", || {
        let block =
            block!(ConvTranspose2d(filters = 4, kernel_size = 3, stride = 2, output_padding = 2));
        block.map(drop)
    }),
    ("a stride of 0", || block!(Conv2d(filters = 4, kernel_size = 3, stride = 0)).map(drop)),
    ("neither a size nor a scale", || block!(Upsample()).map(drop)),
    ("a scale that is no fraction", || {
        let model = one(block!(Upsample(scale = std::f64::consts::PI))?)?;
        compile(&model, |o| shape(o, "input", &[1, 3, 8, 8]))
    }),
    ("a padding by name", || block!(ReflectionPad(padding = "same")).map(drop)),
    ("a padding of one end", || block!(ReflectionPad(padding = vec![1, 2, 3])).map(drop)),
    ("a kernel larger than the output", || {
        let model = one(block!(Fold(output_size = 2, kernel_size = 3))?)?;
        compile(&model, |o| shape(o, "input", &[1, 9, 1]))
    }),
    ("a kernel of three axes", || block!(MaxPool2d(kernel_size = vec![1, 2, 3])).map(drop)),
    ("a padding by name that is none", || {
        block!(MaxPool2d(kernel_size = 2, padding = "full")).map(drop)
    }),
    ("as many positions, with strides", || {
        let named = [("filters", 2.into()), ("kernel_size", 3.into()), ("stride", 2.into())];
        let named = named.into_iter().chain([("padding", "same".into())]).collect();
        blocks::build("Conv2d", vec![], named).map(drop)
    }),
    ("one of some names", || block!(CrossEntropy(input_type = "logit")).map(drop)),
    ("lists of different lengths", || {
        let activations = vec![block!(Relu())?];
        block!(MLP(activations = activations, dimensions = vec![1, 2])).map(drop)
    }),
    ("a ramp without an end", || block!(Arange()).map(drop)),
    ("an equation", || {
        let block = block!(Einsum(equation = "ij,jk->ik"))?;
        compile(&one(block.connect([("inputs", vec!["a"])])?)?, |_| {})
    }),
];

const CONNECTIONS: &[Case] = &[
    ("an unknown terminal of a block", || linear(3)?.connect([("inputs", "x")]).map(drop)),
    ("a terminal connected twice", || linear(3)?.input("x")?.input("y").map(drop)),
    ("more values than terminals", || {
        let names = ["a", "b", "c"].map(Source::from).to_vec();
        block!(Relu())?.connect_in_order(names).map(drop)
    }),
    ("an unknown terminal of a model", || {
        one(linear(3)?.output("hidden")?)?.terminal("hiden").map(drop)
    }),
    ("two writers", || {
        let model = one(linear(3)?.output("y")?)?;
        model.extend(block!(Relu())?.output("y")?)
    }),
    ("a value that is written", || {
        let key = IoKey { value: Some(1.0.into()), ..IoKey::new("y") };
        let model = one(linear(3)?.output("y")?)?;
        model.connect(block!(Relu())?.input(key)?)
    }),
    ("a cycle", || {
        let model = Model::new();
        model
            .connect(block!(Relu())?.named("first")?.connect([("input", "c"), ("output", "a")])?)?;
        model.connect(block!(Tanh())?.connect([("input", "a"), ("output", "b")])?)?;
        model.connect(block!(Sigmoid())?.connect([("input", "b"), ("output", "c")])?)?;
        model.block().map(drop)
    }),
    ("a block that reads itself", || {
        one(block!(Relu())?.connect([("input", "a"), ("output", "a")])?)?.block().map(drop)
    }),
    ("a list that is one name", || {
        let model = Model::new();
        model.connect(block!(Concat())?.connect([("inputs", "x")])?)
    }),
    ("a list for one value", || {
        one(block!(Relu())?.connect([("input", vec!["x", "y"])])?).map(drop)
    }),
    ("a block that reads nothing, chained", || one(linear(3)?)?.extend(block!(Arange(stop = 3))?)),
    ("a model without standard input, chained", || {
        let key = IoKey { value: Some(1.0.into()), ..IoKey::new("one") };
        let inner = one(block!(Relu())?.connect([("input", key)])?.output("y")?)?;
        inner.connect(add("c", "d")?)?;
        one(linear(3)?)?.extend(inner.block()?)
    }),
    ("a list that was not given", || one(block!(Concat())?).map(drop)),
    ("an output that is given a value", || one(block!(Relu())?.output(1.0)?).map(drop)),
    ("a list output read as one value", || {
        let model = one(block!(Split(n = 2))?.connect([("input", "x"), ("output", "parts")])?)?;
        model.connect(block!(Relu())?.input("parts")?)
    }),
    ("an element out of range", || {
        let model = one(block!(Split(n = 2))?.connect([("input", "x"), ("output", "parts")])?)?;
        model.terminal("parts")?.element(2).map(drop)
    }),
    ("a connection of another model", || {
        let other = one(linear(3)?.output("y")?)?.terminal("y")?;
        Model::new().connect(block!(Relu())?.input(other)?)
    }),
    ("a model that has been used", || {
        let model = one(linear(3)?)?;
        one(model.seal()?)?;
        model.extend(block!(Relu())?)
    }),
    ("an empty model", || Model::new().seal().map(drop)),
    ("a name with a dot", || one(linear(3)?.input("a.b")?).map(drop)),
    ("an empty name", || linear(3)?.named("").map(drop)),
    ("two blocks of one name", || {
        let model = one(linear(3)?.named("fc")?)?;
        model.extend(linear(4)?.named("fc")?)?;
        model.block().map(drop)
    }),
    ("an input exposed", || one(linear(3)?.input("x")?)?.expose("x")),
    ("an input discarded", || one(linear(3)?.input("x")?)?.discard("x")),
    ("a name that is taken", || {
        one(linear(3)?.connect([("input", "x"), ("output", "y")])?)?.rename("x", "y")
    }),
    ("an unknown method", || {
        let model = one(linear(3)?.output("y")?)?;
        model.terminal("y")?.method("summ", vec![], vec![]).map(drop)
    }),
];

const SHAPES: &[Case] = &[
    ("branches that do not add", || compile(&branches()?, |_| {})),
    ("a matrix that is not square", || with_shapes(block!(Cholesky())?, &[("input", &[2, 3])])),
    ("an odd number of gates", || with_shapes(block!(Glu())?, &[("input", &[2, 3])])),
    ("blocks of a condition of other types", || {
        let block = block!(Cond(then = block!(Relu())?, otherwise = block!(Sum())?))?;
        with_shapes(block, &[("input", &[2, 3])])
    }),
    ("a loop whose condition is an array", || {
        let block = block!(While(condition = block!(IsNan())?, body = block!(Relu())?))?;
        with_shapes(block, &[("input", &[2, 3])])
    }),
    ("branches inside a block", || {
        let model = Model::new();
        model.connect(linear(8)?.connect([("input", "data"), ("output", "h")])?)?;
        let inner = branches()?.seal()?.named("inner")?;
        model.connect(inner.connect([("x", "h"), ("y", "y")])?)?;
        compile(&model, |_| {})
    }),
    ("operands from outside a block", || {
        let inner = one(add("p", "q")?.output("sum")?)?;
        let model = Model::new();
        model.connect(linear(8)?.connect([("input", "x"), ("output", "a")])?)?;
        model.connect(linear(4)?.connect([("input", "x"), ("output", "b")])?)?;
        model.connect(inner.seal()?.connect([("p", "a"), ("q", "b")])?)?;
        compile(&model, |_| {})
    }),
    ("a matrix product", || {
        let product = block!(MatrixMultiply())?.connect([("left", "a"), ("right", "b")])?;
        with_shapes(product, &[("a", &[2, 3]), ("b", &[4, 5])])
    }),
    ("a shared weight", || {
        let model = Model::new();
        model.connect(linear(8)?.connect([("input", "x"), ("w", "w")])?)?;
        model.extend(linear(8)?.connect([("w", "w")])?)?;
        compile(&model, |o| shape(o, "x", &[2, 3]))
    }),
    ("a reshape", || with_shapes(block!(Reshape(shape = vec![4, -1]))?, &[("input", &[2, 3])])),
    ("a window longer than its image", || {
        let pool = block!(MaxPool2d(kernel_size = 5, padding = 1))?;
        with_shapes(pool, &[("input", &[1, 3, 2, 8])])
    }),
    ("groups that do not divide the channels", || {
        let conv = block!(Conv2d(filters = 4, kernel_size = 1, groups = 2))?;
        with_shapes(conv, &[("input", &[1, 3, 4, 4])])
    }),
    ("an image for a block of sequences", || {
        let conv = block!(Conv1d(filters = 4, kernel_size = 1))?;
        with_shapes(conv, &[("input", &[1, 3, 4, 4])])
    }),
    ("classes at the second axis", || {
        with_shapes(block!(CrossEntropy())?, &[("input", &[2, 3, 5]), ("target", &[2, 5])])
    }),
    ("probabilities of classes without a dtype", || {
        with_shapes(block!(CrossEntropy())?, &[("input", &[2, 3]), ("target", &[2, 3])])
    }),
    ("labels one after another", || {
        with_shapes(block!(CTC())?, &[("input", &[9, 2, 4]), ("target", &[5])])
    }),
    ("scores in the order of PyTorch", || {
        with_shapes(block!(CTC())?, &[("input", &[9, 2, 4]), ("target", &[2, 3])])
    }),
    ("a reflection beyond the axis", || {
        with_shapes(block!(ReflectionPad(padding = 4))?, &[("input", &[1, 3, 8, 4])])
    }),
    ("a factor that does not divide the channels", || {
        with_shapes(block!(PixelShuffle(factor = 2))?, &[("input", &[1, 6, 4, 4])])
    }),
    ("columns that are not the windows of an image", || {
        let fold = block!(Fold(output_size = 4, kernel_size = 2))?;
        with_shapes(fold, &[("input", &[1, 8, 8])])
    }),
    ("nothing left of a transposed convolution", || {
        let conv = block!(ConvTranspose1d(filters = 4, kernel_size = 3, padding = 2))?;
        with_shapes(conv, &[("input", &[1, 3, 2])])
    }),
    ("a cubic interpolation of volumes", || {
        let model = one(block!(GridSample(mode = "bicubic"))?)?;
        compile(&model, |o| {
            shape(o, "input", &[1, 3, 4, 4, 4]);
            shape(o, "grid", &[1, 2, 2, 2, 3]);
        })
    }),
    ("positions of another batch", || {
        with_shapes(block!(GridSample())?, &[("input", &[1, 3, 4, 4]), ("grid", &[2, 2, 2, 2])])
    }),
    ("indices that are no part of the elements", || {
        with_shapes(
            block!(TakeAlongAxis(partial = true))?,
            &[("input", &[4, 2]), ("indices", &[3, 3])],
        )
    }),
    ("a state of the width before the projection", || {
        let lstm = block!(LSTM(dimension = 4, projection = 2))?;
        with_shapes(
            lstm.connect([("input", "x"), ("hidden", "h")])?,
            &[("x", &[3, 5, 2]), ("h", &[1, 3, 4])],
        )
    }),
    ("an initial state of another hidden size", || {
        let gru = block!(GRU(dimension = 4))?;
        with_shapes(
            gru.connect([("input", "x"), ("hidden", "h")])?,
            &[("x", &[3, 5, 2]), ("h", &[1, 3, 6])],
        )
    }),
    ("a carry that changes its shape", || {
        let (body, carry) = (block!(Linear(dimension = 4))?, vec![vec!["input", "output"]]);
        let scan = block!(Scan(body = body, carry = carry, steps = 3))?;
        with_shapes(scan.connect([("input", "x")])?, &[("x", &[2, 5])])
    }),
    ("a carry that changes its dtype", || {
        let (body, carry) = (block!(IsNan())?, vec![vec!["input", "output"]]);
        let scan = block!(Scan(body = body, carry = carry, steps = 3))?;
        with_shapes(scan.connect([("input", "x")])?, &[("x", &[2, 5])])
    }),
    ("more ends than groups", || {
        with_shapes(
            block!(GroupedMatrixMultiply())?,
            &[("left", &[6, 4]), ("right", &[3, 4, 5]), ("offsets", &[4])],
        )
    }),
    ("more windows than elements", || {
        let pool = block!(FractionalMaxPool2d(kernel_size = 3, output_size = 3))?;
        with_shapes(pool, &[("input", &[1, 3, 4, 9])])
    }),
    ("a cluster without features", || {
        let loss = block!(AdaptiveLogSoftmax(classes = 10, cutoffs = vec![2, 4]))?;
        with_shapes(loss, &[("input", &[3, 8])])
    }),
    ("distances of rows of a vector", || with_shapes(block!(Pdist())?, &[("input", &[3])])),
    ("a mode for images on a sequence", || {
        let block = block!(Upsample(size = 4, mode = "bilinear"))?;
        with_shapes(block, &[("input", &[1, 3, 4])])
    }),
    ("an axis out of range", || with_shapes(block!(Softmax(axis = 2))?, &[("input", &[2, 3])])),
    ("an index out of range", || {
        let index: Vec<Setting> = vec![5.into()];
        with_shapes(block!(Indexer(index = index))?, &[("input", &[2, 3])])
    }),
    ("heads that do not divide", || {
        with_shapes(block!(MultiHeadAttention(heads = 3))?, &[("input", &[2, 5, 8])])
    }),
    ("a rank that is needed", || compile(&one(block!(Flatten())?)?, |_| {})),
    ("a shape that is stated", || {
        let model = one(linear(3)?.connect([("input", "x"), ("output", "y")])?)?;
        model.set_shapes([("y", vec![DimSpec::Any, 4.into()])])?;
        compile(&model, |o| shape(o, "x", &[2, 3]))
    }),
    ("a shape from data", || {
        let model = Model::new();
        let n = model
            .apply(block!(Sum())?.input(IoKey { dtype: Some(DType::I64), ..IoKey::new("n") })?)?;
        let reshape = block!(Reshape(shape = vec![Setting::from(n), Setting::Int(-1)]))?;
        model.connect(reshape.input("x")?)?;
        compile(&model, |o| shape(o, "x", &[2, 3]))
    }),
];

const OPTIONS: &[Case] = &[
    ("shapes of an unknown input", || compile(&branches()?, |o| shape(o, "X", &[1]))),
    ("an unknown trainable key", || {
        compile(&one(linear(3)?)?, |o| o.trainable_keys.push("inptu".into()))
    }),
    ("an unknown discard key", || compile(&branches()?, |o| o.discard_keys.push("z".into()))),
    ("nothing left", || {
        compile(&one(linear(3)?.output("y")?)?, |o| o.discard_keys.push("y".into()))
    }),
    ("an integer to be trained", || {
        let model = one(block!(Embedding(num_embeddings = 3, dimension = 2))?)?;
        compile(&model, |o| o.trainable_keys.push("input".into()))
    }),
    ("dtypes that differ", || {
        compile(&one(add("a", "b")?)?, |o| o.dtypes.push(("b".into(), DType::F64)))
    }),
    ("a number that the dtype has not", || {
        let sum = block!(Add())?.connect([("left", Source::from("a")), ("right", 2.5.into())])?;
        compile(&one(sum)?, |o| o.dtypes.push(("a".into(), DType::I32)))
    }),
    ("an index that is a float", || {
        let model = one(block!(Embedding(num_embeddings = 3, dimension = 2))?)?;
        compile(&model, |o| o.dtypes.push(("input".into(), DType::F32)))
    }),
    ("a constant of another dtype", || {
        let value = Tensor::from_f64s(DType::F64, vec![], &[1.0]);
        compile(&one(add("a", "b")?)?, |o| o.constant_keys.push(("b".into(), value.clone().into())))
    }),
    ("an integer that a float rounds", || {
        let sum =
            block!(Add())?.connect([("left", "a".into()), ("right", Source::from(16777217))])?;
        compile(&one(sum)?, |_| {})
    }),
    ("a constant that a float rounds", || {
        let value = Tensor::from_i64s(DType::I64, vec![2], &[1, 16777217]);
        compile(&one(linear(3)?)?, |o| {
            o.constant_keys.push(("linear.b".into(), value.clone().into()))
        })
    }),
    ("a dtype of an unknown input", || {
        compile(&one(add("a", "b")?)?, |o| o.dtypes.push(("c".into(), DType::I32)))
    }),
    ("a mask as numbers", || {
        let model = one(block!(Relu())?)?;
        compile(&model, |o| o.dtypes.push(("input".into(), DType::Bool)))
    }),
    ("no loss", || TrainModel::new(&one(linear(3)?)?.block()?)?.finish().map(drop)),
    ("a variance of another shape", || {
        with_shapes(block!(GaussianNLL())?, &[("input", &[2, 3]), ("variance", &[3, 2])])
    }),
    ("scores of another rank", || {
        with_shapes(block!(MarginRanking())?, &[("left", &[2, 3]), ("right", &[3])])
    }),
    ("a negative gamma", || block!(FocalLoss(gamma = -1.0)).map(drop)),
    ("a loss of an unknown output", || {
        let mut model = TrainModel::new(&one(linear(3)?)?.block()?)?;
        let loss = Loss { input: "outptu".into(), ..Loss::default() };
        model.add_loss(block!(SquaredError())?, loss)
    }),
    ("a regularizer of an unknown param", || {
        let mut model = TrainModel::new(&one(linear(3)?)?.block()?)?;
        model.add_regularization(block!(L2())?, 0.1, "linear.v")
    }),
    ("a saved model of a newer version", || Block::from_json("{\"mithril\": 99}").map(drop)),
    ("a file with code", || {
        let own = Custom::new("own").shape("(x: [n]) -> [n]").body("numpy", "return x");
        Block::from_json(&one(own.block()?)?.block()?.to_json()?).map(drop)
    }),
    ("a damaged file", || {
        let text =
            one(linear(3)?)?.block()?.to_json()?.replace("\"definition\": 0", "\"definition\": 7");
        Block::from_json(&text).map(drop)
    }),
];

#[test]
fn messages() {
    let groups = [
        ("constructors", CONSTRUCTORS),
        ("connections", CONNECTIONS),
        ("shapes", SHAPES),
        ("options", OPTIONS),
    ];
    let mut text = String::new();
    for (group, cases) in groups {
        for (name, program) in cases {
            let message = match program() {
                Ok(()) => "nothing is wrong".to_string(),
                Err(error) => error.to_string(),
            };
            let _ = writeln!(text, "{group}: {name}\n\n{message}\n\n---");
        }
    }
    insta::assert_snapshot!(text);
}
