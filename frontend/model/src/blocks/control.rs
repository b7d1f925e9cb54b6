//! Blocks that call a body several times.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;

use super::layers::LAYER;
use super::parameter::{required, with};
use super::wiring::Wiring;
use super::{Default, Entry, Kind, Meaning, Parameter, Settings, written};
use crate::block::{Block, quoted};
use crate::definition::Wired;
use crate::setting::Setting;

const BODY: Parameter =
    required("body", Kind::Block).doc("the block or model that computes one step");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "Scan",
        doc: "Calls `body` once for each slice of its sequences, one after another. The terminals \
              are those of `body`: an input in `over` takes a sequence, whose slices along `axis` \
              the steps read; an input in `carry` takes the value for the first step, and in each \
              later step has the value that the output next to it had in the step before; every \
              other input, and every param, is the same in all steps. An output in `carry` is that \
              of the last step; one in `collect` is stacked along `axis`. An output that is both \
              gives its last value by its own name, and all values by its name with the suffix \
              `_sequence`. A body that draws random numbers gets a new key in each step.",
        example: written(
            "body = ml.Model()\n\
             body |= ml.Add()(left=\"total\", right=\"x\", output=\"next_total\")\n\
             sums = ml.Scan(body, carry={\"total\": \"next_total\"}, over=[\"x\"], \
             collect=[\"next_total\"])\n\
             compiled = ml.compile(sums, ml.NumpyBackend())\n\
             inputs = {\"total\": np.float32(0), \"x\": np.float32([1, 2, 3])}\n\
             outputs = compiled.evaluate({}, inputs)\n\
             print(outputs[\"next_total\"], outputs[\"next_total_sequence\"])\n",
            "6.0 [1. 3. 6.]",
        ),
        parameters: &[
            BODY,
            with("carry", Kind::Names, Default::None)
                .doc("inputs, each with the output that it takes in the next step"),
            with("over", Kind::Strs, Default::None).doc(
                "the inputs that read slices; defaults to all that are not carried, or to none if \
                 `steps` is given",
            ),
            with("collect", Kind::Strs, Default::None)
                .doc("the outputs that are stacked; defaults to all that are not carried"),
            with("axis", Kind::Int, Default::Int(0))
                .doc("the axis of slices in sequences and in stacked outputs"),
            with("reverse", Kind::Bool, Default::Bool(false)).doc("start with the last slice"),
            with("steps", Kind::Count, Default::None)
                .doc("the number of steps, if there is no sequence to go over"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(scan),
        same_dtype: false,
        ..LAYER
    },
    Entry {
        name: "Map",
        doc: "Calls `body` on each slice of its inputs along `axis`, and stacks the outputs along \
              `axis`. The terminals are those of `body`. An input in `fixed`, and every param, is \
              the same in all calls.",
        example: written(
            "body = ml.Model()\n\
             body |= ml.MatrixMultiply()(left=\"a\", right=\"b\", output=\"product\")\n\
             compiled = ml.compile(ml.Map(body, fixed=[\"b\"]), ml.NumpyBackend())\n\
             inputs = {\"a\": np.float32([[1, 2], [3, 4]]), \"b\": np.float32([1, 10])}\n\
             print(compiled.evaluate({}, inputs)[\"product\"])\n",
            "[21. 43.]",
        ),
        parameters: &[
            BODY,
            with("axis", Kind::Int, Default::Int(0))
                .doc("the axis of slices in inputs and in outputs"),
            with("fixed", Kind::Strs, Default::None)
                .doc("the inputs that are the same in all calls"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(map),
        same_dtype: false,
        ..LAYER
    },
];

fn body(settings: &Settings) -> Result<&Block> {
    settings
        .block("body")
        .ok_or_else(|| Box::new(Diagnostic::of(ErrorKind::Setting, "`body` is not a block")))
}

/// The strings of a list; `None` if it is left out.
fn names<'a>(settings: &'a Settings, name: &str) -> Option<Vec<&'a str>> {
    settings.get(name).as_list().map(|items| items.iter().filter_map(text).collect())
}

fn text(setting: &Setting) -> Option<&str> {
    match setting {
        Setting::Str(text) => Some(text),
        _ => None,
    }
}

fn scan(settings: &Settings) -> Result<Wired> {
    let carry = settings.list("carry").iter().filter_map(|pair| match pair.as_list()? {
        [input, output] => text(input).zip(text(output)),
        _ => None,
    });
    let wiring = Wiring {
        kind: "Scan",
        carry: carry.collect(),
        steps: settings.int("steps"),
        over: names(settings, "over"),
        collect: names(settings, "collect"),
        axis: settings.int("axis").unwrap_or(0),
        reverse: settings.flag("reverse"),
    };
    wiring.of(body(settings)?)
}

fn map(settings: &Settings) -> Result<Wired> {
    let body = body(settings)?;
    let fixed = names(settings, "fixed").unwrap_or_default();
    let data = body.inputs().iter().filter(|t| t.role == Role::Data);
    let data: Vec<&str> = data.map(|terminal| &*terminal.name).collect();
    if let Some(unknown) = fixed.iter().find(|name| !data.contains(name)) {
        let what = format!("the body `{}` of `Map` has no input `{unknown}`", body.kind());
        let error = Diagnostic::of(ErrorKind::Terminal, what);
        let mut error = error.got(format!("`{unknown}` in `fixed`")).expected(quoted(&data));
        error.hint = did_you_mean(unknown, data.iter().copied());
        return error.err();
    }
    let wiring = Wiring {
        kind: "Map",
        carry: Vec::new(),
        steps: None,
        over: Some(data.into_iter().filter(|name| !fixed.contains(name)).collect()),
        collect: None,
        axis: settings.int("axis").unwrap_or(0),
        reverse: false,
    };
    wiring.of(body)
}
