//! How a model is divided over a device mesh, and what that costs.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Role, Value};
use mithril_passes::autodiff::Autodiff;
use mithril_passes::batch_scans::BatchScans;
use mithril_passes::canonicalize::Canonicalize;
use mithril_passes::checkpoint::Checkpoint;
use mithril_passes::cse::Cse;
use mithril_passes::dce::Dce;
use mithril_passes::driver::Driver;
use mithril_passes::inline::Inline;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Limit;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::select_bodies::SelectBodies;
use mithril_passes::shard::attention::PLANNED;
use mithril_passes::shard::blocks::{BlockBill, of_blocks};
use mithril_passes::shard::layout::{Layout, Mesh};
use mithril_passes::shard::machine::Machine;
use mithril_passes::shard::picture::Picture;
use mithril_passes::shard::problem::{Problem, params_with_gradients, repeats};
use mithril_passes::shard::residuals::{ConstrainResiduals, Residual, open_values};
use mithril_passes::shard::search::{Plan, does_not_fit, evaluate, search};
use mithril_passes::shard::shorten::{Shorten, alike};
use mithril_passes::shard::unmerge::Unmerge;
use mithril_passes::specialise::Specialise;
use rustc_hash::FxHashSet;

use super::{Program, entry};

/// How often a search is repeated whose plan needs too much memory, with a smaller limit.
const RETRIES: usize = 3;
/// What is left of the limit each time, beyond the error of the estimate.
const MARGIN: f64 = 0.95;
/// Repeated blocks of fewer operations are looked at as often as they occur.
const LAYER: usize = 12;

/// A mesh to divide a model over.
#[derive(Clone, Debug)]
pub struct ShardingRequest {
    pub mesh: Mesh,
    pub machine: Machine,
    /// The bytes that a device may use; `None`: those that it has.
    pub memory: Option<f64>,
    /// The number of arrays as large as the params that the optimizer keeps.
    pub optimizer_states: f64,
    /// By name of a param or input: mesh axes with the axes that they divide.
    pub given: Vec<(String, Vec<(String, i64)>)>,
    /// The same for residual values.
    pub residuals: Vec<Residual>,
    /// The sizes of dims without numbers.
    pub dims: Vec<(String, i64)>,
}

/// Layouts of a model's arguments, and what they cost.
#[derive(Clone, Debug)]
pub struct Sharding {
    pub request: ShardingRequest,
    /// Params and inputs with their layouts.
    pub arguments: Vec<(Arc<str>, Layout)>,
    /// The layouts of residual values that are decided, by shape.
    pub residuals: Vec<(Vec<i64>, Layout)>,
    /// The cost of each block, the whole model first.
    pub blocks: Vec<BlockBill>,
    /// The bytes that a device uses at most.
    pub memory: f64,
    /// The number of layouts of the whole model that were compared.
    pub compared: usize,
    /// The whole step, and the layouts of its values.
    step: Arc<Function>,
    values: Vec<Layout>,
}

impl Sharding {
    /// A picture of the blocks down to `depth` in the language of Graphviz, colored by layout.
    pub fn dot(&self, depth: usize) -> String {
        let (function, mesh) = (&*self.step, &self.request.mesh);
        Picture { function, mesh, values: &self.values, blocks: &self.blocks }.dot(depth)
    }
}

impl ShardingRequest {
    /// The bytes that a device may use.
    fn limit(&self) -> f64 {
        self.memory.unwrap_or(self.machine.memory)
    }
}

impl Program {
    /// Chooses layouts of params and inputs that take the least time on a machine, and fit into its
    /// memory.
    ///
    /// Errors: dims without a number; names and axes that do not exist; layouts that do not fit; no
    /// layout fits into the memory.
    pub fn propose_sharding(&self, request: &ShardingRequest) -> Result<Sharding> {
        let layers = Layers::of(self, request)?;
        let (short, limit) = (layers.step(true)?, request.limit());
        let given = layers.given(&short)?;
        let mut found = layers.found(&short, &given, limit)?;
        // The whole model may need more than the estimate of a short one.
        let mut allowed = limit;
        for _ in 0..RETRIES {
            if found.memory <= limit {
                return Ok(found);
            }
            allowed *= MARGIN * limit / found.memory;
            let needed = found.memory;
            let again = layers.found(&short, &given, allowed);
            found = again.map_err(|_| does_not_fit(&request.mesh, needed, limit))?;
        }
        match found.memory <= limit {
            true => Ok(found),
            false => Err(does_not_fit(&request.mesh, found.memory, limit)),
        }
    }

