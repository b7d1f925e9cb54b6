//! Models for training: a model, losses and regularizers that form its cost, and metrics.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;

use crate::block::{Block, quoted};
use crate::blocks::{Range, build};
use crate::definition::Terminal;
use crate::model::{Connection, Model, Source};

mod reduction;

pub use reduction::WEIGHT;
use reduction::reduced;

/// The name of the output that training minimizes.
pub const COST: &str = "final_cost";

/// A model with its training objective. Its inputs, params and outputs keep their names. Added
/// outputs are `final_cost`, the combined losses plus the regularizers, and one for each metric.
///
/// ```
/// use mithril_model::{Loss, Model, TrainModel, block};
///
/// # fn main() -> mithril_ir::diagnostic::Result<()> {
/// let model = Model::new();
/// model.extend(block!(Linear(dimension = 8))?)?;
/// model.extend(block!(Relu())?)?;
/// model.extend(block!(Linear(dimension = 2))?)?;
///
/// let mut train = TrainModel::new(&model.seal()?)?;
/// train.add_loss(block!(CrossEntropy())?, Loss::default())?;
/// train.add_regularization(block!(L2())?, 0.01, "linear_0.w")?;
/// train.add_metric(block!(Accuracy())?, vec![], "output", "target", "accuracy")?;
///
/// let block = train.finish()?;
/// let outputs: Vec<&str> = block.outputs().iter().map(|o| &*o.name).collect();
/// assert_eq!(outputs, ["output", "accuracy", "final_cost"]);
/// assert!(block.inputs().iter().any(|i| &*i.name == "linear_0.w"));
/// # Ok(())
/// # }
/// ```
pub struct TrainModel {
    trained: Block,
    model: Model,
    losses: Vec<Term>,
    regularizers: Vec<Term>,
    metrics: Vec<String>,
    combiner: Option<Block>,
    /// The finished block, once the model has been used as a block.
    sealed: Option<Block>,
}

/// A term of the cost.
struct Term {
    /// The value of a loss or of regularizers.
    value: Connection,
    /// The value times its coefficient.
    scaled: Connection,
}

/// The arguments of a loss, except its block.
pub struct Loss {
    /// Blocks that reduce the elementwise loss to a scalar, in order.
    pub reduce_steps: Vec<Block>,
    pub coef: f64,
    /// The output of the model that the loss evaluates.
    pub input: String,
    /// The terminal to compare with: a new input, or any terminal of the model.
    pub target: String,
}

impl Default for Loss {
    /// The mean over all elements of the loss of `output` against `target`.
    fn default() -> Loss {
        let mean = build("Mean", Vec::new(), Vec::new());
        Loss {
            reduce_steps: mean.into_iter().collect(),
            coef: 1.0,
            input: "output".into(),
            target: "target".into(),
        }
    }
}

/// Selects the values to regularize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// The param, other input or output of this name.
    Name(String),
    /// All params whose names match this regular expression anywhere, as with Python's `re.search`;
    /// `^` and `$` anchor it.
    Pattern(String),
}

impl From<&str> for Select {
    fn from(name: &str) -> Select {
        Select::Name(name.to_string())
    }
}

impl From<&String> for Select {
    fn from(name: &String) -> Select {
        Select::Name(name.clone())
    }
}

impl TrainModel {
    /// The model with its existing params, prepared for training. Errors: those of
    /// [`Model::block`].
    pub fn new(model: &Block) -> Result<TrainModel> {
        // A custom gradient covers only the model, not the losses, so the model is kept as a nested
        // block.
        let model = match &model.gradient {
            Some(_) => Model::wrapping(model)?,
            None => Model::from_block(model)?,
        };
        Ok(TrainModel {
            trained: model.block()?,
            model,
            losses: Vec::new(),
            regularizers: Vec::new(),
            metrics: Vec::new(),
            combiner: None,
            sealed: None,
        })
    }

    /// The model that is trained, without losses, metrics or targets.
    pub fn trained(&self) -> &Block {
        &self.trained
    }

    /// The model with its cost as a block of another model. Afterwards, nothing can be added.
    /// Errors: those of [`TrainModel::finish`].
    pub fn seal(&mut self) -> Result<Block> {
        if self.sealed.is_none() {
            self.sealed = Some(self.finish()?);
        }
        self.finish()
    }

