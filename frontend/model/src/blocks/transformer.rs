//! Layers and stacks of transformers, as in `torch.nn`.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Role;
use mithril_ir::op::Class;

use super::attention::MASK;
use super::layers::{INIT, LAYER};
use super::parameter::{Range, required, with};
use super::{
    Default, Entry, Input, Kind, Meaning, Parameter, Settings, build, compose, data, gives,
};
use crate::block::Block;
use crate::model::{Model, Source};
use crate::setting::Setting;

const HEADS: Parameter =
    required("heads", Kind::Count).doc("the number of heads, a divisor of `dimension`");
const FEEDFORWARD: Parameter = with("feedforward", Kind::Count, Default::Int(2048))
    .doc("the width of the hidden layer of each position");
const DROPOUT: Parameter = with("dropout", Kind::Float(Range::Unit), Default::Float(0.1))
    .doc("the rate of dropout of attention weights, of the hidden layer and of each part");
const ACTIVATION: Parameter = with("activation", Kind::Block, Default::None)
    .doc("the activation of the hidden layer; defaults to `Relu`");
const EPS: Parameter = with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-5))
    .doc("the `eps` of the norms");
const NORM_FIRST: Parameter = with("norm_first", Kind::Bool, Default::Bool(false))
    .doc("normalise before each part instead of after its residual");
const CAUSAL: Parameter = with("is_causal", Kind::Bool, Default::Bool(false))
    .doc("each position attends only to itself and earlier ones");
const USE_BIAS: Parameter = with("use_bias", Kind::Bool, Default::Bool(true))
    .doc("learn biases of the linear layers, of attention and of the norms");
const LAYER_PARAMETERS: &[Parameter] = &[
    required("dimension", Kind::Count).doc("the width of the input"),
    HEADS,
    FEEDFORWARD,
    DROPOUT,
    ACTIVATION,
    EPS,
    NORM_FIRST,
    CAUSAL,
    USE_BIAS,
    INIT,
];
const STACK_PARAMETERS: &[Parameter] = &[
    required("layer", Kind::Block).doc("the layer that is repeated"),
    required("layers", Kind::Count).doc("the number of layers"),
    with("norm", Kind::Block, Default::None).doc("a block after the last layer"),
];

const CONTEXT: Input =
    data("context", Class::Float).doc("(batch, keys, width): what is attended to");
const CONTEXT_MASK: Input = Input { name: "context_mask", ..MASK }
    .doc("the mask of the attention to `context`, as in `MultiHeadAttention`");
const OWN_MASK: Input = MASK.doc("the mask of the attention to itself, as in `MultiHeadAttention`");
const KEY_MASK: Input = Input { name: "key_mask", ..MASK }
    .doc("(batch, keys), the `key_mask` of the attention to itself");
const CONTEXT_KEY_MASK: Input = Input { name: "context_key_mask", ..MASK }
    .doc("(batch, keys), the `key_mask` of the attention to `context`");
const ENCODER_INPUTS: &[Input] =
    &[data("input", Class::Float).doc("(batch, length, width)"), OWN_MASK, KEY_MASK];
