"""Published architectures, made of blocks. `load` reads the weights of public implementations."""

from .convolutional import MobileNetV2, ResNet
from .recurrent import LSTMClassifier, Seq2Seq
from .small import MLP, LeNet, UNet
from .weights import Weights, load

__all__ = [
    "MLP",
    "LSTMClassifier",
    "LeNet",
    "MobileNetV2",
    "ResNet",
    "Seq2Seq",
    "UNet",
    "Weights",
    "load",
]
