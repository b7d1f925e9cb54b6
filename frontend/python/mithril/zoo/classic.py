"""MLP and LeNet."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import Conv2d, Dropout, Flatten, Linear, MaxPool2d, Relu
from .weights import Architecture, linear, plain

__all__ = ["MLP", "LeNet"]


class MLP(Architecture):
    """A perceptron with hidden layers: (batch, features) to (batch, classes). A ReLU follows each
    hidden layer, and a dropout if its rate is not 0.

    Weights: `torchvision.ops.MLP`.

    Source: D. E. Rumelhart, G. E. Hinton, R. J. Williams. Learning Representations by
    Back-Propagating Errors. Nature 323, 1986.
    """

    def __init__(
        self,
        features: int = 784,
        *,
        hidden: Sequence[int] = (512, 256),
        classes: int = 10,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layers: list[Linear | Relu | Dropout] = []
        for index, width in enumerate(hidden):
            layers += [Linear(width, name=f"linear_{index}"), Relu()]
            layers += [Dropout(dropout)] if dropout else []
        layers.append(Linear(classes, name=f"linear_{len(hidden)}"))
        self |= layers[0](input="input", **({} if hidden else {"output": "output"}))
        for layer in layers[1:]:
            self += layer(output="output") if layer is layers[-1] else layer
        self.set_shapes(input=["batch", features])
        # torchvision has an activation and a dropout after each hidden layer.
        count = len(hidden) + 1
        self._rules = [r for i in range(count) for r in linear(f"linear_{i}", f"{3 * i}")]


class LeNet(Architecture):
    """LeNet-5 as it is taught today, with ReLU and maxima: (batch, channels, 32, 32) to
    (batch, classes).

    Weights: `Net` of PyTorch's tutorial "Training a Classifier", with `conv1`, `conv2`, `fc1`,
    `fc2` and `fc3`.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-Based Learning Applied to Document
    Recognition. Proceedings of the IEEE 86(11), 1998.
    """

    _rules = (*plain("conv{}"), *linear("fc{}"))

    def __init__(self, *, classes: int = 10, channels: int = 3, name: str | None = None) -> None:
        super().__init__(name=name)
        self |= Conv2d(6, 5, name="conv1")(input="input")
        self += Relu()
        self += MaxPool2d(2)
        self += Conv2d(16, 5, name="conv2")
        self += Relu()
        self += MaxPool2d(2)
        self += Flatten(start=1)
        self += Linear(120, name="fc1")
        self += Relu()
        self += Linear(84, name="fc2")
        self += Relu()
        self += Linear(classes, name="fc3")(output="output")
        self.set_shapes(input=["batch", channels, 32, 32])