    /// Checks that the model can still be changed. Errors: it has been used as a block.
    fn check_open(&self) -> Result<()> {
        if self.sealed.is_none() {
            return Ok(());
        }
        Diagnostic::of(
            ErrorKind::ModelInUse,
            "`TrainModel` has been used as a block and can no longer be changed",
        )
        .hint("add losses, regularizers and metrics before it is used")
        .err()
    }

    /// The model in its current state, without its cost.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds `coef` times a loss, reduced by `reduce_steps`. If the loss has a [`WEIGHT`] output in
    /// addition to its standard output, a `Mean` divides by the sum of the weights. Of the loss's
    /// required inputs that are not connected, the first reads `input`, and the one called `target`,
    /// or else the second, reads `target`; the others become inputs with their own names. Errors: "Terminal not found"; a loss that reads
    /// no output of the model.
    pub fn add_loss(&mut self, loss: Block, how: Loss) -> Result<()> {
        self.check_open()?;
        let model = self.model.fork();
        let loss = self.connect_criterion(&model, "loss", loss, &how.input, &how.target)?;
        let value = model.apply(reduced(&model, loss, how.reduce_steps)?)?;
        self.losses.push(Term::new(value, how.coef)?);
        self.model = model;
        Ok(())
    }

    /// Adds `coef` times the sum of a regularizer's values for all selected params. Errors:
    /// "Terminal not found"; an invalid pattern; a regularizer whose standard input is already
    /// connected.
    pub fn add_regularization(
        &mut self,
        regularizer: Block,
        coef: f64,
        select: impl Into<Select>,
    ) -> Result<()> {
        self.check_open()?;
        let pattern = match select.into() {
            Select::Name(name) => {
                let name = self.resolve_name(&name)?;
                return self.regularize(&regularizer, coef, &[name]);
            }
            Select::Pattern(pattern) => pattern,
        };
        let regex = match regex_lite::Regex::new(&pattern) {
            Ok(regex) => regex,
            Err(error) => {
                return Diagnostic::new("the pattern is not a supported regular expression")
                    .got(format!("`{pattern}`: {error}"))
                    .hint("use several calls in place of lookaround and backreferences")
                    .err();
            }
        };
        self.regularize_matching(&regularizer, coef, Some(&pattern), |name| regex.is_match(name))
    }

    /// Adds `coef` times the sum of a regularizer's values for all params whose names the predicate
    /// accepts. Errors: it accepts none; those of [`TrainModel::add_regularization`].
    pub fn add_regularization_where(
        &mut self,
        regularizer: &Block,
        coef: f64,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.check_open()?;
        self.regularize_matching(regularizer, coef, None, chosen)
    }

    /// Adds a metric as the output `name`. It is connected like a loss but is not part of the cost.
    /// Errors: those of [`TrainModel::add_loss`]; a name that is taken.
    pub fn add_metric(
        &mut self,
        metric: Block,
        reduce_steps: Vec<Block>,
        input: &str,
        target: &str,
        name: &str,
    ) -> Result<()> {
        self.check_open()?;
        let taken = if self.metrics.iter().any(|n| n == name) {
            Some("two metrics are")
        } else if name == COST || self.names().any(|n| n == name) {
            Some("a metric and a terminal of the model are")
        } else {
            None
        };
        if let Some(what) = taken {
            return Diagnostic::new(format!("{what} called `{name}`"))
                .hint("give the metric its own `name`")
                .err();
        }
        let model = self.model.fork();
        let metric = self.connect_criterion(&model, "metric", metric, input, target)?;
        let block = reduced(&model, metric, reduce_steps)?;
        model.connect(block.output(name)?)?;
        self.metrics.push(name.to_string());
        self.model = model;
        Ok(())
    }

    /// Sets how several losses are combined. The combiner has one input that takes a vector of all
    /// losses, one list input, or as many inputs as there are losses. By default, losses are
    /// summed. Errors: it has been used as a block.
    pub fn set_loss_combiner(&mut self, combiner: Block) -> Result<()> {
        self.check_open()?;
        self.combiner = Some(combiner);
        Ok(())
    }

