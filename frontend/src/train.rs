//! Models to be trained: a model with losses, regularizers and metrics, and their total.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::Role;

use crate::block::Block;
use crate::blocks::build;
use crate::model::{Connection, Model, Source};
use crate::setting::Setting;

/// A model and what it is to be trained for. Its params and outputs keep their names, and
/// `final_cost` is the combined losses plus the regularizers.
pub struct TrainModel {
    model: Model,
    losses: Vec<Connection>,
    regularizers: Vec<Connection>,
    combiner: Option<Block>,
}

/// What a loss is made of beside its block.
pub struct Loss {
    /// Blocks from the loss of each element to a scalar, one after another.
    pub reduce_steps: Vec<Block>,
    pub coef: f64,
    /// The output of the model that is judged.
    pub input: String,
    /// The new input it is compared with.
    pub target: String,
}

impl Default for Loss {
    /// The mean of all elements, of `output` against `target`.
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

impl TrainModel {
    /// A copy of the model, to be trained. Errors: those of [`Model::block`].
    pub fn new(model: &Block) -> Result<TrainModel> {
        Ok(TrainModel {
            model: Model::from_block(model)?,
            losses: Vec::new(),
            regularizers: Vec::new(),
            combiner: None,
        })
    }

    /// The model as it stands, to be read and extended.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds `coef` times a loss, reduced by `reduce_steps`. The loss is connected by its first two
    /// inputs. Errors: "Terminal not found"; a loss with fewer inputs.
    pub fn add_loss(&mut self, loss: Block, how: Loss) -> Result<()> {
        self.model.expose(&how.input)?;
        let given = vec![how.input.as_str().into(), how.target.as_str().into()];
        let mut value = self.model.apply(loss.connect_in_order(given)?)?;
        for step in how.reduce_steps {
            value = self.model.apply(step.input(&value)?)?;
        }
        let value = scaled(value, how.coef)?;
        self.losses.push(value);
        Ok(())
    }

    /// Adds `coef` times a regularizer of the input or param of this name.
    /// Errors: "Terminal not found".
    pub fn add_regularization(&mut self, regularizer: Block, coef: f64, key: &str) -> Result<()> {
        let input = self.model.learned(key)?;
        let value = self.model.apply(regularizer.input(input)?)?;
        self.regularizers.push(scaled(value, coef)?);
        Ok(())
    }

    /// Adds `coef` times a regularizer of every param whose name is chosen, such as by a regular
    /// expression. Errors: none is chosen.
    pub fn add_regularization_where(
        &mut self,
        regularizer: &Block,
        coef: f64,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let block = self.model.block()?;
        let params = block.inputs().iter().filter(|t| t.role == Role::Param);
        let names: Vec<Arc<str>> = params.map(|t| t.name.clone()).collect();
        let keys: Vec<&Arc<str>> = names.iter().filter(|n| chosen(n)).collect();
        if keys.is_empty() {
            return Diagnostic::new("Terminal not found: no param fits the pattern")
                .expected(crate::block::quoted(&names))
                .err();
        }
        for key in keys {
            self.add_regularization(regularizer.clone(), coef, key)?;
        }
        Ok(())
    }

    /// Adds a metric, as an output. Errors: "Terminal not found"; a name that is taken.
    pub fn add_metric(
        &mut self,
        metric: Block,
        reduce_steps: Vec<Block>,
        input: &str,
        target: &str,
        name: &str,
    ) -> Result<()> {
        self.model.expose(input)?;
        let mut block = metric.connect_in_order(vec![input.into(), target.into()])?;
        let last = reduce_steps.len();
        for (i, step) in reduce_steps.into_iter().enumerate() {
            debug_assert!(i < last);
            let value = self.model.apply(block)?;
            block = step.input(&value)?;
        }
        self.model.connect(block.output(name)?)
    }

    /// Says how the losses, as one list, become one number; their sum by default.
    pub fn set_loss_combiner(&mut self, combiner: Block) {
        self.combiner = Some(combiner);
    }

    /// The model with its total as the output `final_cost`. Errors: there is no loss.
    pub fn finish(&self) -> Result<Block> {
        let Some(first) = self.losses.first() else {
            return Diagnostic::new("the model to be trained has no loss")
                .hint("add one with `add_loss`")
                .err();
        };
        // What is added here must not be added again by a second call.
        let model = self.model.copy();
        let here = |c: &Connection| model.same(c);
        let mut total = match (&self.combiner, self.losses.len()) {
            (None, 1) => here(first),
            (combiner, _) => {
                let list: Vec<Source> = self.losses.iter().map(|c| here(c).into()).collect();
                let stack = build("Stack", Vec::new(), vec![("axis", Setting::Int(0))])?;
                let stack = model.apply(stack.connect([("inputs", Source::List(list))])?)?;
                let sum = || build("Sum", Vec::new(), Vec::new());
                let combiner = combiner.clone().map_or_else(sum, Ok)?;
                model.apply(combiner.input(&stack)?)?
            }
        };
        for regularizer in &self.regularizers {
            total = total.operate("+", here(regularizer))?;
        }
        let cost = build("Buffer", Vec::new(), Vec::new())?.input(&total)?;
        model.connect(cost.output("final_cost")?)?;
        model.block()
    }
}

fn scaled(value: Connection, coef: f64) -> Result<Connection> {
    match coef {
        1.0 => Ok(value),
        _ => value.operate("*", coef),
    }
}

impl Model {
    /// The input of this name: a terminal, or what a block inside learns by its path.
    /// Errors: "Terminal not found".
    pub fn learned(&self, key: &str) -> Result<Connection> {
        if let Ok(found) = self.terminal(key) {
            return Ok(found);
        }
        if let Some(found) = self.open_port(key)? {
            return Ok(found);
        }
        let block = self.block()?;
        let mut error = Diagnostic::new(format!(
            "Terminal not found: `{}` has no input `{key}`",
            block.kind()
        ));
        error.hint = did_you_mean(key, block.inputs().iter().map(|t| &*t.name));
        error.err()
    }
}
