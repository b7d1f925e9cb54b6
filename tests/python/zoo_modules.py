"""Networks of public tutorials, in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

F = nn.functional


class LeNet(nn.Module):
    """`Net` of PyTorch's tutorial "Training a Classifier"."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Classifier(nn.Module):
    """An LSTM over packed sequences, and a layer of its last states."""

    def __init__(self, vocabulary: int, width: int, hidden: int, layers: int, both: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, bidirectional=both, batch_first=True)
        self.fc = nn.Linear(hidden * (2 if both else 1), 3)

    def forward(self, tokens: Any, lengths: Any = None) -> Any:
        x = self.embedding(tokens)
        if lengths is not None:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(x)
        last = torch.cat([hidden[-2], hidden[-1]], 1) if self.lstm.bidirectional else hidden[-1]
        return self.fc(last)


class Coder(nn.Module):
    """One side of `Seq2Seq`."""

    def __init__(self, vocabulary: int, width: int, hidden: int, decoder: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, hidden, 2)
        if decoder:
            self.fc_out = nn.Linear(hidden, vocabulary)


class Seq2Seq(nn.Module):
    """The decoder takes one step at a time, as in pytorch-seq2seq by bentrevett."""

    def __init__(self, vocabulary: int, target_vocabulary: int, width: int, hidden: int) -> None:
        super().__init__()
        self.encoder = Coder(vocabulary, width, hidden, decoder=False)
        self.decoder = Coder(target_vocabulary, width, hidden, decoder=True)

    def forward(self, tokens: Any, target: Any) -> Any:
        _, state = self.encoder.rnn(self.encoder.embedding(tokens.T))
        outputs = []
        for token in target.T:
            step, state = self.decoder.rnn(self.decoder.embedding(token)[None], state)
            outputs.append(self.decoder.fc_out(step[0]))
        return torch.stack(outputs, 1)


class TokenEmbedding(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.width = width

    def forward(self, tokens: Any) -> Any:
        return self.embedding(tokens) * math.sqrt(self.width)


class PositionalEncoding(nn.Module):
    def __init__(self, width: int, longest: int = 20) -> None:
        super().__init__()
        den = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
        pos = torch.arange(0, longest).reshape(longest, 1)
        pos_embedding = torch.zeros((longest, width))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.register_buffer("pos_embedding", pos_embedding)

    def forward(self, x: Any) -> Any:
        return x + self.pos_embedding[: x.size(1)]


class Translator(nn.Module):
    """`Seq2SeqTransformer` of PyTorch's tutorial on translation, with the batch first."""

    def __init__(self, vocabulary: int, target_vocabulary: int, width: int, first: bool) -> None:
        super().__init__()
        settings = {"batch_first": True, "norm_first": first}
        layer = nn.TransformerEncoderLayer(width, 4, 48, **settings)
        # PyTorch's usual encoder warns of nested tensors.
        encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.transformer = nn.Transformer(width, 4, 2, 2, 48, custom_encoder=encoder, **settings)
        self.generator = nn.Linear(width, target_vocabulary)
        self.src_tok_emb = TokenEmbedding(vocabulary, width)
        self.tgt_tok_emb = TokenEmbedding(target_vocabulary, width)
        self.positional_encoding = PositionalEncoding(width)

    def forward(self, tokens: Any, target: Any, seen: Any = None) -> Any:
        source = self.positional_encoding(self.src_tok_emb(tokens))
        written = self.positional_encoding(self.tgt_tok_emb(target))
        hidden = None if seen is None else ~seen
        steps = target.shape[1]
        decoded = self.transformer(
            source,
            written,
            tgt_mask=torch.ones(steps, steps, dtype=torch.bool).triu(1),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.generator(decoded)


class DoubleConv(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(channels, out, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Any) -> Any:
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(channels, out))

    def forward(self, x: Any) -> Any:
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(channels, out)

    def forward(self, x: Any, skip: Any) -> Any:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class OutConv(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel_size=1)

    def forward(self, x: Any) -> Any:
        return self.conv(x)


class UNet(nn.Module):
    """`UNet` of Pytorch-UNet by milesial, with `width` in place of 64."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.inc = DoubleConv(channels, width)
        self.down1 = Down(width, 2 * width)
        self.down2 = Down(2 * width, 4 * width)
        self.down3 = Down(4 * width, 8 * width)
        self.down4 = Down(8 * width, 16 * width)
        self.up1 = Up(16 * width, 8 * width)
        self.up2 = Up(8 * width, 4 * width)
        self.up3 = Up(4 * width, 2 * width)
        self.up4 = Up(2 * width, width)
        self.outc = OutConv(width, classes)

    def forward(self, x: Any) -> Any:
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x5 = self.down4(x4)
        x = self.up1(x5, x4)
        x = self.up2(x, x3)
        x = self.up3(x, x2)
        return self.outc(self.up4(x, x1))
