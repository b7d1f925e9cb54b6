//! Recurrent cells and layers.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::{Guard, Shape, unify};

use super::layers::{INIT, LAYER, USE_BIAS};
use super::parameter::{required, with};
use super::{Default, Entry, Group, Input, Kind, Output, Parameter, Value, data, out, param};
use crate::init::Init;
use crate::lower::Cx;

pub(super) const CELL: Entry = Entry { group: Group::Recurrent, ..LAYER };
pub(super) const DIMENSION: Parameter =
    required("dimension", Kind::Count).doc("the width of the hidden state");
pub(super) const ACTIVATION: Parameter =
    with("activation", Kind::OneOf(&["tanh", "relu"]), Default::Str("tanh"))
        .doc("the function of the sum");
pub(super) const RNN_PARAMETERS: &[Parameter] = &[DIMENSION, ACTIVATION, USE_BIAS, INIT];
pub(super) const PARAMETERS: &[Parameter] = &[DIMENSION, USE_BIAS, INIT];

/// The recurrence of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Recurrence {
    Rnn,
    Lstm,
    Gru,
}

impl Recurrence {
    /// The name of the function of a step.
    pub fn step(self) -> &'static str {
        match self {
            Recurrence::Rnn => "rnn_step",
            Recurrence::Lstm => "lstm_step",
            Recurrence::Gru => "gru_step",
        }
    }

    fn gates(self) -> i64 {
        match self {
            Recurrence::Rnn => 1,
            Recurrence::Lstm => 4,
            Recurrence::Gru => 3,
        }
    }
}

const HIDDEN: Input = data("hidden", Class::Float)
    .optional()
    .doc("the state before this step, (…, dimension); defaults to 0");
const INPUT: Input = data("input", Class::Float).doc("(…, features)");

const fn weights(gates: fn(&Cx) -> Result<Shape>) -> Input {
    param("w", Init::FanOf, gates).fan_of("u").takes_init()
}

const fn recurrent_weights(shape: fn(&Cx) -> Result<Shape>) -> Input {
    param("u", Init::FanIn, shape).takes_init()
}

const fn biases(shape: fn(&Cx) -> Result<Shape>) -> Input {
    param("b", Init::FanOf, shape).fan_of("u").when(|s| s.flag("use_bias"))
}

/// The params of each recurrence.
pub(super) const RNN_W: Input =
    weights(|cx| from_input(cx, Recurrence::Rnn)).doc("(features, dimension)");
pub(super) const RNN_U: Input =
    recurrent_weights(|cx| from_hidden(cx, Recurrence::Rnn)).doc("(dimension, dimension)");
pub(super) const RNN_B: Input = biases(|cx| gates(cx, Recurrence::Rnn)).doc("(dimension)");
pub(super) const LSTM_W: Input =
    weights(|cx| from_input(cx, Recurrence::Lstm)).doc("(features, 4 * dimension)");
pub(super) const LSTM_U: Input =
    recurrent_weights(|cx| from_hidden(cx, Recurrence::Lstm)).doc("(dimension, 4 * dimension)");
pub(super) const LSTM_B: Input = biases(|cx| gates(cx, Recurrence::Lstm)).doc("(4 * dimension)");
/// The params of an LSTM with a projection, which all start within the bound of its width.
pub(super) const PROJECTED_W: Input = Input { fan_of: Some("w_projection"), ..LSTM_W };
pub(super) const PROJECTED_U: Input =
    Input { init: Init::FanOf, fan_of: Some("w_projection"), ..LSTM_U };
pub(super) const PROJECTED_B: Input = Input { fan_of: Some("w_projection"), ..LSTM_B };
pub(super) const PROJECTION: Input =
    param("w_projection", Init::FanIn, |cx| Ok(Shape::new([width(cx), hidden_width(cx)])))
        .takes_init();
pub(super) const GRU_W: Input =
    weights(|cx| from_input(cx, Recurrence::Gru)).doc("(features, 3 * dimension)");
pub(super) const GRU_U: Input =
    recurrent_weights(|cx| from_hidden(cx, Recurrence::Gru)).doc("(dimension, 3 * dimension)");
pub(super) const GRU_B: Input = biases(|cx| gates(cx, Recurrence::Gru)).doc("(3 * dimension)");
pub(super) const GRU_B_NEW: Input =
    Input { name: "b_new", ..biases(|cx| Ok(Shape::new([width(cx)]))) }.doc("(dimension)");

