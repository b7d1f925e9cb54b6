"""Published architectures, made of blocks. `load` reads the weights of public implementations."""

from .convolutional import MobileNetV2, ResNet
from .weights import Weights, load

__all__ = ["MobileNetV2", "ResNet", "Weights", "load"]
