"""Small models written here, for what the families of torchvision, timm and transformers do not use: listed in PARTS, as family_models.FAMILIES."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

BATCH, CLASSES = 4, 7


def job(model, *inputs, target=None, loss=None):
    """A job of a model, its inputs, and a target; the output is the loss when there is no target."""
    if target is not None and loss is None:
        loss = F.mse_loss if target.is_floating_point() else F.cross_entropy
    return dict(model=model, inputs=inputs, target=target, loss=loss)


def classes(*dims):
    return torch.randint(0, CLASSES, (BATCH, *dims))


class Fn(nn.Module):
    """A function of some layers and the inputs."""

    def __init__(self, f, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.f = f

    def forward(self, *inputs):
        return self.f(self, *inputs)


def super_resolution():
    net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.PReLU(16), nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"), nn.PReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))
    return job(net, torch.randn(BATCH, 1, 8, 8), target=torch.randn(BATCH, 1, 16, 16))


def diffusion():
    """Denoising: group norm, SiLU, sine embedding of the time, attention over pixels, cross attention, nearest resizing."""

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1, self.t = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(32, o)
            self.n2, self.c2, self.skip = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1), nn.Conv2d(i, o, 1)

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.c2(F.silu(self.n2(h))) + self.skip(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
            self.inn, self.down, self.mid, self.up, self.out = nn.Conv2d(3, 16, 3, padding=1), Block(16, 16), Block(16, 16), Block(32, 16), nn.Conv2d(16, 3, 3, padding=1)
            self.norm, self.attn, self.cross = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True), nn.MultiheadAttention(16, 2, kdim=8, vdim=8, batch_first=True)

        def forward(self, x, t, text):
            f = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(8) / 8)
            t = self.time(torch.cat([f.sin(), f.cos()], -1).to(x.dtype))
            a = self.down(self.inn(x), t)
            h = self.mid(F.avg_pool2d(a, 2), t)
            n, c, hh, ww = h.shape
            s = h.flatten(2).transpose(1, 2)
            q = self.norm(s)
            s = s + self.attn(q, q, q, need_weights=False)[0]
            s = s + self.cross(self.norm(s), text, text)[0]
            h = s.transpose(1, 2).reshape(n, c, hh, ww)
            h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            return self.out(self.up(torch.cat([a, h], 1), t))

    return job(Net(), torch.randn(BATCH, 3, 8, 8), torch.randint(0, 1000, (BATCH,)), torch.randn(BATCH, 5, 8), target=torch.randn(BATCH, 3, 8, 8))


def temporal():
    """Dilated causal convolutions with weight normalisation, gated."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Conv1d(3, 16, 1)
            self.convs = nn.ModuleList(parametrizations.weight_norm(nn.Conv1d(16, 32, 3, dilation=2**i)) for i in range(3))
            self.out = nn.Conv1d(16, 3, 1)

        def forward(self, x):
            x = self.into(x)
            for i, c in enumerate(self.convs):
                a, b = c(F.pad(x, (2 * 2**i, 0))).chunk(2, 1)
                x = x + torch.tanh(a) * torch.sigmoid(b)
            return self.out(x)

    return job(Net(), torch.randn(BATCH, 3, 20), target=torch.randn(BATCH, 3, 20))


def spatial_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 6))
            self.conv, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, CLASSES)

        def forward(self, x):
            theta = self.where(x).view(-1, 2, 3) * 0.3 + torch.eye(2, 3)
            x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
            return self.head(self.conv(x).relu().amax((2, 3)))

    return job(Net(), torch.randn(BATCH, 1, 8, 8), target=classes())


def video():
    net = nn.Sequential(nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, CLASSES))
    return job(net, torch.randn(BATCH, 3, 4, 8, 8), target=classes())


