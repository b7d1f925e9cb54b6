//! Models to be trained: a model, the losses and regularizers that make its cost, and metrics.

use std::fmt;
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::Role;

use crate::block::{Block, Terminal, quoted};
use crate::blocks::build;
use crate::model::{Connection, Model, Source};
use crate::naming::{check_name, snake_case};

/// The output that is to be made small.
pub const COST: &str = "final_cost";

/// A model with what it is trained for. Its inputs, params and outputs keep their names; to its
/// outputs come `final_cost`, the combined losses plus the regularizers, and one for each metric.
///
/// ```
/// use mithril::{Model, TrainModel, block};
///
/// # fn main() -> mithril::Result<()> {
/// let model = Model::new();
/// model.extend(block!(Linear(dimension = 8))?)?;
/// model.extend(block!(Relu())?)?;
/// model.extend(block!(Linear(dimension = 2))?)?;
///
/// let mut train = TrainModel::new(&model.seal()?);
/// train.add_loss(block!(CrossEntropy())?, None, 1.0)?;
/// train.add_regularization(block!(L2())?, 0.01, "linear_0.w")?;
/// train.add_metric(block!(Accuracy())?, &[], None)?;
///
/// let block = train.block()?;
/// let outputs: Vec<&str> = block.outputs().iter().map(|o| &*o.name).collect();
/// assert_eq!(outputs, ["output", "final_cost", "accuracy"]);
/// assert!(block.inputs().iter().any(|i| &*i.name == "linear_0.w"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TrainModel {
    trained: Block,
    losses: Vec<Term>,
    regularizers: Vec<Regularizer>,
    metrics: Vec<(Arc<str>, Term)>,
    combiner: Option<Block>,
}

/// A loss or metric with its connections, and what reduces it, one block after another.
#[derive(Clone, Debug)]
struct Term {
    block: Block,
    steps: Vec<Block>,
    coef: f64,
}

/// A regularizer of several params.
#[derive(Clone, Debug)]
struct Regularizer {
    block: Block,
    coef: f64,
    names: Vec<Arc<str>>,
}

/// What is regularized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// The param, other input or output of this name.
    Name(String),
    /// All params whose names begin with a match of this regular expression, as Python's
    /// `re.match` finds it; `$` asks for the whole name.
    Pattern(String),
}

impl From<&str> for Select {
    fn from(name: &str) -> Select {
        Select::Name(name.to_string())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Select::Name(text) | Select::Pattern(text) => write!(f, "`{text}`"),
        }
    }
}

impl TrainModel {
    /// A model to be trained for what is added.
    pub fn new(trained: &Block) -> TrainModel {
        TrainModel {
            trained: trained.clone(),
            losses: Vec::new(),
            regularizers: Vec::new(),
            metrics: Vec::new(),
            combiner: None,
        }
    }

    /// Adds `coef` times a loss, made one number by `reduce_steps`, or by its mean. Of the loss's
    /// inputs that are not connected the standard one reads the model's standard output, and the
    /// others become inputs of their own names.
    /// Errors: "Terminal not found"; a loss that reads no output of the model.
    pub fn add_loss(
        &mut self,
        loss: Block,
        reduce_steps: Option<Vec<Block>>,
        coef: f64,
    ) -> Result<()> {
        let steps = match reduce_steps {
            Some(steps) => steps,
            None => vec![build("Mean", Vec::new(), Vec::new())?],
        };
        let term = self.judge("loss", loss, steps, coef)?;
        self.losses.push(term);
        Ok(())
    }

    /// Adds `coef` times the sum of a regularizer's values on what is selected.
    /// Errors: "Terminal not found"; a pattern that is none; a regularizer without standard input,
    /// or whose input is connected already.
    pub fn add_regularization(
        &mut self,
        regularizer: Block,
        coef: f64,
        select: impl Into<Select>,
    ) -> Result<()> {
        let names = self.selected(&select.into())?;
        // That it has a standard input, and a free one, is what connecting it says.
        regularizer.clone().input("selected")?;
        self.regularizers.push(Regularizer {
            block: regularizer,
            coef,
            names,
        });
        Ok(())
    }

    /// Adds a metric as an output of this name, by default its kind in snake case. It is connected
    /// as a loss is, and no part of the cost.
    /// Errors: those of [`TrainModel::add_loss`]; a name that is taken.
    pub fn add_metric(
        &mut self,
        metric: Block,
        reduce_steps: &[Block],
        name: Option<&str>,
    ) -> Result<()> {
        let name: Arc<str> = match name {
            Some(name) => name.into(),
            None => snake_case(metric.kind()).into(),
        };
        check_name(&name, "metric")?;
        let mut others = self.metrics.iter().map(|(n, _)| n);
        let inputs = self.trained.inputs().iter().map(|t| &t.name);
        let outputs = self.trained.outputs().iter().map(|o| &o.name);
        let what = if others.any(|n| *n == name) {
            "two metrics are"
        } else if *name == *COST || inputs.chain(outputs).any(|n| *n == name) {
            "a metric and a terminal of the model are"
        } else {
            let term = self.judge("metric", metric, reduce_steps.to_vec(), 1.0)?;
            self.metrics.push((name, term));
            return Ok(());
        };
        Diagnostic::new(format!("{what} called `{name}`"))
            .hint("give the metric its own `name`")
            .err()
    }

