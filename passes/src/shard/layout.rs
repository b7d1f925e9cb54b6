//! Meshes of devices, and layouts of arrays on them.

use std::fmt;
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dim::Dim;
use smallvec::SmallVec;

/// Devices in a grid with named axes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mesh {
    axes: Vec<(Arc<str>, i64)>,
}

/// A mesh axis, by its number.
pub type Axis = u8;

/// The mesh axes that divide one dim of an array, the outermost first.
pub type Axes = SmallVec<[Axis; 2]>;

/// The mesh axes that divide each dim of an array. Over all other axes it is replicated.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Layout {
    pub dims: Vec<Axes>,
}

impl Mesh {
    /// Errors: no axis; a size below 1; a name that occurs twice; too many axes.
    pub fn new<N: Into<Arc<str>>>(axes: impl IntoIterator<Item = (N, i64)>) -> Result<Mesh> {
        let axes: Vec<(Arc<str>, i64)> =
            axes.into_iter().map(|(name, size)| (name.into(), size)).collect();
        let wrong = |what: String| Diagnostic::of(ErrorKind::Argument, what).err();
        if axes.is_empty() || axes.len() > usize::from(Axis::MAX) {
            return wrong(format!("a mesh has 1 to {} axes, got {}", Axis::MAX, axes.len()));
        }
        if let Some((name, size)) = axes.iter().find(|(_, size)| *size < 1) {
            return wrong(format!(
                "the mesh axis `{name}` must have a size of at least 1, got {size}"
            ));
        }
        let twice = axes
            .iter()
            .enumerate()
            .find(|(at, (name, _))| axes[..*at].iter().any(|(other, _)| other == name));
        match twice {
            Some((_, (name, _))) => wrong(format!("two mesh axes are called `{name}`")),
            None => Ok(Mesh { axes }),
        }
    }

    pub fn name(&self, axis: Axis) -> &str {
        &self.axes[usize::from(axis)].0
    }

    /// The number of parts into which these axes divide a dim.
    pub fn parts(&self, axes: &[Axis]) -> i64 {
        axes.iter().map(|axis| self.axes[usize::from(*axis)].1).product()
    }

    /// The number of devices.
    pub fn devices(&self) -> i64 {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// The axis of this name. Errors: there is none.
    pub fn axis(&self, name: &str) -> Result<Axis> {
        let at = self.axes.iter().position(|(own, _)| **own == *name);
        at.and_then(|at| Axis::try_from(at).ok()).ok_or_else(|| {
            let what = format!("the mesh has no axis `{name}`");
            let names = || self.axes.iter().map(|(own, _)| &**own);
            let mut error = Diagnostic::of(ErrorKind::Argument, what)
                .expected(names().collect::<Vec<_>>().join(", "));
            error.hint = did_you_mean(name, names());
            Box::new(error)
        })
    }

    /// Whether these axes divide a dim into equal parts. A dim without a number counts as one that
    /// they divide.
    pub fn divides(&self, axes: &[Axis], dim: &Dim) -> bool {
        let parts = self.parts(axes);
        dim.as_const().is_none_or(|size| size % parts == 0)
    }

    /// Reads a layout such as `data,_,model+expert`: the mesh axes of each dim, `_` for none.
    ///
    /// Errors: an unknown axis; an axis that occurs twice.
    pub fn layout(&self, text: &str) -> Result<Layout> {
        let mut layout = Layout::default();
        for dim in text.split(',').map(str::trim).filter(|dim| !dim.is_empty()) {
            let names = dim.split('+').map(str::trim).filter(|name| *name != "_");
            let axes: Axes = names.map(|name| self.axis(name)).collect::<Result<_>>()?;
            for axis in &axes {
                let used = layout.uses(*axis) || axes.iter().filter(|own| *own == axis).count() > 1;
                if used {
                    let what = format!("the mesh axis `{}` divides two dims", self.name(*axis));
                    return Diagnostic::of(ErrorKind::Argument, what).got(text).err();
                }
            }
            layout.dims.push(axes);
        }
        Ok(layout)
    }

    /// A layout in the form that [`Mesh::layout`] reads.
    pub fn text(&self, layout: &Layout) -> String {
        let dim = |axes: &Axes| match axes.is_empty() {
            true => "_".to_string(),
            false => axes.iter().map(|axis| self.name(*axis)).collect::<Vec<_>>().join("+"),
        };
        layout.dims.iter().map(dim).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let axes: Vec<String> =
            self.axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        f.write_str(&axes.join(","))
    }
}

impl Layout {
    /// An array of this rank, replicated on all devices.
    pub fn replicated(rank: usize) -> Layout {
        Layout { dims: vec![Axes::new(); rank] }
    }

    /// Whether a dim is divided by this axis.
    pub fn uses(&self, axis: Axis) -> bool {
        self.dims.iter().any(|axes| axes.contains(&axis))
    }

    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(|axes| axes.is_empty())
    }
}