pub(super) const NEXT_CELL: Output = out("next_cell");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "RNNCell",
        doc: "One step of a recurrent network: `activation(input @ w + hidden @ u + b)` (Elman \
              1990). All params start uniform within `1 / sqrt(dimension)`, as in \
              `torch.nn.RNNCell`, whose two biases are the one `b`; `init` is for `w` and `u`.",
        example: super::gives(&["[[1, 2]]"], "[[0.9951 0.    ]]")
            .with_settings("dimension=2")
            .with_params(&["[[1, 0], [1, 0]]", "[[0, 0], [0, 0]]", "[0, 0]"]),
        parameters: RNN_PARAMETERS,
        inputs: &[INPUT, HIDDEN, RNN_W, RNN_U, RNN_B],
        meaning: super::Meaning::Lower(|cx| cell(cx, Recurrence::Rnn)),
        ..CELL
    },
    Entry {
        name: "LSTMCell",
        doc: "One step of long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate \
              (Gers et al. 2000). `input @ w + hidden @ u + b` gives four gates, in the \
              order input, forget, cell, output; `next_cell = sigmoid(forget) * cell + \
              sigmoid(input) * tanh(cell gate)`, and `output = sigmoid(output gate) * \
              tanh(next_cell)` is the next `hidden`. All params start uniform within `1 / \
              sqrt(dimension)`, as in `torch.nn.LSTMCell`, whose two biases are the one `b`; \
              `init` is for `w` and `u`.",
        example: super::gives(&["np.ones((2, 3), \"float32\")"], "(2, 4) (2, 4)")
            .with_settings("dimension=4"),
        parameters: PARAMETERS,
        inputs: &[
            INPUT,
            HIDDEN,
            data("cell", Class::Float)
                .optional()
                .doc("the memory before this step, (…, dimension); defaults to 0"),
            LSTM_W,
            LSTM_U,
            LSTM_B,
        ],
        outputs: &[out("output"), NEXT_CELL],
        meaning: super::Meaning::Lower(|cx| cell(cx, Recurrence::Lstm)),
        ..CELL
    },
    Entry {
        name: "GRUCell",
        doc: "One step of a gated recurrent unit (Cho et al. 2014). Gates are in the order reset, \
              update, new: `new = tanh(input @ w_new + b + sigmoid(reset) * (hidden @ u_new + \
              b_new))`, and `output = (1 - sigmoid(update)) * new + sigmoid(update) * hidden` is \
              the next `hidden`. All params start uniform within `1 / sqrt(dimension)`, as in \
              `torch.nn.GRUCell`, whose biases of the reset and update gates are added in `b`; \
              `init` is for `w` and `u`.",
        example: super::gives(&["np.ones((2, 3), \"float32\")"], "(2, 4)")
            .with_settings("dimension=4"),
        parameters: PARAMETERS,
        inputs: &[INPUT, HIDDEN, GRU_W, GRU_U, GRU_B, GRU_B_NEW],
        meaning: super::Meaning::Lower(|cx| cell(cx, Recurrence::Gru)),
        ..CELL
    },
];

/// The width of the hidden state.
pub(super) fn width(cx: &Cx) -> Dim {
    Dim::Const(cx.int("dimension"))
}

/// The width of the hidden state, which is that of the projection of an LSTM with one.
pub(super) fn hidden_width(cx: &Cx) -> Dim {
    cx.settings.int("projection").map_or_else(|| width(cx), Dim::Const)
}

fn gates(cx: &Cx, kind: Recurrence) -> Result<Shape> {
    Ok(Shape::new([width(cx) * Dim::Const(kind.gates())]))
}

fn from_input(cx: &Cx, kind: Recurrence) -> Result<Shape> {
    Ok(Shape::new([cx.last_dim("input")?, width(cx) * Dim::Const(kind.gates())]))
}

fn from_hidden(cx: &Cx, kind: Recurrence) -> Result<Shape> {
    Ok(Shape::new([hidden_width(cx), width(cx) * Dim::Const(kind.gates())]))
}

