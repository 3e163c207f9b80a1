"""Writes torch_ops.json: small models of one operator in double precision, inputs, and PyTorch's results and gradients.

Run with a Python that has onnx, torch, torchvision and numpy:  python torch_ops.py > torch_ops.json
(made with torch 2.15 and torchvision 0.29). The gradients are those of sum(result * weight).
"""

import base64
import json

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from onnx import TensorProto as T
from onnx import helper as h

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
KIND = {torch.float64: T.DOUBLE, torch.int64: T.INT64, torch.float32: T.FLOAT}
cases = []


def r(*dims, scale=1.0):
    return ((torch.rand(dims) * 2 - 1) * scale).mul(1000).round().div(1000)


def digits(x, n=10):
    return [float(f"{v:.{n}g}") for v in x.detach().reshape(-1).tolist()]


def case(name, op, inputs, want, known=(), outputs=1, opset=22, domain="", grads=True, **attrs):
    """inputs: tensors or None; want: a function of the tensors that have gradients; known: inputs fixed when compiling."""
    live = [x.clone().requires_grad_(grads and x.dtype == torch.float64 and k not in known) if x is not None else None for k, x in enumerate(inputs)]
    out = want(*live)
    weight = r(*out.shape)
    if grads:
        (out * weight).sum().backward()
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    graph = h.make_graph(
        [h.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **attrs)],
        name,
        [h.make_tensor_value_info(n, KIND[x.dtype], list(x.shape)) for n, x in zip(names, inputs) if n],
        [h.make_empty_tensor_value_info("y0")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)
    ins = []
    for k, x in enumerate(live):
        if x is not None:
            ins.append({"name": names[k], "known": k in known, "data": digits(x, 8),
                        "grad": digits(x.grad) if x.grad is not None else None})
    cases.append({"name": name, "model": base64.b64encode(model.SerializeToString()).decode(), "in": ins,
                  "dims": list(out.shape), "out": digits(out), "weight": digits(weight, 4)})


def ints(*v):
    return torch.tensor(v, dtype=torch.int64)


# Grid sampling.
x, g = r(2, 3, 4, 5), r(2, 3, 2, 2, scale=1.3)
for mode, onnx_mode in [("bilinear", "linear"), ("nearest", "nearest"), ("bicubic", "cubic")]:
    for pad in ["zeros", "border", "reflection"]:
        for corners in [False, True]:
            case(f"grid_{onnx_mode}_{pad}_{int(corners)}", "GridSample", [x, g],
                 lambda x, g: F.grid_sample(x, g, mode, pad, corners), mode=onnx_mode, padding_mode=pad, align_corners=int(corners))
x3, g3 = r(1, 2, 3, 4, 2), r(1, 2, 2, 2, 3, scale=1.3)
for pad in ["zeros", "border", "reflection"]:
    case(f"grid3_linear_{pad}", "GridSample", [x3, g3], lambda x, g: F.grid_sample(x, g, "bilinear", pad, False),
         mode="linear", padding_mode=pad)
for corners in [False, True]:
    case(f"affine_grid_{int(corners)}", "AffineGrid", [r(2, 2, 3), ints(2, 3, 4, 5)],
         lambda t, s: F.affine_grid(t, [2, 3, 4, 5], corners), known=[1], align_corners=int(corners))

