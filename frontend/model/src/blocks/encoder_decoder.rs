//! Models of a cell that read a sequence, write one, or both.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Role;
use mithril_ir::op::Class;

use super::masked_steps::{INSIDE, kept};
use super::parameter::{required, with};
use super::recurrent::CELL;
use super::{
    Default, Entry, Input, Kind, Meaning, Parameter, Settings, build, data, gives, out, written,
};
use crate::block::Block;
use crate::model::{Model, Source};
use crate::setting::Setting;

const HEAD: Parameter = with("head", Kind::Block, Default::None)
    .doc("a block that computes the output of each step from that of the cell");
const CARRY: Parameter = with("carry", Kind::Names, Default::None).doc(
    "inputs of the cell, each with the output that it takes in the next step; defaults to those of \
     `RNNCell`, `GRUCell` and `LSTMCell`",
);
const STEPS: Parameter =
    with("steps", Kind::Count, Default::None).doc("the number of steps, without `teacher_forcing`");
const TEACHER_FORCING: Parameter = with("teacher_forcing", Kind::Bool, Default::Bool(false))
    .doc("each step reads the target of the step before instead of its output");

const USE_LENGTHS: Parameter = with("use_lengths", Kind::Bool, Default::Bool(false))
    .doc("take the length of each sequence as the input `lengths`");
const LENGTHS: Input =
    data("lengths", Class::Int).own_dtype().when(|settings| settings.flag("use_lengths")).doc(
        "(batch), with `use_lengths`, from 0 to the number of steps: later steps leave the states \
         as they are",
    );
const HIDDEN: Input = data("hidden", Class::Float)
    .optional()
    .doc("the first state, (batch, dimension); defaults to 0");
const CELL_STATE: Input = data("cell", Class::Float)
    .optional()
    .doc("the first memory, (batch, dimension); defaults to 0");
const TARGET: Input = data("target", Class::Float)
    .when(|settings| settings.flag("teacher_forcing"))
    .doc("the outputs to learn, (batch, time, features), with `teacher_forcing`");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "ManyToOne",
        doc: "Reads a sequence with a cell. `output` is that of the cell after the last step, or \
              of `head`, which computes it from that; the last states are `last_hidden` and, of an \
              `LSTMCell`, `last_cell`.",
        example: gives(&["np.ones((2, 5, 3), \"float32\")"], "(2, 4) (2, 4)")
            .with_settings("ml.GRUCell(4)"),
        parameters: &[
            required("cell", Kind::Block).doc("the block of one step"),
            HEAD,
            CARRY,
            USE_LENGTHS,
        ],
        inputs: &[
            data("input", Class::Float).doc("(batch, time, features)"),
            LENGTHS,
            HIDDEN,
            CELL_STATE,
        ],
        outputs: &[out("output"), out("last_hidden")],
        meaning: Meaning::Compose(many_to_one),
        ..CELL
    },
    Entry {
        name: "OneToMany",
        doc: "Writes a sequence with a cell, (batch, steps, features). The first step reads \
              `input`, and each later step the output of the step before; with `teacher_forcing`, \
              the target of the step before, and there are as many steps as in `target` (Williams \
              & Zipser 1989). The output of a step is that of the cell, or of `head`.",
        example: gives(&["np.ones((2, 3), \"float32\")"], "(2, 5, 3)")
            .with_settings("ml.GRUCell(4), steps=5, head=ml.Linear(3)"),
        parameters: &[
            required("cell", Kind::Block).doc("the block of one step"),
            STEPS,
            HEAD,
            CARRY,
            TEACHER_FORCING,
        ],
        inputs: &[
            data("input", Class::Float).doc("what the first step reads, (batch, features)"),
            TARGET,
            HIDDEN,
            CELL_STATE,
        ],
        valid: check_steps,
        meaning: Meaning::Compose(one_to_many),
        ..CELL
    },
    Entry {
        name: "EncoderDecoder",
        doc: "Reads a sequence with the cell `encoder`, and writes one with the cell `decoder`, \
              whose first states are the last ones of the encoder (Sutskever et al. 2014). The \
              decoder is an `OneToMany`: its first step reads `start`, and each later step the \
              output of the step before, or with `teacher_forcing` the target of the step before. \
              With the same settings otherwise, both have params of the same names: one is for \
              training, the other for inference.",
        example: written(
            "cells = {\"encoder\": ml.LSTMCell(8), \"decoder\": ml.LSTMCell(8), \"head\": \
             ml.Linear(3)}\n\
             training = ml.EncoderDecoder(**cells, teacher_forcing=True)\n\
             compiled = ml.compile(training, ml.NumpyBackend())\n\
             params = compiled.randomize_params()\n\
             inputs = {\n\
             \x20   \"input\": np.ones((2, 7, 4), \"float32\"),\n\
             \x20   \"start\": np.zeros((2, 3), \"float32\"),\n\
             \x20   \"target\": np.ones((2, 5, 3), \"float32\"),\n\
             }\n\
             print(compiled.evaluate(params, inputs)[\"output\"].shape)\n\
             inference = ml.EncoderDecoder(**cells, steps=6)\n\
             compiled = ml.compile(inference, ml.NumpyBackend(), inference=True)\n\
             del inputs[\"target\"]\n\
             print(compiled.evaluate(params, inputs)[\"output\"].shape)\n",
            "(2, 5, 3)\n(2, 6, 3)",
        ),
        parameters: &[
            required("encoder", Kind::Block).doc("the cell that reads"),
            required("decoder", Kind::Block).doc("the cell that writes"),
            STEPS,
            HEAD,
            CARRY,
            TEACHER_FORCING,
            USE_LENGTHS,
        ],
        inputs: &[
            data("input", Class::Float).doc("(batch, time, features)"),
            LENGTHS,
            data("start", Class::Float)
                .doc("what the first step of the decoder reads, (batch, features)"),
            TARGET,
        ],
        valid: check_steps,
        meaning: Meaning::Compose(encoder_decoder),
        ..CELL
    },
];

