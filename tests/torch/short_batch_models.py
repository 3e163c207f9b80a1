"""The small models of short_batches.py: MODELS is a list of Job, in each of which one thing is tried."""

import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional as F

C, H = 5, 4  # features of a sample, hidden


@dataclasses.dataclass
class Job:
    name: str
    build: typing.Callable  # gives the nn.Module
    inputs: typing.Callable  # of n samples, gives the tensors that it takes
    target: typing.Callable = None  # of n samples; None when the loss is in the module
    loss: str = "graph"  # gtc's name
    batch: int = 4
    optimizer: str = "sgd"
    lr: float = 0.1
    exporter: str = "dynamo"
    couples: bool = False  # samples meet in it: a shorter batch may be dropped, if that is said
    ranks: bool = False  # it has batch statistics, and references of each rank's own
    parts: bool = False  # its loss over all samples is not the mean of the batches' weighed by their samples, which evaluations give
    total: bool = False  # the loss is a sum over samples: its evaluation is a mean over whole batches
    sync: bool = False  # it has batch statistics: on several ranks --sync-bn is right


MODELS = []


def add(name, build, inputs, target=None, loss=None, **more):
    MODELS.append(Job(name, build, inputs, target, loss or ("graph" if target is None else "cross_entropy"), **more))


def real(*dims):
    return lambda n: (torch.randn(n, *dims),)


def tokens(steps, of):
    return lambda n: (torch.randint(0, of, (n, steps)),)


def labels(of, *dims, ignored=()):
    def make(n):
        t = torch.randint(0, of, (n, *dims))
        t.view(-1)[[i for i in ignored if i < t.numel()]] = -100
        return t

    return make


def numbers(*dims):
    return lambda n: torch.randn(n, *dims)


def both(*makers):
    """Inputs, then targets as further inputs: for losses within the module."""
    return lambda n: tuple(x for m in makers for x in (m(n) if isinstance(m(0), tuple) else (m(n),)))