    /// The model with the total cost as the output `final_cost`. Errors: there is no loss; a
    /// combiner with a wrong number of inputs or outputs.
    pub fn finish(&self) -> Result<Block> {
        if let Some(block) = &self.sealed {
            return Ok(block.clone());
        }
        // Works on a fork, so that a second call does not add blocks twice.
        let model = self.model.fork();
        let mut total = self.combined(&model)?;
        for regularizer in &self.regularizers {
            total = total.operate("+", regularizer.scaled_scalar(&model)?)?;
        }
        let cost = build("Buffer", Vec::new(), Vec::new())?.input(&total)?;
        model.connect(cost.output(COST)?)?;
        model.set_shapes([(COST, Vec::new())])?;
        model.block()
    }

    fn combined(&self, model: &Model) -> Result<Connection> {
        let scalars = self.combiner.is_none();
        let losses = self.losses.iter().map(|loss| match scalars {
            true => loss.scaled_scalar(model),
            false => Ok(model.corresponding(&loss.scaled)),
        });
        let mut losses: Vec<Connection> = losses.collect::<Result<_>>()?;
        if losses.is_empty() {
            return Diagnostic::of(ErrorKind::Training, "the model to be trained has no loss")
                .hint("add one with `add_loss`")
                .err();
        }
        let Some(combiner) = &self.combiner else {
            let first = losses.remove(0);
            return losses.into_iter().try_fold(first, |sum, loss| sum.operate("+", loss));
        };
        let inputs: Vec<&Terminal> = required_inputs(combiner).collect();
        let given: Vec<(Arc<str>, Source)> = match &inputs[..] {
            _ if combiner.outputs().len() != 1 || combiner.outputs()[0].list.is_some() => {
                return no_combiner(combiner, inputs.len(), losses.len());
            }
            [all] if all.list => vec![(all.name.clone(), losses.into())],
            [all] => {
                let stack = build("Stack", Vec::new(), Vec::new())?;
                let stack = stack.connect([("inputs", Source::from(losses))])?;
                vec![(all.name.clone(), model.apply(stack)?.into())]
            }
            each if each.len() == losses.len() => {
                let names = each.iter().map(|t| t.name.clone());
                names.zip(losses.into_iter().map(Source::from)).collect()
            }
            each => return no_combiner(combiner, each.len(), losses.len()),
        };
        let combined = model.apply(combiner.clone().connect(given)?)?;
        model.set_scalar(&combined)?;
        Ok(combined)
    }

    /// Connects a loss or metric to `model`: checks the given connections and adds the missing
    /// ones.
    fn connect_criterion(
        &self,
        model: &Model,
        what: &str,
        block: Block,
        input: &str,
        target: &str,
    ) -> Result<Block> {
        let given = |t: &&Terminal| block.given.iter().any(|(n, _)| *n == t.name);
        let missing = required_inputs(&block).filter(|t| !given(t));
        let mut missing: Vec<Arc<str>> = missing.map(|t| t.name.clone()).collect();
        if let Some(at) = missing.iter().skip(1).position(|name| **name == *"target") {
            missing[1..=at + 1].rotate_right(1);
        }
        let defaults = missing.into_iter().zip([input, target]);
        let added: Vec<(Arc<str>, Source)> = defaults.map(|(t, n)| (t, n.into())).collect();
        let mut block = block.connect(added)?;
        let standard = block.standard_input().map(|t| t.name.clone());
        let outputs: Vec<Arc<str>> =
            self.trained.outputs().iter().map(|o| o.name.clone()).collect();
        let mut reads = false;
        for (terminal, source) in &mut block.given {
            let Source::Name(name) = source else { continue };
            if Some(&*terminal) == standard.as_ref() {
                self.resolve_name(name)?;
            }
            reads |= outputs.contains(name);
            let known = self.names().any(|n| *n == **name);
            if outputs.contains(name) {
                model.expose(name)?;
            }
            if known {
                *source = model.learned(name)?.into();
            }
        }
        if !reads {
            return Diagnostic::of(
                ErrorKind::Training,
                format!("the {what} {} reads no output of the model", block.describe()),
            )
            .expected(format!("a connection to one of {}", quoted(&outputs)))
            .err();
        }
        Ok(block)
    }

