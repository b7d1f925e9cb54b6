//! Recurrent networks over sequences: layers and directions of recurrent layers.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;

use super::layers::{INIT, USE_BIAS};
use super::parameter::{Range, with};
use super::recurrent::{ACTIVATION, CELL, DIMENSION};
use super::sequence_layer::{
    CELL_STATE, COLLECT, GRU_LAYER, HIDDEN, LENGTHS, LSTM_LAYER, PROJECTED, REVERSE, RNN_LAYER,
};
use super::{Default, Entry, Input, Kind, Meaning, Parameter, Settings, build, data, gives, out};
use crate::block::Block;
use crate::model::{Model, Source};
use crate::setting::Setting;

const INPUT: Input = data("input", Class::Float).doc("(batch, time, features)");
const BIDIRECTIONAL: Parameter = with("bidirectional", Kind::Bool, Default::Bool(false))
    .doc("read each sequence in both directions, and join the two outputs");
const LAYERS: Parameter = with("layers", Kind::Count, Default::Int(1))
    .doc("the number of layers, each of which reads the output of the one before");
const DROPOUT: Parameter = with("dropout", Kind::Float(Range::Unit), Default::Float(0.0))
    .doc("the rate of dropout between layers");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "RNN",
        doc: "`RNNCell` over sequences. `output` is (batch, time, directions * dimension), or the \
              states after the last step, (batch, directions * dimension), with \
              `return_sequence=False`; `last_hidden` has those of every layer and direction. The \
              params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and \
              `layer_0.backward.w` in two directions. `init` is that of each cell.",
        example: gives(&["np.ones((2, 5, 3), \"float32\")"], "(2, 5, 4) (1, 2, 4)")
            .with_settings("dimension=4"),
        parameters: &[
            DIMENSION,
            BIDIRECTIONAL,
            LAYERS,
            REVERSE,
            COLLECT,
            ACTIVATION,
            USE_BIAS,
            DROPOUT,
            INIT,
        ],
        inputs: &[INPUT, LENGTHS, HIDDEN],
        outputs: &[out("output"), out("last_hidden")],
        valid: check,
        meaning: Meaning::Compose(|settings| network(settings, &RNN_LAYER)),
        ..CELL
    },
    Entry {
        name: "LSTM",
        doc: "`LSTMCell` over sequences. `output` is (batch, time, directions * dimension), or the \
              states after the last step, (batch, directions * dimension), with \
              `return_sequence=False`; `last_hidden` and `last_cell` have those of every layer and \
              direction. The params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and \
              `layer_0.backward.w` in two directions. `init` is that of each cell. With \
              `projection`, the hidden state of each step is multiplied by `w_projection`, \
              (dimension, projection), and `output` and `last_hidden` have that width (Sak et al. \
              2014), as with `proj_size` of `torch.nn.LSTM`.",
        example: gives(&["np.ones((2, 5, 3), \"float32\")"], "(2, 5, 4) (1, 2, 4) (1, 2, 4)")
            .with_settings("dimension=4"),
        parameters: &[
            DIMENSION,
            BIDIRECTIONAL,
            LAYERS,
            REVERSE,
            COLLECT,
            USE_BIAS,
            DROPOUT,
            INIT,
            PROJECTED,
        ],
        inputs: &[INPUT, LENGTHS, HIDDEN, CELL_STATE],
        outputs: &[out("output"), out("last_hidden"), out("last_cell")],
        valid: check,
        meaning: Meaning::Compose(|settings| network(settings, &LSTM_LAYER)),
        ..CELL
    },
    Entry {
        name: "GRU",
        doc: "`GRUCell` over sequences. `output` is (batch, time, directions * dimension), or the \
              states after the last step, (batch, directions * dimension), with \
              `return_sequence=False`; `last_hidden` has those of every layer and direction. The \
              params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and \
              `layer_0.backward.w` in two directions. `init` is that of each cell.",
        example: gives(&["np.ones((2, 5, 3), \"float32\")"], "(2, 5, 4) (1, 2, 4)")
            .with_settings("dimension=4"),
        parameters: &[DIMENSION, BIDIRECTIONAL, LAYERS, REVERSE, COLLECT, USE_BIAS, DROPOUT, INIT],
        inputs: &[INPUT, LENGTHS, HIDDEN],
        outputs: &[out("output"), out("last_hidden")],
        valid: check,
        meaning: Meaning::Compose(|settings| network(settings, &GRU_LAYER)),
        ..CELL
    },
];

/// Errors: both directions and `reverse`.
fn check(settings: &Settings) -> Result<()> {
    if settings.flag("bidirectional") && settings.flag("reverse") {
        let what = "`reverse` has no meaning if `bidirectional` reads both directions";
        return Diagnostic::of(ErrorKind::Setting, what).hint("leave one of them out").err();
    }
    Ok(())
}

/// The names of states that a layer takes and returns.
const STATES: [(&str, &str); 2] = [("hidden", "last_hidden"), ("cell", "last_cell")];

/// Builds a network of layers.
struct Network<'a> {
    settings: &'a Settings,
    layer: &'static Entry,
    directions: i64,
    /// The connections of the last states, for `last_hidden` and `last_cell`.
    last: [Vec<Source>; 2],
}

