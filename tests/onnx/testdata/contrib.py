"""Writes contrib.json: small models of com.microsoft operators, inputs, and what ONNX Runtime computes on them.

Run with a Python that has onnx, onnxruntime and numpy:  python contrib.py > contrib.json   (made with onnxruntime 1.32)
"""

import base64
import json

import numpy as np
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

seed = np.random.default_rng(3)
KIND = {np.dtype("float32"): T.FLOAT, np.dtype("int32"): T.INT32, np.dtype("int64"): T.INT64,
        np.dtype("uint8"): T.UINT8, np.dtype("int8"): T.INT8}
cases = []


def f(*dims, scale=1.0):
    return (seed.uniform(-1, 1, dims) * scale).astype(np.float32).round(3)


def i(values, kind=np.int32):
    return np.array(values, dtype=kind)


def case(name, op, inputs, outputs=1, domain="com.microsoft", fixed=(), **attrs):
    """inputs: arrays or None; outputs: how many, or a list of wanted positions; fixed: inputs known when compiling."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    wanted = list(range(outputs)) if isinstance(outputs, int) else outputs
    results = [f"y{k}" if k in wanted else "" for k in range(max(wanted) + 1)]
    node = h.make_node(op, names, results, domain=domain, **attrs)
    graph = h.make_graph(
        [node],
        name,
        [h.make_tensor_value_info(n, KIND[x.dtype], x.shape) for n, x in zip(names, inputs) if n],
        [h.make_empty_tensor_value_info(r) for r in results if r],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {n: x for n, x in zip(names, inputs) if n}
    got = session.run([r for r in results if r], feed)
    cases.append({
        "name": name,
        "model": base64.b64encode(model.SerializeToString()).decode(),
        "fixed": [f"x{k}" for k in fixed],
        "in": {n: [float(f"{v:.7g}") for v in x.ravel()] for n, x in feed.items()},
        "out": [{"dims": list(x.shape), "data": [float(f"{v:.6g}") for v in x.ravel()]} for x in got],
    })


case("fused_matmul", "FusedMatMul", [f(2, 3, 4), f(2, 4, 2)], alpha=0.5)
case("fused_matmul_trans", "FusedMatMul", [f(2, 4, 3), f(2, 2, 4)], transA=1, transB=1, alpha=2.0)
case("fused_matmul_batch", "FusedMatMul", [f(3, 2, 4), f(4, 2, 2)], transBatchA=1, transBatchB=1)
case("transpose_matmul", "TransposeMatMul", [f(4, 3), f(4, 2)], transA=1)
case("fused_gemm_relu", "FusedGemm", [f(3, 4), f(4, 2), f(2)], activation="Relu", alpha=0.5, beta=2.0)
case("fused_gemm_leaky", "FusedGemm", [f(3, 4), f(2, 4), f(3, 2)], activation="LeakyRelu", activation_alpha=0.1, transB=1)
case("fused_conv_relu", "FusedConv", [f(1, 2, 4, 4), f(3, 2, 3, 3), f(3)], activation="Relu", pads=[1, 1, 1, 1])
case("fused_conv_sum", "FusedConv", [f(1, 2, 4, 4), f(3, 2, 3, 3), f(3), f(1, 3, 2, 2)], activation="Relu")
case("fused_conv_hard", "FusedConv", [f(1, 2, 4, 4), f(2, 1, 3, 3)], activation="HardSigmoid", activation_params=[0.3, 0.4], group=2)
case("fused_conv_clip", "FusedConv", [f(1, 2, 4, 4), f(2, 2, 1, 1)], activation="Clip", activation_params=[-0.3, 0.4])
case("gelu", "Gelu", [f(3, 5, scale=3)])
case("bias_gelu", "BiasGelu", [f(3, 5, scale=2), f(5)])
case("fast_gelu", "FastGelu", [f(3, 5, scale=2)])
case("fast_gelu_bias", "FastGelu", [f(3, 5, scale=2), f(5)])
case("quick_gelu", "QuickGelu", [f(3, 5, scale=2)], alpha=1.5)
case("inverse", "Inverse", [f(2, 3, 3, scale=2)])
case("trilu", "Trilu", [f(3, 4), i(1, np.int64)], fixed=[1], upper=0)
case("layer_norm", "LayerNormalization", [f(2, 3, 4), f(4), f(4)], 3, domain="", epsilon=1e-3)
case("simplified_layer_norm", "SimplifiedLayerNormalization", [f(2, 3, 4), f(4)], 1, domain="", epsilon=1e-3)
case("skip_layer_norm", "SkipLayerNormalization", [f(2, 3, 4), f(2, 3, 4), f(4), f(4), f(4)], [0, 3], epsilon=1e-3)
case("skip_layer_norm_broadcast", "SkipLayerNormalization", [f(2, 3, 4), f(3, 4), f(4), f(4)], [0])
case("skip_layer_norm_one", "SkipLayerNormalization", [f(2, 3, 4), f(1, 3, 4), f(4)], [0])
case("skip_rms_norm", "SkipSimplifiedLayerNormalization", [f(2, 3, 4), f(2, 3, 4), f(4)], [0, 3], epsilon=1e-3)
case("skip_rms_norm_bias", "SkipSimplifiedLayerNormalization", [f(2, 3, 4), f(2, 3, 4), f(4), f(4)], [0, 3])
ids, segments = i([[1, 0, 4], [2, 2, 3]]), i([[0, 1, 1], [1, 0, 0]])
tables = [f(5, 4), f(6, 4), f(2, 4), f(4), f(4)]
case("embed_layer_norm", "EmbedLayerNormalization", [ids, segments] + tables + [i([[1, 1, 0], [1, 1, 1]])], 3)
case("embed_layer_norm_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, tables[3], tables[4]], 2)
case("embed_layer_norm_places", "EmbedLayerNormalization", [ids, segments] + tables + [None, i([[5, 1, 0], [2, 3, 4]])], 2)

angles = np.outer(np.arange(8), [1.0, 0.2]).astype(np.float32)
cos, sin = np.cos(angles).round(4), np.sin(angles).round(4)
case("rotary", "RotaryEmbedding", [f(2, 3, 8), i([[0, 1, 2], [3, 5, 4]], np.int64), cos, sin])
case("rotary_offset", "RotaryEmbedding", [f(2, 3, 8), i([2], np.int64), cos, sin], interleaved=1)
case("rotary_heads", "RotaryEmbedding", [f(2, 2, 3, 4), i([[0, 1, 2], [3, 5, 4]], np.int64), cos, sin], interleaved=1)
case("rotary_part", "RotaryEmbedding", [f(2, 3, 12), i([1], np.int64), cos, sin], num_heads=2, rotary_embedding_dim=4)

q, k, v = f(2, 3, 4), f(2, 5, 4), f(2, 5, 4)
mha = lambda name, ins, outs=1, **a: case("mha_" + name, "MultiHeadAttention", ins, outs, num_heads=2, **a)
mha("plain", [q, k, v])
mha("bias_scale", [q, k, v, f(12)], scale=0.9)
mha("lengths", [q, k, v, None, i([3, 5])])
mha("mask", [q, k, v, None, i([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0]])], mask_filter_value=-50.0)
mha("mask3", [q, k, v, None, i(seed.integers(0, 2, (2, 3, 5)))])
mha("attention_bias", [q, k, v, None, None, f(1, 2, 3, 5)])
mha("wide_values", [q, k, f(2, 5, 6)])
mha("causal", [q, f(2, 3, 4), f(2, 3, 4)], unidirectional=1)
mha("heads", [q, f(2, 2, 5, 2), f(2, 2, 5, 2)])
mha("past", [q, f(2, 3, 4), f(2, 3, 4), None, None, None, f(2, 2, 4, 2), f(2, 2, 4, 2)], 3)
mha("past_causal", [q, f(2, 3, 4), f(2, 3, 4), None, None, None, f(2, 2, 4, 2), f(2, 2, 4, 2)], 3, unidirectional=1)

g = lambda name, ins, outs=1, **a: case("gqa_" + name, "GroupQueryAttention", ins, outs, num_heads=2, kv_num_heads=1, **a)
angles = np.outer(np.arange(8), [1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01]).astype(np.float32)
cos, sin = np.cos(angles).round(4), np.sin(angles).round(4)
lens = [i([2, 2]), i(3)]
gq, gk, gv = f(2, 3, 16), f(2, 3, 8), f(2, 3, 8)
g("plain", [gq, gk, gv, None, None] + lens, 3)
g("packed", [f(2, 3, 32), None, None, None, None] + lens, 3)
rq, rk, rv, one = f(1, 3, 32), f(1, 3, 16), f(1, 3, 16), [i([2]), i(3)]
g("rotary", [rq, rk, rv, None, None] + one + [cos, sin], 3, do_rotary=1)
g("rotary_interleaved", [rq, rk, rv, None, None] + one + [cos, sin], 3, do_rotary=1, rotary_interleaved=1)
g("window", [gq, gk, gv, None, None] + lens, local_window_size=2)
g("softcap", [gq, gk, gv, None, None] + lens, softcap=0.7, scale=2.0)
g("smooth", [gq, gk, gv, None, None] + lens, smooth_softmax=1)
g("sink", [gq, gk, gv, None, None] + lens + [None] * 4 + [f(2)])
g("attention_bias", [gq, gk, gv, None, None] + lens + [None] * 3 + [f(1, 2, 3, 3)])
g("bidirectional", [gq, gk, gv, None, None] + lens, causal=0)
g("past", [f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 1, 3, 16), f(1, 1, 3, 16), i([3]), i(4), cos, sin], 3, fixed=[5], do_rotary=1)

at = lambda name, ins, outs=1, **a: case("attention_" + name, "Attention", ins, outs, num_heads=2, **a)
x, w, b = f(2, 3, 4), f(4, 12), f(12)
at("plain", [x, w, b])
at("lengths", [x, w, b, i([2, 3])])
at("ends_starts", [x, w, b, i([3, 2, 1, 0])])
at("mask", [x, w, b, i([[1, 0, 1], [1, 1, 1]])])
at("mask3", [x, w, b, i(seed.integers(0, 2, (2, 3, 3)))], mask_filter_value=-20.0)
at("causal", [x, w, b], unidirectional=1)
at("causal_mask", [x, w, b, i([[1, 0, 1], [1, 1, 1]])], unidirectional=1)
at("sizes", [x, f(4, 14), f(14)], qkv_hidden_sizes=[4, 4, 6])
at("bias_scale", [x, w, b, None, None, f(2, 2, 3, 3)], scale=0.3)
at("past", [x, w, b, None, f(2, 2, 2, 4, 2)], 2, unidirectional=1)

heads = dict(q_num_heads=2, kv_num_heads=1)
case("linear_attention", "LinearAttention", [f(2, 3, 4), f(2, 3, 2), f(2, 3, 2)], 2, update_rule="linear", **heads)
case("linear_attention_gated_delta", "LinearAttention", [f(2, 3, 4), f(2, 3, 2), f(2, 3, 2), f(2, 1, 2, 2), -abs(f(2, 3, 1)), abs(f(2, 3, 1))], 2,
     update_rule="gated_delta", **heads)
case("causal_conv", "CausalConvWithState", [f(2, 3, 5), f(3, 1, 3), f(3), f(2, 3, 2)], 2, activation="silu")

u8 = lambda *dims: seed.integers(0, 256, dims).astype(np.uint8)
nbits = lambda name, ins, fixed, **a: case("nbits_" + name, "MatMulNBits", ins, fixed=fixed, **a)
nbits("plain", [f(3, 32), u8(4, 2, 8), abs(f(8))], [1], K=32, N=4, bits=4, block_size=16)
nbits("ragged", [f(2, 3, 40), u8(5, 2, 16), abs(f(10)), u8(5)], [1, 3], K=40, N=5, bits=4, block_size=32)
nbits("odd", [f(3, 48), u8(2, 3, 8), abs(f(6)), u8(4), None, f(2)], [1, 3], K=48, N=2, bits=4, block_size=16)
nbits("float_zero", [f(3, 32), u8(4, 2, 8), abs(f(8)), f(8, scale=8)], [1], K=32, N=4, bits=4, block_size=16)
nbits("eight", [f(3, 32), u8(4, 1, 32), abs(f(4)) / 8, u8(4)], [1, 3], K=32, N=4, bits=8, block_size=32)
scalar = lambda v, kind: np.array(v, dtype=kind)
ab = [u8(3, 4), scalar(0.05, np.float32), scalar(120, np.uint8), u8(4), scalar(0.03, np.float32), scalar(3, np.uint8)]
case("qlinear_add", "QLinearAdd", ab + [scalar(0.07, np.float32), scalar(100, np.uint8)])
case("qlinear_mul", "QLinearMul", ab + [scalar(0.2, np.float32), scalar(100, np.uint8)])
case("quantize", "QuantizeLinear", [f(3, 4), abs(f(4)) / 100, seed.integers(-9, 9, 4).astype(np.int8)], axis=1)
case("dequantize", "DequantizeLinear", [u8(3, 4), abs(f(3)), u8(3)], axis=0)
one = lambda kind=np.uint8: [scalar(0.04, np.float32), scalar(110, kind)]
case("qlinear_sigmoid", "QLinearSigmoid", [u8(3, 4)] + one() + [scalar(1 / 256, np.float32), scalar(0, np.uint8)])
case("qlinear_leaky", "QLinearLeakyRelu", [u8(3, 4)] + one() + [scalar(0.03, np.float32), scalar(60, np.uint8)], alpha=0.2)
case("qlinear_pool", "QLinearGlobalAveragePool", [u8(2, 3, 4, 4)] + one() + [scalar(0.02, np.float32), scalar(90, np.uint8)], channels_last=0)
case("qlinear_average", "QLinearAveragePool", [u8(2, 3, 4, 4)] + one() + [scalar(0.03, np.float32), scalar(90, np.uint8)],
     kernel_shape=[2, 2], strides=[2, 2])
case("qlinear_concat", "QLinearConcat", [scalar(0.05, np.float32), scalar(100, np.uint8), u8(2, 3)] + one() + [u8(2, 2), scalar(0.02, np.float32),
     scalar(7, np.uint8)], axis=1)
gemm = [u8(3, 4), scalar(0.02, np.float32), scalar(120, np.uint8), u8(2, 4), scalar(0.01, np.float32), scalar(128, np.uint8)]
case("qgemm", "QGemm", gemm + [seed.integers(-900, 900, 2).astype(np.int32), scalar(0.02, np.float32), scalar(99, np.uint8)], transB=1)
case("qgemm_float", "QGemm", gemm + [seed.integers(-900, 900, 2).astype(np.int32)], transB=1, alpha=0.5)
case("integer_to_float", "MatMulIntegerToFloat", [u8(2, 3, 4), u8(4, 5), scalar(0.02, np.float32), abs(f(5)), scalar(100, np.uint8),
     u8(5), f(5)])
case("dynamic_matmul", "DynamicQuantizeMatMul", [f(2, 3, 4), u8(4, 5), scalar(0.02, np.float32), scalar(100, np.uint8), f(5)])

print(json.dumps(cases).replace('{"name"', '\n{"name"'))