    /// Says how several losses become one: a block of one input, which is given all losses as one
    /// vector, of one list, or of as many inputs as there are losses. Their sum by default.
    /// Errors: no input, or not one output.
    pub fn set_loss_combiner(&mut self, combiner: Block) -> Result<()> {
        let inputs = needed(&combiner).count();
        let outputs = combiner.outputs();
        if inputs == 0 || outputs.len() != 1 || outputs[0].list.is_some() {
            return Diagnostic::new(format!("{} cannot combine losses", combiner.describe()))
                .got(format!("{inputs} inputs and {} outputs", outputs.len()))
                .expected("a block from losses to one number")
                .err();
        }
        self.combiner = Some(combiner);
        Ok(())
    }

    /// The model with its cost and metrics. Errors: there is no loss; a combiner of another number
    /// of inputs; what adding the blocks to a model says.
    pub fn model(&self) -> Result<Model> {
        let model = Model::of_kind("TrainModel");
        model.absorb(self.trained.clone())?;
        let mut cost = self.combined(&model)?;
        for regularizer in &self.regularizers {
            cost = cost.operate("+", regularizer.add_to(&model)?)?;
        }
        // A cost that is part of a loss already, or a name of the model, is given back once more.
        if cost.name().is_some() {
            cost = model.apply(build("Buffer", Vec::new(), Vec::new())?.input(cost)?)?;
        }
        for (name, metric) in &self.metrics {
            model.finish_with(&metric.add_to(&model)?, name)?;
        }
        model.finish_with(&cost, COST)?;
        model.set_shapes([(COST, Vec::new())])?;
        Ok(model)
    }

    /// The model with its cost and metrics as a block. Errors: those of [`TrainModel::model`].
    pub fn block(&self) -> Result<Block> {
        self.model()?.block()
    }

    fn combined(&self, model: &Model) -> Result<Connection> {
        let each = self.losses.iter().map(|loss| loss.add_to(model));
        let mut losses: Vec<Connection> = each.collect::<Result<_>>()?;
        let Some(combiner) = &self.combiner else {
            let mut losses = losses.into_iter();
            let Some(first) = losses.next() else {
                return no_loss(&self.trained);
            };
            return losses.try_fold(first, |sum, loss| sum.operate("+", loss));
        };
        if losses.is_empty() {
            return no_loss(&self.trained);
        }
        let terminals: Vec<&Terminal> = needed(combiner).collect();
        let list = |losses: Vec<Connection>| Source::from(losses);
        let given: Vec<(Arc<str>, Source)> = match &terminals[..] {
            [all] if all.list => vec![(all.name.clone(), list(losses))],
            [all] => {
                let stack = build("Stack", Vec::new(), Vec::new())?;
                let stack = stack.connect([("inputs", list(losses))])?;
                vec![(all.name.clone(), model.apply(stack)?.into())]
            }
            each if each.len() == losses.len() => {
                let names = each.iter().map(|t| t.name.clone());
                names.zip(losses.drain(..).map(Source::from)).collect()
            }
            each => {
                return Diagnostic::new(format!(
                    "the loss combiner {} has another number of inputs than there are losses",
                    combiner.describe()
                ))
                .got(format!("{} inputs, {} losses", each.len(), losses.len()))
                .expected("one input for all losses, or one for each")
                .err();
            }
        };
        model.apply(combiner.clone().connect(given)?)
    }

    /// A loss or metric, whose connections are checked and completed.
    fn judge(&self, what: &str, block: Block, steps: Vec<Block>, coef: f64) -> Result<Term> {
        let given = |name: &str| block.given().iter().any(|(n, _)| **n == *name);
        let mut added: Vec<(Arc<str>, Source)> = Vec::new();
        if let Some(input) = block.standard_input().filter(|t| !given(&t.name)) {
            let Some(output) = self.trained.standard_output() else {
                return Diagnostic::new(format!(
                    "the {what} {} needs to be told what it reads",
                    block.describe()
                ))
                .expected(format!("one of {}", quoted(&self.outputs())))
                .hint(format!("{}=…", input.name))
                .err();
            };
            added.push((input.name.clone(), Source::Name(output.name.clone())));
        }
        for terminal in needed(&block).filter(|t| !given(&t.name)) {
            if !added.iter().any(|(n, _)| *n == terminal.name) {
                added.push((terminal.name.clone(), Source::Name(terminal.name.clone())));
            }
        }
        let block = block.connect(added)?;
        let standard = block.standard_input().map(|t| t.name.clone());
        let outputs = self.outputs();
        for (terminal, source) in block.given() {
            if let (true, Source::Name(name)) = (Some(terminal) == standard.as_ref(), source) {
                self.found(name)?;
            }
        }
        let reads = |(_, source): &(Arc<str>, Source)| match source {
            Source::Name(name) => outputs.contains(name),
            _ => false,
        };
        if !block.given().iter().any(reads) {
            return Diagnostic::new(format!(
                "the {what} {} reads no output of the model",
                block.describe()
            ))
            .expected(format!("a connection to one of {}", quoted(&outputs)))
            .err();
        }
        Ok(Term { block, steps, coef })
    }

