//! Hints for users of other libraries: the name or place of their blocks and parameters in Mithril.

pub(super) mod parameters;

/// Names from other libraries, each with its replacement here. No block has one of these names.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["GPT", "GPT2", "GPT2Model", "GPT2LMHeadModel", "NanoGPT"],
        "`mithril.zoo.GPT2()` is that model",
    ),
    (
        &["ResNet", "ResNet18", "ResNet34", "ResNet50"],
        "`mithril.zoo.ResNet(18)` is that model, also with 34 and 50 layers",
    ),
    (&["LeNet", "LeNet5"], "`mithril.zoo.LeNet()` is that model"),
    (&["MobileNetV2"], "`mithril.zoo.MobileNetV2()` is that model"),
    (&["UNet"], "`mithril.zoo.UNet()` is that model"),
    (&["ViT", "VisionTransformer", "ViTModel"], "`mithril.zoo.ViT()` is that model"),
    (&["LSTMClassifier"], "`mithril.zoo.LSTMClassifier(vocabulary)` is that model"),
    (&["Seq2Seq"], "`mithril.zoo.Seq2Seq(vocabulary, target_vocabulary)` is that model"),
    (&["BERT", "BertModel"], "`mithril.zoo.BERT()` is that model"),
    (&["Llama", "LlamaModel", "LlamaForCausalLM"], "`mithril.zoo.Llama()` is that model"),
    (&["T5", "T5Model", "T5ForConditionalGeneration"], "`mithril.zoo.T5()` is that model"),
    (&["CLIP", "CLIPModel"], "`mithril.zoo.CLIP()` is that model"),
    (&["Whisper", "WhisperEncoder"], "`mithril.zoo.WhisperEncoder()` is its encoder"),
    (&["Convolution2D"], "`Conv2d` is that block"),
    (&["MaxPooling2D"], "`MaxPool2d` is that block"),
    (&["AveragePooling2D"], "`AvgPool2d` is that block"),
    (
        &["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"],
        "`AdaptiveAvgPool` is that block",
    ),
    (
        &["AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d"],
        "`AdaptiveMaxPool` is that block",
    ),
    (&["LPPool1d", "LPPool2d", "LPPool3d"], "`LpPool` is that block"),
    (&["GlobalAveragePooling2D"], "`GlobalAvgPool` is that block"),
    (&["ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d"], "`ReflectionPad` is that block"),
    (
        &["ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d"],
        "`ReplicationPad` is that block",
    ),
    (&["CircularPad1d", "CircularPad2d", "CircularPad3d"], "`CircularPad` is that block"),
    (
        &["ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d"],
        "`Pad` is that block, with (before, after) for each axis: for an image `Pad([(0, 0), (0, \
         0), (top, bottom), (left, right)])`",
    ),
    (&["Identity"], "`Buffer` returns its input"),
    (&["Softmax2d"], "`Softmax(axis=-3)` is that block"),
    (&["CrossMapLRN2d"], "`LocalResponseNorm` is that block"),
    (&["SyncBatchNorm"], "`BatchNorm2d` normalises the whole batch, also on a device mesh"),
    (&["UpsamplingNearest2d", "upsample_nearest"], "`Upsample` is that block"),
    (
        &["UpsamplingBilinear2d", "upsample_bilinear"],
        "`Upsample(mode=\"bilinear\", align_corners=True)` is that block",
    ),
    (
        &["max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"],
        "`MaxPool1d`, `MaxPool2d` and `MaxPool3d` also give `indices` with `return_indices=True`",
    ),
    (
        &[
            "adaptive_max_pool1d_with_indices",
            "adaptive_max_pool2d_with_indices",
            "adaptive_max_pool3d_with_indices",
        ],
        "`AdaptiveMaxPool` also gives `indices` with `return_indices=True`",
    ),
    (
        &["fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices"],
        "`FractionalMaxPool2d` and `FractionalMaxPool3d` also give `indices` with \
         `return_indices=True`",
    ),
    (&["native_channel_shuffle"], "`ChannelShuffle` is that block"),
    (&["multi_head_attention_forward"], "`MultiHeadAttention` is that block"),
    (&["LazyLinear"], "`Linear` infers the width of its input"),
    (
        &["LazyConv1d", "LazyConv2d", "LazyConv3d"],
        "`Conv1d`, `Conv2d` and `Conv3d` infer the channels of their input",
    ),
    (
        &["LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d"],
        "`ConvTranspose1d`, `ConvTranspose2d` and `ConvTranspose3d` infer the channels",
    ),
    (
        &["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d"],
        "`BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d` infer the channels of their input",
    ),
    (
        &["LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"],
        "`InstanceNorm` infers the channels of its input",
    ),
    (&["affine_grid"], "`AffineGrid(size)` makes the grid that `GridSample` reads"),
    (&["grid_sample"], "`GridSample` reads images at a grid"),
    (&["grouped_mm"], "`GroupedMatrixMultiply` is that product"),
    (
        &["scaled_mm", "scaled_addmm", "scaled_grouped_mm"],
        "there is no dtype of 8-bit floats: multiply by the scales, and use `MatrixMultiply` or \
         `GroupedMatrixMultiply`",
    ),
    (
        &["DataParallel", "DistributedDataParallel"],
        "a backend with a `device_mesh`, such as `ml.TorchBackend(device_mesh=(2,))`, divides a \
         batch over devices",
    ),
    (&["conv_tbc"], "`Conv1d` is that block, of (batch, channels, time)"),
    (
        &["AdaptiveLogSoftmaxWithLoss"],
        "`AdaptiveLogSoftmax` is that loss, of classes sorted by frequency",
    ),
    (&["LinearCrossEntropyLoss"], "`LinearCrossEntropy` is the loss"),
    (&["TripletMarginWithDistanceLoss"], "`TripletMarginWithDistance` is the loss"),
    (&["NLLLoss2d"], "`NegativeLogLikelihood(axis=1)` is the loss, of log-probabilities"),
    (&["RNNBase", "RNNCellBase"], "`RNN`, `LSTM` and `GRU` are recurrent networks"),
    (&["Interpolate", "interpolate", "Resize"], "`Upsample` is that block"),
    (
        &["BatchNorm", "BatchNormalization"],
        "`BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d` normalise channels",
    ),
    (&["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"], "`InstanceNorm` is that block"),
    (&["LayerNormalization"], "`LayerNorm` is that block, with `axis` as well"),
    (
        &["Adam", "AdamW", "SGD", "RMSprop", "optim", "Optimizer"],
        "optimizers are not available yet: `docs/guide/training.md` shows how to write a step, \
         and those of torch and optax take params and gradients",
    ),
    (
        &["DataLoader", "Dataset", "TensorDataset"],
        "batches are dicts of arrays: slice NumPy arrays, or use the loader of another library",
    ),
    (
        &["no_grad", "eval", "inference_mode"],
        "`ml.compile(model, inference=True)` computes without gradients",
    ),
    (
        &["grad", "value_and_grad", "backward", "autograd"],
        "`evaluate(params, inputs, output_gradients=…)` of a compiled model returns gradients",
    ),
    (&["jit", "pmap"], "`ml.compile` compiles a model: `jit=True` its source, too"),
    (
        &["Module", "ModuleList", "ModuleDict", "Container", "nn", "functional"],
        "build a `Model()` from blocks, which are in `mithril.models`",
    ),
    (
        &["Parameter", "ParameterList", "ParameterDict", "Variable", "Input", "Placeholder"],
        "`model.add_input(\"x\")` is an input; `IOKey(\"w\", differentiable=True)` one that is learned",
    ),
    (&["Tensor", "tensor", "asarray"], "`backend.array(x)` makes arrays of a backend"),
    (&["Dense"], "`Linear(dimension)` is the dense layer"),
    (&["MSELoss", "MSE", "MeanSquaredError"], "`SquaredError` is the loss; `Mean()` reduces it"),
    (&["L1Loss", "MAE", "MeanAbsoluteError"], "`AbsoluteError` is the loss; `Mean()` reduces it"),
    (
        &["CrossEntropyLoss", "SparseCategoricalCrossentropy"],
        "`CrossEntropy` is the loss, of logits or probabilities",
    ),
    (&["NLLLoss"], "`NegativeLogLikelihood` is the loss, of log-probabilities"),
    (&["CTCLoss"], "`CTC` is the loss, of (batch, time, classes)"),
    (&["ifft", "IFFT", "ifft2", "ifftn"], "`InverseFFT` is the inverse transform"),
    (&["spectral_norm", "SpectralNormalization"], "`SpectralNorm(block)` wraps a layer"),
    (&["weight_norm", "WeightNormalization"], "`WeightNorm(block)` wraps a layer"),
    (&["fft2", "fftn", "FFT2"], "`FFT(axis=[-2, -1])` transforms along several axes"),
    (&["rfft", "RFFT", "rfft2", "rfftn"], "`RealFFT` is the transform of real numbers"),
    (&["irfft", "IRFFT", "irfft2", "irfftn"], "`InverseRealFFT` is the inverse of `RealFFT`"),
    (&["PoissonNLLLoss"], "`PoissonNLL` is the loss"),
    (&["GaussianNLLLoss"], "`GaussianNLL` is the loss, with the input `variance`"),
    (&["MarginRankingLoss"], "`MarginRanking` is the loss, of two scores"),
    (&["TripletMarginLoss"], "`TripletMargin` is the loss, of three vectors"),
    (&["SoftMarginLoss"], "`SoftMargin` is the loss, of scores"),
    (&["HingeEmbeddingLoss"], "`HingeEmbedding` is the loss, of distances"),
    (&["MultiMarginLoss"], "`MultiMargin` is the loss, of scores"),
    (&["MultiLabelMarginLoss"], "`MultiLabelMargin` is the loss, of scores"),
    (&["MultiLabelSoftMarginLoss"], "`MultiLabelSoftMargin` is the loss, of logits"),
    (&["DiceLoss"], "`Dice` is the loss, of probabilities"),
    (&["sigmoid_focal_loss"], "`FocalLoss` is the loss, of logits"),
    (
        &["BCELoss", "binary_cross_entropy"],
        "`BinaryCrossEntropy(input_type=\"probs\")` is the loss, of probabilities",
    ),
    (
        &["BCEWithLogitsLoss", "binary_cross_entropy_with_logits"],
        "`BinaryCrossEntropy` is the loss, of logits",
    ),
    (&["KLDivLoss", "kl_div"], "`KLDivergence` is the loss, of probabilities"),
    (&["cosine_embedding_loss"], "`CosineEmbedding` is the loss, of two vectors"),
    (&["scaled_dot_product_attention"], "`ScaledDotProduct` is that attention"),
    (&["HuberLoss"], "`Huber` is the loss"),
    (
        &["SmoothL1Loss"],
        "`Huber(delta=beta)` is `beta` times the loss, so the same for the usual `beta` of 1",
    ),
    (&["View"], "use `Reshape` to change the shape"),
    (&["Permute"], "`PermuteTensor` reorders axes"),
    (&["Concatenate", "cat", "concatenate"], "`Concat` joins along an axis"),
    (&["Var"], "`Variance` is the variance, divided by the count less `correction`"),
    (&["Swish"], "`Silu` is that activation"),
    (&["matmul", "MatMul", "dot", "bmm"], "`MatrixMultiply` is the product; so is `x @ y`"),
    (&["Clip"], "`Clamp` holds numbers between two bounds"),
    (
        &["load_state_dict", "state_dict"],
        "params are a dict of arrays by name: `compiled.randomize_params()` shows the names",
    ),
];

