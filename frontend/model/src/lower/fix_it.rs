//! Suggests a fix for a shape mismatch: tries changing one dim of one operand.

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Role, Value};
use mithril_ir::shape::{Shape, Type};

use super::block_error::{BlockError, FixIt, OperandContext, Origin, join};
use super::cx::Operand;
use super::instance::frame::Frame;
use crate::blocks::{Entry, Group, Settings};
use crate::definition::Definition;
use crate::model::seal::{Composite, Feed, NetSource, Part};
use crate::setting::Setting;

impl Frame<'_, '_> {
    /// The fixes for one operand, each of which would make the operands fit.
    pub fn fix_its(&self, part: &Part, operands: &[Operand], value: Value) -> Vec<FixIt> {
        let own = self.builder.ty(value);
        let mut dims: Vec<i64> = values(operands)
            .flat_map(|v| self.builder.ty(v).shape.dims.into_iter())
            .filter_map(|dim| dim.as_const())
            .chain(self.sizes(part))
            .filter(|dim| *dim > 1)
            .collect();
        dims.sort_unstable();
        dims.dedup();
        let mut fix_its = Vec::new();
        for axis in (0..own.shape.dims.len()).rev() {
            for &dim in dims.iter().filter(|dim| own.shape.dims[axis].as_const() != Some(**dim)) {
                let mut ty = own.clone();
                ty.shape.dims[axis] = Dim::Const(dim);
                if self.fits(part, operands, value, &ty).is_ok() {
                    fix_its.push(FixIt { axis, dim });
                }
            }
        }
        fix_its
    }

    /// The integers among the block's settings.
    fn sizes(&self, part: &Part) -> Vec<i64> {
        let settings = part.definition.origin.iter().flat_map(|(_, settings)| settings.iter());
        let each = |setting: &Setting| match setting {
            Setting::List(items) => items.iter().filter_map(Setting::as_int).collect(),
            other => other.as_int().into_iter().collect::<Vec<i64>>(),
        };
        settings.flat_map(|(_, setting)| each(setting)).collect()
    }

    /// Lowers only this block, with the type of one operand replaced by `ty`.
    fn fits(&self, part: &Part, operands: &[Operand], value: Value, ty: &Type) -> Result<()> {
        let trial = Builder::new("trial");
        let mut given: Vec<(Value, Value)> = Vec::new();
        let mut arg = |v: Value| {
            if let Some((_, own)) = given.iter().find(|(from, _)| *from == v) {
                return *own;
            }
            let ty = if v == value { ty.clone() } else { self.builder.ty(v) };
            let own = trial.arg(format!("arg{}", given.len()), Role::Data, ty);
            given.push((v, own));
            own
        };
        let mut own: Vec<Operand> = Vec::with_capacity(operands.len());
        for operand in operands {
            own.push(match operand {
                Operand::Absent => Operand::Absent,
                Operand::One(v) => Operand::One(arg(*v)),
                Operand::List(list) => Operand::List(list.iter().map(|v| arg(*v)).collect()),
            });
        }
        // The shapes of params and states are inferred again from the other inputs.
        for (i, terminal) in part.definition.inputs.iter().enumerate() {
            if let (Role::Param | Role::State, Operand::One(v)) = (terminal.role, &own[i]) {
                let ty = trial.ty(*v);
                let shape = self.inferred_shape(&trial, part, (terminal, None), &own)?;
                own[i] = Operand::One(trial.arg(
                    terminal.name.clone(),
                    Role::Data,
                    Type { shape, ..ty },
                ));
            }
        }
        self.emit(&trial, part, &own).map(drop)
    }
}

fn values(operands: &[Operand]) -> impl Iterator<Item = Value> {
    operands
        .iter()
        .flat_map(|operand| match operand {
            Operand::Absent => &[][..],
            Operand::One(value) => std::slice::from_ref(value),
            Operand::List(list) => list,
        })
        .copied()
}

impl BlockError {
    /// Suggests an unambiguous change that makes the operands fit: another size for the block that
    /// computes one of them, or another shape for an input.
    pub fn suggestion(&self, root: &Definition) -> Option<String> {
        let latest = || self.operands.iter().rev();
        let setting = latest().find_map(|t| suggest_setting(root, t));
        // With a single operand, the block is as likely to be wrong as the operand's shape.
        let several = self.operands.len() > 1;
        setting.or_else(|| latest().filter(|_| several).find_map(|t| suggest_shape(root, t)))
    }
}