/// The state input of this name. Errors: another width than the block's.
fn state_of<'a>(cx: &Cx<'a>, name: &str) -> Result<Option<Var<'a>>> {
    let Some(state) = cx.optional(name) else { return Ok(None) };
    let mut guards: Vec<Guard> = Vec::new();
    if unify(&cx.last_dim(name)?, &width(cx), &mut guards).is_none() {
        return Diagnostic::of(ErrorKind::Shapes, format!("`{name}` has the wrong width"))
            .got(state.shape())
            .expected(format!("a last dim of {}, the `dimension` of the block", width(cx)))
            .err();
    }
    cx.builder.add_guards(guards);
    Ok(Some(state))
}

fn cell(cx: &Cx, kind: Recurrence) -> Result<Vec<Value>> {
    let (hidden, cell) = (state_of(cx, "hidden")?, state_of(cx, "cell")?);
    let product = cx.var("input").matmul(cx.var("w"));
    let sum = cx.optional("b").map_or(product, |b| product + b);
    let step = Step {
        kind,
        width: cx.int("dimension"),
        is_relu: cx.text("activation") == "relu",
        sum,
        hidden,
        cell,
        u: cx.var("u"),
        b_new: cx.optional("b_new"),
        projection: None,
    };
    Ok(step.next().into_iter().map(|value| value.value).collect())
}

/// The values that a step reads.
pub(super) struct Step<'a> {
    pub kind: Recurrence,
    pub width: i64,
    pub is_relu: bool,
    /// `input @ w + b`.
    pub sum: Var<'a>,
    /// `None`: zero.
    pub hidden: Option<Var<'a>>,
    pub cell: Option<Var<'a>>,
    pub u: Var<'a>,
    pub b_new: Option<Var<'a>>,
    /// The matrix that the hidden state of an LSTM is multiplied by.
    pub projection: Option<Var<'a>>,
}

impl<'a> Step<'a> {
    /// The next hidden state; for an LSTM, then the next memory.
    pub fn next(&self) -> Vec<Var<'a>> {
        match self.kind {
            Recurrence::Rnn => {
                let activation = if self.is_relu { "relu" } else { "tanh" };
                vec![self.recurrent_sum().unary(activation, &[])]
            }
            Recurrence::Lstm => self.lstm(),
            Recurrence::Gru => vec![self.gru()],
        }
    }

    fn recurrent_sum(&self) -> Var<'a> {
        self.hidden.map_or(self.sum, |hidden| self.sum + hidden.matmul(self.u))
    }

    /// The part of a gate.
    fn gate(&self, of: Var<'a>, at: i64) -> Var<'a> {
        let bounds = [at, at + 1].map(|at| Shape::new([Dim::Const(at * self.width)]));
        let [starts, limits] = bounds;
        let axes: &[i64] = &[-1];
        let attrs = [("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())];
        of.unary("slice", &attrs)
    }

    fn lstm(&self) -> Vec<Var<'a>> {
        let sum = self.recurrent_sum().named("gates");
        let gate = |at: i64, function: &str| self.gate(sum, at).unary(function, &[]);
        let added = gate(0, "sigmoid") * gate(2, "tanh");
        let cell = self.cell.map_or(added, |cell| gate(1, "sigmoid") * cell + added);
        let cell = cell.named("next_cell");
        let hidden = gate(3, "sigmoid") * cell.unary("tanh", &[]);
        vec![self.projection.map_or(hidden, |projection| hidden.matmul(projection)), cell]
    }

    fn gru(&self) -> Var<'a> {
        let product = self.hidden.map(|hidden| hidden.matmul(self.u).named("product"));
        let sum = |at: i64| {
            let own = self.gate(self.sum, at);
            product.map_or(own, |product| own + self.gate(product, at))
        };
        let product = product.map(|product| self.gate(product, 2));
        let recurrent = match (product, self.b_new) {
            (Some(product), Some(b)) => Some(product + b),
            (product, b) => product.or(b),
        };
        let own = self.gate(self.sum, 2);
        let reset = || sum(0).unary("sigmoid", &[]).named("reset");
        let new = recurrent.map_or(own, |recurrent| own + reset() * recurrent);
        let new = new.unary("tanh", &[]).named("new");
        let update = sum(1).unary("sigmoid", &[]).named("update");
        match self.hidden {
            Some(hidden) => new + update * (hidden - new),
            None => new - update * new,
        }
    }
}
