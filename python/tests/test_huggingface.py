"""Tiny models of transformers, their loss inside (labels=) and outside: trained by gtc they go PyTorch's way, on one rank, two and two stages."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import gtc  # noqa: E402
from gtc import binary  # noqa: E402

try:
    import transformers
except ImportError:
    transformers = None

VOCAB, PLACES, BATCH, STEPS, LR = 23, 8, 4, 5, 0.2
LAYOUTS = {"one rank": (), "dp 2": ("--dp", "2"), "pp 2": ("--pp", "2", "--microbatches", "2")}
# float32 against float64 over five steps of losses near 3: 1e-6 is seen, and labels one place off are 1e-2 and more away.
TOLERANCE = 1e-5


def gpt2():
    drop = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_positions=PLACES, n_embd=16, n_layer=2, n_head=2, **drop))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=PLACES))


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=PLACES, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0))


def t5():
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0))


def ahead(labels):
    """Labels as a causal model's loss shifts them."""
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)


def started(labels):
    """What T5 makes its decoder's tokens of."""
    return torch.cat([torch.zeros_like(labels[:, :1]), labels[:, :-1].clamp(min=0)], 1)


@unittest.skipIf(transformers is None, "NOT TESTED: there is no transformers")
class Curves(unittest.TestCase):
    def setUp(self):
        try:
            binary.binary()
        except gtc.GtcError as fault:
            self.skipTest(str(fault))
        torch.manual_seed(4)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.onnx = str(self.folder / "m.onnx")

    def train(self, data, layout=(), loss=(), steps=STEPS, more=()):
        """(losses, what the program says of its data, what the compiler says) of the file in self.onnx."""
        out = str(self.folder / "out")
        done = subprocess.run(
            [binary.binary(), "compile", self.onnx, "-o", out, "--batch", str(BATCH), "--optimizer", "sgd", "--lr", str(LR), "--momentum", "0", *loss, *layout],
            capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = [binary.binary(), "run", out, "--data", str(data), "--steps", str(steps), "--shuffle=false", "--window", "sequential", "--log-every", "1", "--checkpoint-dir", "none", *more]
        said = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr + said.stdout)
        return list(self.losses(run)), said.stdout + said.stderr, done.stdout + done.stderr

    def losses(self, run):
        """The losses of the steps, with all their digits."""
        with binary.Events(tuple(run[1:]) + ("--json",)) as events:
            for e in events:
                if e["event"] == "step":
                    yield e["loss"]

    def reference(self, model, batches, loss):
        """PyTorch's losses in float64."""
        model = model.double().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        out = []
        for batch in batches:
            optimizer.zero_grad()
            value = loss(model, *batch)
            value.backward()
            optimizer.step()
            out.append(value.item())
        return out

    def agree(self, got, want):
        self.assertEqual(len(got), len(want), got)
        self.assertLess(np.linalg.norm(np.subtract(got, want)) / np.linalg.norm(want), TOLERANCE, f"{got} against {want}")

    def test_labels_inside_and_logits_outside(self):
        """The same batches through both: one curve, PyTorch's."""
        ids = torch.randint(1, VOCAB, (STEPS * BATCH, PLACES))
        labels = ids.clone()
        labels[torch.rand(labels.shape) < 0.2] = -100  # their number differs from rank to rank
        for make, exporters in ((gpt2, ("dynamo", "torchscript")), (llama, ("dynamo", "torchscript")), (bert, ("dynamo", "torchscript")), (t5, ("auto",))):
            causal, decoder = make in (gpt2, llama), make is t5
            model = make()
            state = {n: t.clone() for n, t in model.state_dict().items()}
            want = self.reference(model, zip(ids.split(BATCH), labels.split(BATCH)), lambda m, x, y: m(input_ids=x, labels=y).loss)
            for exporter in exporters:
                for inside in (True, False):
                    model = make()
                    model.load_state_dict(state)
                    given, arrays, loss = {"input_ids": ids[:BATCH]}, {"input_ids": ids}, ()
                    if inside:
                        given["labels"] = ids[:BATCH]  # the tensor that input_ids is, as examples have it
                        arrays["labels"] = labels
                    else:
                        arrays["target"] = ahead(labels) if causal else labels
                        loss = ("--loss", "cross_entropy")
                        if decoder:
                            given["decoder_input_ids"] = ids[:BATCH]
                            arrays["decoder_input_ids"] = started(labels)
                    with contextlib.redirect_stderr(io.StringIO()):
                        report = gtc.export(model, given, self.onnx, exporter=exporter, quiet=True)
                    self.assertEqual(report.lost, [])
                    data = self.folder / "d.npz"
                    np.savez(data, **{n: t.numpy() for n, t in arrays.items()})
                    for name, layout in LAYOUTS.items():
                        with self.subTest(model=make.__name__, exporter=exporter, inside=inside, layout=name):
                            got, said, _ = self.train(data, layout, loss)
                            self.agree(got, want)
                            shift = "the model shifts it by 1 itself, its target at place t is element t+1"
                            self.assertEqual(shift in said, causal and inside, said)

    def test_tokens(self):
        """Windows of a token file: the target is the next token, whoever shifts, and the program says so."""
        tokens = torch.randint(0, VOCAB, (STEPS * BATCH * PLACES + 1,))
        data = self.folder / "d.bin"
        data.write_bytes(tokens.numpy().astype("<u2").tobytes())
        ids = tokens[:-1].reshape(-1, PLACES)
        after = tokens[1:].reshape(-1, PLACES)
        ways = {
            "inside": (lambda m, x, y: m(input_ids=x, labels=x).loss, "the target at token t is token t+1, as the model shifts it by 1 itself"),
            "twice": (lambda m, x, y: m(input_ids=x, labels=y).loss, "the target at token t is token t+2, as the model shifts it by 1 itself"),
            "outside": (lambda m, x, y: nn.functional.cross_entropy(m(input_ids=x).logits.flatten(0, 1), y.flatten()), "the target at token t is token t+1"),
        }
        for make in (gpt2, llama):
            model = make()
            state = {n: t.clone() for n, t in model.state_dict().items()}
            for way, (loss, line) in ways.items():
                with self.subTest(model=make.__name__, way=way):
                    model = make()
                    model.load_state_dict(state)
                    given = {"input_ids": ids[:BATCH]} | ({} if way == "outside" else {"labels": ids[:BATCH]})
                    gtc.export(model, given, self.onnx, quiet=True)
                    flags = ("--loss", "cross_entropy") if way == "outside" else ()
                    got, said, _ = self.train(data, (), flags, more=("--map", "labels=y") if way == "twice" else ())
                    self.assertTrue(any(s.startswith("data: ") and s.endswith(line) for s in said.splitlines()), said)
                    self.agree(got, self.reference(model, zip(ids.split(BATCH), after.split(BATCH)), loss))

    def test_labels_that_alias_the_tokens(self):
        """On random labels nothing can be learned. A file in which labels are input_ids learns to copy them, and is warned of."""
        steps = 150
        ids, labels = (torch.randint(0, VOCAB, (steps * BATCH, PLACES)) for _ in range(2))
        data = self.folder / "d.npz"
        np.savez(data, input_ids=ids.numpy(), labels=labels.numpy())

        class Copying(nn.Module):  # places are compared as they are, so that labels which are the tokens can be copied
            def __init__(self):
                super().__init__()
                self.model = bert()

            def forward(self, input_ids, labels):
                out = self.model(input_ids=input_ids, labels=labels)
                return out.loss, out.logits

        model, same = Copying(), ids[:BATCH]
        gtc.export(model, (same, same), self.onnx, quiet=True)
        right, _, told = self.train(data, steps=steps)
        self.assertNotIn("nothing reads input", told)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(model.train(), (same, same), self.onnx, dynamo=True, verbose=False, optimize=False, input_names=["input_ids", "labels"], output_names=["loss", "logits"])
        copied, _, told = self.train(data, loss=("--loss", "graph"), steps=steps)
        self.assertIn("nothing reads input", told)
        chance = np.log(VOCAB)
        self.assertGreater(np.mean(right[-20:]), 0.95 * chance)
        self.assertLess(np.mean(copied[-20:]), 0.6 * chance)


if __name__ == "__main__":
    unittest.main()
