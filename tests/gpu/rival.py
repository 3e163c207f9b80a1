"""PyTorch's side of the benchmark table, on the machine that tests/gpu/run.sh runs on.

    rival.py gpt|mlp|resnet [--batch N ...] [--device cuda]    # then a variant per line of standard input
    rival.py micro [--device cuda]
    rival.py tokens|mlp-data|resnet-data --out FILE ...        # random data for gtc; these need no PyTorch

Each measurement is a JSON line, at once. The process of a model stays, so that rounds of gtc and PyTorch can alternate.
Variants: eager, compile (torch.compile) and graph (a CUDA graph of the whole step). Training is as people do it: bf16 autocast
over fp32 weights, fused AdamW, flash attention through scaled_dot_product_attention, channels_last images; the perceptron
is fp32. Numbers: median, lowest and highest seconds of a step, seconds of the variant's first step, peak bytes allocated.
"""

import argparse
import array
import json
import os
import random
import struct
import sys
import time
import zipfile


def say(**fields):
    print(json.dumps(fields, separators=(",", ":")), flush=True)


# ---- data for gtc


def tokens(args):
    words = array.array("H", os.urandom(2 << 20))
    for i, w in enumerate(words):
        words[i] = w % min(args.vocab, 65536)
    with open(args.out, "wb") as f:
        words.tofile(f)


