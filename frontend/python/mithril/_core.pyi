from _typeshed import Incomplete, SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final
from typing_extensions import Self, disjoint_base

__version__: Final[str]
"""
The version of Mithril.
"""

@final
class Argument:
    """
    An argument of a program.
    """
    def __repr__(self, /) -> str: ...
    @property
    def any_integer(self, /) -> bool:
        """
        Whether integers of every dtype are taken, and converted.
        """
    @property
    def dims(self, /) -> list[str]:
        """
        The dims as text: numbers, names, expressions.
        """
    @property
    def dtype(self, /) -> DType:
        """
        The dtype it has in the framework.
        """
    @property
    def fan_of(self, /) -> str | None:
        """
        The argument whose shape says how its first values are drawn, where it is not its own.
        """
    @property
    def name(self, /) -> str:
        """
        The name: a path of blocks for what is learned. The same object each time, so that dicts
        made by it are distinguished by addresses alone.
        """
    @property
    def role(self, /) -> str:
        """
        `data`, `param`, `state`, `key` or `constant`.
        """
    @property
    def shape(self, /) -> list[int] | None:
        """
        The sizes, where all are known.
        """

@disjoint_base
class Block:
    """
    What a model is built from, and can be compiled alone. Calling it connects its terminals, by
    name or in their order: inputs, then outputs.
    """
    def __call__(self, /, *args: "object", **kwargs: "object") -> Block:
        """
        The same block with its terminals connected to names, connections, constants or lists.
        """
    def __getattr__(self, name: str, /) -> Connection: ...
    def __init__(self, /, *args: "object", **kwargs: "object") -> None:
        """
        The entry of the block table that the class is named after, with these settings.
        """
    def __new__(cls, /, *_args: "object", **_kwargs: "object") -> Block: ...
    def __reduce__(self, /) -> tuple[Any, tuple[str]]:
        """
        Copies and pickles are made through JSON, and have params of their own.

        Errors: connections of a model under construction, which lie outside the block.
        """
    def __repr__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    def connect(self, /, *args: "object", **kwargs: "object") -> Block:
        """
        The same as calling it.
        """
    def copy(self, /) -> Any:
        """
        Another block of the same definition, name and connections, with params of its own. What is
        shared inside it is shared inside the copy. The copy of a model can be changed.

        Errors: a model to be trained.
        """
    def cost(self, /, shapes: "dict[str, list[int | str | None]] | None" = None, *, dtype: "DType | str | None" = None, inference: "bool" = True) -> Costs:
        """
        What each block costs, before anything runs: arithmetic, memory traffic, params, and the most
        bytes of inner values alive at once, of one forward pass. `shapes` are those of the inputs; of
        dims that are not numbers, costs are formulas.

        Errors: those of compiling.
        """
    @staticmethod
    def from_json(text: "str") -> Block:
        """
        The block of a JSON text that `to_json` wrote.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        The names of the inputs, in the order of positional connections.
        """
    @property
    def kind(self, /) -> str:
        """
        What kind of block it is: `Linear`, or the class of a model.
        """
    @staticmethod
    def load(path: "str | PathLike[str]") -> Block:
        """
        The block of a file that `save` wrote.
        """
    @property
    def name(self, /) -> str | None:
        """
        The name it was given, if any.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        The names of the outputs.
        """
    def save(self, /, path: "str | PathLike[str]") -> None:
        """
        Writes the model to a file, as JSON.
        """
    def summary(self, /, shapes: "dict[str, list[int | str | None]] | None" = None, *, depth: "int" = 1) -> str:
        """
        A table of the blocks inside down to `depth`: terminals and numbers of params. With `shapes`
        of the inputs, or where the model states them, the types of terminals too.
        """
    def to_json(self, /) -> str:
        """
        The model as JSON, which `from_json` reads. Arrays in it are written out; params are none.
        """

