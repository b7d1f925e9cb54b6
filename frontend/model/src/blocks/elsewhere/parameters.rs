//! Hints for parameters of other libraries.

/// Hints for parameters of single blocks, or of all blocks if none are named.
const NOTES: &[(&[&str], &[&str], &str)] = &[
    (
        &["Pad"],
        &["mode"],
        "`ReflectionPad`, `ReplicationPad` and `CircularPad` are the other modes",
    ),
    (&["Huber"], &["beta"], "`Huber(delta=beta)` is `beta` times the loss of PyTorch"),
    (&["BinaryCrossEntropy"], &["weight"], "multiply the loss by the weights"),
    (&["Map"], &["out_axes", "out_axis", "out_dims"], "outputs are stacked along `axis`, too"),
    (&["Scan"], &["length"], "sequences have that length; without any, it is `steps`"),
    (
        &["LayerNorm", "RMSNorm"],
        &["normalized_shape"],
        "the input's sizes are inferred: `axis` names the axes, (-3, -2, -1) for three sizes",
    ),
    (&["Embedding", "EmbeddingBag"], &["sparse"], "gradients are dense arrays"),
    (&["Embedding", "EmbeddingBag"], &["input_dim"], "it is called `num_embeddings` here"),
    (
        &["ScaledDotProduct", "MultiHeadAttention"],
        &["attn_mask"],
        "the mask is the input `mask`; a bool mask is True where a query reads a key",
    ),
    (
        &["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm", "LayerNorm"],
        &["affine", "elementwise_affine"],
        "`use_scale` and `use_bias` say what is learned",
    ),
    (
        &["MultiHeadAttention"],
        &["key_padding_mask"],
        "it is the input `key_mask`, which is True where queries read a key",
    ),
    (
        &["MultiHeadAttention"],
        &["kdim", "vdim"],
        "the widths of keys and values are inferred from the inputs `context` and `value`",
    ),
    (
        &["MultiHeadAttention"],
        &["need_weights", "average_attn_weights"],
        "`return_weights=True` gives the weights of each head",
    ),
    (&["Histogram"], &["range"], "the range is from `min` to `max`"),
    (&["Transpose"], &["dim0", "dim1"], "`SwapAxes` exchanges two axes"),
    (&["Split"], &["split_size"], "`n` is the number of parts"),
    (&[], &["inplace"], "blocks do not change their inputs"),
    (&[], &["batch_first"], "the batch is the first axis"),
    (&[], &["training"], "`ml.compile(model, inference=True)` is the other mode"),
    (&[], &["reduction"], "losses are not reduced: follow with `Mean()` or `Sum()`"),
];

/// Strings that other libraries take where a parameter here is a bool: block, parameter, string,
/// hint.
const STRINGS: &[(&str, &str, &str, &str)] = &[
    ("Gelu", "approximate", "tanh", "`approximate=True` is the tanh approximation"),
    ("Gelu", "approximate", "none", "`approximate=False` is the exact function"),
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
    ("reduction_axes", "axis"),
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
    ("unbiased", "correction"),
    ("ddof", "correction"),
    ("unflattened_size", "sizes"),
    ("downscale_factor", "factor"),
    ("scale_factor", "scale"),
    ("norm_type", "norm"),
    ("num_groups", "groups"),
    ("start_dim", "start"),
    ("end_dim", "end"),
    ("elementwise_affine", "use_scale"),
    ("weight", "weights"),
    ("log_target", "target_type"),
    ("beta", "delta"),
    ("padding", "pad_width"),
    ("upscale_factor", "factor"),
    ("output_dim", "dimension"),
    ("pool_size", "kernel_size"),
    ("ord", "p"),
    ("method", "interpolation"),
    ("end", "stop"),
    ("enable_gqa", "grouped"),
    ("top_k", "k"),
    ("num_experts_per_tok", "k"),
    ("maxiter", "max_steps"),
    ("max_iter", "max_steps"),
    ("maximum_iterations", "max_steps"),
    ("cond_fun", "condition"),
    ("cond_fn", "condition"),
    ("body_fun", "body"),
    ("body_fn", "body"),
    ("true_fun", "then"),
    ("true_fn", "then"),
    ("false_fun", "otherwise"),
    ("false_fn", "otherwise"),
    ("in_axes", "axis"),
    ("in_dims", "axis"),
    ("out_axes", "out_axis"),
    ("out_dims", "out_axis"),
];

/// The hint for an unknown parameter of a block whose parameters are `names`.
pub fn parameter_elsewhere(name: &str, names: &[&str]) -> Option<String> {
    const WIDTHS: [&str; 11] = [
        "in_features",
        "input_dim",
        "in_channels",
        "input_size",
        "num_features",
        "num_channels",
        "num_parameters",
        "embed_dim",
        "normalized_shape",
        "in1_features",
        "in2_features",
    ];
    if WIDTHS.contains(&name) {
        let own = if names.contains(&"dimension") { "; the output's is `dimension`" } else { "" };
        return Some(format!("the input's width is inferred{own}"));
    }
    let known = PARAMETERS.iter().find(|(theirs, own)| *theirs == name && names.contains(own));
    known.map(|(_, own)| format!("it is called `{own}` here"))
}