def npz(path, arrays):
    """Writes arrays given as name, dtype, shape and chunks of bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, dtype, shape, chunks in arrays:
            head = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
            head += b" " * (-(len(head) + 11) % 64) + b"\n"
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
                for c in chunks:
                    f.write(c)


def rows(args, shape, classes, batches):
    """Random samples; every one is the same numbers, turned by another amount."""
    r = random.Random(0)
    size = 1
    for d in shape:
        size *= d
    one = array.array("f", (r.gauss(0, 1) for _ in range(size)))
    n = args.batch * batches

    def sample(i):
        at = i * 37 % size
        return (one[at:] + one[:at]).tobytes()

    labels = array.array("q", (r.randrange(classes) for _ in range(n)))
    npz(args.out, [("x", "<f4", (n, *shape), (sample(i) for i in range(n))), ("target", "<i8", (n,), [labels.tobytes()])])


def mlp_data(args):
    rows(args, (args.width,), args.width, 16)


def resnet_data(args):
    rows(args, (3, args.seq, args.seq), args.vocab, 2)


# ---- models


def gpt(torch, args):
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, s, w = x.shape
            q, k, v = (t.view(b, s, self.heads, w // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(w, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, s, w))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(args.vocab, args.width), nn.Embedding(args.seq, args.width)
            self.blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.layers))
            self.ln_f = nn.LayerNorm(args.width)
            self.head = nn.Linear(args.width, args.vocab, bias=False)
            self.head.weight = self.wte.weight
            nn.init.normal_(self.wte.weight, std=0.02)

        def forward(self, x, target):
            h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy(self.head(self.ln_f(h)).view(-1, args.vocab), target.view(-1))

    with torch.device(args.device):
        model = GPT()
        x, target = (torch.randint(0, args.vocab, (args.batch, args.seq)) for _ in range(2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), (x, target), True


class WithLoss:
    """Makes a module of a network and its loss."""

    @staticmethod
    def of(torch, net):
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, x, target):
                return torch.nn.functional.cross_entropy(self.net(x), target)

        return Module()


def mlp(torch, args):
    from torch import nn

    layers = []
    for i in range(args.layers):
        layers += [nn.Linear(args.width, args.width)] + ([nn.ReLU()] if i + 1 < args.layers else [])
    model = WithLoss.of(torch, nn.Sequential(*layers)).to(args.device)
    x = torch.randn(args.batch, args.width, device=args.device)
    target = torch.randint(0, args.width, (args.batch,), device=args.device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=args.device != "cpu")
    return model, opt, (x, target), False


def resnet(torch, args):
    from torch import nn

    def conv(a, b, size, stride=1):
        return [nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b)]

    class Bottleneck(nn.Module):
        def __init__(self, a, mid, stride):
            super().__init__()
            self.path = nn.Sequential(*conv(a, mid, 1), nn.ReLU(True), *conv(mid, mid, 3, stride), nn.ReLU(True), *conv(mid, 4 * mid, 1))
            self.skip = nn.Sequential(*conv(a, 4 * mid, 1, stride)) if a != 4 * mid else nn.Identity()

        def forward(self, x):
            return torch.relu(self.path(x) + self.skip(x))

    parts = [*conv(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for i, blocks in enumerate((3, 4, 6, 3)):
        for k in range(blocks):
            parts.append(Bottleneck(width, 64 << i, 2 if i and not k else 1))
            width = 4 * (64 << i)
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, args.vocab))
    model = WithLoss.of(torch, net).to(args.device, memory_format=torch.channels_last)
    x = torch.randn(args.batch, 3, args.seq, args.seq, device=args.device).to(memory_format=torch.channels_last)
    target = torch.randint(0, args.vocab, (args.batch,), device=args.device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True), (x, target), True


# ---- measuring


class Bench:
    def __init__(self, torch, args, make):
        self.torch, self.args = torch, args
        self.model, self.opt, self.batch, self.low = make(torch, args)
        self.ready = {}

    def sync(self):
        if self.args.device != "cpu":
            self.torch.cuda.synchronize()

    def step_of(self, model):
        torch, kind = self.torch, self.args.device.split(":")[0]

        def step():
            with torch.autocast(kind, torch.bfloat16, enabled=self.low):
                loss = model(*self.batch)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad(set_to_none=True)
            return loss

        return step

    def graph(self):
        """The whole step as a CUDA graph."""
        torch = self.torch
        step, side = self.step_of(self.model), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            step()
        return g.replay

    def make(self, variant):
        if variant == "graph":
            if self.args.device == "cpu":
                raise ValueError("a CUDA graph needs a GPU")
            return self.graph()
        if variant not in ("eager", "compile"):
            raise ValueError("no variant " + variant)
        return self.step_of(self.torch.compile(self.model) if variant == "compile" else self.model)

    def run(self, variant):
        torch, gpu = self.torch, self.args.device != "cpu"
        if gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        first = 0.0
        if variant not in self.ready:
            start = time.perf_counter()
            self.ready[variant] = self.make(variant)
            self.ready[variant]()
            self.sync()
            first = time.perf_counter() - start
        step = self.ready[variant]
        for _ in range(2):
            step()
        self.sync()
        begin, windows, size = time.perf_counter(), [], max(1, self.args.steps // 6)
        while len(windows) < 6 and (len(windows) < 3 or time.perf_counter() - begin < 4):
            start = time.perf_counter()
            for _ in range(size):
                step()
            self.sync()
            windows.append((time.perf_counter() - start) / size)
        windows.sort()
        say(variant=variant, median=windows[len(windows) // 2], lowest=windows[0], highest=windows[-1], first=round(first, 2),
            bytes=torch.cuda.max_memory_allocated() if gpu else 0, torch=torch.__version__)


def serve(make):
    def run(args):
        import torch

        bench = None
        for line in sys.stdin:
            try:
                bench = bench or Bench(torch, args, make)
                bench.run(line.strip())
            except Exception as e:  # the next variant may fit or compile
                say(variant=line.strip(), error=f"{type(e).__name__}: {str(e)[:300]}")

    return run


# ---- single kernels


def timed(torch, args, f, times=20):
    """The median microseconds of f()."""
    for _ in range(3):
        f()
    took = []
    for _ in range(times):
        if args.device == "cpu":
            start = time.perf_counter()
            f()
            took.append((time.perf_counter() - start) * 1e6)
            continue
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        f()
        b.record()
        b.synchronize()
        took.append(a.elapsed_time(b) * 1e3)
    return sorted(took)[len(took) // 2]


def micro_attention(torch, args, small):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    b, h, s, d = (1, 2, 64, 32) if small else (8, 16, 2048, 128)
    q, k, v, dy = (torch.randn(b, h, s, d, device=args.device, dtype=torch.bfloat16) for _ in range(4))
    for t in (q, k, v):
        t.requires_grad_()
    flops = 2.0 * b * h * s * s * d
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        us = timed(torch, args, lambda: attention(q, k, v, is_causal=True))
        say(by="torch", micro=f"attention forward {b}x{h}x{s}x{d} causal", us=us, tflops=flops / us / 1e6)
        y = attention(q, k, v, is_causal=True)
        us = timed(torch, args, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
        say(by="torch", micro=f"attention backward {b}x{h}x{s}x{d} causal", us=us, tflops=2.5 * flops / us / 1e6)


def micro_gelu(torch, args, small):
    x = torch.randn(1 << (16 if small else 29), device=args.device, dtype=torch.bfloat16)
    us = timed(torch, args, lambda: torch.nn.functional.gelu(x, approximate="tanh"))
    say(by="torch", micro=f"GELU forward, {x.numel()} elements of bf16", us=us, tb_per_s=4.0 * x.numel() / us / 1e6)


def micro_adamw(torch, args, small):
    width, layers, vocab = (64, 2, 1000) if small else (768, 12, 50304)
    shapes = [(vocab, width), (1024, width), (width,), (width,)]
    for _ in range(layers):
        shapes += [(3 * width, width), (3 * width,), (width, width), (width,), (4 * width, width), (4 * width,), (width, 4 * width)] + [(width,)] * 5
    params = [torch.randn(*s, device=args.device).requires_grad_() for s in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    opt = torch.optim.AdamW(params, lr=1e-4, fused=True)
    say(by="torch", micro=f"fused AdamW, {sum(p.numel() for p in params)} parameters", us=timed(torch, args, opt.step))


def micro_xent(torch, args, small):
    n, c = (64, 1000) if small else (8192, 50304)
    logits = torch.randn(n, c, device=args.device, dtype=torch.bfloat16).requires_grad_()
    target = torch.randint(0, c, (n,), device=args.device)

    def both():
        logits.grad = None
        torch.nn.functional.cross_entropy(logits.float(), target).backward()

    say(by="torch", micro=f"cross entropy forward+backward {n}x{c} of bf16", us=timed(torch, args, both))


def micro(args):
    import torch

    for f in (micro_attention, micro_gelu, micro_adamw, micro_xent):
        try:
            f(torch, args, args.device == "cpu")
        except Exception as e:
            say(by="torch", micro=f.__name__, error=f"{type(e).__name__}: {str(e)[:300]}")
        if args.device != "cpu":
            torch.cuda.empty_cache()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = {"gpt": serve(gpt), "mlp": serve(mlp), "resnet": serve(resnet), "micro": micro,
            "tokens": tokens, "mlp-data": mlp_data, "resnet-data": resnet_data}
    p.add_argument("what", choices=what)
    for name, value in (("batch", 32), ("layers", 12), ("width", 768), ("heads", 12), ("vocab", 50304), ("seq", 1024), ("steps", 30)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--device", default="cuda")
    p.add_argument("--out")
    args = p.parse_args()
    what[args.what](args)


if __name__ == "__main__":
    main()