    fn regularize_matching(
        &mut self,
        regularizer: &Block,
        coef: f64,
        pattern: Option<&str>,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let params = self.trained.inputs().iter();
        let params = params.filter(|t| t.role == Role::Param).map(|t| &t.name);
        let names: Vec<Arc<str>> = params.clone().filter(|n| chosen(n)).cloned().collect();
        if !names.is_empty() {
            return self.regularize(regularizer, coef, &names);
        }
        let shown = pattern.map_or("the pattern".to_string(), |p| format!("`{p}`"));
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("no param of {} matches {shown}", self.trained.describe()),
        )
        .expected(some_names(params.collect()));
        error.hint = pattern.and_then(|p| did_you_mean(p, self.names()));
        error.err()
    }

    fn regularize(&mut self, regularizer: &Block, coef: f64, names: &[Arc<str>]) -> Result<()> {
        let model = self.model.fork();
        let mut sum: Option<Connection> = None;
        for name in names {
            let value = model.apply(regularizer.clone().input(model.learned(name)?)?)?;
            sum = Some(match sum {
                Some(sum) => sum.operate("+", value)?,
                None => value,
            });
        }
        if let Some(sum) = sum {
            self.regularizers.push(Term::new(sum, coef)?);
        }
        self.model = model;
        Ok(())
    }

    /// The names of the model's inputs, params and outputs.
    fn names(&self) -> impl Iterator<Item = &str> {
        let inputs = self.trained.inputs().iter().map(|t| &*t.name);
        inputs.chain(self.trained.outputs().iter().map(|o| &*o.name))
    }

    /// Looks up a terminal of the trained model. Errors: "Terminal not found".
    fn resolve_name(&self, name: &str) -> Result<Arc<str>> {
        if let Some(found) = self.names().find(|n| *n == name) {
            return Ok(found.into());
        }
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("{} has no terminal `{name}`", self.trained.describe()),
        )
        .expected(some_names(self.names().collect()));
        error.hint = did_you_mean(name, self.names());
        error.err()
    }
}

impl Term {
    /// A value with its coefficient. Errors: a coefficient that is infinite or NaN.
    fn new(value: Connection, coef: f64) -> Result<Term> {
        if !Range::Finite.holds(coef) {
            let error = Diagnostic::of(ErrorKind::Setting, "`coef` is out of range")
                .got(format!("{coef:?}"));
            return error.expected(Range::Finite.name()).err();
        }
        let scaled = match coef {
            1.0 => value.clone(),
            _ => value.operate("*", coef)?,
        };
        Ok(Term { value, scaled })
    }

    /// The scaled value of the term in a fork of the model. The value is required to be a scalar.
    fn scaled_scalar(&self, model: &Model) -> Result<Connection> {
        model.set_scalar(&model.corresponding(&self.value))?;
        Ok(model.corresponding(&self.scaled))
    }
}

/// The required data inputs of a block.
fn required_inputs(block: &Block) -> impl Iterator<Item = &Terminal> {
    let inputs = block.inputs().iter();
    inputs.filter(|t| t.role == Role::Data && !t.optional)
}

fn no_combiner<T>(combiner: &Block, inputs: usize, losses: usize) -> Result<T> {
    let outputs = match combiner.outputs() {
        [only] if only.list.is_some() => "a list".to_string(),
        all => all.len().to_string(),
    };
    Diagnostic::of(
        ErrorKind::Training,
        format!("{} cannot combine the losses", combiner.describe()),
    )
    .got(format!("inputs: {inputs}, outputs: {outputs}, losses: {losses}"))
    .expected("one input for all losses or one for each, and one output")
    .err()
}

/// The first few names, quoted.
fn some_names<S: AsRef<str>>(names: Vec<S>) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "none: the model has no params".to_string(),
        n if n > SHOWN => format!("one of {}, … ({n})", quoted(&names[..SHOWN])),
        _ => format!("one of {}", quoted(&names)),
    }
}

impl Model {
    /// Looks up an input: a terminal, or a param of a nested block by its path. Errors: "Terminal
    /// not found".
    pub fn learned(&self, key: &str) -> Result<Connection> {
        if let Ok(found) = self.terminal(key) {
            return Ok(found);
        }
        if let Some(found) = self.connect_param(key)? {
            return Ok(found);
        }
        let block = self.block()?;
        let mut error =
            Diagnostic::of(ErrorKind::Terminal, format!("`{}` has no input `{key}`", block.kind()));
        error.hint = did_you_mean(key, block.inputs().iter().map(|t| &*t.name));
        error.err()
    }
}