    fn outputs(&self) -> Vec<Arc<str>> {
        self.trained
            .outputs()
            .iter()
            .map(|o| o.name.clone())
            .collect()
    }

    fn selected(&self, select: &Select) -> Result<Vec<Arc<str>>> {
        let pattern = match select {
            Select::Name(name) => return Ok(vec![self.found(name)?]),
            Select::Pattern(pattern) => pattern,
        };
        let regex = match regex_lite::Regex::new(&format!("^(?:{pattern})")) {
            Ok(regex) => regex,
            Err(error) => {
                return Diagnostic::new("the pattern is no regular expression that is known here")
                    .got(format!("`{pattern}`: {error}"))
                    .hint("lookaround and backreferences are not; several calls can do their work")
                    .err();
            }
        };
        let params = self.trained.inputs().iter();
        let params = params.filter(|t| t.role == Role::Param).map(|t| &t.name);
        let names: Vec<Arc<str>> = params
            .clone()
            .filter(|n| regex.is_match(n))
            .cloned()
            .collect();
        if !names.is_empty() {
            return Ok(names);
        }
        let mut error = Diagnostic::new(format!(
            "Terminal not found: no param of {} matches {select}",
            self.trained.describe()
        ))
        .expected(few(params.collect()));
        error.hint = did_you_mean(pattern, self.names());
        error.err()
    }

    /// Inputs, params and outputs of the model.
    fn names(&self) -> impl Iterator<Item = &str> {
        let inputs = self.trained.inputs().iter().map(|t| &*t.name);
        inputs.chain(self.trained.outputs().iter().map(|o| &*o.name))
    }

    /// The terminal of this name. Errors: "Terminal not found".
    fn found(&self, name: &str) -> Result<Arc<str>> {
        if let Some(found) = self.names().find(|n| *n == name) {
            return Ok(found.into());
        }
        let mut error = Diagnostic::new(format!(
            "Terminal not found: {} has no terminal `{name}`",
            self.trained.describe()
        ))
        .expected(few(self.names().collect()));
        error.hint = did_you_mean(name, self.names());
        error.err()
    }
}

impl Term {
    /// Adds the block and what reduces it, times the coefficient.
    fn add_to(&self, model: &Model) -> Result<Connection> {
        let mut block = self.block.clone();
        for (_, source) in &mut block.given {
            resolve(model, source);
        }
        let mut value = model.apply(block)?;
        for step in &self.steps {
            value = model.apply(step.clone().input(value)?)?;
        }
        scaled(value, self.coef)
    }
}

impl Regularizer {
    /// Adds one block for each param; their sum, times the coefficient.
    fn add_to(&self, model: &Model) -> Result<Connection> {
        let each = self.names.iter().map(|name| {
            let mut block = self.block.clone().input(model.terminal(name)?)?;
            for (_, source) in &mut block.given {
                resolve(model, source);
            }
            model.apply(block)
        });
        let mut sum: Option<Connection> = None;
        for value in each {
            sum = Some(match sum {
                Some(sum) => sum.operate("+", value?)?,
                None => value?,
            });
        }
        match sum {
            Some(sum) => scaled(sum, self.coef),
            None => unreachable!("what selects nothing is an error"),
        }
    }
}

/// Names of terminals that are there become connections: those of params have dots, which new
/// names may not.
fn resolve(model: &Model, source: &mut Source) {
    if let Source::Name(name) = source {
        if let Ok(found) = model.terminal(name) {
            *source = Source::Connection(found);
        }
    }
}

fn scaled(value: Connection, coef: f64) -> Result<Connection> {
    match coef {
        1.0 => Ok(value),
        _ => value.operate("*", coef),
    }
}

/// The data inputs that a block needs.
fn needed(block: &Block) -> impl Iterator<Item = &Terminal> {
    let inputs = block.inputs().iter();
    inputs.filter(|t| t.role == Role::Data && !t.optional)
}

fn no_loss<T>(trained: &Block) -> Result<T> {
    Diagnostic::new(format!(
        "{} is to be trained without a loss",
        trained.describe()
    ))
    .hint("say what it is trained for with `add_loss`")
    .err()
}

/// The first of many names, quoted.
fn few<S: AsRef<str>>(names: Vec<S>) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "none: the model has no params".to_string(),
        n if n > SHOWN => format!("one of {}, … ({n})", quoted(&names[..SHOWN])),
        _ => format!("one of {}", quoted(&names)),
    }
}