const DECODER_INPUTS: &[Input] = &[
    data("input", Class::Float).doc("(batch, length, width)"),
    CONTEXT,
    OWN_MASK,
    CONTEXT_MASK,
    KEY_MASK,
    CONTEXT_KEY_MASK,
];

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "TransformerEncoderLayer",
        doc: "Attention of `input` to itself and a hidden layer for each position, with residuals \
              and norms, as `torch.nn.TransformerEncoderLayer` with `batch_first=True`. The params \
              are `attention.w_query`, …, `norm_0.w`, `linear_0.w`, `linear_1.w`, `norm_1.w`. A bool \
              mask is True where a query attends to a key, as in `MultiHeadAttention`. `init` is \
              that of the attention and of the linear layers.",
        source: "Vaswani et al. 2017",
        example: gives(&["np.ones((2, 5, 8), \"float32\")"], "(2, 5, 8)")
            .with_settings("dimension=8, heads=2, feedforward=16, dropout=0.0"),
        parameters: LAYER_PARAMETERS,
        inputs: ENCODER_INPUTS,
        meaning: Meaning::Compose(|settings| layer(settings, false)),
        ..LAYER
    },
    Entry {
        name: "TransformerDecoderLayer",
        doc: "`TransformerEncoderLayer` with attention to `context` after that to itself, as \
              `torch.nn.TransformerDecoderLayer` with `batch_first=True`. The further params are \
              `context_attention.w_query`, … and those of `norm_2`. `init` is that of the attention \
              and of the linear layers.",
        source: "Vaswani et al. 2017",
        example: gives(
            &["np.ones((2, 5, 8), \"float32\")", "np.ones((2, 3, 8), \"float32\")"],
            "(2, 5, 8)",
        )
        .with_settings("dimension=8, heads=2, feedforward=16, dropout=0.0"),
        parameters: LAYER_PARAMETERS,
        inputs: DECODER_INPUTS,
        meaning: Meaning::Compose(|settings| layer(settings, true)),
        ..LAYER
    },
    Entry {
        name: "TransformerEncoder",
        doc: "`layers` copies of a layer such as `TransformerEncoderLayer`, one after another, and \
              `norm` after the last one. Each copy has its own params, `layer_0.…`, `layer_1.…`, \
              and reads the same masks.",
        example: gives(&["np.ones((2, 5, 8), \"float32\")"], "(2, 5, 8)")
            .with_settings("ml.TransformerEncoderLayer(8, 2, 16, dropout=0.0), layers=2"),
        parameters: STACK_PARAMETERS,
        inputs: ENCODER_INPUTS,
        meaning: Meaning::Compose(|settings| stacked(settings, &["mask", "key_mask"])),
        ..LAYER
    },
    Entry {
        name: "TransformerDecoder",
        doc: "`layers` copies of a layer such as `TransformerDecoderLayer`, one after another, and \
              `norm` after the last one. Each copy has its own params, `layer_0.…`, `layer_1.…`, \
              and reads the same `context` and masks.",
        example: gives(
            &["np.ones((2, 5, 8), \"float32\")", "np.ones((2, 3, 8), \"float32\")"],
            "(2, 5, 8)",
        )
        .with_settings("ml.TransformerDecoderLayer(8, 2, 16, dropout=0.0), layers=2"),
        parameters: STACK_PARAMETERS,
        inputs: DECODER_INPUTS,
        meaning: Meaning::Compose(|settings| {
            let masks = ["mask", "context_mask", "key_mask", "context_key_mask"];
            stacked(settings, &[&["context"], &masks[..]].concat())
        }),
        ..LAYER
    },
    Entry {
        name: "Transformer",
        doc: "A `TransformerEncoder` of `input`, and a `TransformerDecoder` of `target` that attends \
              to its result, each with a norm at the end, as `torch.nn.Transformer` with \
              `batch_first=True`. The params are `encoder.layer_0.…`, `encoder.norm.w`, \
              `decoder.layer_0.…` and `decoder.norm.w`. `is_causal` is for the decoder. Linear \
              layers start Xavier uniform unless `init` is given, and their biases as in `Linear`.",
        source: "Vaswani et al. 2017",
        example: gives(
            &["np.ones((2, 5, 8), \"float32\")", "np.ones((2, 3, 8), \"float32\")"],
            "(2, 3, 8)",
        )
        .with_settings(
            "8, heads=2, encoder_layers=1, decoder_layers=1, feedforward=16, dropout=0.0",
        ),
        parameters: &[
            with("dimension", Kind::Count, Default::Int(512)).doc("the width of the inputs"),
            with("heads", Kind::Count, Default::Int(8))
                .doc("the number of heads, a divisor of `dimension`"),
            with("encoder_layers", Kind::Count, Default::Int(6))
                .doc("the number of layers of the encoder"),
            with("decoder_layers", Kind::Count, Default::Int(6))
                .doc("the number of layers of the decoder"),
            FEEDFORWARD,
            DROPOUT,
            ACTIVATION,
            EPS,
            NORM_FIRST,
            CAUSAL,
            USE_BIAS,
            INIT,
        ],
        inputs: &[
            data("input", Class::Float).doc("(batch, length, width), what the encoder reads"),
            data("target", Class::Float).doc("(batch, length, width), what the decoder reads"),
            MASK.doc("the mask of the encoder's attention, as in `MultiHeadAttention`"),
            Input { name: "target_mask", ..MASK }.doc("the mask of the decoder's to itself"),
            Input { name: "context_mask", ..MASK }.doc("the mask of the decoder's to the encoder"),
            Input { name: "key_mask", ..MASK }.doc("(batch, keys), of the encoder's attention"),
            Input { name: "target_key_mask", ..MASK }
                .doc("(batch, keys), of the decoder's to itself"),
            Input { name: "context_key_mask", ..MASK }
                .doc("(batch, keys), of the decoder's to the encoder"),
        ],
        meaning: Meaning::Compose(transformer),
        ..LAYER
    },
];