# Interpolation, as PyTorch's exporter writes it.
x = r(1, 2, 5, 6)
for name, size, mode, kw, attrs in [
    ("linear_up", (8, 9), "bilinear", {}, dict(mode="linear", coordinate_transformation_mode="pytorch_half_pixel")),
    ("linear_down", (3, 2), "bilinear", {}, dict(mode="linear", coordinate_transformation_mode="half_pixel")),
    ("linear_corners", (7, 4), "bilinear", dict(align_corners=True), dict(mode="linear", coordinate_transformation_mode="align_corners")),
    ("cubic_up", (8, 9), "bicubic", {}, dict(mode="cubic", coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75)),
    ("cubic_corners", (7, 4), "bicubic", dict(align_corners=True), dict(mode="cubic", coordinate_transformation_mode="align_corners")),
    ("linear_antialias", (3, 2), "bilinear", dict(antialias=True),
     dict(mode="linear", coordinate_transformation_mode="half_pixel", antialias=1, exclude_outside=1)),
    ("cubic_antialias", (3, 4), "bicubic", dict(antialias=True),
     dict(mode="cubic", coordinate_transformation_mode="half_pixel", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5)),
    ("nearest", (8, 4), "nearest", {}, dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    ("nearest_exact", (8, 4), "nearest-exact", {}, dict(mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")),
]:
    case(f"resize_{name}", "Resize", [x, None, None, ints(1, 2, *size)],
         lambda x, _, __, s: F.interpolate(x, size, mode=mode, **kw), known=[3], **attrs)
case("resize_long", "Resize", [r(1, 1, 2, 520), None, None, ints(1, 1, 2, 530)], lambda x, _, __, s: F.interpolate(x, (2, 530), mode="bicubic"),
     known=[3], mode="cubic", coordinate_transformation_mode="half_pixel")
case("resize_1d", "Resize", [r(2, 3, 5), None, None, ints(2, 3, 9)], lambda x, _, __, s: F.interpolate(x, 9, mode="linear"), known=[3],
     mode="linear", coordinate_transformation_mode="half_pixel")
case("resize_3d", "Resize", [r(1, 2, 3, 2, 4), None, None, ints(4, 3, 2)], lambda x, _, __, s: F.interpolate(x, (4, 3, 2), mode="trilinear"),
     known=[3], mode="linear", coordinate_transformation_mode="half_pixel", axes=[2, 3, 4])

# Regions and deformed kernels.
x = r(2, 3, 6, 5)
rois = torch.tensor([[0.3, 0.6, 4.1, 5.2], [-1.2, 0.4, 2.7, 3.3], [1.1, 2.2, 8.3, 9.1], [2.2, 1.3, 2.9, 1.8]])
which = ints(0, 1, 1, 0)
for aligned in [False, True]:
    for ratio in [0, 2]:
        case(f"roi_align_{int(aligned)}_{ratio}", "RoiAlign", [x, rois, which],
             lambda x, b, i: torchvision.ops.roi_align(x, torch.cat([i[:, None].double(), b.detach()], 1), (2, 3), 0.5 if ratio else 1.0, ratio, aligned),
             known=[1], output_height=2, output_width=3, sampling_ratio=ratio, spatial_scale=0.5 if ratio else 1.0,
             coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel")
case("max_roi_pool", "MaxRoiPool", [x, torch.cat([which[:, None].double(), torch.tensor(
    [[0.0, 0, 4, 5], [1, 0, 3, 3], [0, 2, 4, 4], [2, 1, 2, 3]])], 1)],
     lambda x, b: torchvision.ops.roi_pool(x, b, (2, 2), 1.0), known=[1], pooled_shape=[2, 2])
case("deform_conv", "DeformConv", [r(2, 4, 5, 5), r(6, 2, 3, 2), r(2, 2 * 12, 3, 3, scale=1.5), r(6), r(2, 12, 3, 3)],
     lambda x, w, o, b, m: torchvision.ops.deform_conv2d(x, o, w, b, (2, 2), (1, 1), (1, 2), m), strides=[2, 2], pads=[1, 1, 1, 1],
     dilations=[1, 2], group=2, offset_group=2)

# Padding, and blocks.
x = r(2, 3, 4, 5)
for mode, torch_mode in [("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")]:
    case(f"pad_{mode}", "Pad", [x, ints(0, 0, 1, 2, 0, 0, 3, 1)], lambda x, p: F.pad(x, (2, 1, 1, 3), torch_mode), known=[1], mode=mode)
    case(f"pad_{mode}_negative", "Pad", [x, ints(1, -1, 0, 2), None, ints(2, 3)], lambda x, p, _, a: F.pad(x, (-1, 2, 1, 0), torch_mode), known=[1, 3], mode=mode)
case("pad_constant", "Pad", [x, ints(0, 0, 1, -2, 0, 0, 3, 1), torch.tensor(0.7)],
     lambda x, p, v: torch.where(F.pad(torch.ones_like(x), (-2, 1, 1, 3)) > 0, F.pad(x, (-2, 1, 1, 3)), v), known=[1])
case("depth_to_space", "DepthToSpace", [r(2, 8, 2, 3)], lambda x: F.pixel_shuffle(x, 2), blocksize=2, mode="CRD")

# Transforms.
for n, length in [(12, None), (12, 9), (12, 16), (300, None), (257, None)]:
    y = lambda x, *_: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), length, dim=1))
    case(f"dft_{n}_{length}", "DFT", [r(2, n, 2)] + ([ints(length)[0]] if length else []), y, known=[1])
case("dft_inverse", "DFT", [r(2, 3, 10, 2)], lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=2)), inverse=1)
case("dft_real", "DFT", [r(2, 11, 1)], lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0], dim=1)), onesided=1)
for n, length in [(6, 10), (6, 11), (6, 8)]:
    case(f"dft_real_inverse_{length}", "DFT", [r(2, n, 2), ints(length)[0]],
         lambda x, _: torch.fft.irfft(torch.view_as_complex(x), length, dim=1)[..., None], known=[1], onesided=1, inverse=1)
case("stft", "STFT", [r(2, 40, 1), ints(6)[0], r(16), ints(16)[0]],
     lambda x, _, w, __: torch.view_as_real(torch.stft(x[..., 0], 16, 6, 16, w, center=False, return_complex=True)).transpose(1, 2), known=[1, 3])

