//! Hints for users of other libraries: the name or place of their blocks and parameters in Mithril.

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
        "`Pad` is that block",
    ),
    (&["Identity"], "`Buffer` returns its input"),
    (&["Softmax2d"], "`Softmax(axis=-3)` is that block"),
    (&["CrossMapLRN2d"], "`LocalResponseNorm` is that block"),
    (&["SyncBatchNorm"], "`BatchNorm2d` normalises the batch of one device"),
    (&["UpsamplingNearest2d"], "`Upsample` is that block"),
    (&["UpsamplingBilinear2d"], "`Upsample(mode=\"bilinear\", align_corners=True)` is that block"),
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
    (&["LayerNormalization"], "`LayerNorm` normalises the last axis"),
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
    (&["irfft", "IRFFT", "irfft2"], "`InverseRealFFT` is the inverse of `RealFFT`"),
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
    (&["BCELoss", "BCEWithLogitsLoss"], "`BinaryCrossEntropy` is the loss"),
    (&["KLDivLoss", "kl_div"], "`KLDivergence` is the loss, of probabilities"),
    (&["cosine_embedding_loss"], "`CosineEmbedding` is the loss, of two vectors"),
    (&["scaled_dot_product_attention"], "`ScaledDotProduct` is that attention"),
    (&["SmoothL1Loss", "HuberLoss"], "`Huber` is the loss"),
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

/// Parameters of other libraries, each with its name here.
const PARAMETERS: &[(&str, &str)] = &[
    ("out_features", "dimension"),
    ("out_features", "classes"),
    ("units", "dimension"),
    ("out_channels", "filters"),
    ("features", "dimension"),
    ("p", "rate"),
    ("dim", "axis"),
    ("axes", "axis"),
    ("num_heads", "heads"),
    ("num_embeddings", "size"),
    ("hidden_size", "dimension"),
    ("num_layers", "layers"),
    ("proj_size", "projection"),
    ("nhead", "heads"),
    ("d_model", "dimension"),
    ("dim_feedforward", "feedforward"),
    ("layer_norm_eps", "eps"),
    ("encoder_layer", "layer"),
    ("decoder_layer", "layer"),
    ("num_encoder_layers", "encoder_layers"),
    ("num_decoder_layers", "decoder_layers"),
    ("dropout_p", "dropout"),
    ("n_classes", "classes"),
    ("num_classes", "classes"),
    ("nonlinearity", "activation"),
    ("return_sequences", "return_sequence"),
    ("embedding_dim", "dimension"),
    ("negative_slope", "slope"),
    ("momentum", "decay"),
    ("unbiased", "correction"),
    ("ddof", "correction"),
    ("label_smoothing", "smoothing"),
    ("unflattened_size", "sizes"),
    ("downscale_factor", "factor"),
    ("scale_factor", "scale"),
    ("norm_type", "norm"),
    ("num_groups", "groups"),
    ("start_dim", "start"),
    ("end_dim", "end"),
    ("affine", "use_scale"),
    ("elementwise_affine", "use_scale"),
    ("weight", "weights"),
    ("log_target", "target_type"),
    ("beta", "delta"),
    ("padding", "pad_width"),
    ("upscale_factor", "factor"),
];

/// The hint for an unknown parameter of a block whose parameters are `names`.
pub fn parameter_elsewhere(name: &str, names: &[&str]) -> Option<String> {
    const WIDTHS: [&str; 8] = [
        "in_features",
        "input_dim",
        "in_channels",
        "input_size",
        "num_features",
        "num_channels",
        "num_parameters",
        "embed_dim",
    ];
    if WIDTHS.contains(&name) {
        let own = if names.contains(&"dimension") { "; the output's is `dimension`" } else { "" };
        return Some(format!("the input's width is inferred{own}"));
    }
    let known = PARAMETERS.iter().find(|(theirs, own)| *theirs == name && names.contains(own));
    known.map(|(_, own)| format!("it is called `{own}` here"))
}

/// The block that a word names: `Sum` for `sum`.
pub fn block_called(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase().replace('_', "");
    super::table().map(|entry| entry.name).find(|name| name.to_lowercase() == word)
}

/// The replacement for a name from other libraries; `None` if the name is not known. Functions have
/// the names of blocks, in other letters: `mse_loss`.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    let place = |is_own: &dyn Fn(&str) -> bool| {
        let found = ELSEWHERE.iter().find(|(names, _)| names.iter().any(|own| is_own(own)));
        found.map(|(_, place)| *place)
    };
    let plain = |name: &str| name.to_lowercase().replace('_', "");
    let word = plain(name);
    place(&|own| own == name).or_else(|| place(&|own| plain(own) == word))
}

#[cfg(test)]
mod tests {
    use super::ELSEWHERE;
    use crate::blocks::find;

    #[test]
    fn named_replacements_exist() {
        let mut names: Vec<&str> =
            ELSEWHERE.iter().flat_map(|(names, _)| *names).copied().collect();
        assert!(names.iter().all(|name| find(name).is_none()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name stands twice");
        // A name in CamelCase before a verb is the name of a block.
        for (_, place) in ELSEWHERE {
            for code in place.split('`').skip(1).step_by(2) {
                let name = code.split('(').next().unwrap_or_default();
                let camel = name.starts_with(|c: char| c.is_ascii_uppercase());
                let own = ["Model", "IOKey"].contains(&name);
                assert!(!camel || own || find(name).is_some(), "there is no block {name}");
            }
        }
    }
}
