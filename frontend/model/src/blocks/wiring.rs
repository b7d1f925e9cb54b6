//! Finds the terminals of a body that a block's settings name.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;

use crate::block::{Block, quoted};
use crate::definition::{Body, Control, Outlet, Terminal, Wired};
use crate::model::Model;

/// The terminals of a body as a block's settings name them.
pub(crate) struct Wiring<'a> {
    /// The kind of the block, for messages.
    pub kind: &'static str,
    /// Inputs, each with the output that it takes in the next step.
    pub carry: Vec<(&'a str, &'a str)>,
    /// The number of steps, if there are no sequences.
    pub steps: Option<i64>,
    /// `None`: all inputs that are not carried, unless `steps` is given.
    pub over: Option<Vec<&'a str>>,
    /// `None`: all outputs that are not carried.
    pub collect: Option<Vec<&'a str>>,
    pub axis: i64,
    pub reverse: bool,
}

impl Wiring<'_> {
    /// Finds the named terminals in the body. Errors: names that the body does not have, or that
    /// are used twice; no sequence.
    pub fn of(self, body: &Block) -> Result<Wired> {
        let named: Vec<&str> = self.named_inputs().collect();
        let body = &as_model(body, &named)?;
        let mut carries = Vec::new();
        for (input, output) in &self.carry {
            carries.push((self.input(body, "carry", input)?, self.output(body, "carry", output)?));
        }
        let sequences = self.sequences(body, &carries)?;
        self.check_twice(&named)?;
        let collected = self.collected(body, &carries)?;
        let (inputs, outputs) = (body.inputs().iter().enumerate(), body.outputs());
        let inputs = inputs.map(|(at, own)| {
            let (varies, at) = (sequences.contains(&(at as u32)), at as u32);
            if !varies && !carries.iter().any(|(input, _)| *input == at) {
                return own.clone();
            }
            // The body states the shape of a slice.
            let shape = own.shape.clone().filter(|_| !varies);
            // A carry that is left out starts at zero.
            let optional = own.optional && !varies;
            Terminal { shape, optional, inferred: false, ..own.clone() }
        });
        let name = |at: &u32| outputs[*at as usize].name.clone();
        let stacked = collected.iter().map(|at| match carries.iter().any(|(_, own)| own == at) {
            true => format!("{}_sequence", name(at)).into(),
            false => name(at),
        });
        let names: Vec<Arc<str>> = carries.iter().map(|(_, at)| name(at)).chain(stacked).collect();
        self.check_twice(&names.iter().map(|name| &**name).collect::<Vec<_>>())?;
        Ok(Wired {
            inputs: inputs.collect(),
            outputs: names.into_iter().map(|name| Outlet { name, list: None }).collect(),
            ids: body.ids.clone(),
            place: body.place.clone(),
            numerics: body.numerics,
            body: Body {
                carries,
                axes: vec![self.axis; sequences.len()],
                sequences,
                steps: self.steps,
                collected,
                axis: self.axis,
                reverse: self.reverse,
                ..body.wired(Control::Slices).body
            },
        })
    }

    /// The inputs that take slices. Errors: unknown names; there is none.
    fn sequences(&self, body: &Block, carries: &[(u32, u32)]) -> Result<Vec<u32>> {
        let carried = |at: &u32| carries.iter().any(|(input, _)| input == at);
        let is_data = |at: &u32| body.inputs()[*at as usize].role == Role::Data;
        let every = 0..body.inputs().len() as u32;
        let sequences = match &self.over {
            Some(names) => names.iter().map(|name| self.input(body, "over", name)).collect(),
            None if self.steps.is_some() => Ok(Vec::new()),
            None => Ok(every.filter(|at| is_data(at) && !carried(at)).collect::<Vec<_>>()),
        }?;
        match (sequences.is_empty(), self.steps) {
            (true, None) => self
                .wrong(format!("`{}` has no sequence to go over", self.kind))
                .expected("at least one input of the body in `over`, or the number of `steps`")
                .err(),
            (false, Some(_)) => self
                .wrong(format!("`{}` takes either `steps` or `over`", self.kind))
                .got("both")
                .expected("`steps` only if there is no sequence, whose length is their number")
                .err(),
            _ => Ok(sequences),
        }
    }

    /// The outputs that are stacked. Errors: unknown names.
    fn collected(&self, body: &Block, carries: &[(u32, u32)]) -> Result<Vec<u32>> {
        let is_rest = |at: &u32| !carries.iter().any(|(_, output)| output == at);
        let every = 0..body.outputs().len() as u32;
        match &self.collect {
            Some(names) => names.iter().map(|name| self.output(body, "collect", name)).collect(),
            None => Ok(every.filter(is_rest).collect()),
        }
    }

    pub fn named_inputs(&self) -> impl Iterator<Item = &str> {
        let carry = self.carry.iter().map(|(input, _)| *input);
        carry.chain(self.over.iter().flatten().copied())
    }

    fn wrong(&self, what: String) -> Diagnostic {
        Diagnostic::of(ErrorKind::Setting, what)
    }

    fn input(&self, body: &Block, setting: &str, name: &str) -> Result<u32> {
        let data: Vec<&str> = body
            .inputs()
            .iter()
            .filter(|terminal| terminal.role == Role::Data)
            .map(|terminal| &*terminal.name)
            .collect();
        let at = body.inputs().iter().position(|t| *t.name == *name && t.role == Role::Data);
        at.map(|at| at as u32).ok_or_else(|| self.missing(body, (setting, "input"), name, &data))
    }

    fn output(&self, body: &Block, setting: &str, name: &str) -> Result<u32> {
        let names: Vec<&str> = body.outputs().iter().map(|outlet| &*outlet.name).collect();
        let at = names.iter().position(|own| *own == name);
        at.map(|at| at as u32).ok_or_else(|| self.missing(body, (setting, "output"), name, &names))
    }

    fn missing(
        &self,
        body: &Block,
        (setting, what): (&str, &str),
        name: &str,
        names: &[&str],
    ) -> Box<Diagnostic> {
        let kind = body.kind();
        let error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("the body `{kind}` of `{}` has no {what} `{name}`", self.kind),
        );
        let mut error = error.got(format!("`{name}` in `{setting}`")).expected(match names {
            [] => format!("{what}s of the body, which has none"),
            _ => quoted(names),
        });
        error.hint = did_you_mean(name, names.iter().copied());
        Box::new(error)
    }

    /// Errors: a name that is listed twice.
    fn check_twice(&self, names: &[&str]) -> Result<()> {
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        match twice {
            None => Ok(()),
            Some((_, name)) => self
                .wrong(format!("`{name}` of the body of `{}` is named twice", self.kind))
                .expected("each terminal once in `carry`, `over` and `collect`")
                .err(),
        }
    }
}

/// The body as a model in which the named inputs are connected. If the body has connections, the
/// terminals have the names that it is connected to.
pub(super) fn as_model(body: &Block, named: &[&str]) -> Result<Block> {
    if body.definition.composite.is_some() && body.given.is_empty() {
        return Ok(body.clone());
    }
    // A dotted name is the path of a param inside the block, which its path in the model extends.
    let inputs = body.inputs().iter().filter(|t| !t.name.contains('.'));
    let inputs = inputs.filter(|t| !t.optional || named.contains(&&*t.name));
    let outputs = body.outputs().iter().map(|outlet| &outlet.name);
    let names = inputs.map(|terminal| &terminal.name).chain(outputs);
    let open = names.filter(|name| body.given.iter().all(|(own, _)| own != *name));
    let names: Vec<_> = open.map(|name| (name.clone(), name.to_string())).collect();
    let model = Model::of_kind(body.kind());
    model.connect(body.clone().connect(names)?)?;
    let optional = body.inputs().iter().filter(|terminal| terminal.optional);
    model.set_optional(optional.map(|terminal| &*terminal.name));
    model.block()
}