def vq_vae():
    """Nearest codes by distance, straight-through gradient, losses of codebook and commitment inside."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec, self.codes = nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(12, 4)

        def forward(self, x):
            z = self.enc(x)
            nearest = ((z[..., None, :] - self.codes.weight) ** 2).sum(-1).argmin(-1)
            q = self.codes(nearest)
            loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            q = z + (q - z).detach()
            return loss + F.mse_loss(self.dec(q), x)

    return job(Net(), torch.randn(BATCH, 5, 8))


def contrastive():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.scale = nn.Linear(8, 6), nn.Linear(10, 6), nn.Parameter(torch.tensor(1.5))

        def forward(self, x, y):
            s = F.normalize(self.a(x), dim=-1) @ F.normalize(self.b(y), dim=-1).t() * self.scale.exp()
            at = torch.arange(x.shape[0])
            return (F.cross_entropy(s, at) + F.cross_entropy(s.t(), at)) / 2

    return job(Net(), torch.randn(BATCH, 8), torch.randn(BATCH, 10))


def triplet():
    return job(Fn(lambda s, a, p, n: F.triplet_margin_loss(s.net(a), s.net(p), s.net(n), margin=2.0), net=nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))), *(torch.randn(BATCH, 8) for _ in range(3)))


def losses_inside():
    """Label smoothing, focal, dice, KL, hinge, smooth L1, cosine, BCE with weights, Gaussian and Poisson likelihoods."""

    def f(s, x, label, mask):
        y = s.net(x)
        ce = F.cross_entropy(y, label, weight=s.weight)
        ce = ce + s.smooth(y, label)
        p = torch.softmax(y, 1).gather(1, label[:, None])[:, 0]
        focal = (-((1 - p) ** 2) * torch.log(p)).mean()
        m = torch.sigmoid(y)
        dice = 1 - (2 * (m * mask).sum() + 1) / (m.sum() + mask.sum() + 1)
        bce = F.binary_cross_entropy_with_logits(y, mask, pos_weight=s.weight)
        kl = F.kl_div(F.log_softmax(y, 1), F.softmax(mask, 1), reduction="batchmean")
        rest = F.smooth_l1_loss(y, mask) + F.huber_loss(y, mask, delta=0.5)
        cos = (1 - F.cosine_similarity(y, mask + 0.1, dim=1)).mean()
        var = F.softplus(y) + 0.1
        gauss = 0.5 * (torch.log(var) + (y - mask) ** 2 / var).mean()
        poisson = F.poisson_nll_loss(y * 0.1, mask)
        return ce + focal + dice + bce + kl + rest + cos + gauss + poisson

    model = Fn(f, net=nn.Sequential(nn.Linear(8, 16), nn.ELU(), nn.Linear(16, CLASSES)), smooth=nn.CrossEntropyLoss(label_smoothing=0.1))
    model.register_buffer("weight", torch.rand(CLASSES) + 0.5)
    return job(model, torch.randn(BATCH, 8), classes(), torch.randint(0, 2, (BATCH, CLASSES)).float())


def activations():
    acts = [nn.ELU(), nn.SELU(), nn.CELU(1.3), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Softplus(2.0), nn.Softsign(), nn.Hardswish(), nn.Hardsigmoid(), nn.Hardtanh(), nn.ReLU6(), nn.LeakyReLU(0.1), nn.LogSigmoid(), nn.Tanhshrink(), nn.Softshrink(0.2), nn.Hardshrink(0.2), nn.GLU(), nn.Softmin(-1), nn.LogSoftmax(-1), nn.Threshold(0.1, 0.0), nn.Identity()]

    def f(s, x):
        h, out = s.into(x), 0.0
        for i, a in enumerate(s.acts):
            y = a(h)
            out = out + s.outs[i](torch.cat([y, y], -1) if y.shape[-1] == 8 else y)
        return out

    return job(Fn(f, into=nn.Linear(6, 16), acts=nn.ModuleList(acts), outs=nn.ModuleList(nn.Linear(16, CLASSES) for _ in acts)), torch.randn(BATCH, 6), target=classes())


def normalisations():
    def f(s, x):
        return s.out((s.ln(x.transpose(1, 3)).transpose(1, 3) + s.gn(x) + s.inn(x) + s.lrn(x) + s.rms(x) + F.normalize(x, dim=1)).mean((2, 3)))

    layers = dict(ln=nn.LayerNorm(8), gn=nn.GroupNorm(2, 8), inn=nn.InstanceNorm2d(8, affine=True), lrn=nn.LocalResponseNorm(3), rms=nn.RMSNorm([5, 5]), out=nn.Linear(8, CLASSES))
    return job(Fn(f, **layers), torch.randn(BATCH, 8, 5, 5), target=classes())


def pooling():
    def f(s, x):
        y = s.conv(x)
        parts = [F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 3, 2, 1, count_include_pad=False), F.lp_pool2d(y.abs() + 0.1, 2, 2), F.adaptive_avg_pool2d(y, 4), F.adaptive_max_pool2d(y, 4), F.avg_pool2d(y, 2, ceil_mode=True)]
        return s.out(sum(p.mean((2, 3)) for p in parts))

    return job(Fn(f, conv=nn.Conv2d(3, 8, 3, padding="same"), out=nn.Linear(8, CLASSES)), torch.randn(BATCH, 3, 8, 8), target=classes())


def resizing():
    def f(s, x):
        y = s.conv(x)
        parts = [F.interpolate(y, scale_factor=2, mode="nearest"), F.interpolate(y, size=(12, 12), mode="bilinear"), F.interpolate(y, size=(5, 5), mode="bicubic", align_corners=True), F.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False), F.pad(y, (1, 2, 1, 2), "replicate"), F.pad(y, (1, 1, 1, 1), "reflect"), F.pad(y, (1, 0, 2, 0), "constant", 0.5)]
        return s.out(sum((p * p).mean((2, 3)) for p in parts))

    return job(Fn(f, conv=nn.Conv2d(3, 8, 3, padding=1), out=nn.Linear(8, CLASSES)), torch.randn(BATCH, 3, 8, 8), target=classes())


def graph_network():
    """Messages along edges added up at their ends."""

    def f(s, x, edges):
        h = s.into(x)
        for layer in s.layers:
            message = h[edges[0]]
            total = torch.zeros_like(h).index_add(0, edges[1], message)
            degree = torch.zeros(h.shape[0], 1, dtype=h.dtype).index_add(0, edges[1], torch.ones(edges.shape[1], 1, dtype=h.dtype))
            h = F.relu(layer(torch.cat([h, total / degree.clamp(min=1)], 1)))
        return s.out(h)

    layers = nn.ModuleList(nn.Linear(16, 8) for _ in range(2))
    return job(Fn(f, into=nn.Linear(5, 8), layers=layers, out=nn.Linear(8, CLASSES)), torch.randn(10, 5), torch.randint(0, 10, (2, 20)), target=torch.randint(0, CLASSES, (10,)))


def graph_attention():
    """Scatter with softmax over the neighbours of an adjacency matrix."""

    def f(s, x, adjacency):
        h = s.into(x)
        e = F.leaky_relu(s.a(h) + s.b(h).transpose(-1, -2), 0.2).masked_fill(adjacency == 0, -1e9)
        return s.out(F.elu(torch.softmax(e, -1) @ h)).mean(1)

    return job(Fn(f, into=nn.Linear(5, 8), a=nn.Linear(8, 1), b=nn.Linear(8, 1), out=nn.Linear(8, CLASSES)), torch.randn(BATCH, 6, 5), torch.randint(0, 2, (BATCH, 6, 6)) | torch.eye(6, dtype=torch.int64), target=classes())


def recommender():
    """DLRM: bags of embeddings, a bottom network, pairwise products, a top network."""

    def f(s, dense, sparse):
        x = [s.bottom(dense)] + [e(sparse[:, i]) for i, e in enumerate(s.tables)]
        t = torch.stack(x, 1)
        z = t @ t.transpose(1, 2)
        i, j = torch.tril_indices(t.shape[1], t.shape[1], -1)
        return s.top(torch.cat([x[0], z[:, i, j]], 1))[:, 0]

    layers = dict(bottom=nn.Sequential(nn.Linear(6, 8), nn.ReLU()), tables=nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3)), top=nn.Sequential(nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1)))
    return job(Fn(f, **layers), torch.randn(BATCH, 6), torch.randint(0, 20, (BATCH, 3, 4)), target=torch.rand(BATCH))


def transformer():
    """PyTorch's own encoder and decoder with masks."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pos = nn.Embedding(31, 16), nn.Parameter(torch.randn(1, 8, 16) * 0.1)
            self.net = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True, activation="gelu", norm_first=True)
            self.head = nn.Linear(16, 31)

        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            return self.head(self.net(self.embed(src) + self.pos, self.embed(tgt) + self.pos, tgt_mask=mask.to(self.pos.dtype), src_key_padding_mask=src == 0)).flatten(0, 1)

    return job(Net(), torch.randint(0, 31, (BATCH, 8)), torch.randint(1, 31, (BATCH, 8)), target=torch.randint(0, 31, (BATCH * 8,)))


