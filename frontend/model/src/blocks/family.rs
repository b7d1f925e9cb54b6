//! Families of blocks, as listed in the pages and the index.

use super::{
    Entry, attention, binary, compose, create, einsum, elementwise, index, layers, losses, metrics,
    random, reduce, regularizers, shape, spatial,
};

/// Related blocks, which share a page.
pub struct Family {
    /// The name of its page.
    pub name: &'static str,
    pub title: &'static str,
    /// An introduction to the blocks.
    pub about: &'static str,
    tables: &'static [&'static [Entry]],
}

impl Family {
    /// Its blocks, in order.
    pub fn blocks(&'static self) -> impl Iterator<Item = &'static Entry> {
        self.tables.iter().flat_map(|table| table.iter())
    }
}

/// Every family.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "activations",
        title: "Activations",
        about: "Functions between layers, element by element. They learn nothing.",
        tables: &[elementwise::ACTIVATIONS],
    },
    Family {
        name: "functions",
        title: "Functions of one number",
        about: "Mathematics, rounding and casts, element by element.",
        tables: &[elementwise::FUNCTIONS],
    },
    Family {
        name: "arithmetic",
        title: "Arithmetic, comparison, logic",
        about: "Blocks of two operands, which broadcast as NumPy's do, and choice. \
                Operators on connections make most of them: `model.a + model.b`, `model.a \
                @ model.b`.",
        tables: &[binary::BLOCKS],
    },
    Family {
        name: "reductions",
        title: "Reductions",
        about: "Sums, means and the like over axes, and running sums along one. \
                Connections have most of them as methods: `model.h.mean(axis=-1)`.",
        tables: &[reduce::BLOCKS],
    },
    Family {
        name: "shapes",
        title: "Shapes",
        about: "The same elements in another shape or order, joined, cut or repeated.",
        tables: &[shape::BLOCKS],
    },
    Family {
        name: "indices",
        title: "Indices and order",
        about: "Reading and writing at positions, sorting, triangles, and shapes as \
                values.",
        tables: &[index::BLOCKS],
    },
    Family {
        name: "constants",
        title: "Constants and ramps",
        about: "Arrays that a model makes itself.",
        tables: &[create::BLOCKS],
    },
    Family {
        name: "products",
        title: "Sums of products",
        about: "Einstein summation. A plain matrix product is \
                [`MatrixMultiply`](arithmetic.md#matrixmultiply).",
        tables: &[einsum::BLOCKS],
    },
    Family {
        name: "random",
        title: "Random numbers",
        about: "Draws from an explicit key of two 32-bit integers. `new_key` is the key \
                for the next draw.",
        tables: &[random::BLOCKS],
    },
    Family {
        name: "layers",
        title: "Layers",
        about: "Blocks that learn, normalise or regularise.",
        tables: &[layers::BLOCKS, elementwise::DROPOUT],
    },
    Family {
        name: "images",
        title: "Convolution and pooling",
        about: "Blocks whose windows go over the last axes: of images, (batch, channels, height, \
                width).",
        tables: &[spatial::BLOCKS],
    },
    Family {
        name: "attention",
        title: "Attention",
        about: "Attention, and the encodings of positions that go with it.",
        tables: &[attention::BLOCKS],
    },
    Family {
        name: "composites",
        title: "Blocks of blocks",
        about: "Models that are needed so often that they have a name.",
        tables: &[compose::BLOCKS],
    },
    Family {
        name: "losses",
        title: "Losses and regularizers",
        about: "A loss gives one value for each element or sample; the reduce steps of \
                [`TrainModel`](../guide/training.md) make one number of them. A \
                regularizer gives one number for a param.",
        tables: &[losses::BLOCKS, regularizers::BLOCKS],
    },
    Family {
        name: "metrics",
        title: "Metrics",
        about: "Numbers that judge a model, as scikit-learn defines them. They have no \
                gradient.",
        tables: &[metrics::BLOCKS],
    },
];