    /// What the given layouts cost. Layouts of other params and inputs follow from them.
    ///
    /// Errors: as for [`Program::propose_sharding`], except that of the memory.
    pub fn explain_sharding(&self, request: &ShardingRequest) -> Result<Sharding> {
        let layers = Layers::of(self, request)?;
        let whole = layers.step(false)?;
        let plan =
            layers.solved(&whole, &layers.given(&whole)?, &mut |problem| evaluate(problem))?;
        layers.priced(layers.decided(&whole, &plan), 1)
    }
}

/// A model whose repeated blocks are functions.
struct Layers<'a> {
    request: &'a ShardingRequest,
    module: Module,
    /// Whether a step computes gradients.
    gradients: bool,
    /// How many functions gradients recompute.
    recomputed: Limit,
    /// The arguments, by number, that are divided alike.
    alike: Vec<Vec<usize>>,
}

impl Layers<'_> {
    fn of<'a>(program: &Program, request: &'a ShardingRequest) -> Result<Layers<'a>> {
        program.functions()?;
        let (module, shapes) = &program.logical;
        let mut shapes = shapes.clone();
        let dims = request.dims.iter().map(|(name, size)| (name.clone(), Dim::Const(*size)));
        shapes.symbols.extend(dims);
        let learns = entry(module)?.args.iter().any(|arg| arg.role == Role::Param);
        let gradients = program.recipe.training && learns;
        let pipeline = Pipeline::default()
            .then(SelectBodies { target: *PLANNED, gradients })
            .then(Specialise { shapes, ..Specialise::default() })
            .then(ConstrainResiduals::default())
            .then(BatchScans::default())
            .then(Inline { repeated: Limit::At(LAYER), ..Inline::default() });
        let (module, _) = Driver::default().run(&pipeline, module)?;
        let function = entry(&module)?;
        let mut alike = alike(&module, function)?;
        let is_divided =
            |at: &usize| matches!(function.args[*at].role, Role::Param | Role::Data | Role::State);
        alike.iter_mut().for_each(|group| group.retain(is_divided));
        alike.retain(|group| !group.is_empty());
        let recomputed = program.recipe.optimization.checkpoint;
        Ok(Layers { request, module, gradients, recomputed, alike })
    }

    /// The primitives and attentions of a training step, or of the forward pass where nothing is
    /// trained. `short` leaves out all but two of equal layers, or three.
    fn step(&self, short: bool) -> Result<Arc<Function>> {
        let target = *PLANNED;
        let mut pipeline = Pipeline::default();
        if short {
            pipeline = pipeline.then(Shorten { last: self.recomputed != Limit::At(0) });
        }
        if self.recomputed != Limit::At(0) {
            pipeline = pipeline.then(Checkpoint { count: self.recomputed });
        }
        if self.gradients {
            pipeline = pipeline.then(Autodiff { outputs: true, target, ..Autodiff::default() });
        }
        let pipeline = pipeline
            .then(Inline::ALL)
            .then(Legalize { target })
            .then(Canonicalize::default())
            .then(Unmerge::default())
            .then(Cse::default())
            .then(Dce::default());
        let (module, _) = Driver::default().run(&pipeline, &self.module)?;
        let last = module.called_from_outside().last();
        last.cloned().ok_or_else(|| Box::new(Diagnostic::new("the model has no function")))
    }

    /// The whole model as a search on the short one divides it, which may use this memory.
    fn found(&self, short: &Function, given: &[(Value, Layout)], memory: f64) -> Result<Sharding> {
        let mut within = |problem: &Problem| search(&Problem { memory, ..*problem });
        let plan = self.solved(short, given, &mut within)?;
        self.priced(self.decided(short, &plan), plan.visited)
    }

    /// The result of a search or of an evaluation. `given` has the layouts that are decided.
    fn solved<T>(
        &self,
        function: &Function,
        given: &[(Value, Layout)],
        solve: &mut dyn FnMut(&Problem) -> Result<T>,
    ) -> Result<T> {
        let request = self.request;
        let params = function.args.iter().filter(|arg| arg.role == Role::Param).count();
        let tied = match self.gradients {
            true => params_with_gradients(function, function.results.len() - params),
            false => Vec::new(),
        };
        let values = |group: &Vec<usize>| group.iter().map(|at| function.arg(*at)).collect();
        let mut groups: Vec<Vec<Value>> = self.alike.iter().map(values).collect();
        groups.extend(open_values(function));
        solve(&Problem {
            function,
            tied: &tied,
            mesh: &request.mesh,
            machine: &request.machine,
            given,
            groups: &groups,
            repeats: &repeats(function),
            memory: request.limit(),
            optimizer_states: if self.gradients { request.optimizer_states } else { 0.0 },
        })
    }

    /// The layouts that the request gives to arguments.
    ///
    /// Errors: unknown arguments; axes that the mesh or the argument does not have.
    fn given(&self, function: &Function) -> Result<Vec<(Value, Layout)>> {
        let mut given = Vec::new();
        for (name, split) in &self.request.given {
            let found = function.arguments().find(|(_, own)| *own.name == **name);
            let Some((value, _)) = found else {
                let names = || function.args.iter().map(|own| &*own.name);
                let what = format!("the model has no param or input `{name}`");
                let mut error = Diagnostic::of(ErrorKind::Terminal, what);
                error.hint = did_you_mean(name, names());
                return error.err();
            };
            let layout = self.request.mesh.split(&function.ty(value).shape, split);
            given.push((value, layout.map_err(|error| Box::new(error.at(format!("`{name}`"))))?));
        }
        for residual in &self.request.residuals {
            for value in of_shape(function, &residual.dims) {
                let shape = &function.ty(value).shape;
                given.push((value, self.request.mesh.split(shape, &residual.split)?));
            }
        }
        Ok(given)
    }

    /// The layouts of the arguments, and of residual values whose layout was chosen, those that were
    /// chosen first. Layers that the function leaves out have those of the last layer that it has.
    fn decided(&self, function: &Function, plan: &Plan) -> Vec<(Place, Layout)> {
        let used: FxHashSet<Value> =
            function.ops.iter().flat_map(|op| op.operands.clone()).collect();
        let chosen = |value: Value| plan.chosen.iter().position(|own| *own == value);
        let mut layouts = Vec::new();
        for group in &self.alike {
            let values = || group.iter().map(|at| function.arg(*at));
            let last = values().rev().find(|value| used.contains(value));
            let order = values().filter_map(chosen).min().unwrap_or(usize::MAX);
            for value in values() {
                let like = if used.contains(&value) { value } else { last.unwrap_or(value) };
                let layout = plan.values[like.index()].clone();
                layouts.push((order, Place::Argument(value), layout));
            }
        }
        for group in open_values(function) {
            if let Some(order) = chosen(group[0]) {
                let dims = &function.ty(group[0]).shape.dims;
                let dims = dims.iter().filter_map(Dim::as_const).collect();
                let layout = plan.values[group[0].index()].clone();
                layouts.push((order, Place::Residual(dims), layout));
            }
        }
        layouts.sort_by(|(one, own, _), (two, other, _)| (one, own).cmp(&(two, other)));
        layouts.into_iter().map(|(_, place, layout)| (place, layout)).collect()
    }

    /// The cost of the whole model with these layouts.
    fn priced(&self, decided: Vec<(Place, Layout)>, compared: usize) -> Result<Sharding> {
        let function = self.step(false)?;
        let mut given = Vec::new();
        let (mut arguments, mut residuals) = (Vec::new(), Vec::new());
        for (place, layout) in decided {
            match place {
                Place::Argument(value) => {
                    given.push((value, layout.clone()));
                    arguments.push((function.args[value.index()].name.clone(), layout));
                }
                Place::Residual(dims) => {
                    let values = of_shape(&function, &dims);
                    given.extend(values.into_iter().map(|value| (value, layout.clone())));
                    residuals.push((dims, layout));
                }
            }
        }
        let (blocks, plan) = self.solved(&function, &given, &mut |problem| {
            let plan = evaluate(problem)?;
            Ok((of_blocks(problem, &plan.values)?, plan))
        })?;
        Ok(Sharding {
            request: self.request.clone(),
            arguments,
            residuals,
            blocks,
            memory: plan.memory,
            compared,
            step: function,
            values: plan.values,
        })
    }
}

/// What a layout is decided for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Argument(Value),
    /// The residual values of this shape.
    Residual(Vec<i64>),
}

/// The residual values of a function that have this shape.
fn of_shape(function: &Function, dims: &[i64]) -> Vec<Value> {
    let has = |group: &Vec<Value>| {
        let own = function.ty(group[0]).shape.dims.iter().map(Dim::as_const);
        own.eq(dims.iter().map(|dim| Some(*dim)))
    };
    open_values(function).into_iter().find(has).unwrap_or_default()
}
