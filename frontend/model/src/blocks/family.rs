//! Families of blocks, as listed in the pages and the index.

use super::{
    Entry, attention, binary, borders, channels, class_losses, class_margins, classical, compose,
    control, convolution, create, ctc, einsum, elementwise, embeddings, encoder_decoder, experts,
    fourier, gaussian_process, grid_sample, histogram, index, layers, likelihoods, linear_algebra,
    losses, manifold, margins, metrics, multi_head, pixels, pooling, positions, random, recurrent,
    reduce, regularizers, resize, segments, sequences, shape, similarity, special, statistics,
    thresholds, transformer, unpooling, weights,
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
        tables: &[elementwise::ACTIVATIONS, thresholds::BLOCKS],
    },
    Family {
        name: "functions",
        title: "Functions of one number",
        about: "Mathematics, rounding and casts, element by element.",
        tables: &[elementwise::FUNCTIONS, special::BLOCKS],
    },
    Family {
        name: "arithmetic",
        title: "Arithmetic, comparison, logic",
        about: "Blocks of two operands, which broadcast as in NumPy, and `Where`. Operators on \
                connections create most of them: `model.a + model.b`, `model.a @ model.b`.",
        tables: &[binary::BLOCKS],
    },
    Family {
        name: "reductions",
        title: "Reductions",
        about: "Sums, means and other reductions over axes, and running sums along one axis. \
                Connections have most of them as methods: `model.h.mean(axis=-1)`.",
        tables: &[reduce::BLOCKS],
    },
    Family {
        name: "shapes",
        title: "Shapes",
        about: "Changing the shape or order of elements; joining, cutting and repeating arrays.",
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
        name: "statistics",
        title: "Segments and statistics",
        about: "Reductions of elements at equal indices, order statistics, places among sorted \
                numbers, and histograms.",
        tables: &[segments::BLOCKS, statistics::BLOCKS, histogram::BLOCKS],
    },
    Family {
        name: "constants",
        title: "Constants and ramps",
        about: "Arrays that a model creates itself.",
        tables: &[create::BLOCKS],
    },
    Family {
        name: "products",
        title: "Sums of products",
        about: "Einstein summation, and products of groups of rows. A plain matrix product is \
                [`MatrixMultiply`](arithmetic.md#matrixmultiply).",
        tables: &[einsum::BLOCKS, experts::PRODUCTS],
    },
    Family {
        name: "fourier",
        title: "Fourier transforms",
        about: "Discrete Fourier transforms along one or several axes. There are no complex dtypes: \
                a complex value is two arrays, its real and its imaginary part.",
        tables: &[fourier::BLOCKS],
    },
    Family {
        name: "matrices",
        title: "Linear algebra",
        about: "Factorisations of matrices, systems of equations and determinants. All take \
                leading batch axes. Halves are computed in single precision.",
        tables: &[linear_algebra::BLOCKS],
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
        tables: &[
            layers::BLOCKS,
            embeddings::BLOCKS,
            channels::BLOCKS,
            similarity::BLOCKS,
            elementwise::DROPOUT,
            channels::DROPOUT,
        ],
    },
    Family {
        name: "images",
        title: "Convolution and pooling",
        about: "Blocks whose windows slide over the last axes of sequences, images or volumes, \
                (batch, channels, …).",
        tables: &[convolution::BLOCKS, pooling::BLOCKS, unpooling::BLOCKS],
    },
    Family {
        name: "resizing",
        title: "Padding and resizing images",
        about: "Padding by elements of the input, and other sizes of images.",
        tables: &[borders::BLOCKS, pixels::BLOCKS, resize::BLOCKS, grid_sample::BLOCKS],
    },
    Family {
        name: "attention",
        title: "Attention",
        about: "Attention, and positional encodings and biases.",
        tables: &[attention::BLOCKS, multi_head::BLOCKS, positions::BLOCKS],
    },
    Family {
        name: "composites",
        title: "Blocks of blocks",
        about: "Frequently used models.",
        tables: &[compose::BLOCKS, transformer::BLOCKS, experts::BLOCKS, weights::BLOCKS],
    },
    Family {
        name: "recurrent",
        title: "Recurrent networks",
        about: "Cells, which compute one step, and networks over sequences, (batch, time, \
                features), which compute each layer and direction by one loop. \
                [Sequences](../guide/sequences.md) shows how to use them.",
        tables: &[recurrent::BLOCKS, sequences::BLOCKS, encoder_decoder::BLOCKS],
    },
    Family {
        name: "control",
        title: "Control flow",
        about: "Blocks that call other blocks: for each slice of an array, for as long as a \
                condition is true, or one of two. A body is compiled once, and generated code has \
                one loop. [Sequences](../guide/sequences.md) and [Control \
                flow](../guide/control-flow.md) show how to use them.",
        tables: &[control::BLOCKS],
    },
    Family {
        name: "classical",
        title: "Classical machine learning",
        about: "Distances, kernels, models that are linear in features, and embeddings of samples \
                in few dimensions.",
        tables: &[classical::BLOCKS, gaussian_process::BLOCKS, manifold::BLOCKS],
    },
    Family {
        name: "losses",
        title: "Losses and regularizers",
        about: "A loss returns one value for each element or sample; the reduce steps of \
                [`TrainModel`](../guide/training.md) reduce them to one number. A regularizer \
                returns one number for a param.",
        tables: &[
            losses::BLOCKS,
            likelihoods::BLOCKS,
            margins::BLOCKS,
            class_margins::BLOCKS,
            class_losses::BLOCKS,
            ctc::BLOCKS,
            gaussian_process::LOSS,
            regularizers::BLOCKS,
        ],
    },
    Family {
        name: "metrics",
        title: "Metrics",
        about: "Measures of a model's quality, as scikit-learn defines them. They have no \
                gradient.",
        tables: &[metrics::BLOCKS],
    },
];