/// Functions of `torch.special`, `torch.linalg` and `torch.fft` as above. `x` is a connection, which
/// has the methods of the expressions.
const FUNCTIONS: &[(&[&str], &str)] = &[
    (&["gammaln"], "`Lgamma` is that function"),
    (&["psi"], "`Digamma` is that function"),
    (&["expit"], "`Sigmoid` is that function"),
    (&["erfc"], "`1 - x.erf()` is that function; for large `x` it rounds to 0"),
    (&["i0e"], "`x.i0() * (-abs(x)).exp()` is that function, if `x.i0()` is finite"),
    (&["ndtr"], "`((x / 2**0.5).erf() + 1) / 2` is that function"),
    (&["ndtri"], "`(2 * x - 1).erfinv() * 2**0.5` is that function"),
    (&["xlog1py"], "`x * y.log1p()` is that function, except where `x` is 0 and `y` is -1"),
    (&["entr"], "`-x.xlogy(x)` is that function, of numbers of at least 0"),
    (&["polygamma"], "`Digamma` is that function of order 0; `ml.custom` takes code for others"),
    (&["multigammaln"], "it is a constant plus a sum of `Lgamma` of `x`, `x - 1/2`, …"),
    (
        &["log_ndtr", "erfcx", "i1", "i1e", "gammainc", "gammaincc", "zeta", "householder_product"],
        "there is no block for it: `ml.custom` takes code for one",
    ),
    (&["inv"], "`Inverse` is that block"),
    (&["pinv"], "it is `(vh.T / s) @ u.T` with the factors of `SVD`, for a matrix of full rank"),
    (
        &["lstsq"],
        "with the factors of `QR`, `TriangularSolve(lower=False)` solves `r @ x = q.T @ b`",
    ),
    (&["svdvals"], "they are the output `s` of `SVD`"),
    (&["matrix_rank"], "it is the number of elements of `s`, an output of `SVD`, that are not 0"),
    (
        &["lu", "lu_factor", "lu_solve"],
        "there is no block for LU factors; `Solve` solves systems, `QR` and `Cholesky` factor",
    ),
    (
        &["eig", "eigvals"],
        "`Eigh` and `Eigvalsh` are for symmetric matrices; `ml.custom` takes code for others",
    ),
    (
        &["matrix_exp"],
        "it is `(v * w.exp()) @ v.T` for symmetric matrices, with `w` and `v` of `Eigh`; \
         `ml.custom` takes code for others",
    ),
    (&["solve_triangular"], "`TriangularSolve` is that block; `upper=True` is `lower=False` here"),
    (&["vector_norm"], "`Norm` is that block"),
    (
        &["matrix_norm"],
        "`Norm(axis=[-2, -1])` is the Frobenius norm; others follow from the output `s` of `SVD`",
    ),
    (
        &["cross"],
        "it is `r(a, -1) * r(b, -2) - r(a, -2) * r(b, -1)`, where `r` is `Roll` along the axis",
    ),
    (&["multi_dot"], "`a @ b @ c` is that product"),
    (&["fftshift"], "`Roll(n // 2, axis)` is that shift of an axis of size `n`"),
    (&["ifftshift"], "`Roll(-(n // 2), axis)` is that shift of an axis of size `n`"),
    (&["fftfreq", "rfftfreq"], "blocks take those of NumPy: `np.fft.fftfreq(n)` is a constant"),
    (&["hfft"], "it is `InverseRealFFT(norm=\"forward\")` of the conjugate"),
    (&["ihfft"], "it is the conjugate of `RealFFT(norm=\"forward\")`"),
];