# Sums of products.
for eq, dims in {
    "ij,jk->ik": [(2, 3), (3, 4)], "bij,bjk,kl->bl": [(2, 3, 4), (2, 4, 5), (5, 2)], "ii->i": [(4, 4)], "ii": [(3, 3)],
    "...ii->...i": [(2, 3, 3)], "ba": [(2, 3)], "i,i": [(4,), (4,)], "i,j": [(2,), (3,)], "...ij,...jk->...ik": [(2, 1, 3, 4), (3, 4, 2)],
    "ijk,ilm,jlo->kmo": [(2, 3, 2), (2, 4, 2), (3, 4, 2)], "...,->...": [(2, 3), ()], "ij,ij->": [(2, 3), (2, 3)],
    "iji,jk->ik": [(2, 3, 2), (3, 2)], "a,b,c,d->dcba": [(2,), (3,), (2,), (2,)], "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "aBc,cB->Ba": [(2, 3, 4), (4, 3)], "b...i,...i->b...": [(2, 3, 4), (3, 4)],
}.items():
    case(f"einsum_{eq}", "Einsum", [r(*d) for d in dims], lambda *x: torch.einsum(eq, *x), equation=eq)

# Losses.
s, w = r(4, 5, 3), r(5).abs()
t = torch.randint(0, 5, (4, 3))
t[1, 1] = 2
for red in ["none", "sum", "mean"]:
    for weighted in [False, True]:
        for ignore in [-100, 2]:
            more = {} if ignore == -100 else {"ignore_index": ignore}
            wt = [w] if weighted else []
            case(f"sce_{red}_{int(weighted)}_{ignore}", "SoftmaxCrossEntropyLoss", [s, t] + wt,
                 lambda s, t, *w: F.cross_entropy(s, t, *[v.detach() for v in w], ignore_index=ignore, reduction=red), known=[2], reduction=red, **more)
            case(f"nll_{red}_{int(weighted)}_{ignore}", "NegativeLogLikelihoodLoss", [s, t] + wt,
                 lambda s, t, *w: F.nll_loss(s, t, *[v.detach() for v in w], ignore_index=ignore, reduction=red), known=[2], reduction=red, **more)

# Functions, at kinks too.
kinks = torch.tensor([-6.0, -3, -2.5, -1, -0.5, -0.2, 0, 0.2, 0.5, 1, 2.5, 3, 6])
for name, f, attrs in [
    ("HardSwish", F.hardswish, {}), ("HardSigmoid", F.hardsigmoid, dict(alpha=1 / 6, beta=0.5)), ("Selu", F.selu, {}), ("Celu", lambda x: F.celu(x, 0.7), dict(alpha=0.7)),
    ("Elu", lambda x: F.elu(x, 0.7), dict(alpha=0.7)), ("LeakyRelu", lambda x: F.leaky_relu(x, 0.1), dict(alpha=0.1)), ("Mish", F.mish, {}),
    ("Softsign", F.softsign, {}), ("Softplus", F.softplus, {}), ("ThresholdedRelu", lambda x: F.threshold(x, 1.0, 0.0), dict(alpha=1.0)),
    ("Shrink", lambda x: F.hardshrink(x, 0.5), dict(lambd=0.5)), ("Shrink", lambda x: F.softshrink(x, 0.5), dict(lambd=0.5, bias=0.5)),
    ("Sinh", torch.sinh, {}), ("Cosh", torch.cosh, {}), ("Tan", torch.tan, {}), ("Atan", torch.atan, {}), ("Asinh", torch.asinh, {}),
    ("Acosh", torch.acosh, {}), ("Asin", torch.asin, {}), ("Acos", torch.acos, {}), ("Atanh", torch.atanh, {}),
]:
    x = kinks
    if name in ("Asin", "Acos", "Atanh"):
        x = kinks / 6.5
    if name == "Acosh":
        x = kinks.abs() + 1.1
    case(f"fn_{name}_{attrs.get('bias', '')}", name, [x], f, **attrs)
case("prelu", "PRelu", [torch.stack([kinks, kinks]).reshape(2, 13), r(2, 1)], lambda x, w: torch.where(x > 0, x, w * x))
case("swish", "Swish", [kinks], lambda x: x * torch.sigmoid(1.5 * x), opset=24, alpha=1.5)
case("det", "Det", [r(3, 4, 4)], torch.linalg.det)
case("det_singular", "Det", [torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]])], lambda x: x[0, 0] * (x[1, 1] * x[2, 2] - x[1, 2] * x[2, 1])
     - x[0, 1] * (x[1, 0] * x[2, 2] - x[1, 2] * x[2, 0]) + x[0, 2] * (x[1, 0] * x[2, 1] - x[1, 1] * x[2, 0]))
case("lrn", "LRN", [r(2, 5, 3, scale=3)], lambda x: F.local_response_norm(x, 3, 0.3, 0.75, 1.5), size=3, alpha=0.3, beta=0.75, bias=1.5)

print(json.dumps(cases, separators=(",", ":")))
