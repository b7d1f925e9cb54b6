//! Meshes of devices, and layouts of arrays on them.

use std::fmt;
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::naming::is_identifier;
use mithril_ir::shape::Shape;
use smallvec::{SmallVec, smallvec};

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
    pub dims: SmallVec<[Axes; 4]>,
}

impl Mesh {
    /// Errors: no axis; a size below 1; a name that is not an identifier, or that occurs twice; too
    /// many axes.
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
        if let Some((name, _)) = axes.iter().find(|(name, _)| !is_identifier(name)) {
            return wrong(format!("the name of a mesh axis must be an identifier, got `{name}`"));
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

    /// Reads a mesh such as `data:2,model:4`.
    ///
    /// Errors: another form; those of [`Mesh::new`].
    pub fn parse(text: &str) -> Result<Mesh> {
        let axis = |part: &str| {
            let (name, size) = part.split_once(':')?;
            Some((name.trim().to_string(), size.trim().parse().ok()?))
        };
        let axes: Option<Vec<(String, i64)>> = text.split(',').map(axis).collect();
        match axes {
            Some(axes) => Mesh::new(axes),
            None => Diagnostic::of(ErrorKind::Argument, "this is not a mesh")
                .got(text)
                .expected("names with sizes, such as `data:2,model:4`")
                .err(),
        }
    }

    /// The names and sizes of the axes.
    pub fn axes(&self) -> impl Iterator<Item = (&str, i64)> {
        self.axes.iter().map(|(name, size)| (&**name, *size))
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

    /// The axis of this name, or of this number. Errors: there is none.
    pub fn numbered(&self, text: &str) -> Result<Axis> {
        let number = text.parse::<usize>().ok().filter(|number| *number < self.axes.len());
        match number.and_then(|number| Axis::try_from(number).ok()) {
            Some(axis) => Ok(axis),
            None => self.axis(text),
        }
    }

    /// Whether these axes divide a dim into equal parts. A dim without a number counts as one that
    /// they divide.
    pub fn divides(&self, axes: &[Axis], dim: &Dim) -> bool {
        let parts = self.parts(axes);
        dim.as_const().is_none_or(|size| size % parts == 0)
    }

    /// The layout of an array of this shape: mesh axes, by name or by number, with the axes of the
    /// array that they divide, counted from its end if negative.
    ///
    /// Errors: axes that the mesh or the array does not have; a mesh axis that occurs twice; a dim
    /// that cannot be divided into equal parts.
    pub fn split(&self, shape: &Shape, split: &[(String, i64)]) -> Result<Layout> {
        let rank = shape.dims.len() as i64;
        let mut layout = Layout::replicated(shape.dims.len());
        for (name, axis) in split {
            let by = self.numbered(name)?;
            if !(-rank..rank).contains(axis) {
                let what = "the mesh cannot divide an axis that the array does not have";
                let got = format!("axis {axis} of {shape}");
                return Diagnostic::of(ErrorKind::Shapes, what).got(got).err();
            }
            if layout.uses(by) {
                let what = format!("the mesh axis `{}` divides an array twice", self.name(by));
                return Diagnostic::of(ErrorKind::Argument, what).err();
            }
            if self.parts(&[by]) > 1 {
                layout.dims[axis.rem_euclid(rank) as usize].push(by);
            }
        }
        self.check(shape, &layout)?;
        Ok(layout)
    }

    /// Checks that a layout divides every dim of a shape into equal parts. Errors: it does not.
    pub fn check(&self, shape: &Shape, layout: &Layout) -> Result<()> {
        for (axis, (dim, axes)) in shape.dims.iter().zip(&layout.dims).enumerate() {
            if shape.lead.is_none() && !self.divides(axes, dim) {
                let parts = self.parts(axes);
                return Diagnostic::of(ErrorKind::Shapes, "the mesh cannot divide an axis evenly")
                    .got(format!("axis {axis} of {shape}, for {parts} parts"))
                    .expected(format!("a multiple of {parts}"))
                    .hint("pad the array, or do not divide this axis")
                    .err();
            }
        }
        Ok(())
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
            self.axes.iter().map(|(name, size)| format!("{name}:{size}")).collect();
        f.write_str(&axes.join(","))
    }
}

impl Layout {
    /// An array of this rank, replicated on all devices.
    pub fn replicated(rank: usize) -> Layout {
        Layout { dims: smallvec![Axes::new(); rank] }
    }

    /// Whether a dim is divided by this axis.
    pub fn uses(&self, axis: Axis) -> bool {
        self.dims.iter().any(|axes| axes.contains(&axis))
    }

    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(|axes| axes.is_empty())
    }
}
