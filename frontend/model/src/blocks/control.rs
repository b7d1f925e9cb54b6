//! Blocks that call a body several times.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;

use super::layers::LAYER;
use super::parameter::{required, with};
use super::wiring::Wiring;
use super::{
    Default, Entry, Kind, Meaning, Parameter, Settings, conditions, masked_steps, written,
};
use crate::block::{Block, quoted};
use crate::definition::{Terminal, Wired};
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
              `_sequence`. A body that draws random numbers gets a new key in each step. With \
              `use_lengths`, there is an input `lengths`, (batch), for the first axis of the slices \
              and of the carries: steps beyond the end of a sequence leave the carries as they are, \
              and stack zeros of the other outputs. The names of params then begin with `body`.",
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
            with("over", Kind::STRS, Default::None).doc(
                "the inputs that read slices; defaults to all that are not carried, or to none if \
                 `steps` is given",
            ),
            with("collect", Kind::STRS, Default::None)
                .doc("the outputs that are stacked; defaults to all that are not carried"),
            with("axis", Kind::Int, Default::Int(0))
                .doc("the axis of slices in sequences and in stacked outputs"),
            with("reverse", Kind::Bool, Default::Bool(false)).doc("start with the last slice"),
            with("steps", Kind::Count, Default::None)
                .doc("the number of steps, if there is no sequence to go over"),
            with("use_lengths", Kind::Bool, Default::Bool(false))
                .doc("take the length of each sequence as the input `lengths`"),
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
            with("fixed", Kind::STRS, Default::None)
                .doc("the inputs that are the same in all calls"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(map),
        same_dtype: false,
        ..LAYER
    },
    Entry {
        name: "Vmap",
        doc: "Computes `body` for all indices of an axis at once: the batch. Its results are those \
              of `Map`, but its operations get one more axis instead of being repeated. Inputs \
              have the axis that `axis` gives, or none if it gives None; outputs have it at \
              `out_axis`. Params are shared by the whole batch. With `params`, they and \
              running states have an axis of their own in front: each index has its own params, \
              and its own gradients. \
              `ml.vmap` makes this block, too.",
        example: written(
            "body = ml.Model()\n\
             body |= ml.MatrixMultiply()(left=\"a\", right=\"b\", output=\"product\")\n\
             batched = ml.vmap(body, axis={\"a\": 0, \"b\": None})\n\
             compiled = ml.compile(batched, ml.NumpyBackend())\n\
             inputs = {\"a\": np.float32([[1, 2], [3, 4]]), \"b\": np.float32([1, 10])}\n\
             print(compiled.evaluate({}, inputs)[\"product\"])\n",
            "[21. 43.]",
        ),
        parameters: &[
            BODY,
            with("axis", Kind::Axes, Default::Int(0)).doc(
                "the axis of the batch in each input; a dict gives it by input, and None for an \
                 input that is the same for the whole batch",
            ),
            with("out_axis", Kind::Int, Default::Int(0)).doc("the axis of the batch in outputs"),
            with("params", Kind::Bool, Default::Bool(false))
                .doc("whether each index of the batch has its own params"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(vmap),
        same_dtype: false,
        ..LAYER
    },
    Entry {
        name: "While",
        doc: "Calls `body` for as long as `condition` is true, which is computed before each step. \
              An input of `body` in `carry` takes the given value in the first step, and in each \
              later step that of the output next to it in the step before. `condition` reads the \
              carried values, and other inputs, by their names; its output is one bool. Other \
              inputs, and every param, are the same in all steps. The outputs are the carried \
              ones, after the last step. The gradient needs `max_steps`. Its backward pass keeps \
              the carries of as many steps.",
        example: written(
            "body = ml.Model()\n\
             body |= ml.Multiply()(left=\"x\", right=2, output=\"doubled\")\n\
             below = ml.Less()(right=100)\n\
             condition = ml.Model()\n\
             condition |= below(left=\"x\", output=\"running\")\n\
             loop = ml.While(condition, body, carry={\"x\": \"doubled\"})\n\
             compiled = ml.compile(loop, ml.NumpyBackend())\n\
             print(compiled.evaluate({}, {\"x\": np.float32(3)})[\"doubled\"])\n",
            "192.0",
        ),
        parameters: &[
            required("condition", Kind::Block).doc("the block that decides whether to go on"),
            BODY,
            with("carry", Kind::Names, Default::None).doc(
                "inputs, each with the output that it takes in the next step; defaults to the \
                 standard input and the output, if the body has one output",
            ),
            with("max_steps", Kind::Count, Default::None)
                .doc("the maximum number of steps, which the gradient needs"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(repeat_while),
        same_dtype: false,
        ..LAYER
    },
    Entry {
        name: "Cond",
        doc: "Calls `then` if the input `condition` is true, and `otherwise` if it is not. Only one \
              of the two is computed. `condition` is one bool, of rank 0. The other inputs are \
              those of both blocks: an input that both have is the same value. The outputs have \
              the same names and types in both blocks. `Where` chooses element by element \
              instead. The gradient computes the values inside the chosen block again.",
        example: written(
            "cond = ml.Cond(ml.Square(), ml.Negate())\n\
             compiled = ml.compile(cond, ml.NumpyBackend())\n\
             for condition in (True, False):\n\
             \x20   inputs = {\"condition\": np.bool_(condition), \"input\": np.float32([1, 3])}\n\
             \x20   print(compiled.evaluate({}, inputs)[\"output\"])\n",
            "[1. 9.]\n[-1. -3.]",
        ),
        parameters: &[
            required("then", Kind::Block).doc("the block for a true condition"),
            required("otherwise", Kind::Block).doc("the block for a false condition"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Body(|settings| {
            conditions::branches(block(settings, "then")?, block(settings, "otherwise")?)
        }),
        same_dtype: false,
        ..LAYER
    },
];

fn body(settings: &Settings) -> Result<&Block> {
    block(settings, "body")
}

fn block<'s>(settings: &'s Settings, name: &str) -> Result<&'s Block> {
    settings.block(name).ok_or_else(|| {
        Box::new(Diagnostic::of(ErrorKind::Setting, format!("`{name}` is not a block")))
    })
}

/// The pairs of an input and an output in `carry`.
fn carry(settings: &Settings) -> Vec<(&str, &str)> {
    let pairs = settings.list("carry").iter().filter_map(|pair| match pair.as_list()? {
        [input, output] => text(input).zip(text(output)),
        _ => None,
    });
    pairs.collect()
}

fn repeat_while(settings: &Settings) -> Result<Wired> {
    let (condition, body) = (block(settings, "condition")?, body(settings)?);
    conditions::repeated(condition, body, carry(settings), settings.int("max_steps"))
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
    let mut wiring = Wiring {
        kind: "Scan",
        carry: carry(settings),
        steps: settings.int("steps"),
        over: names(settings, "over"),
        collect: names(settings, "collect"),
        axis: settings.int("axis").unwrap_or(0),
        reverse: settings.flag("reverse"),
    };
    let own = body(settings)?;
    if !settings.flag("use_lengths") {
        return wiring.of(own);
    }
    let named: Vec<&str> = wiring.named_inputs().collect();
    let masked = masked_steps::masked(own, &wiring.carry, &named)?;
    if let Some(over) = &mut wiring.over {
        over.push(masked_steps::STEP);
    }
    masked_steps::with_lengths(wiring.of(&masked)?)
}

/// The axis of each input that a `Vmap` has in its batch. Optional inputs have it only if they are
/// named.
fn batch_axes<'b>(settings: &Settings, body: &'b Block) -> Result<Vec<(&'b str, i64)>> {
    let inputs = || body.inputs().iter().filter(|terminal| terminal.role == Role::Data);
    let default = settings.int("axis").unwrap_or(0);
    let named = settings.get("axis").as_list().unwrap_or(&[]).iter().filter_map(Setting::as_list);
    let named = || named.clone().filter_map(|pair| Some((text(&pair[0])?, pair[1].as_int())));
    let names: Vec<&str> = inputs().map(|terminal| &*terminal.name).collect();
    if let Some((unknown, _)) = named().find(|(name, _)| !names.contains(name)) {
        return unknown_input("Vmap", body, unknown, "axis", &names).err();
    }
    let axis = |terminal: &Terminal| match named().find(|(name, _)| *name == &*terminal.name) {
        Some((_, axis)) => axis,
        None => (!terminal.optional).then_some(default),
    };
    Ok(inputs().filter_map(|terminal| Some((&*terminal.name, axis(terminal)?))).collect())
}

fn vmap(settings: &Settings) -> Result<Wired> {
    let body = body(settings)?;
    let axes = batch_axes(settings, body)?;
    let wiring = Wiring {
        kind: "Vmap",
        carry: Vec::new(),
        steps: None,
        over: Some(axes.iter().map(|(name, _)| *name).collect()),
        collect: None,
        axis: settings.int("out_axis").unwrap_or(0),
        reverse: false,
    };
    if axes.is_empty() {
        let error = Diagnostic::of(ErrorKind::Setting, "no input of `Vmap` has a batch axis");
        return error.expected("an axis for at least one input of the body").err();
    }
    let mut wired = wiring.of(body)?;
    wired.body.batched = true;
    wired.body.axes = axes.into_iter().map(|(_, axis)| axis).collect();
    if settings.flag("params") {
        let params = wired.inputs.iter_mut().enumerate();
        let own = |role: Role| matches!(role, Role::Param | Role::State);
        for (at, terminal) in params.filter(|(_, terminal)| own(terminal.role)) {
            wired.body.sequences.push(at as u32);
            wired.body.axes.push(0);
            terminal.start.stacked = true;
            terminal.shape = None;
            terminal.inferred = true;
        }
    }
    Ok(wired)
}

/// The error for a setting that names an input which the body does not have.
fn unknown_input(
    kind: &str,
    body: &Block,
    unknown: &str,
    setting: &str,
    names: &[&str],
) -> Diagnostic {
    let what = format!("the body `{}` of `{kind}` has no input `{unknown}`", body.kind());
    let error = Diagnostic::of(ErrorKind::Terminal, what);
    let mut error = error.got(format!("`{unknown}` in `{setting}`")).expected(quoted(names));
    error.hint = did_you_mean(unknown, names.iter().copied());
    error
}

fn map(settings: &Settings) -> Result<Wired> {
    let body = body(settings)?;
    let fixed = names(settings, "fixed").unwrap_or_default();
    let data = body.inputs().iter().filter(|t| t.role == Role::Data);
    let data: Vec<&str> = data.map(|terminal| &*terminal.name).collect();
    if let Some(unknown) = fixed.iter().find(|name| !data.contains(name)) {
        return unknown_input("Map", body, unknown, "fixed", &data).err();
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