/// Builds the parts of a layer into a model.
struct Parts<'a> {
    settings: &'a Settings,
    model: Model,
    /// The number of parts so far, which numbers norms and dropouts.
    count: usize,
}

impl Parts<'_> {
    fn own(&self, name: &'static str) -> (&'static str, Setting) {
        (name, self.settings.get(name).clone())
    }

    fn add(&self, block: Block, name: &str, input: Source) -> Result<Source> {
        Ok(self.model.apply(block.named(name)?.input(input)?)?.into())
    }

    fn norm(&self, at: usize, input: Source) -> Result<Source> {
        self.add(norm(self.settings)?, &format!("norm_{at}"), input)
    }

    fn dropout(&self, name: &str, input: Source) -> Result<Source> {
        let rate = self.settings.float("dropout").unwrap_or(0.0);
        if rate == 0.0 {
            return Ok(input);
        }
        self.add(build("Dropout", vec![rate.into()], vec![])?, name, input)
    }

    /// `x` plus a part of it, and a norm before or after.
    fn residual(
        &mut self,
        x: Source,
        part: impl FnOnce(&Self, Source) -> Result<Source>,
    ) -> Result<Source> {
        let (at, first) = (self.count, self.settings.flag("norm_first"));
        self.count += 1;
        let read = if first { self.norm(at, x.clone())? } else { x.clone() };
        let result = part(self, read)?;
        let result = self.dropout(&format!("dropout_{at}"), result)?;
        let add = build("Add", vec![], vec![])?.connect([("left", x), ("right", result)])?;
        let sum: Source = self.model.apply(add)?.into();
        if first { Ok(sum) } else { self.norm(at, sum) }
    }

    /// Attention to itself, or to `context`.
    fn attention(&self, input: Source, to_context: bool) -> Result<Source> {
        let mut named =
            vec![self.own("heads"), self.own("use_bias"), self.own("init"), self.own("dropout")];
        if !to_context {
            named.push(self.own("is_causal"));
        }
        let attention = build("MultiHeadAttention", vec![], named)?;
        let mut given: Vec<(&str, Source)> = vec![("input", input)];
        let (name, mask, key_mask) = match to_context {
            true => ("context_attention", "context_mask", "context_key_mask"),
            false => ("attention", "mask", "key_mask"),
        };
        given.extend([("mask", mask.into()), ("key_mask", key_mask.into())]);
        if to_context {
            given.push(("context", "context".into()));
        }
        Ok(self.model.apply(attention.named(name)?.connect(given)?)?.into())
    }

    /// The hidden layer of each position.
    fn feedforward(&self, input: Source) -> Result<Source> {
        let wide = self.settings.int("feedforward").unwrap_or(1);
        let width = self.settings.int("dimension").unwrap_or(1);
        let (bias, init) = (self.settings.flag("use_bias"), Some(self.settings.get("init")));
        let hidden = self.add(compose::linear(wide, bias, init)?, "linear_0", input)?;
        let activation = match self.settings.block("activation") {
            Some(block) => block.copy(),
            None => build("Relu", vec![], vec![])?,
        };
        let hidden = self.model.apply(activation.input(hidden)?)?.into();
        let hidden = self.dropout("dropout", hidden)?;
        self.add(compose::linear(width, bias, init)?, "linear_1", hidden)
    }
}