/// Errors: neither a number of steps nor a target, or both.
fn check_steps(settings: &Settings) -> Result<()> {
    let (forced, steps) = (settings.flag("teacher_forcing"), settings.int("steps"));
    match (forced, steps) {
        (false, None) => Diagnostic::of(ErrorKind::Setting, "the number of steps is not known")
            .expected("`steps`, or `teacher_forcing=True`, which takes it from `target`")
            .err(),
        (true, Some(steps)) => {
            Diagnostic::of(ErrorKind::Setting, "`steps` has no meaning with `teacher_forcing`")
                .got(steps)
                .expected("one of them, as `target` has as many steps as it is long")
                .err()
        }
        _ => Ok(()),
    }
}

/// States that the library's cells carry, as inputs and outputs.
const STATES: [(&str, &str); 2] = [("hidden", "output"), ("cell", "next_cell")];

/// A cell with its head, as the body of a scan.
struct Step {
    model: Model,
    /// The inputs of the cell that are carried.
    states: Vec<String>,
    /// Whether steps beyond the end of a sequence leave the states as they are.
    masked: bool,
}

/// The carried inputs of a cell, and their outputs. Errors: the cell has none.
fn carried(settings: &Settings, cell: &Block) -> Result<Vec<(String, String)>> {
    let text = |setting: &Setting| match setting {
        Setting::Str(text) => Some(text.to_string()),
        _ => None,
    };
    let given = settings.list("carry").iter().filter_map(|pair| match pair.as_list()? {
        [input, output] => text(input).zip(text(output)),
        _ => None,
    });
    let mut carry: Vec<(String, String)> = given.collect();
    if carry.is_empty() {
        let known = STATES.iter().filter(|(input, output)| {
            cell.inputs().iter().any(|own| *own.name == **input)
                && cell.outputs().iter().any(|own| *own.name == **output)
        });
        carry = known.map(|(input, output)| (input.to_string(), output.to_string())).collect();
    }
    if carry.is_empty() {
        return Diagnostic::of(ErrorKind::Setting, "the cell has no known state")
            .got(cell.text())
            .expected("`RNNCell`, `GRUCell`, `LSTMCell`, or `carry={input: output}`")
            .err();
    }
    Ok(carry)
}