@final
class BlockInfo:
    """
    What there is to know of the class of a block.
    """
    @property
    def doc(self, /) -> str:
        """
        What it computes.
        """
    @property
    def formula(self, /) -> str:
        """
        What it computes as an expression of NumPy; empty where none is short.
        """
    @property
    def group(self, /) -> str:
        """
        The part of the library it belongs to.
        """
    @property
    def help(self, /) -> str:
        """
        The page that `help` shows.
        """
    @property
    def inputs(self, /) -> list[str]:
        """
        The names of the inputs; optional ones end in `=`.
        """
    @property
    def keywords(self, /) -> list[list[str]]:
        """
        The same of the keywords that it takes besides them.
        """
    @property
    def name(self, /) -> str:
        """
        The name of the class.
        """
    @property
    def outputs(self, /) -> list[str]:
        """
        The names of the outputs.
        """
    @property
    def parameters(self, /) -> list[tuple[str, str, str]]:
        """
        Names, annotations and defaults as Python text; an empty default: it must be given.
        """

@final
class Checker:
    """
    Checks the arrays of a call against the signature of a program.
    """
    def admits(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None) -> bool:
        """
        Whether the sizes of the arrays that are given, of whatever framework, fit together and are
        those of the program, and dtypes that a call has chosen are theirs. Names and other dtypes are
        left to `check`.
        """
    def check(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> bool:
        """
        Whether all arrays are the framework's own and what they must be. False: some are to be
        converted first.

        Errors: a name that is missing or unknown; an array of another rank, dim or dtype.
        """
    def fits(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> bool:
        """
        Whether all arrays are the framework's own and what they must be, without a word on what is
        wrong.
        """
    def insist(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, output_gradients: "dict[str, object] | None" = None) -> None:
        """
        Raises what `check` found wrong with what is not even an array of the framework.
        """
    def shapes(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None) -> "dict[str, list[int]]":
        """
        The shapes of params and state that these arrays leave no choice for, by name.
        """

@disjoint_base
class Connection:
    """
    A value inside a model. Operators and methods on it add the blocks that compute them: to its
    model, or for an expression of `IOKey`s to the model that reads it.
    """
    def __abs__(self, /) -> Connection: ...
    def __add__(self, other: object, /) -> Connection: ...
    def __and__(self, other: object, /) -> Connection: ...
    def __array__(self, /, *_args: "object", **_kwargs: "object") -> Any: ...
    def __array_function__(self, /, function: "object", _types: "object", _args: "object", _kwargs: "object") -> Any: ...
    def __array_ufunc__(self, /, ufunc: "object", method: "str", *inputs: "object", **kwargs: "object") -> Connection:
        """
        NumPy's operators and elementwise functions: `np.exp(c)`, `np.maximum(c, 1.0)`.

        Errors: a function that no block computes; `out=` and other keywords.
        """
    def __bool__(self, /) -> bool:
        """
        A comparison of connections is a block of the model, which has no truth before a call.
        """
    def __complex__(self, /) -> float: ...
    def __contains__(self, other: Any, /) -> bool: ...
    def __dir__(self, /) -> list[str]: ...
    def __eq__(self, other: object, /) -> Connection: ...
    def __float__(self, /) -> float: ...
    def __floordiv__(self, other: object, /) -> Connection: ...
    def __ge__(self, other: object, /) -> Connection: ...
    def __getattr__(self, name: str, /) -> Any:
        """
        Methods and properties that are blocks: `.sum(axis=1)`, `.shape`.
        """
    def __getitem__(self, index: Any, /) -> Connection:
        """
        An element of a list output, or a part of an array.
        """
    def __gt__(self, other: object, /) -> Connection: ...
    def __hash__(self, /) -> int: ...
    def __int__(self, /) -> int: ...
    def __invert__(self, /) -> Connection: ...
    def __iter__(self, /) -> Any:
        """
        The elements of a list output.
        """
    def __le__(self, other: object, /) -> Connection: ...
    def __len__(self, /) -> int: ...
    def __lshift__(self, other: object, /) -> Connection: ...
    def __lt__(self, other: object, /) -> Connection: ...
    def __matmul__(self, other: object, /) -> Connection: ...
    def __mod__(self, other: object, /) -> Connection: ...
    def __mul__(self, other: object, /) -> Connection: ...
    def __ne__(self, other: object, /) -> Connection: ...
    def __neg__(self, /) -> Connection: ...
    def __or__(self, other: object, /) -> Connection: ...
    def __pow__(self, other: object, modulo: object = None, /) -> Connection: ...
    def __radd__(self, other: object, /) -> Connection: ...
    def __rand__(self, other: object, /) -> Connection: ...
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, other: object, /) -> Connection: ...
    def __rlshift__(self, other: object, /) -> Connection: ...
    def __rmatmul__(self, other: object, /) -> Connection: ...
    def __rmod__(self, other: object, /) -> Connection: ...
    def __rmul__(self, other: object, /) -> Connection: ...
    def __ror__(self, other: object, /) -> Connection: ...
    def __round__(self, /, _digits: "object" = None) -> int: ...
    def __rpow__(self, other: object, modulo: object = None, /) -> Connection: ...
    def __rrshift__(self, other: object, /) -> Connection: ...
    def __rshift__(self, other: object, /) -> Connection: ...
    def __rsub__(self, other: object, /) -> Connection: ...
    def __rtruediv__(self, other: object, /) -> Connection: ...
    def __rxor__(self, other: object, /) -> Connection: ...
    def __sub__(self, other: object, /) -> Connection: ...
    @classmethod
    def __torch_function__(cls, /, function: "object", _types: "object", _args: "object" = None, _kwargs: "object" = None) -> Any:
        """
        PyTorch leaves operators on connections to them, as it does for each `TypeError`.
        Errors: another function of PyTorch.
        """
    def __truediv__(self, other: object, /) -> Connection: ...
    def __xor__(self, other: object, /) -> Connection: ...
    @property
    def dtype(self, /) -> DType | None:
        """
        The dtype, where it is stated or follows from what is; None where compiling
        chooses it, as it does for floats and integers that nobody gave one.
        """
    @property
    def name(self, /) -> str | None:
        """
        The name of the terminal, if it has one.
        """

@final
class Constant:
    """
    A value of `constant_keys` that every program made with it shares.
    """
    def __new__(cls, /, array: Any) -> Constant: ...

@final
class Cost:
    """
    What one block costs in one forward pass, with the blocks inside it. Numbers; formulas as text
    where they depend on dims that are not known.
    """
    def __repr__(self, /) -> str: ...
    @property
    def bytes(self, /) -> int | str:
        """
        Bytes that its operations read and write, each for itself.
        """
    @property
    def flops(self, /) -> int | str:
        """
        Additions, multiplications, comparisons and functions such as `exp`, one each; two for each
        product of a contraction.
        """
    @property
    def params(self, /) -> int | str:
        """
        Elements of what it learns.
        """
    @property
    def path(self, /) -> str:
        """
        The path; empty for the whole.
        """
    @property
    def peak(self, /) -> int | str:
        """
        The most bytes of inner values that are alive at once while it computes; where dims are not
        known, the maximum of what may be the most.
        """

@final
class Costs:
    """
    What each block of a model costs: a table as text and in notebooks.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    def at(self, /, path: str) -> Cost | None:
        """
        The block of a path, such as `h.0.attn`; `None` where there is none.
        """
    @property
    def blocks(self, /) -> list[Cost]:
        """
        The blocks, the whole first, others in the order they compute in.
        """
    def table(self, /, depth: SupportsIndex = 1) -> str:
        """
        The table down to `depth`; of the whole model alone for 0 and less.
        """
    @property
    def total(self, /) -> Cost | None:
        """
        The whole.
        """

@final
class DType:
    """
    The type of the elements of an array.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, dtype: Any, /) -> DType:
        """
        The dtype of this name, or that NumPy, torch or JAX knows under it.
        """
    def __reduce__(self, /) -> tuple[type, tuple[str]]: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def bits(self, /) -> int:
        """
        The width of an element in bits.
        """
    @property
    def is_float(self, /) -> bool:
        """
        Whether it is a floating type.
        """
    @property
    def name(self, /) -> str:
        """
        The name: `float32`.
        """
    @staticmethod
    def names() -> list[str]:
        """
        Every dtype's name.
        """
    @property
    def short(self, /) -> str:
        """
        The name in Mithril's own text: `f32`.
        """

