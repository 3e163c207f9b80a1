"""Writes the models of tests/losses: small ones that compute their loss, with its value and gradients in float64.

    tests/torch/run.sh graph_losses.py FOLDER

Each is exported with a batch of eight. The parameters start alike in all; FOLDER/NAME.onnx is the model, FOLDER/NAME.npz its
reference for gtc check.
"""

import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))

import gtc
import make_reference
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

B, T, D, C = 8, 3, 6, 5


class Net(nn.Module):
    """Two layers of features, heads of classes, and the loss that `of` computes of (self, x, y, mask)."""

    def __init__(self, of):
        super().__init__()
        torch.manual_seed(1)
        self.of = of
        self.a, self.b = nn.Linear(D, 8), nn.Linear(8, 8)
        self.head, self.other = nn.Linear(8, C), nn.Linear(8, C)
        self.s = nn.Parameter(torch.tensor([0.3, -0.2]))
        self.register_buffer("classes", torch.tensor([0.5, 2.0, 1.0, 0.25, 3.0]))
        self.register_buffer("frozen", torch.randn(D) * 0.5)

    def feature(self, x):
        return torch.tanh(self.b(torch.tanh(self.a(x))))

    def forward(self, x, y, mask):
        return self.of(self, x, y, mask)


def logits(m, x):
    return m.head(m.feature(x))


def flat(m, x, y, **kw):
    return F.cross_entropy(logits(m, x).reshape(-1, C), y.reshape(-1), **kw)


def rows(m, x, y, **kw):
    return F.cross_entropy(logits(m, x).reshape(-1, C), y.reshape(-1), reduction="none", **kw).reshape(y.shape)


def decay(m):
    return 1e-2 * sum((p * p).sum() for p in (m.a.weight, m.head.weight))


def first(m, x, y, **kw):
    """Cross entropy of one class for each sample."""
    return F.cross_entropy(logits(m, x.mean(1)), y[:, 0], **kw)


def focal(m, x, y, mask):
    ce = rows(m, x, y)
    return ((1 - torch.exp(-ce)) ** 2 * ce * mask).sum() / mask.sum()


def z(m, x, y, mask):
    lg = logits(m, x)
    lse = torch.logsumexp(lg, -1)
    ok = (y != -100).to(lg.dtype)
    return F.cross_entropy(lg.reshape(-1, C), y.reshape(-1)) + 1e-2 * (lse**2 * ok).sum() / ok.sum()


def two(m, x, y, mask):
    f = m.feature(x)
    y2 = torch.where(mask > 0, y, torch.full_like(y, -100))
    return F.cross_entropy(m.head(f).reshape(-1, C), y.reshape(-1)) + 0.5 * F.cross_entropy(m.other(f).reshape(-1, C), y2.reshape(-1))


def uncertainty(m, x, y, mask):
    f, s = m.feature(x), m.s
    ce = F.cross_entropy(m.head(f).reshape(-1, C), y.reshape(-1))
    reg = (((m.other(f) ** 2).mean(-1)) * mask).sum() / mask.sum()
    return torch.exp(-s[0]) * ce + torch.exp(-s[1]) * reg + s.sum()


def smooth_by_hand(m, x, y, mask):
    lp = F.log_softmax(logits(m, x), -1)
    ok = (y != -100).to(lp.dtype)
    safe = y.clamp(min=0)
    nll = -lp.gather(-1, safe.unsqueeze(-1)).squeeze(-1)
    return ((0.9 * nll + 0.1 * -lp.mean(-1)) * ok).sum() / ok.sum().clamp(min=1)


def weighted_by_hand(m, x, y, mask):
    w = m.classes[y.clamp(min=0)] * (y != -100)
    return (rows(m, x, y) * w).sum() / w.sum()


def sample_weights(m, x, y, mask):
    w = mask.sum(-1) + 0.5
    return (F.cross_entropy(logits(m, x.mean(1)), y[:, 0].clamp(min=0), reduction="none") * (w / w.sum())).sum()


def balance(m, x, y, mask):
    """Weights of classes by how often they are in the batch."""
    n = F.one_hot(y.clamp(min=0), C).to(x.dtype).sum((0, 1))
    w = 1 / (n + 1)
    return (rows(m, x, y.clamp(min=0)) * w[y.clamp(min=0)]).mean()