fn named(block: &Block, name: &str) -> Result<Block> {
    if block.name().is_some() { Ok(block.clone()) } else { block.clone().named(name) }
}

/// The inputs `input` and states, the outputs `prediction` and `next_…` of each state.
fn step(settings: &Settings, cell: &Block) -> Result<Step> {
    let carry = carried(settings, cell)?;
    let model = Model::of_kind("step");
    let Some(result) = cell.standard_output().map(|outlet| outlet.name.to_string()) else {
        return Diagnostic::of(ErrorKind::Setting, "the cell has no output").got(cell.text()).err();
    };
    let mut given: Vec<(String, Source)> = Vec::new();
    for terminal in cell.inputs().iter().filter(|terminal| terminal.role == Role::Data) {
        let is_state = carry.iter().any(|(input, _)| **input == *terminal.name);
        if is_state || !terminal.optional {
            given.push((terminal.name.to_string(), (*terminal.name).into()));
        }
    }
    let mut written = String::from("cell_output");
    let masked = settings.flag("use_lengths");
    for (input, output) in &carry {
        let next = format!("{}_{input}", if masked { "new" } else { "next" });
        if *output == result {
            written.clone_from(&next);
        }
        given.push((output.clone(), (*next).into()));
    }
    if written == "cell_output" {
        given.push((result, "cell_output".into()));
    }
    model.connect(named(cell, "cell")?.connect(given)?)?;
    for (input, _) in carry.iter().filter(|_| masked) {
        model.connect(kept(input)?)?;
    }
    let last = match settings.block("head") {
        Some(head) => named(head, "head")?,
        None => build("Buffer", vec![], vec![])?,
    };
    model.connect(last.input(&*written)?.output("prediction")?)?;
    for (input, _) in &carry {
        model.expose(&format!("next_{input}"))?;
    }
    let optional = cell.inputs().iter().filter(|terminal| terminal.optional);
    model.set_optional(optional.map(|terminal| &*terminal.name));
    Ok(Step { model, masked, states: carry.into_iter().map(|(input, _)| input).collect() })
}

impl Step {
    /// A scan of this step, over sequences of inputs or for a number of steps.
    fn scan(&self, steps: Option<i64>, collect: bool) -> Result<Block> {
        let pair = |input: &str, output: &str| Setting::from([input, output]);
        let states = self.states.iter();
        let mut carry: Vec<Setting> =
            states.map(|state| pair(state, &format!("next_{state}"))).collect();
        let mut named = vec![("axis", 1.into()), ("body", self.model.block()?.into())];
        match steps {
            Some(steps) => {
                carry.push(pair("input", "prediction"));
                named.push(("steps", steps.into()));
            }
            None if self.masked => named.push(("over", ["input", "inside"].into())),
            None => named.push(("over", ["input"].into())),
        }
        named.push(("carry", Setting::List(carry.into())));
        let collected: Vec<&str> = collect.then_some("prediction").into_iter().collect();
        named.push(("collect", collected.into()));
        build("Scan", vec![], named)
    }

    /// The connections of the first states, by their own names.
    fn first(&self) -> Vec<(String, Source)> {
        self.states.iter().map(|state| (state.clone(), (**state).into())).collect()
    }
}

/// The cell of this setting. Errors: it is not a block.
fn cell<'a>(settings: &'a Settings, name: &str) -> Result<&'a Block> {
    settings.block(name).ok_or_else(|| {
        Box::new(Diagnostic::of(ErrorKind::Setting, format!("`{name}` is not a block")))
    })
}