def encoder_layer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="relu")
    return job(Fn(lambda s, x: s.out(s.enc(x.transpose(0, 1)).mean(0)), enc=nn.TransformerEncoder(layer, 2), out=nn.Linear(16, CLASSES)), torch.randn(BATCH, 6, 16), target=classes())


def fourier_field():
    """A coordinate network: sines of positions, a skip, SIREN layers."""

    def f(s, x):
        freq = 2.0 ** torch.arange(4)
        e = (x[..., None] * freq).flatten(-2)
        h = torch.sin(3.0 * s.a(torch.cat([x, e.sin(), e.cos()], -1).to(x.dtype)))
        return torch.sigmoid(s.c(torch.cat([torch.sin(s.b(h)), x], -1)))

    return job(Fn(f, a=nn.Linear(27, 16), b=nn.Linear(16, 16), c=nn.Linear(19, 3)), torch.randn(BATCH, 5, 3), target=torch.rand(BATCH, 5, 3))


def point_net():
    def f(s, x):
        h = s.one(x.transpose(1, 2))
        pooled = h.max(dim=2, keepdim=True)[0].expand_as(h)
        return s.two(torch.cat([h, pooled], 1))

    one = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
    return job(Fn(f, one=one, two=nn.Conv1d(32, CLASSES, 1)), torch.randn(BATCH, 10, 3), target=classes(10))