def regression(m, x):
    return logits(m, x)[..., 0]


def masked(f):
    return lambda m, x, y, k: (f(m, x, y, k) * k).sum() / k.sum()


def normalized_input(m, x, y, mask):
    mu = x.mean((0, 1), keepdim=True)
    return flat(m, x - mu, y)


def contrast(m, x, y, mask):
    f = F.normalize(m.feature(x.mean(1)), dim=-1)
    return F.cross_entropy(f @ f.t() * 3, torch.arange(f.shape[0]))


def spread(m, x, y, mask):
    f = m.feature(x.mean(1))
    return flat(m, x, y) + 0.1 * torch.relu(1 - f.std(0)).mean()


def gated(m, x, y, mask):
    g = torch.sigmoid(m.other(m.feature(x)))[..., 0]
    return (g * rows(m, x, y) * mask).sum() / g.sum()


def switch(m, x, y, mask):
    """The balance loss of experts: product of two means over the batch."""
    p = torch.softmax(m.other(m.feature(x)), -1)
    return flat(m, x, y) + 0.1 * C * (p.mean((0, 1)) ** 2).sum()


S = (y_sq := lambda m, x, y, k: (regression(m, x) - x[..., 0]) ** 2)
LOSSES = {
    "mean": lambda m, x, y, k: flat(m, x, y.clamp(min=0)),
    "ignored": lambda m, x, y, k: flat(m, x, y),
    "times": lambda m, x, y, k: 0.5 * flat(m, x, y),
    "negative": lambda m, x, y, k: -(-flat(m, x, y)) / 3,
    "class_weights": lambda m, x, y, k: flat(m, x, y, weight=m.classes),
    "class_weights_scaled": lambda m, x, y, k: flat(m, x, y, weight=m.classes) * 2 + 1,
    "smoothed": lambda m, x, y, k: flat(m, x, y, label_smoothing=0.1) * 1.5,
    "smoothed_weighted": lambda m, x, y, k: flat(m, x, y, label_smoothing=0.1, weight=m.classes),
    "smooth_by_hand": smooth_by_hand,
    "weighted_by_hand": weighted_by_hand,
    "sum": lambda m, x, y, k: flat(m, x, y, reduction="sum"),
    "sum_over_batch": lambda m, x, y, k: flat(m, x, y, reduction="sum") / B,
    "sum_plus_mean": lambda m, x, y, k: 0.01 * flat(m, x, y, reduction="sum") + flat(m, x, y),
    "decay": lambda m, x, y, k: flat(m, x, y.clamp(min=0)) + decay(m),
    "ignored_decay": lambda m, x, y, k: flat(m, x, y) + decay(m),
    "ignored_l1": lambda m, x, y, k: 0.7 * flat(m, x, y) + 1e-2 * m.b.weight.abs().sum(),
    "activity": lambda m, x, y, k: flat(m, x, y) + 0.1 * (m.feature(x) ** 2).mean(),
    "z": z,
    "focal": focal,
    "two": two,
    "two_means": lambda m, x, y, k: flat(m, x, y) + masked(S)(m, x, y, k),
    "three": lambda m, x, y, k: two(m, x, y, k) + masked(S)(m, x, y, k) + decay(m),
    "shared_count": lambda m, x, y, k: ((rows(m, x, y) * k).sum() + 0.3 * (S(m, x, y, k) * k).sum()) / k.sum(),
    "uncertainty": uncertainty,
    "masked_mse": masked(S),
    "masked_l1": lambda m, x, y, k: 2 * masked(lambda *a: (regression(a[0], a[1]) - a[1][..., 0]).abs())(m, x, y, k),
    "masked_bce": lambda m, x, y, k: masked(
        lambda m, x, y, k: F.binary_cross_entropy_with_logits(regression(m, x), (y > 1).to(x.dtype), reduction="none")
    )(m, x, y, k) + 0.1,
    "huber_eps": lambda m, x, y, k: (F.huber_loss(regression(m, x), x[..., 0], reduction="none") * k).sum() / (k.sum() + 1e-3) * 3,
    "per_sample_mean": lambda m, x, y, k: ((rows(m, x, y) * k).sum(1) / k.sum(1).clamp(min=1)).mean(),
    "per_sample_and_batch": lambda m, x, y, k: ((rows(m, x, y) * k).sum(1) / k.sum(1).clamp(min=1)).mean() + 0.3 * flat(m, x, y),
    "per_token": lambda m, x, y, k: ((rows(m, x, y) * k).sum(0) / k.sum(0).clamp(min=1)).mean(),
    "kl_batchmean": lambda m, x, y, k: F.kl_div(
        F.log_softmax(logits(m, x), -1).reshape(-1, C), torch.softmax(x[..., :C], -1).reshape(-1, C), reduction="batchmean"
    ),
    "kl_masked": lambda m, x, y, k: masked(
        lambda m, x, y, k: F.kl_div(F.log_softmax(logits(m, x), -1), torch.softmax(x[..., :C], -1), reduction="none").sum(-1)
    )(m, x, y, k) * 0.5,
    "distilled": lambda m, x, y, k: flat(m, x, y) + 0.5 * F.kl_div(
        F.log_softmax(logits(m, x) / 2, -1).reshape(-1, C), torch.softmax(x[..., :C], -1).reshape(-1, C), reduction="batchmean"
    ),
    "sample_weights": sample_weights,
    "balance": balance,
    "clamped_none": lambda m, x, y, k: (rows(m, x, y) * (y > 90)).sum() / (y > 90).sum().clamp(min=1) + masked(S)(m, x, y, k),
    "where_none": lambda m, x, y, k: torch.where(
        (y > 90).sum() > 0, (rows(m, x, y) * (y > 90)).sum() / ((y > 90).sum() + 1e-6), torch.zeros(())
    ) + flat(m, x, y),
    "largest_mask": lambda m, x, y, k: (rows(m, x, y) * k).sum() / (k.sum(1).max() * B),
    "lengths": lambda m, x, y, k: (rows(m, x, y) * k).sum() / k.sum(1).max() + flat(m, x, y),
    "margin": lambda m, x, y, k: masked(lambda *a: torch.relu(0.5 - regression(a[0], a[1]) * (a[2] > 1)))(m, x, y, k) * 2,
    "frozen_gate": lambda m, x, y, k: (rows(m, x, y) * torch.sigmoid(x @ m.frozen)).sum() / torch.sigmoid(x @ m.frozen).sum() * 2,
    "first_token": lambda m, x, y, k: first(m, x, y) + 0.2 * flat(m, x, y),
    "normalized_input": normalized_input,
    # What couples the samples through trained parameters.
    "couples_contrast": contrast,
    "couples_spread": spread,
    "couples_gated": gated,
    "couples_switch": switch,
    "couples_root": lambda m, x, y, k: torch.sqrt(masked(S)(m, x, y, k)),
}


