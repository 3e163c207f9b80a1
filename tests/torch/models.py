"""The example models in PyTorch, their data and their optimizer settings: what the exporter, the references and the benchmark share."""

import math
import pathlib

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
MNIST = ROOT / "examples" / "mnist"
SHAKESPEARE = ROOT / "examples" / "shakespeare"

CONTEXT, VOCAB, WIDTH, HEADS, LAYERS = 64, 65, 128, 4, 4


def normalized(image):
    """uint8 pixels [n,1,28,28] -> float32 with the mean and deviation of MNIST removed, as PyTorch's MNIST example does."""
    return (image.float() / 255 - 0.1307) / 0.3081


class MLP(nn.Module):
    """uint8 [n,1,28,28] -> logits [n,10] through two hidden layers of 128."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, image):
        x = normalized(image).flatten(1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class CNN(nn.Module):
    """uint8 [n,1,28,28] -> logits [n,10] through two convolutions, each followed by a 2x2 maximum."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 5 * 5, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.conv1(normalized(image))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


class Attention(nn.Module):
    """Causal self-attention [n,t,WIDTH] -> [n,t,WIDTH] with one projection for query, key and value."""

    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (HEADS, -1)).transpose(1, 2) for y in self.c_attn(x).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """GPT-2's block: each half normalizes first and adds its result to the stream."""

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, bias=False)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH, bias=False)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """int64 tokens [n,CONTEXT] -> logits [n,CONTEXT,VOCAB]: the size of nanoGPT's CPU setting, embedding tied to the head."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, bias=False)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_stream = name.endswith("c_proj.weight")
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if into_stream else 0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(CONTEXT, device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


# One row per example: where its ONNX is, how to build it, its input, and the setting that its README trains it with.
# 1,410 steps are five epochs of 9,000 digits.
DIGITS = dict(input="image", batch=32, steps=1410, lr=2e-3, min_lr=2e-5, warmup=0, beta2=0.999, decay=0.01, clip=0.0)
EXAMPLES = {
    "mlp": dict(file=MNIST / "mlp.onnx", build=MLP, **DIGITS),
    "cnn": dict(file=MNIST / "cnn.onnx", build=CNN, **DIGITS),
    "gpt": dict(file=SHAKESPEARE / "gpt.onnx", build=GPT, input="tokens", batch=12, steps=2000, lr=2e-3, min_lr=2e-4, warmup=100,
                beta2=0.99, decay=0.1, clip=1.0),
}


def load(name):
    """The example's model with the weights that its ONNX file holds; fails when a parameter is missing from the file."""
    ex = EXAMPLES[name]
    model = ex["build"]()
    graph = onnx.load(ex["file"]).graph
    held = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in graph.initializer}
    state = {k: held[k] for k, _ in model.named_parameters() if k in held}
    missing = {k for k, _ in model.named_parameters(remove_duplicate=False)} - set(held)
    tied = {k for k in missing if any(k != o and same(model, k, o) for o in held)}
    if missing - tied:
        raise SystemExit(f"{ex['file']}: no initializer for {sorted(missing - tied)}")
    state.update({o: held[o] for o in held if any(same(model, o, k) for k in tied)})
    model.load_state_dict(state, strict=False)
    return model


def same(model, a, b):
    """Whether both names lead to one parameter of the model."""
    every = dict(model.named_parameters(remove_duplicate=False))
    return a in every and every[a] is every.get(b)


def adamw(name, model, **kind):
    """AdamW as nanoGPT sets it up: decay for matrices (and convolutions), none for vectors; kind chooses its implementation."""
    ex = EXAMPLES[name]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=ex["decay"]), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=ex["lr"], betas=(0.9, ex["beta2"]), eps=1e-8, **kind)


def learning_rate(name, step):
    """The rate of update `step` (0 first): a linear warm-up, then a cosine down to min_lr at the last step (gtc's --schedule cosine)."""
    ex = EXAMPLES[name]
    if step < ex["warmup"]:
        return ex["lr"] * (step + 1) / ex["warmup"]
    part = (step - ex["warmup"]) / (ex["steps"] - ex["warmup"])
    return ex["min_lr"] + 0.5 * (1 + math.cos(math.pi * part)) * (ex["lr"] - ex["min_lr"])


def train_step(name, model, optimizer, inputs, target):
    """One update on one batch; the loss before it, still a tensor."""
    logits = model(inputs)
    loss = F.cross_entropy(logits.flatten(0, -2), target.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if EXAMPLES[name]["clip"]:
        nn.utils.clip_grad_norm_(model.parameters(), EXAMPLES[name]["clip"])
    optimizer.step()
    return loss.detach()


def digits(split):
    """(image uint8 [n,1,28,28], label int64 [n]) of "train" or "test"."""
    held = np.load(MNIST / f"{split}.npz")
    return torch.from_numpy(held["image"]), torch.from_numpy(held["label"])


def text(split):
    """Token numbers int64 [n] of "train" or "val", as examples/shakespeare/prepare writes them."""
    path = SHAKESPEARE / f"{split}.bin"
    if not path.exists():
        raise SystemExit(f"{path}: missing; run: go run ./examples/shakespeare/prepare")
    return torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))


def windows(tokens):
    """All (input, target) windows [m,CONTEXT] that do not overlap; the target is the text one token on."""
    count = (len(tokens) - 1) // CONTEXT
    cut = tokens[: count * CONTEXT + 1]
    return cut[:-1].view(count, CONTEXT), cut[1:].view(count, CONTEXT)