def detector():
    """A YOLO-like head: SiLU convolutions, SPP, nearest up-sampling, boxes by a grid."""

    def conv(i, o, k=3, s=1):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o, eps=1e-3, momentum=0.03), nn.SiLU(inplace=True))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = conv(3, 8, 3, 2), conv(8, 16, 3, 2), conv(64, 16, 1)
            self.up, self.head = conv(24, 8), nn.Conv2d(8, 5, 1)

        def forward(self, x):
            a = self.a(x)
            b = self.b(a)
            pools = [b]
            for _ in range(3):
                pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
            h = self.up(torch.cat([F.interpolate(self.c(torch.cat(pools, 1)), scale_factor=2), a], 1))
            y = self.head(h).sigmoid()
            n, _, hh, ww = y.shape
            gy, gx = torch.meshgrid(torch.arange(hh), torch.arange(ww), indexing="ij")
            grid = torch.stack([gx, gy]).to(y.dtype)
            xy = (y[:, :2] * 2 - 0.5 + grid) / ww
            wh = (y[:, 2:4] * 2) ** 2 / hh
            return torch.cat([xy, wh, y[:, 4:]], 1).flatten(2).transpose(1, 2)

    return job(Net(), torch.randn(BATCH, 3, 16, 16), target=torch.rand(BATCH, 64, 5))


def spectral():
    """Spectral normalisation, whose vectors are buffers, and orthogonal-free weights."""
    net = nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    for m in net:
        m.train()
    return job(net, torch.randn(BATCH, 8), target=torch.rand(BATCH, 1))