@final
class Explanation:
    """
    What rewriting has done to a program: a table as text, and in notebooks.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def _repr_html_(self, /) -> str: ...
    @property
    def after(self, /) -> float:
        """
        The seconds that it is estimated to take as it was rewritten.
        """
    @property
    def before(self, /) -> float:
        """
        The seconds that the program is estimated to take with every operation of the model.
        """
    @property
    def rules(self, /) -> list[Fired]:
        """
        The rules that fired, the most valuable first.
        """

@final
class Fired:
    """
    A rule that fired.
    """
    def __repr__(self, /) -> str: ...
    @property
    def gain(self, /) -> float:
        """
        The seconds that the program is estimated to take longer without it. Below 0 where the rule
        is there for numbers that stay finite.
        """
    @property
    def math(self, /) -> str:
        """
        What it may change: `exact`, `recognise`, `reassociate` or `fast`.
        """
    @property
    def places(self, /) -> list[str]:
        """
        The paths of the blocks it was applied in.
        """
    @property
    def rule(self, /) -> str:
        """
        Its name.
        """
    @property
    def times(self, /) -> int:
        """
        How often it was applied.
        """
    @property
    def topic(self, /) -> str:
        """
        What it is about: `algebra`, `layout`, `composites`, ….
        """

@final
class IOKey(Connection):
    """
    A connection with what is known of it: a name makes it a terminal of the model; `expose` makes
    it an output even where something inside reads it. Arithmetic on it starts an expression.
    """
    def __new__(cls, /, name: "str | None" = None, *, value: Any | None = None, shape: Any | None = None, dtype: Any | None = None, differentiable: "bool | None" = None, expose: "bool" = False, connections: "list[object] | None" = None) -> IOKey: ...

@final
class Method:
    """
    A method of a connection, to be called with the other inputs of its block, then its settings.
    """
    def __call__(self, /, *args: "object", **kwargs: "object") -> Connection: ...
    def __repr__(self, /) -> str: ...

class Model(Block):
    """
    A model under construction. `model |= block` adds a block with the connections it was given;
    `model += block` also connects its standard input to the last standard output.
    """
    def __bool__(self, /) -> bool:
        """
        A model is one, however many blocks it has.
        """
    def __delattr__(self, name: str, /) -> None: ...
    def __iadd__(self, block: Block, /) -> Self: ...
    def __init__(self, /, *, name: "str | None" = None, checkpoint: "bool" = False, gradient: "Block | None" = None) -> None: ...
    def __ior__(self, block: Block, /) -> Self: ...
    def __len__(self, /) -> int:
        """
        The number of blocks added so far.
        """
    def __new__(cls, /, *args: "object", **kwargs: "object") -> Model: ...
    def __setattr__(self, name: str, value: Any, /) -> None:
        """
        `model.y = connection` makes an output `y` of a connection or an expression. Other values,
        and names that begin with an underscore, are attributes as ever.
        """
    def add_input(self, /, name: "str", *, shape: "list[int | str | None] | None" = None, dtype: "object" = None, differentiable: "bool | None" = None) -> Connection:
        """
        A new input of the model, which expressions may start from. `shape` has numbers, names of
        dims, and None where a dim may vary.

        Errors: a name that a block of the model writes.
        """
    def discard(self, /, *names: "str") -> None:
        """
        Takes terminals off the outputs.
        """
    def expose(self, /, *names: "str") -> None:
        """
        Makes terminals outputs even where something inside reads them.
        """
    @staticmethod
    def from_json(text: "str") -> Model:
        """
        A model that can be built further, from a JSON text that `to_json` wrote.
        """
    @staticmethod
    def load(path: "str | PathLike[str]") -> Model:
        """
        A model that can be built further, from a file that `save` wrote.
        """
    def rename(self, /, old: "str", new: "str") -> None:
        """
        Gives a terminal another name.
        """
    def set_shapes(self, shapes: "dict[str, list[int | str | None]] | None" = None, /, **kwargs: "object") -> None:
        """
        States shapes of terminals, in a dict or by keyword: numbers, names of dims, or `None` where
        a dim may vary.
        """
    def set_standard(self, /, *, input: "str | None" = None, output: "str | None" = None) -> None:
        """
        Says what `+=` connects of the model where it is a block of another.
        """
    def set_types(self, types: "dict[str, object] | None" = None, /, **kwargs: "object") -> None:
        """
        States dtypes of terminals, in a dict or by keyword.
        """

@final
class Native:
    """
    Runs a program's native code on arrays of NumPy.
    """
    def export(self, /, folder: str | PathLike[str], name: str | None, cpu: SupportsGetItem[int, str], params: "dict[str, object] | None") -> "dict[str, str]":
        """
        Writes a library for C into a folder, and next to it its header, its metadata and, where
        `params` are given, the file of weights: their paths, by what they are. `cpu` are the
        processors that it is for.

        Errors: `MithrilError`, as its message says; `BackendError` if code cannot be generated.
        """
    def forward(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None" = None, donate: bool = False) -> "Any":
        """
        The outputs; `(outputs, state)` where the model has state. None: some values are no arrays of
        NumPy yet. With `donate` the next state is written over the arrays of the state.

        Errors: as for `Checker.check`; `BackendError` where code is to be made and cannot be.
        """
    def joint(self, /, params: "dict[str, object]", inputs: "dict[str, object]", state: "dict[str, object] | None", output_gradients: "dict[str, object]", donate: bool = False) -> "Any":
        """
        `(outputs, gradients)`, the gradients by param, and then the state where the model has one.
        Output gradients that are left out are zeros.

        Errors: as for `forward`.
        """
    @property
    def listing(self, /) -> str:
        """
        Programs and kernels, for people to read.
        """
    def measure(self, /) -> None:
        """
        Compiles what calls would compile, as far as shapes are known, and has each call from now on
        note how long kernels run, for `report`.

        Errors: `BackendError` if code cannot be generated.
        """
    @property
    def report(self, /) -> list[str]:
        """
        Lines about each function and its kernels.
        """

@final
class Outcome:
    """
    A result of a program.
    """
    @property
    def dims(self, /) -> list[str]:
        """
        The dims as text.
        """
    @property
    def dtype(self, /) -> DType:
        """
        The dtype it has in the framework.
        """
    @property
    def name(self, /) -> str:
        """
        The name.
        """
    @property
    def state(self, /) -> str | None:
        """
        The state it is the next value of, if any.
        """

@final
class Program:
    """
    A compiled model.
    """
    @property
    def arguments(self, /) -> list[Argument]:
        """
        The arguments in their order.
        """
    def bisect(self, /, arrays: "dict[str, object]", tolerance: SupportsFloat | SupportsIndex) -> tuple[str, str | None, list[str]] | None:
        """
        Finds the first pass after which the results of the reference evaluator differ by more than
        `tolerance`: the pass, and its rule and blocks if they are known. `None` if no pass does.
        `arrays` are those of a call, by name.
        """
    def checker(self, /, samples: "dict[str, object]") -> Checker:
        """
        The check of a call's arrays. `samples` are 2 x 3 arrays of the framework by dtype.
        """
    @property
    def constants(self, /) -> list[tuple[str, DType, list[int], bytes]]:
        """
        Arrays of the `.npz` next to the source: dtype, shape and bytes by name.
        """
    def cost(self, /, shapes: "dict[str, object]", dims: "dict[str, int]") -> Costs:
        """
        What each block costs in one forward pass; `shapes` of inputs and `dims` are those that were
        left open.
        """
    def explain(self, /) -> Explanation:
        """
        What rewriting has done.
        """
    def for_call(self, /, shapes: "dict[str, list[int | None]]", dtypes: "dict[str, DType]", sizes: "dict[str, list[int]]") -> Program:
        """
        The program for these shapes and dtypes of arguments whose ranks and dtypes were not known.
        `sizes` are those of a call's arrays, where they are to decide which axes a mask has. The
        program may wait for ranks of others, or for sizes of params.

        Errors: those of compiling; a mask that is neither bool nor of floats.
        """
    def initial(self, /, name: str, shape: SupportsGetItem[int, SupportsIndex], seed: SupportsIndex, fan_of: SupportsGetItem[int, SupportsIndex] | None = None, init: Any | None = None) -> tuple[float | None, bytearray | None, tuple[Any, list[int]] | None]:
        """
        What an argument of this shape begins with: one number that all its elements are, or the
        bytes of their numbers in double precision, or a function with its key. `fan_of` is the shape
        of the argument that says its fan, `init` what is said instead of what its block says.

        Errors: no such `init`; one for matrices, and a shape of fewer than two dims.
        """
    @property
    def is_open(self, /) -> bool:
        """
        Whether it has no code, as ranks or sizes that the code needs are not known.
        """
    def memory(self, /, dims: "dict[str, int]") -> dict[str, int] | None:
        """
        The bytes that a call works with, by what they are for; `dims` are numbers for dims that have
        none. `None` for what is no native code.
        """
    @property
    def module(self, /) -> str:
        """
        What the source was generated from, as text.

        Errors: ranks that it needs are not known.
        """
    @property
    def name(self, /) -> str:
        """
        What was compiled: the block's name or kind.
        """
    def native(self, /, samples: "dict[str, object]", threads: SupportsIndex) -> Native:
        """
        What runs the native code on arrays of NumPy, with so many threads (0: as many as there are
        cores). `samples` are as for `checker`. A call of one of several programs answers None for
        arrays that do not fit.

        Errors: as for `settled`.
        """
    @property
    def needs_dtypes(self, /) -> list[str]:
        """
        The masks whose dtypes the code needs, where they are not known.
        """
    @property
    def needs_ranks(self, /) -> list[str]:
        """
        The arguments whose ranks the code needs, where they are not known.
        """
    @property
    def one_of_several(self, /) -> bool:
        """
        Whether it has code for some ranks or sizes, and calls with others need another.
        """
    @property
    def own_gradients(self, /) -> bool:
        """
        Whether it has its gradients in it, made by Mithril.
        """
    @property
    def results(self, /) -> list[Outcome]:
        """
        The results in their order, next values of states included.
        """
    def settled(self, /) -> None:
        """
        Raises, where it has no code, what the code needs.
        """
    @property
    def source(self, /) -> str:
        """
        The generated source; for native code a listing.

        Errors: there is none, as for `settled`.
        """
    @property
    def timings(self, /) -> list[tuple[str, float]]:
        """
        Seconds that each stage took.
        """
    @property
    def widens(self, /) -> bool:
        """
        Whether its source enables 64-bit types, which JAX disables by default.
        """
    def with_sizes(self, /, sizes: "dict[str, list[int]]") -> Program:
        """
        The program, which waits for nothing else, for these shapes of params and states.

        Errors: those of compiling.
        """

@final
class Snapshot:
    """
    A block as it was when it was compiled, whatever is added to a model later.
    """
    def __new__(cls, /, block: "Block") -> Snapshot: ...
    @property
    def block(self, /) -> Block:
        """
        The block.
        """
    @property
    def names(self, /) -> list[str]:
        """
        The names of blocks and terminals directly inside.
        """
    @property
    def plain(self, /) -> Snapshot:
        """
        The same without what training alone needs: losses, metrics and their targets.
        """

@final
class Target:
    """
    A target by its name, such as `numpy` or `cpu`.

    Errors: `UsageError` if there is no such target.
    """
    def __new__(cls, /, name: str) -> Target: ...
    def __repr__(self, /) -> str: ...
    @property
    def arrays(self, /) -> str:
        """
        The name of the framework whose arrays calls take and return.
        """
    @property
    def class_name(self, /) -> str:
        """
        The name of the class of its backends. The class is in the module of `mithril.backends` that
        has the target's name.
        """
    @property
    def dialect(self, /) -> str:
        """
        The kind of its code: `python` or `c` for source, `machine` for machine code.
        """
    @property
    def measured(self, /) -> bool:
        """
        Whether `mithril bench` measures its performance.
        """
    @property
    def name(self, /) -> str:
        """
        The name in commands and messages.
        """
    @property
    def suffix(self, /) -> str:
        """
        The suffix of files of its code.
        """
    @property
    def tiers(self, /) -> list[str]:
        """
        The compilers that the first calls may use, if there is a choice.
        """

@final
class TrainModel(Block):
    """
    A model and what it is trained for: losses, regularizers, metrics. The total is the output
    `final_cost`, which `output_gradients=True` differentiates. The model can no longer be changed.
    """
    def __init__(self, /, model: Any) -> None: ...
    def __new__(cls, /, model: "Block") -> TrainModel: ...
    def add_loss(self, /, loss: "Block | None" = None, reduce_steps: "list[Block] | None" = None, coef: "float" = 1.0, input: "str" = ..., target: "str" = ...) -> None:
        """
        Adds `coef` times a loss of the output `input` (default: `"output"`) against the new
        input `target` (`"target"`), reduced to a number by `reduce_steps`: by default the mean.
        """
    def add_metric(self, /, metric: "Block | None" = None, reduce_steps: "list[Block] | None" = None, input: "str" = ..., target: "str" = ..., name: "str | None" = None) -> None:
        """
        Adds a metric of the output `input` (default: `"output"`) against `target`
        (`"target"`), as the output `name`: by default the kind of the metric in snake case.
        """
    def add_regularization(self, /, regularizer: "Block | None" = None, coef: SupportsFloat | SupportsIndex | None = None, input: Any | None = None) -> None:
        """
        Adds `coef` times a regularizer of a param: its name, or a compiled regular expression, which
        chooses the params in whose names `search` finds it.
        """
    def set_loss_combiner(self, /, combiner: "Block | None" = None) -> None:
        """
        Sets how the losses, as one array, are reduced to one number; by default their sum.
        """

def amount(text: str) -> int | None:
    """
    The bytes of `"4GB"`, `"512 MiB"`, or of digits; `None` of what is no size.
    """

def block_info(name: str) -> BlockInfo | None:
    """
    What there is to know of a block; `None`: there is none of that name.
    """

def block_listing() -> str:
    """
    The blocks by family, as text.
    """

def block_names() -> list[str]:
    """
    Every block of the library.
    """

def compile(block: Block, target: str, dtype: DType, wide: bool, *, shapes: "dict[str, object]", dtypes: "dict[str, object]", inference: bool, trainable_keys: SupportsGetItem[int, str], data_keys: SupportsGetItem[int, str], discard_keys: SupportsGetItem[int, str], constant_keys: "dict[str, object]", level: str, math: str, cache: bool, file_path: str | None = None, keep: SupportsGetItem[int, str] = ..., watched: SupportsGetItem[int, str] = ..., differentiate: str | None = None, own_gradients: bool = False, checkpoint: bool = False, memory_budget: SupportsIndex | None = None, separate_buffers: bool = False, tier: str | None = None, cpu: str | None = None, random: str = "framework", checks: bool | None = None, at_call: bool = False) -> Program:
    """
    Compiles a block to source for a framework, or to native code. `at_call`: the shapes are those
    of a call, so that errors do not speak of compilation.

    Errors: `MithrilError`, as its message says.
    """

def custom(*, name: "str | None" = None, mir: "str | None" = None, shape: "str | None" = None, gradient: "Block | dict[str, str] | None" = None, **bodies: "str | None") -> "Block":
    """
    An operation of your own, as a block. Each body is source text: `mir` serves every backend, and
    each of `bodies` the backend that it is named after: `numpy`, `torch`, `jax`, `cpu` or `c`. Native
    code takes a body for `c`, too. Where a backend has a body of its own, that one is used instead of
    `mir`.

    A body in Python or C is the inside of a function that reads the inputs by their names. Python
    returns the outputs; C stores them. `shape` declares the inputs and the outputs, such as
    `"(x: [*b, n], w: [n, m]) -> [*b, m]"`; `*b` stands for any number of dims, and `i64[n]` has a
    dtype, where it is not that of the model's floats. The text of `mir` has its own declaration.

    `gradient` is a block with inputs named after this block's inputs, its outputs, and its outputs
    with `_gradient` behind, whose outputs are named after this block's inputs with `_gradient`
    behind. A dict of bodies is such a block, too: `{"numpy": "return y_gradient * 2"}`. Without it,
    PyTorch and JAX differentiate the body, and gradients on other backends are those of `mir`.

    Errors: `UsageError` for arguments that do not fit; `MithrilError` for text that is no function,
    with its line and column.
    """

def did_you_mean(name: str, candidates: SupportsGetItem[int, str]) -> str | None:
    """
    ``did you mean `a` or `b`?`` for the candidates nearest to a name; `None` where none is near.
    """

def elsewhere(name: str) -> str | None:
    """
    What there is in the place of a name of other libraries; None: it is none that is known.
    """

def load_function(text_or_path: "str | PathLike[str]", name: "str | None" = None) -> "Block":
    """
    A function of a `.mir` text, or of a file of it, as a block. Its terminals are the function's
    arguments and results. `name` chooses one of several functions; without it, it is the function
    that no other one calls. The dtype `float` in the text stands for the dtype of the model's
    floats.

    Errors: `MithrilError` for a file that cannot be read, for text that is no function, with its
    line and column, and for several functions without a `name`.
    """

def load_params(path: "str") -> "list[tuple[str, DType, list[int], bytearray]]":
    """
    The params of a file of safetensors.

    Errors: a file that cannot be read, or is none.
    """

def processor(cpu: str | None = None) -> str:
    """
    The name of the processor that native code is made for: `cpu`; without it what the environment's
    MITHRIL_CPU says, else `native`.

    Errors: `UsageError` for one that there is not; `BackendError` for one with features that this
    machine lacks.
    """

def processors() -> list[str]:
    """
    The names of the processors that native code is tested for and that this machine can run, the
    least first: levels of x86-64, and the last one with its extensions.
    """

def refuse_renamed(given: SupportsGetItem[int, str], own: SupportsGetItem[int, str]) -> None:
    """
    Raises, where params have names that the model had before.
    """

def renamed(given: SupportsGetItem[int, str], own: SupportsGetItem[int, str]) -> dict[str, str]:
    """
    The names that params have now by those that they had before blocks were added to the model or
    left out: `given` are theirs, `own` the model's.
    """

def save_params(path: "str", arrays: "dict[str, object]") -> None:
    """
    Writes arrays of any framework to a file, as safetensors.

    Errors: a value that is not an array; a file that cannot be written.
    """

def table(heads: SupportsGetItem[int, str], numbers: SupportsGetItem[int, SupportsIndex], rows: SupportsGetItem[int, SupportsGetItem[int, str]]) -> tuple[str, str]:
    """
    A table of text cells: as lines, and as HTML. The columns of `numbers` stand to the right.
    """

def targets() -> list[Target]:
    """
    Every target, in the order in which messages list them.
    """

def __getattr__(name: str) -> Incomplete: ...