fn many_to_one(settings: &Settings) -> Result<Model> {
    let cell = cell(settings, "cell")?;
    // The head reads the last state alone.
    let step = step(&settings.without("head"), cell)?;
    let mut given = step.first();
    given.push(("input".into(), "input".into()));
    let lasts = step.states.iter().map(|state| (format!("next_{state}"), format!("last_{state}")));
    let lasts: Vec<(String, String)> = lasts.collect();
    given.extend(lasts.iter().map(|(next, last)| (next.clone(), (**last).into())));
    let model = Model::of_kind("many_to_one");
    model.add_input("input")?;
    if step.masked {
        let pairs = [("input", Source::from("input")), ("lengths", "lengths".into())];
        let inside = INSIDE.block(vec![], vec![])?.named("inside")?;
        given.push(("inside".into(), model.apply(inside.connect(pairs)?)?.into()));
    }
    model.connect(step.scan(None, false)?.connect(given)?)?;
    let head = match settings.block("head") {
        Some(head) => named(head, "head")?,
        None => build("Buffer", vec![], vec![])?,
    };
    model.connect(head.input(&*lasts[0].1)?.output("output")?)?;
    for (_, last) in &lasts {
        model.expose(last)?;
    }
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

fn one_to_many(settings: &Settings) -> Result<Model> {
    let step = step(settings, cell(settings, "cell")?)?;
    let model = Model::of_kind("one_to_many");
    model.add_input("input")?;
    let mut given = step.first();
    match settings.flag("teacher_forcing") {
        false => {
            given.push(("input".into(), "input".into()));
            given.push(("prediction_sequence".into(), "output".into()));
        }
        true => {
            let first = build("ExpandDims", vec![1.into()], vec![])?;
            let first = model.apply(first.input("input")?)?;
            let all = Setting::Slice([Setting::None, Setting::None, Setting::None].into());
            let before = Setting::Slice([Setting::None, Setting::Int(-1), Setting::None].into());
            let index = Setting::List([all, before].into());
            let rest = build("Indexer", vec![index], vec![])?;
            let rest = model.apply(rest.input("target")?)?;
            let joined = build("Concat", vec![], vec![("axis", 1.into())])?;
            let parts = Source::List(vec![first.into(), rest.into()]);
            let joined = model.apply(joined.connect([("inputs", parts)])?)?;
            given.push(("input".into(), joined.into()));
            given.push(("prediction".into(), "output".into()));
        }
    }
    let steps = settings.int("steps");
    model.connect(step.scan(steps, true)?.connect(given)?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

fn encoder_decoder(settings: &Settings) -> Result<Model> {
    let own = |name: &'static str| (name, settings.get(name).clone());
    let encoder = vec![("cell", settings.get("encoder").clone()), own("carry"), own("use_lengths")];
    let encoder = build("ManyToOne", vec![], encoder)?.named("encoder")?;
    let decoder = vec![
        ("cell", settings.get("decoder").clone()),
        own("carry"),
        own("head"),
        own("steps"),
        own("teacher_forcing"),
    ];
    let decoder = build("OneToMany", vec![], decoder)?.named("decoder")?;
    let states = carried(settings, cell(settings, "decoder")?)?;
    let mut read: Vec<(String, Source)> = vec![("input".into(), "input".into())];
    if settings.flag("use_lengths") {
        read.push(("lengths".into(), "lengths".into()));
    }
    let mut wrote: Vec<(String, Source)> =
        vec![("input".into(), "start".into()), ("output".into(), "output".into())];
    if settings.flag("teacher_forcing") {
        wrote.push(("target".into(), "target".into()));
    }
    for (state, _) in states {
        let last = format!("last_{state}");
        if encoder.outputs().iter().any(|outlet| *outlet.name == *last) {
            read.push((last, (*state).into()));
            wrote.push((state.clone(), (*state).into()));
        }
    }
    let model = Model::of_kind("encoder_decoder");
    model.connect(encoder.connect(read)?)?;
    model.connect(decoder.connect(wrote)?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}