def gumbel():
    """A choice by noise that is an input, straight through."""

    def f(s, x, noise):
        y = torch.softmax((s.choose(x) + noise) / 0.7, -1)
        hard = F.one_hot(y.argmax(-1), 5).to(y.dtype)
        return s.out((hard - y).detach() + y)

    return job(Fn(f, choose=nn.Linear(6, 5), out=nn.Linear(5, CLASSES)), torch.randn(BATCH, 6), torch.randn(BATCH, 5), target=classes())


def ordering():
    """Sorting, top-k pooling, cumulative sums and maxima, quantiles by gather."""

    def f(s, x):
        h = s.into(x)
        srt, at = torch.sort(h, dim=1, descending=True)
        top = torch.topk(h, 3, dim=1)[0]
        back = torch.gather(h, 1, at[:, :4])
        return s.out(torch.cat([srt[:, :4], top, back, torch.cumsum(h, 1)[:, -2:], h.max(1, keepdim=True)[0], torch.logsumexp(h, 1, keepdim=True), h.std(1, keepdim=True), h.prod(1, keepdim=True), h.min(1, keepdim=True)[0]], 1))

    return job(Fn(f, into=nn.Linear(6, 8), out=nn.Linear(18, CLASSES)), torch.randn(BATCH, 6), target=classes())


def indexing():
    """Slices with steps, negative indices, masks, rolls, flips, tiles, scatters into a copy."""

    def f(s, x, at):
        h = s.into(x)
        a = h[:, ::2].repeat(1, 2, 1) + h.flip(1) + torch.roll(h, 1, 1)
        b = torch.where(h > 0, h, h * 0.1).masked_fill(h.abs() < 0.05, 0.0)
        c = torch.tril(h @ h.transpose(1, 2)) @ h
        d = h.clone()
        d[:, 1:3] = a[:, 1:3] * 2
        e = h.scatter(1, at, a) + torch.index_select(h, 1, torch.tensor([3, 2, 1, 0, 0, 1]))
        g = h.unfold(1, 3, 1).mean(-1).sum(1, keepdim=True) + h[:, -1:] + h[torch.arange(h.shape[0]), at[:, 0, 0]][:, None]
        return s.out((a + b + c + d + e + g).flatten(1))

    return job(Fn(f, into=nn.Linear(5, 4), out=nn.Linear(24, CLASSES)), torch.randn(BATCH, 6, 5), torch.randint(0, 6, (BATCH, 6, 4)), target=classes())


def fold_unfold():
    def f(s, x):
        p = F.unfold(x, 2, stride=2)
        return F.fold(s.net(p.transpose(1, 2)).transpose(1, 2), (8, 8), 2, stride=2)

    return job(Fn(f, net=nn.Linear(12, 12)), torch.randn(BATCH, 3, 8, 8), target=torch.randn(BATCH, 3, 8, 8))