fn network(settings: &Settings, layer: &'static Entry) -> Result<Model> {
    let directions = 1 + i64::from(settings.flag("bidirectional"));
    let layers = settings.int("layers").unwrap_or(1);
    let mut network = Network { settings, layer, directions, last: [Vec::new(), Vec::new()] };
    let model = Model::of_kind("network");
    let rate = settings.float("dropout").unwrap_or(0.0);
    let mut input: Source = "input".into();
    for index in 0..layers {
        let is_last = index + 1 == layers;
        let output = network.layer(&model, index, input, is_last)?;
        input = match is_last || rate == 0.0 {
            true => output,
            false => {
                let dropout = build("Dropout", vec![rate.into()], vec![])?;
                let dropout = dropout.named(&format!("dropout_{index}"))?;
                model.apply(dropout.connect([("input", output)])?)?.into()
            }
        };
    }
    for ((_, name), states) in STATES.iter().zip(network.last) {
        if states.is_empty() {
            continue;
        }
        let stack =
            build("Stack", vec![], vec![("axis", 0.into())])?.named(&format!("stack_{name}"))?;
        model.connect(
            stack.connect([("inputs", Source::List(states)), ("output", (*name).into())])?,
        )?;
    }
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

impl Network<'_> {
    /// Adds a layer, and returns its output. That of the last layer is `output`.
    fn layer(&mut self, model: &Model, at: i64, input: Source, is_last: bool) -> Result<Source> {
        let collects = !is_last || self.settings.flag("return_sequence");
        let block = match self.directions {
            1 => self.direction(at, self.settings.flag("reverse"), collects)?,
            _ => self.both(at, collects)?,
        };
        let name = format!("layer_{at}");
        let mut given: Vec<(String, Source)> = vec![("input".into(), input)];
        let inputs = block.inputs().iter().map(|terminal| terminal.name.to_string());
        let states = inputs.filter(|name| ["lengths", "hidden", "cell"].contains(&&**name));
        given.extend(states.map(|name| (name.clone(), name.into())));
        let mut named: Vec<String> = Vec::new();
        for outlet in block.outputs() {
            let own = match (&*outlet.name, is_last) {
                ("output", true) => "output".to_string(),
                (other, _) => format!("{name}_{other}"),
            };
            given.push((outlet.name.to_string(), (*own).into()));
            named.push(own);
        }
        let names: Vec<String> = block.outputs().iter().map(|o| o.name.to_string()).collect();
        model.connect(block.named(&name)?.connect(given)?)?;
        for (last, (_, state)) in self.last.iter_mut().zip(STATES) {
            let own = names.iter().zip(&named).filter(|(name, _)| name.starts_with(state));
            last.extend(own.map(|(_, own)| Source::from(&**own)));
        }
        if collects {
            let output = names.iter().zip(&named).find(|(name, _)| *name == "output");
            return Ok(output.map_or("output", |(_, own)| own).into());
        }
        let states = self.last[0][self.last[0].len() - self.directions as usize..].to_vec();
        join(model, states, "output")?;
        Ok("output".into())
    }

    /// One direction of a layer.
    fn direction(&self, at: i64, backward: bool, collects: bool) -> Result<Block> {
        let own = |name: &'static str| (name, self.settings.get(name).clone());
        let index = at * self.directions + i64::from(self.directions == 2 && backward);
        let layers = self.settings.int("layers").unwrap_or(1);
        let mut named = vec![
            own("dimension"),
            own("use_bias"),
            own("init"),
            ("reverse", Setting::Bool(backward)),
            ("return_sequence", Setting::Bool(collects)),
            ("index", Setting::Int(index)),
            ("count", Setting::Int(layers * self.directions)),
        ];
        for name in ["activation", "projection"] {
            if self.settings.iter().any(|(parameter, _)| parameter.name == name) {
                named.push(own(name));
            }
        }
        self.layer.block(vec![], named)
    }

    /// Both directions of a layer, as one block.
    fn both(&self, at: i64, collects: bool) -> Result<Block> {
        let model = Model::of_kind("bidirectional");
        let mut outputs: Vec<Source> = Vec::new();
        for (name, backward) in [("forward", false), ("backward", true)] {
            let block = self.direction(at, backward, collects)?;
            let mut given: Vec<(String, Source)> = Vec::new();
            for terminal in block.inputs() {
                if ["input", "lengths", "hidden", "cell"].contains(&&*terminal.name) {
                    given.push((terminal.name.to_string(), (*terminal.name).into()));
                }
            }
            for outlet in block.outputs() {
                let own = format!("{}_{name}", outlet.name);
                if &*outlet.name == "output" {
                    outputs.push((*own).into());
                }
                given.push((outlet.name.to_string(), (*own).into()));
            }
            model.connect(block.named(name)?.connect(given)?)?;
        }
        if collects {
            join(&model, outputs, "output")?;
        }
        model.set_optional(["lengths", "hidden", "cell"]);
        model.block()
    }
}

/// Joins arrays along the last axis.
fn join(model: &Model, mut parts: Vec<Source>, output: &str) -> Result<()> {
    let block = match parts.len() {
        1 => build("Buffer", vec![], vec![])?.connect([("input", parts.remove(0))])?,
        _ => build("Concat", vec![], vec![("axis", (-1).into())])?
            .connect([("inputs", Source::List(parts))])?,
    };
    model.connect(block.output(output)?)
}