def batch():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(B, T, D, generator=g)
    y = torch.randint(0, C, (B, T), generator=g)
    y[torch.rand(B, T, generator=g) < 0.3] = -100
    y[5] = -100  # a sample without targets
    mask = (torch.rand(B, T, generator=g) < 0.6).float()
    mask[2] = 0
    return x, y, mask


def export(name, inputs, path):
    model, names = Net(LOSSES[name]).train(), ["x", "y", "mask"]
    if name.startswith("smoothed"):  # PyTorch's exporters have no label_smoothing
        gtc.export(model, inputs, path, dynamic_batch=False, quiet=True)
    elif name == "huber_eps":  # the older exporter has no huber_loss
        torch.onnx.export(model, inputs, path, dynamo=True, optimize=False, input_names=names, external_data=False, verbose=False)
    else:
        torch.onnx.export(
            model, inputs, path, dynamo=False, input_names=names, do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING
        )


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    inputs = batch()
    names = sys.argv[2:] or LOSSES
    for name in names:
        model = Net(LOSSES[name])
        job = {"model": model, "inputs": inputs}
        arrays = make_reference.reference(job)
        arrays = {k: v for k, v in arrays.items() if not k.startswith("curve/adamw")}
        arrays = {k: v[:3] if k.startswith("curve/") else v for k, v in arrays.items()}
        for i, n in enumerate(("x", "y", "mask")):
            arrays[n] = arrays.pop(f"in{i}")
        np.savez_compressed(folder / f"{name}.npz", **arrays)
        export(name, inputs, folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
