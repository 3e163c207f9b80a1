"""Writes frozen.onnx and frozen.npz: trained layers between frozen weights of 4 bits (MatMulNBits), float8 and int4.

    pip install torch onnx numpy ml_dtypes
    python frozen.py

The reference is computed in float64 from the values that the quantised weights stand for.
"""
import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

rng = np.random.default_rng(0)


def main():
    packed = rng.integers(0, 256, (8, 2, 8), dtype=np.uint8)
    scales = rng.uniform(0.01, 0.1, 16).astype(np.float32)
    w = (rng.normal(size=(8, 4)) / 3).astype(np.float32)
    bias = rng.normal(size=8).astype(np.float32)
    f8 = rng.normal(size=(4, 4)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    i4 = rng.integers(-8, 8, 16)
    graph = h.make_graph(
        [h.make_node("MatMulNBits", ["x", "B", "S"], ["h"], domain="com.microsoft", K=32, N=8, bits=4, block_size=16),
         h.make_node("Add", ["h", "bias"], ["a"]), h.make_node("Tanh", ["a"], ["t"]), h.make_node("MatMul", ["t", "w"], ["m"]),
         h.make_node("DequantizeLinear", ["w8", "s8"], ["wd"]), h.make_node("MatMul", ["m", "wd"], ["z"]),
         h.make_node("DequantizeLinear", ["w4", "s4"], ["wd4"]), h.make_node("MatMul", ["z", "wd4"], ["y"])],
        "frozen",
        [h.make_tensor_value_info("x", T.FLOAT, ["batch", 32])],
        [h.make_tensor_value_info("y", T.FLOAT, ["batch", 4])],
        [nh.from_array(packed, "B"), nh.from_array(scales, "S"), nh.from_array(w, "w"), nh.from_array(bias, "bias"),
         nh.from_array(np.float32(0.5), "s8"), h.make_tensor("w8", T.FLOAT8E4M3FN, [4, 4], f8.view(np.uint8).tobytes(), raw=True),
         nh.from_array(np.float32(0.25), "s4"), h.make_tensor("w4", T.INT4, [4, 4], [int(v) for v in i4])],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)], ir_version=10),
              "frozen.onnx")
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(8, 2, 16).astype(np.float64) - 8
    first = torch.tensor((codes * scales.reshape(8, 2, 1)).reshape(8, 32))
    second, third = torch.tensor(f8.astype(np.float64) * 0.5), torch.tensor(i4.reshape(4, 4) * 0.25)
    x, target = rng.normal(size=(8, 32)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    p = {"w": torch.tensor(w.astype(np.float64), requires_grad=True), "bias": torch.tensor(bias.astype(np.float64), requires_grad=True)}

    def out():
        return torch.tanh(torch.tensor(x).double() @ first.T + p["bias"]) @ p["w"] @ second @ third

    def step():
        loss = ((out() - torch.tensor(target).double()) ** 2).mean()
        loss.backward()
        return loss.item()

    ref = {"in0": x, "target": target, "out0": out().detach().numpy(), "loss": np.array(step())}
    for name, v in p.items():
        ref["grad/" + name] = v.grad.numpy().copy()
    optimizer = torch.optim.AdamW(p.values(), lr=1e-3, weight_decay=0.01)
    curve = []
    for _ in range(10):
        optimizer.zero_grad()
        curve.append(step())
        optimizer.step()
    ref["curve/adamw"] = np.array(curve)
    np.savez("frozen.npz", **ref)
    print(curve)


if __name__ == "__main__":
    main()