fn norm(settings: &Settings) -> Result<Block> {
    let own = |name: &'static str| (name, settings.get(name).clone());
    build("LayerNorm", vec![], vec![own("eps"), own("use_bias")])
}

fn layer(settings: &Settings, is_decoder: bool) -> Result<Model> {
    let mut parts = Parts { settings, model: Model::of_kind("layer"), count: 0 };
    parts.model.add_input("input")?;
    let mut x = parts.residual("input".into(), |parts, x| parts.attention(x, false))?;
    if is_decoder {
        x = parts.residual(x, |parts, x| parts.attention(x, true))?;
    }
    x = parts.residual(x, |parts, x| parts.feedforward(x))?;
    let model = parts.model;
    model.connect(build("Buffer", vec![], vec![])?.input(x)?.output("output")?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

/// Copies of a layer in sequence, each of which reads the same other inputs. Errors: a layer without
/// one of the inputs that are not masks.
fn stacked(settings: &Settings, others: &[&str]) -> Result<Model> {
    let layer = compose::block(settings, "layer")?;
    let has =
        |name: &str| layer.inputs().iter().any(|own| *own.name == *name && own.role == Role::Data);
    if let Some(missing) = others.iter().find(|name| !name.ends_with("mask") && !has(name)) {
        return Diagnostic::of(
            ErrorKind::Setting,
            format!("a layer of `TransformerDecoder` needs the input `{missing}`"),
        )
        .got(format!("`{}`", layer.kind()))
        .expected("a layer such as `TransformerDecoderLayer`")
        .err();
    }
    let model = Model::of_kind("stack");
    model.add_input("input")?;
    let mut x: Source = "input".into();
    for at in 0..settings.int("layers").unwrap_or(1) {
        let mut given: Vec<(&str, Source)> = Vec::new();
        for name in others.iter().filter(|name| has(name)) {
            given.push((name, (*name).into()));
        }
        let copy = layer.copy().named(&format!("layer_{at}"))?;
        x = model.apply(copy.input(x)?.connect(given)?)?.into();
    }
    let last = match settings.block("norm") {
        Some(norm) => norm.copy().named("norm")?,
        None => build("Buffer", vec![], vec![])?,
    };
    model.connect(last.input(x)?.output("output")?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

fn transformer(settings: &Settings) -> Result<Model> {
    let own = |name: &'static str| (name, settings.get(name).clone());
    let side = |layer: &str, stack: &str, count: &str, causal: bool| {
        let init = match settings.get("init") {
            Setting::None => "xavier_uniform".into(),
            init => init.clone(),
        };
        let mut named =
            ["dimension", "heads", "feedforward", "dropout", "activation", "eps"].map(own).to_vec();
        named.extend([own("norm_first"), own("use_bias"), ("init", init)]);
        named.push(("is_causal", causal.into()));
        let layer = build(layer, vec![], named)?;
        let named = vec![("layer", layer.into()), ("layers", settings.get(count).clone())];
        let named = named.into_iter().chain([("norm", norm(settings)?.into())]).collect();
        build(stack, vec![], named)
    };
    let encoder = side("TransformerEncoderLayer", "TransformerEncoder", "encoder_layers", false)?;
    let causal = settings.flag("is_causal");
    let decoder = side("TransformerDecoderLayer", "TransformerDecoder", "decoder_layers", causal)?;
    let model = Model::of_kind("transformer");
    for name in ["input", "target"] {
        model.add_input(name)?;
    }
    let given = [
        ("input", Source::from("input")),
        ("mask", "mask".into()),
        ("key_mask", "key_mask".into()),
    ];
    let memory = model.apply(encoder.named("encoder")?.connect(given)?)?;
    let given: [(&str, Source); 7] = [
        ("input", "target".into()),
        ("context", memory.into()),
        ("mask", "target_mask".into()),
        ("context_mask", "context_mask".into()),
        ("key_mask", "target_key_mask".into()),
        ("context_key_mask", "context_key_mask".into()),
        ("output", "output".into()),
    ];
    model.connect(decoder.named("decoder")?.connect(given)?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}