/// The hint for an unknown parameter that another name would not replace, or not in this block.
pub fn parameter_note(block: &str, name: &str) -> Option<&'static str> {
    let is_of = |blocks: &[&str]| blocks.is_empty() || blocks.contains(&block);
    let note = NOTES.iter().find(|(blocks, names, _)| is_of(blocks) && names.contains(&name));
    note.map(|(_, _, hint)| *hint)
}

/// The hint for a string in the place of a bool.
pub fn string_elsewhere(block: &str, parameter: &str, text: &str) -> Option<&'static str> {
    let found = STRINGS
        .iter()
        .find(|(own, name, string, _)| (*own, *name, *string) == (block, parameter, text));
    found.map(|(_, _, _, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::{NOTES, PARAMETERS, STRINGS};
    use crate::Setting;
    use crate::blocks::{build, find, table};

    #[test]
    fn named_parameters_exist() {
        let has = |name: &str| table().any(|e| e.parameters.iter().any(|p| p.name == name));
        for (_, own) in PARAMETERS {
            assert!(has(own), "no block has a parameter {own}");
        }
        // A name in CamelCase is the name of a block.
        for code in NOTES.iter().flat_map(|(_, _, hint)| hint.split('`').skip(1).step_by(2)) {
            let name = code.split('(').next().unwrap_or_default();
            let camel = name.starts_with(|c: char| c.is_ascii_uppercase());
            assert!(!camel || find(name).is_some(), "there is no block {name}");
        }
        let blocks = NOTES.iter().flat_map(|(blocks, _, _)| *blocks);
        for block in blocks.copied().chain(STRINGS.iter().map(|(block, ..)| *block)) {
            assert!(find(block).is_some(), "there is no block {block}");
        }
    }

    #[test]
    fn every_terminal_as_parameter_has_a_hint() {
        for entry in table() {
            let names =
                entry.inputs.iter().map(|i| i.name).chain(entry.outputs.iter().map(|o| o.name));
            for name in names.filter(|name| entry.parameters.iter().all(|p| p.name != *name)) {
                let error = build(entry.name, vec![], vec![(name, Setting::None)]).err();
                let hint = error.and_then(|error| error.hint);
                assert!(hint.is_some(), "no hint for {name} of {}", entry.name);
            }
        }
    }

    #[test]
    fn parameters_of_other_libraries_get_a_hint() {
        for (block, parameter, hint) in [
            ("CrossEntropy", "weight", "did you mean `weights`?"),
            ("NegativeLogLikelihood", "weight", "did you mean `weights`?"),
            ("Relu", "input", "`input` is a terminal: Relu(…)(input=…)"),
            (
                "Pad",
                "mode",
                "`ReflectionPad`, `ReplicationPad` and `CircularPad` are the other modes",
            ),
            ("MoE", "top_k", "it is called `k` here"),
            ("While", "maxiter", "it is called `max_steps` here"),
            ("Vmap", "in_axes", "it is called `axis` here"),
            ("Map", "in_axes", "it is called `axis` here"),
            ("BatchNorm2d", "affine", "`use_scale` and `use_bias` say what is learned"),
            (
                "LayerNorm",
                "normalized_shape",
                "the input's sizes are inferred: `axis` names the axes, (-3, -2, -1) for three \
                 sizes",
            ),
            ("LayerNorm", "reduction_axes", "it is called `axis` here"),
            ("Embedding", "sparse", "gradients are dense arrays"),
            ("Linear", "out_features", "it is called `dimension` here"),
            ("Conv2d", "out_channels", "it is called `filters` here"),
            ("Embedding", "embedding_dim", "it is called `dimension` here"),
            ("Embedding", "input_dim", "it is called `num_embeddings` here"),
            ("Huber", "beta", "`Huber(delta=beta)` is `beta` times the loss of PyTorch"),
            ("Quantile", "method", "it is called `interpolation` here"),
            ("Histogram", "range", "the range is from `min` to `max`"),
            (
                "MultiHeadAttention",
                "need_weights",
                "`return_weights=True` gives the weights of each head",
            ),
            ("Relu", "inplace", "blocks do not change their inputs"),
        ] {
            let error = build(block, vec![], vec![(parameter, Setting::Int(1))]).err();
            let own = error.and_then(|error| error.hint);
            assert_eq!(own.as_deref(), Some(hint), "{parameter} of {block}");
        }
        let error = build("Gelu", vec!["tanh".into()], vec![]).expect_err("not a bool");
        assert_eq!(error.hint.as_deref(), Some("`approximate=True` is the tanh approximation"));
    }
}