fn suggest_setting(root: &Definition, operand: &OperandContext) -> Option<String> {
    let Origin::Block { path, .. } = &operand.origin else {
        return None;
    };
    let last = operand.shape.as_ref()?.dims.len().checked_sub(1)?;
    let own = operand.shape.as_ref()?.dims[last].as_const()?;
    let fix_it = operand.fix_its.iter().find(|fix_it| fix_it.axis == last)?;
    let (path, (entry, settings)) = size_setting(root, path)?;
    let setting = match settings.ints("dimensions") {
        Some(mut sizes) if sizes.last() == Some(&own) => {
            sizes.pop();
            sizes.push(fix_it.dim);
            format!("dimensions={sizes:?}")
        }
        _ if settings.int("dimension") == Some(own) => format!("dimension={}", fix_it.dim),
        _ => return None,
    };
    Some(format!("`{}` as {}({setting}) would fit", join(&path), entry.name))
}

/// The path of a block, with its table entry and settings.
type BlockSettings<'r> = (Vec<Arc<str>>, &'r (&'static Entry, Settings));

/// Finds the block whose setting determines the last dim of the output of the block at `path`. It
/// is this block or an earlier one. The search passes through blocks that keep the dims of their
/// only input.
fn size_setting<'r>(root: &'r Definition, path: &[Arc<str>]) -> Option<BlockSettings<'r>> {
    let mut path = path.to_vec();
    loop {
        let (_, part) = inside(root, &path)?;
        let origin = part.definition.origin.as_ref();
        let says = |name| origin.is_some_and(|(_, settings)| settings.ints(name).is_some());
        if says("dimensions") || says("dimension") {
            return Some((path, origin?));
        }
        if let Some(composite) = &part.definition.composite {
            let output = part.definition.standard_output? as usize;
            path.push(producer(composite, composite.outputs[output])?);
            continue;
        }
        let (entry, _) = origin?;
        let data = part.definition.inputs.iter().filter(|t| t.role == Role::Data).count();
        if !matches!(entry.group, Group::Elementwise | Group::Layer) || data != 1 {
            return None;
        }
        path = producer_of_input(root, path)?;
    }
}

/// The path of the block that computes the standard input of the block at `path`.
fn producer_of_input(root: &Definition, mut path: Vec<Arc<str>>) -> Option<Vec<Arc<str>>> {
    let mut input = inside(root, &path)?.1.definition.standard_input? as usize;
    loop {
        let (composite, part) = inside(root, &path)?;
        let Feed::Net(net) = part.inputs[input] else {
            return None;
        };
        path.pop();
        match &composite.nets[net as usize].from {
            NetSource::Input(outer) if !path.is_empty() => input = *outer as usize,
            _ => {
                path.push(producer(composite, net)?);
                return Some(path);
            }
        }
    }
}

/// The name of the part that computes a net.
fn producer(composite: &Composite, net: u32) -> Option<Arc<str>> {
    match &composite.nets[net as usize].from {
        NetSource::Part { part, .. } => Some(composite.parts[*part as usize].name.clone()),
        NetSource::Input(_) | NetSource::Value(_) => None,
    }
}

/// The part at a path, and the model that contains it.
fn inside<'r>(root: &'r Definition, path: &[Arc<str>]) -> Option<(&'r Composite, &'r Part)> {
    let (last, outer) = path.split_last()?;
    let mut composite = root.composite.as_ref()?;
    let find = |composite: &'r Composite, name: &Arc<str>| {
        composite.parts.iter().find(|part| part.name == *name)
    };
    for name in outer {
        composite = find(composite, name)?.definition.composite.as_ref()?;
    }
    Some((composite, find(composite, last)?))
}

fn suggest_shape(root: &Definition, operand: &OperandContext) -> Option<String> {
    let Origin::Input(input) = operand.origin else {
        return None;
    };
    let fix_it = operand.fix_its.first()?;
    let mut shape: Shape = operand.shape.clone()?;
    shape.dims[fix_it.axis] = Dim::Const(fix_it.dim);
    let name: &Arc<str> = &root.inputs[input as usize].name;
    Some(format!("`{name}` of {shape} would fit"))
}