def rwkv():
    """A linear-attention recurrence in the log domain, unrolled."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.k, self.v, self.r, self.o = (nn.Linear(8, 8, bias=False) for _ in range(4))
            self.w, self.u, self.mix = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8)), nn.Parameter(torch.rand(3, 1, 1, 8))
            self.shift = nn.ZeroPad2d((0, 0, 1, -1))

        def forward(self, x):
            xx = self.shift(x)
            xk, xv, xr = (x * self.mix + xx * (1 - self.mix)).unbind(0)
            k, v, r = self.k(xk), self.v(xv), torch.sigmoid(self.r(xr))
            w = -torch.exp(self.w)
            num = den = torch.zeros_like(k[:, 0])
            top = torch.full_like(num, -1e38)
            out = []
            for t in range(x.shape[1]):
                m = torch.maximum(top, self.u + k[:, t])
                a, b = torch.exp(top - m), torch.exp(self.u + k[:, t] - m)
                out.append((a * num + b * v[:, t]) / (a * den + b))
                m = torch.maximum(top + w, k[:, t])
                a, b = torch.exp(top + w - m), torch.exp(k[:, t] - m)
                num, den, top = a * num + b * v[:, t], a * den + b, m
            return self.o(torch.stack(out, 1) * r)

    return job(Net(), torch.randn(BATCH, 6, 8), target=torch.randn(BATCH, 6, 8))


def capsules():
    """Routing by agreement: einsum, squash, softmax over a middle dimension."""

    def f(s, x):
        u = torch.einsum("nic,iocd->niod", s.into(x), s.w)
        b = torch.zeros(u.shape[:3], dtype=u.dtype)
        for _ in range(2):
            v = torch.einsum("nio,niod->nod", b.softmax(2), u)
            q = v.pow(2).sum(-1, keepdim=True)
            v = v * q / (1 + q) / torch.sqrt(q + 1e-8)
            b = b + torch.einsum("niod,nod->nio", u, v)
        return v.norm(dim=-1)

    model = Fn(f, into=nn.Linear(5, 4))
    model.w = nn.Parameter(torch.randn(6, CLASSES, 4, 3) * 0.3)
    return job(model, torch.randn(BATCH, 6, 5), target=classes())


def quantile_regression():
    def f(s, x, y):
        q = torch.tensor([0.1, 0.5, 0.9], dtype=x.dtype)
        d = y[:, None] - s.net(x)
        return torch.maximum(q * d, (q - 1) * d).mean() + torch.relu(-d).pow(1.5).mean() + torch.logaddexp(d, d * 0.5).mean() * 0.1

    return job(Fn(f, net=nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))), torch.randn(BATCH, 5), torch.randn(BATCH))


def actor_critic():
    """PPO's loss: ratios clipped, an entropy bonus, a value loss with clipping."""

    def f(s, x, action, old, advantage, value):
        h = s.body(x)
        logits, v = s.pi(h), s.v(h)[:, 0]
        logp = F.log_softmax(logits, -1)
        ratio = torch.exp(logp.gather(1, action[:, None])[:, 0] - old)
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return -surrogate + 0.5 * F.mse_loss(v, value) - 0.01 * entropy

    return job(Fn(f, body=nn.Sequential(nn.Linear(5, 16), nn.Tanh()), pi=nn.Linear(16, 3), v=nn.Linear(16, 1)), torch.randn(BATCH, 5), torch.randint(0, 3, (BATCH,)), -torch.rand(BATCH), torch.randn(BATCH), torch.randn(BATCH))


def bilinear_layers():
    layers = dict(a=nn.Bilinear(4, 5, 6), out=nn.Linear(6, CLASSES))
    return job(Fn(lambda s, x, y: s.out(torch.tanh(s.a(x, y)) + torch.outer(x[:, 0], y[0, :1]) + torch.baddbmm(x[:, None, :1], x[:, None, :], y[:, :4, None])[:, :, 0])  , **layers), torch.randn(BATCH, 4), torch.randn(BATCH, 5), target=classes())


def linear_algebra():
    """Distances, norms, a kernel matrix, traces."""

    def f(s, x):
        h = s.net(x)
        d = ((h[:, None] - h[None]) ** 2).sum(-1)
        k = torch.exp(-d / 2)
        return (torch.trace(k @ k) + torch.linalg.norm(h, dim=1).sum() + h.norm(p=1) + torch.linalg.vector_norm(h, ord=3) + torch.diagonal(k).sum() + h.abs().max()) / 10

    return job(Fn(f, net=nn.Linear(5, 6)), torch.randn(BATCH, 5))


PARTS = {f.__name__: f for f in (
    super_resolution, diffusion, temporal, spatial_transformer, video, vq_vae, contrastive, triplet, losses_inside, activations, normalisations, pooling, resizing, graph_network, graph_attention,
    recommender, transformer, encoder_layer, fourier_field, point_net, detector, spectral, gumbel, ordering, indexing, fold_unfold, rwkv, capsules, quantile_regression, actor_critic, bilinear_layers,
    linear_algebra)}