class Module(nn.Module):
    """Parts by name, and a function of (parts, *inputs)."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.run(self, *inputs)


def mlp(out, *end):
    return lambda: nn.Sequential(nn.Linear(C, H), nn.Tanh(), nn.Linear(H, out), *end)


# Losses that gtc adds.
add("ce", mlp(3), real(C), labels(3), optimizer="momentum")
add("ce_adamw", mlp(3), real(C), labels(3), optimizer="adamw", lr=0.02, batch=6)
add("ce_ignore", mlp(3), real(C), labels(3, ignored=(1, 2, 5)), batch=6)
add("ce_torchscript", mlp(3), real(C), labels(3), exporter="torchscript", optimizer="adamw", lr=0.02)
add("mse", mlp(2), real(C), numbers(2), "mse", optimizer="momentum", batch=6)
add("mse_one", mlp(1), real(C), numbers(1), "mse")
add("l1", mlp(2), real(C), numbers(2), "l1")
add("huber", mlp(2), real(C), lambda n: 2 * torch.randn(n, 2), "huber")
add("bce", mlp(2, nn.Sigmoid()), real(C), lambda n: torch.rand(n, 2), "bce")
add("multi_label", mlp(3), real(C), lambda n: torch.randint(0, 2, (n, 3)).float(), "bce_logits", batch=6)
add("nll", mlp(3, nn.LogSoftmax(1)), real(C), labels(3, ignored=(5,)), "nll")
add("kl_div", mlp(3, nn.LogSoftmax(1)), real(C), lambda n: torch.softmax(torch.randn(n, 3), 1), "kl_div")

# Batch normalisation.
BN1 = lambda **o: lambda: nn.Sequential(nn.Linear(C, H), nn.BatchNorm1d(H, **o), nn.ReLU(), nn.Linear(H, 3))
add("bn", BN1(), real(C), labels(3), batch=6, ranks=True)
add("bn_momentum", BN1(momentum=0.5), real(C), labels(3), sync=True, optimizer="momentum")
add("bn_replaces", BN1(momentum=1.0), real(C), labels(3), sync=True)
add("bn_never_moves", BN1(momentum=0.0), real(C), labels(3), sync=True)
add("bn_not_affine", BN1(affine=False), real(C), labels(3), ranks=True)
add("bn_eps", BN1(eps=0.3), real(C), labels(3), sync=True, optimizer="adamw", lr=0.02)
add("bn_torchscript", BN1(), real(C), labels(3), sync=True, exporter="torchscript")
add("bn_input", lambda: nn.Sequential(nn.BatchNorm1d(C), nn.Linear(C, 2)), real(C), numbers(2), "mse", sync=True)
add("bn_conv1d", lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)), real(2, 5),
    numbers(2), "mse", ranks=True)
add("bn_conv2d", lambda: nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(2, 3)), real(1, 5, 5), labels(3), ranks=True, batch=6)
add("bn_conv3d", lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)), real(1, 3, 3, 3),
    numbers(2), "mse", sync=True)
add("bn_several", lambda: Module(lambda m, x: m.c(F.relu(m.n2(m.b(F.relu(m.n1(m.a(x))))) + m.a(x))), a=nn.Linear(C, H), n1=nn.BatchNorm1d(H),
    b=nn.Linear(H, H), n2=nn.BatchNorm1d(H, momentum=0.3), c=nn.Linear(H, 3)), real(C), labels(3), sync=True, batch=6)
add("bn_frozen", lambda: Module(lambda m, x: m.c(m.n2(F.relu(m.n1(m.a(x))))), a=nn.Linear(C, H), n1=nn.BatchNorm1d(H), n2=nn.BatchNorm1d(H).eval(),
    c=nn.Linear(H, 3)), real(C), labels(3), sync=True)
add("bn_merged_steps", lambda: Module(lambda m, x: m.b(F.relu(m.n(m.a(x.flatten(0, 1))))), a=nn.Linear(3, H), n=nn.BatchNorm1d(H), b=nn.Linear(H, 3)),
    real(4, 3), labels(3, 4), sync=True)
add("bn_no_running", BN1(track_running_stats=False), real(C), labels(3), sync=True, couples=True)  # in evaluation, too; exported as means and squares
add("bn_graph_loss", lambda: Module(lambda m, x, t: F.cross_entropy(m.b(F.relu(m.n(m.a(x)))), t), a=nn.Linear(C, H), n=nn.BatchNorm1d(H),
    b=nn.Linear(H, 3)), both(real(C), labels(3)), sync=True)

# Normalisations and layers in which samples do not meet.
add("group_norm", lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)), real(2, 5), labels(3))
add("layer_norm", lambda: nn.Sequential(nn.Linear(C, H), nn.LayerNorm(H), nn.GELU(), nn.Linear(H, 3)), real(C), labels(3), batch=6)
add("instance_norm", lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)),
    real(1, 4, 4), numbers(2), "mse")
add("pooled_embedding", lambda: Module(lambda m, x: m.b(m.a(x).mean(1)), a=nn.Embedding(7, H), b=nn.Linear(H, 3)), tokens(4, 7), labels(3), batch=6)
add("embedding_bag", lambda: nn.Sequential(nn.EmbeddingBag(7, H, mode="mean"), nn.Linear(H, 3)), tokens(4, 7), labels(3))  # exported as slices of all tokens
add("dropout_off", mlp(3, nn.Dropout(0.0)), real(C), labels(3))
add("greatest_embedding", lambda: Module(lambda m, x: m.b(m.a(x).amax(1)), a=nn.Embedding(7, H), b=nn.Linear(H, 2)), tokens(4, 7), numbers(2), "mse")
add("masked_attention", lambda: Module(masked_attention, e=nn.Embedding(6, H), q=nn.Linear(H, H), k=nn.Linear(H, H), v=nn.Linear(H, H), o=nn.Linear(H, 3)),
    tokens(4, 6), labels(3))
add("language_model", lambda: Module(language_model, e=nn.Embedding(6, H), qkv=nn.Linear(H, 3 * H), o=nn.Linear(H, 6)), tokens(5, 6),
    labels(6, 5, ignored=(2, 11, 22)), batch=6)
add("rnn", lambda: Module(lambda m, x: m.b(m.a(x)[0][:, -1]), a=nn.RNN(3, H, batch_first=True), b=nn.Linear(H, 3)), real(4, 3), labels(3), exporter="torchscript")
add("lstm", lambda: Module(lambda m, x: m.b(m.a(x)[0].mean(1)), a=nn.LSTM(2, 3, batch_first=True), b=nn.Linear(3, 2)), real(4, 2), numbers(2), "mse",
    exporter="torchscript")
add("gru", lambda: Module(lambda m, x: m.b(m.a(x)[0]), a=nn.GRU(2, 3, batch_first=True), b=nn.Linear(3, 4)), real(3, 2), labels(4, 3),
    exporter="torchscript")
add("merged_steps", lambda: Module(lambda m, x: m.b(torch.tanh(m.a(x.flatten(0, 1)))), a=nn.Linear(3, H), b=nn.Linear(H, 3)), real(4, 3), labels(3, 4), batch=6)
add("pixels", lambda: nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 1)), real(1, 3, 3), labels(3, 3, 3, ignored=(0, 30, 31)))
add("two_inputs", lambda: Module(lambda m, x, y: m.c(torch.tanh(m.a(x) * m.b(y))), a=nn.Linear(C, H), b=nn.Linear(3, H), c=nn.Linear(H, 2)),
    lambda n: (torch.randn(n, C), torch.randn(n, 3)), numbers(2), "mse")

# Losses in the graph that are means over samples, or quotients of sums.
net = lambda out=3: dict(a=nn.Linear(C, H), b=nn.Linear(H, out))
out = lambda m, x: m.b(torch.tanh(m.a(x)))


def graph(name, loss, *targets, width=3, **more):
    """loss is a function of (module, outputs, inputs, *targets)."""
    add(name, lambda: Module(lambda m, x, *t: loss(m, out(m, x), x, *t), **net(width)), both(real(C), *targets), **more)


CE, CLASS = F.cross_entropy, labels(3)
weights = lambda n: torch.rand(n) + 0.5
mask = lambda n: (torch.arange(n) % 3 != 2).float()
graph("g_ce", lambda m, y, x, t: CE(y, t), CLASS, batch=6, optimizer="momentum")
graph("g_mse", lambda m, y, x, t: F.mse_loss(y, t), numbers(3))
graph("g_huber", lambda m, y, x, t: F.smooth_l1_loss(y, t), numbers(3))
graph("g_bce_logits", lambda m, y, x, t: F.binary_cross_entropy_with_logits(y, t, pos_weight=y.new_tensor([1.0, 2.0, 3.0])), lambda n: torch.rand(n, 3))
graph("g_weighted_samples", lambda m, y, x, t, w: (w * CE(y, t, reduction="none")).mean(), CLASS, weights)
graph("g_sum", lambda m, y, x, t: F.mse_loss(y, t, reduction="sum"), numbers(3), lr=0.02, total=True)
graph("g_by_shape", lambda m, y, x, t: CE(y, t, reduction="sum") / x.shape[0], CLASS)
graph("g_masked_mean", lambda m, y, x, t, k: (k * CE(y, t, reduction="none")).sum() / k.sum(), CLASS, mask, batch=6)
graph("g_ce_ignore", lambda m, y, x, t: CE(y, t), labels(3, ignored=(1, 5)), batch=6)
graph("g_class_weights", lambda m, y, x, t: CE(y, t, weight=y.new_tensor([1.0, 2.0, 0.5])), CLASS)
graph("g_smoothing", lambda m, y, x, t: CE(y, t, label_smoothing=0.1), CLASS)
graph("g_two_heads", lambda m, y, x, t, u: CE(y[:, :3], t) + 0.5 * F.mse_loss(y[:, 3:], u), CLASS, numbers(2), width=5, batch=6)
graph("g_weight_penalty", lambda m, y, x, t: CE(y, t) + 0.01 * sum((p**2).sum() for p in m.parameters()), CLASS)
graph("g_two_counts", lambda m, y, x, t, k: CE(y, t) + (k * (y**2).mean(1)).sum() / k.sum(), CLASS, mask, parts=True)
graph("g_z_loss", lambda m, y, x, t: CE(y, t) + 0.1 * (torch.logsumexp(y, 1) ** 2).mean(), CLASS)
graph("g_norms", lambda m, y, x: (torch.linalg.vector_norm(y, dim=1) - 1).abs().mean())
graph("g_variance_of_sample", lambda m, y, x, t: F.mse_loss(y, t) + y.var(1).mean(), numbers(3))
graph("g_focal", lambda m, y, x, t: ((1 - torch.softmax(y, 1).gather(1, t[:, None])[:, 0]) ** 2 * CE(y, t, reduction="none")).mean(), CLASS)
graph("g_autoencoder", lambda m, y, x: F.mse_loss(y, x) + 0.1 * torch.tanh(m.a(x)).abs().mean(), width=C)
add("g_token_mean", lambda: Module(lambda m, x, t: CE(m.b(m.a(x)).transpose(1, 2), t), a=nn.Embedding(6, H), b=nn.Linear(H, 6)),
    both(tokens(4, 6), labels(6, 4, ignored=(1, 6, 7, 17))), batch=6)
add("g_triplet", lambda: Module(lambda m, a, p, n: F.triplet_margin_loss(out(m, a), out(m, p), out(m, n)), **net()),
    lambda n: (torch.randn(n, C), torch.randn(n, C), torch.randn(n, C)))

# Losses and models in which samples meet.
unit = lambda y: F.normalize(y, dim=1)
where = lambda x: torch.arange(x.shape[0])
off = lambda s: s - torch.diag(torch.diagonal(s))
graph("c_rmse", lambda m, y, x, t: torch.sqrt(F.mse_loss(y, t)), numbers(3), couples=True)
graph("c_log_of_mean", lambda m, y, x, t: torch.log(1 + F.mse_loss(y, t)), numbers(3), couples=True)
graph("c_dice", lambda m, y, x, t: 1 - 2 * (torch.sigmoid(y) * t).sum() / (torch.sigmoid(y).sum() + t.sum()), lambda n: torch.rand(n, 3), couples=True)
graph("c_info_nce", lambda m, y, x: CE(unit(y) @ unit(x[:, :3]).T / 0.5, where(x)), couples=True)
graph("c_clip", lambda m, y, x: (CE(y @ x[:, :3].T, where(x)) + CE(x[:, :3] @ y.T, where(x))) / 2, couples=True, batch=6)
graph("c_hardest_negative", lambda m, y, x: F.relu(1 + (y @ x[:, :3].T - 9 * torch.eye(x.shape[0])).amax(1) - (y * x[:, :3]).sum(1)).mean(), couples=True)
graph("c_batch_softmax", lambda m, y, x, t: F.mse_loss(torch.softmax(y, 0), t), numbers(3), couples=True)
graph("c_balance", lambda m, y, x, t: CE(y, t) + 0.5 * (torch.softmax(y, 1).mean(0) * F.one_hot(y.argmax(1), 3).float().mean(0)).sum(), CLASS, couples=True)
graph("c_barlow", lambda m, y, x: (off(centred(y).T @ centred(x[:, :3]) / x.shape[0]) ** 2).sum(), couples=True)
graph("c_variance", lambda m, y, x, t: CE(y, t) + F.relu(1 - torch.sqrt(y.var(0, unbiased=False) + 1e-3)).mean(), CLASS, couples=True)
graph("c_entropy_of_mean", lambda m, y, x: (lambda p: (p * p.log()).sum())(torch.softmax(y, 1).mean(0)), couples=True)
graph("c_greatest", lambda m, y, x, t: CE(y, t, reduction="none").max(), CLASS, couples=True)
graph("c_shuffled", lambda m, y, x: F.relu(1 - (y * x[:, :3]).sum(1) + (y * x[:, :3].roll(1, 0)).sum(1)).mean(), couples=True)
add("c_centred", lambda: Module(lambda m, x: m.b(torch.tanh((lambda h: h - h.mean(0))(m.a(x)))), **net()), real(C), labels(3), couples=True)
add("c_batch_norm_by_hand", lambda: Module(lambda m, x: m.b(torch.tanh(centred(m.a(x)))), **net()), real(C), labels(3), couples=True, batch=6)
add("c_deviation", lambda: Module(lambda m, x: m.b((lambda h: torch.cat([h[:, :3], torch.sqrt(h.var(0, unbiased=False) + 1e-3).mean().expand(h.shape[0], 1)], 1))(m.a(x))),
    **net(1)), real(C), lambda n: torch.rand(n, 1), "bce_logits", couples=True)
add("c_attends_samples", lambda: Module(lambda m, x: m.b((lambda h: torch.softmax(h @ h.T, 1) @ h)(m.a(x))), **net()), real(C), labels(3), couples=True)

same = lambda t: (t[:, None] == t[None]).float()
apart = lambda t: same(t) * (1 - torch.eye(t.shape[0]))
graph("g_one_hot", lambda m, y, x, t: -(F.log_softmax(y, 1) * F.one_hot(t, 3)).sum(1).mean(), CLASS, batch=6)  # small constants, as many as samples
graph("c_experts", lambda m, y, x, t: CE(y, t) + (F.one_hot(y.topk(2, 1).indices, 3).sum(1).float().mean(0) * torch.softmax(y, 1).mean(0)).sum(), CLASS, couples=True, batch=6)
graph("c_prototypes", lambda m, y, x, t: (lambda o: CE(y @ ((o.T @ y) / (o.sum(0)[:, None] + 0.01)).T, t))(F.one_hot(t, 3).to(y.dtype)), CLASS, couples=True, batch=6)
graph("c_by_class", lambda m, y, x, t: (CE(y, t, reduction="none") / F.one_hot(t, 3).sum(0)[t]).sum(), CLASS, couples=True, batch=6)
graph("c_positives", lambda m, y, x, t: -((F.log_softmax(unit(y) @ unit(y).T, 1) * same(t)).sum(1) / same(t).sum(1)).mean(), CLASS, couples=True, batch=6)
graph("c_other_positives", lambda m, y, x, t: -((lambda s: s - torch.logsumexp(s.masked_fill(torch.eye(x.shape[0]).bool(), -1e9), 1, keepdim=True))(2 * unit(y) @ unit(y).T)
    * apart(t)).sum(1).div(apart(t).sum(1).clamp(min=1)).mean(), CLASS, couples=True, batch=6)

kernel = lambda a, b: torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1))
graph("c_pairs", lambda m, y, x: torch.log(kernel(unit(y), unit(y)).mean()), couples=True, batch=6)
graph("c_discrepancy", lambda m, y, x, t: kernel(y, y).mean() + kernel(t, t).mean() - 2 * kernel(y, t).mean(), numbers(3), couples=True, batch=6)


def centred(y):
    return (y - y.mean(0)) / torch.sqrt(y.var(0, unbiased=False) + 1e-2)


def masked_attention(m, x):
    """Token 0 is padding, which nobody attends to; the first token is none."""
    h = m.e(x)
    score = m.q(h) @ m.k(h).transpose(1, 2)
    hidden = (x == 0) & (torch.arange(x.shape[1]) > 0)
    return m.o((torch.softmax(score.masked_fill(hidden[:, None, :], -1e9), -1) @ m.v(h)).mean(1))


def language_model(m, x):
    h = m.e(x)
    q, k, v = m.qkv(h)[:, None].chunk(3, -1)
    return m.o(h + F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0])