/// The block that a word names: `Sum` for `sum`.
pub fn block_called(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase().replace('_', "");
    super::table().map(|entry| entry.name).find(|name| name.to_lowercase() == word)
}

/// The replacement for a name from other libraries; `None` if the name is not known. Functions have
/// the names of blocks, in other letters: `mse_loss`.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    let place = |is_own: &dyn Fn(&str) -> bool| {
        let found = ELSEWHERE
            .iter()
            .chain(FUNCTIONS)
            .find(|(names, _)| names.iter().any(|own| is_own(own)));
        found.map(|(_, place)| *place)
    };
    let plain = |name: &str| name.to_lowercase().replace('_', "");
    let word = plain(name);
    place(&|own| own == name).or_else(|| place(&|own| plain(own) == word))
}

#[cfg(test)]
mod tests {
    use super::{ELSEWHERE, FUNCTIONS};
    use crate::blocks::find;
    use crate::model::methods;

    /// The pieces of code in a hint.
    fn codes(hint: &str) -> impl Iterator<Item = &str> {
        hint.split('`').skip(1).step_by(2)
    }

    #[test]
    fn named_replacements_exist() {
        let all = || ELSEWHERE.iter().chain(FUNCTIONS);
        let mut names: Vec<&str> = all().flat_map(|(names, _)| *names).copied().collect();
        assert!(names.iter().all(|name| find(name).is_none()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name stands twice");
        // A name in CamelCase before a verb is the name of a block.
        for code in all().flat_map(|(_, place)| codes(place)) {
            let name = code.split('(').next().unwrap_or_default();
            let camel = name.starts_with(|c: char| c.is_ascii_uppercase());
            let own = ["Model", "IOKey"].contains(&name);
            assert!(!camel || own || find(name).is_some(), "there is no block {name}");
        }
    }

    #[test]
    fn named_methods_exist() {
        let code = FUNCTIONS.iter().flat_map(|(_, place)| codes(place));
        for code in code.filter(|code| !code.starts_with("np.")) {
            let calls = code.split('.').skip(1).filter_map(|part| Some(part.split_once('(')?.0));
            for name in calls {
                assert!(methods().iter().any(|own| own.name == name), "no method {name}: {code}");
            }
        }
    }
}
