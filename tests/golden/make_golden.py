#!/usr/bin/env python3
"""Makes the golden files beside this script with PyTorch (1.13 or later, CPU).

    python3 tests/golden/make_golden.py

Each file holds one tiny model: its configuration, weights, a few batches, and what PyTorch computes
from them in f64: logits and loss of the first batch, the gradient of every parameter, and the losses
of 20 steps of AdamW. So the tolerance of a test need not cover PyTorch's own rounding. Losses are
stored in f64, everything else is rounded to f32 once, at the end.

The files are laid out as safetensors: 8 bytes little-endian length, a JSON object
{name: {"dtype", "shape", "data_offsets"}}, then the bytes. Names: "weight/<parameter>",
"grad/<parameter>", "tokens" and "targets" (batches, B, T) i32, "logits" (B, T, V), "loss" (1),
"losses" (20), and the metadata key "config" with the model section of a configuration.
"""

import json
import math
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 20
OPTIMIZER = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


def rotate(x, dims, theta):
    """x (B, T, heads, D): the first dims channels of each head turn, channel i with i + dims / 2."""
    steps = torch.arange(x.shape[1], dtype=torch.float64)
    rates = theta ** (-2.0 * torch.arange(dims // 2, dtype=torch.float64) / dims)
    angles = (steps[:, None] * rates[None, :])[None, :, None, :]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second, rest = x[..., : dims // 2], x[..., dims // 2 : dims], x[..., dims:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def attend(qkv, heads, kv_heads, turn=None):
    """Causal attention over [queries | keys | values], written out with the full square of scores."""
    b, t, width = qkv.shape
    d = width // (heads + 2 * kv_heads)
    x = qkv.view(b, t, heads + 2 * kv_heads, d)
    q, k, v = x.split([heads, kv_heads, kv_heads], dim=2)
    if turn is not None:
        q, k = turn(q), turn(k)
    k = k.repeat_interleave(heads // kv_heads, dim=2)
    v = v.repeat_interleave(heads // kv_heads, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d)
    hidden = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, heads * d)


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


class GptBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        w = c["width"]
        self.norm1, self.norm2 = nn.LayerNorm(w, eps=c["norm_eps"]), nn.LayerNorm(w, eps=c["norm_eps"])
        self.qkv, self.proj = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x):
        c = self.c
        turn = None
        if c["positions"] == "rotary":
            dims = round(c["rotary_fraction"] * (c["width"] // c["heads"]))
            turn = lambda y: rotate(y, dims, c["rope_theta"])
        h = x + self.proj(attend(self.qkv(self.norm1(x)), c["heads"], c["heads"], turn))
        approximate = "tanh" if c["gelu"] == "tanh" else "none"
        inner = self.up(self.norm2(x if c["parallel_residual"] else h))
        return h + self.down(F.gelu(inner, approximate=approximate))


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(c["vocab"], c["width"]))
        if c["positions"] == "learned":
            self.positions = nn.Parameter(torch.empty(c["context"], c["width"]))
        self.blocks = nn.ModuleList(GptBlock(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"], eps=c["norm_eps"])
        if not c["tied_head"]:
            self.head = nn.Parameter(torch.empty(c["vocab"], c["width"]))
        self.c = c

    def forward(self, tokens):
        x = self.tokens[tokens]
        if self.c["positions"] == "learned":
            x = x + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ (self.tokens if self.c["tied_head"] else self.head).t()


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        w, inner = c["width"], c["ffn"]
        fused = (c["heads"] + 2 * c["kv_heads"]) * (w // c["heads"])
        self.norm1, self.norm2 = RmsNorm(w, c["norm_eps"]), RmsNorm(w, c["norm_eps"])
        self.qkv, self.proj = nn.Linear(w, fused, bias=False), nn.Linear(w, w, bias=False)
        self.gate_up = nn.Linear(w, 2 * inner, bias=False)
        self.down = nn.Linear(inner, w, bias=False)

    def forward(self, x):
        c = self.c
        turn = lambda y: rotate(y, c["width"] // c["heads"], c["rope_theta"])
        x = x + self.proj(attend(self.qkv(self.norm1(x)), c["heads"], c["kv_heads"], turn))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(c["vocab"], c["width"]))
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["layers"]))
        self.norm = RmsNorm(c["width"], c["norm_eps"])
        self.head = nn.Parameter(torch.empty(c["vocab"], c["width"]))

    def forward(self, tokens):
        x = self.tokens[tokens]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.head.t()


def randomize(model):
    """Weights far from any symmetric start, so that no gradient is small by accident."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.0, 0.15)
            if "norm" in name and name.endswith("weight"):
                p.add_(1.0)


def loss_of(model, tokens, targets):
    logits = model(tokens)
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)


def train(model, tokens, targets):
    """Losses before each of STEPS updates; batch i % batches at step i."""
    o = OPTIMIZER
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=o["weight_decay"]), dict(params=vectors, weight_decay=0.0)],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, tokens[step % len(tokens)], targets[step % len(tokens)])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def write(path, tensors, metadata):
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, t in tensors.items():
        data = t.detach().contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}[t.dtype]
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [offset, offset + len(data)]}
        blobs.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(f"{path}: {os.path.getsize(path)} bytes")


def make(name, cls, config, rows, length, seed):
    torch.manual_seed(seed)
    model = cls(config)
    randomize(model)
    tokens = torch.randint(0, config["vocab"], (4, rows, length), dtype=torch.int32)
    targets = torch.randint(0, config["vocab"], (4, rows, length), dtype=torch.int32)
    targets[torch.rand(targets.shape) < 0.15] = -1
    out = {f"weight/{n}": p.detach().clone() for n, p in model.named_parameters()}
    out.update(tokens=tokens, targets=targets)

    wide = cls(config).double()
    wide.load_state_dict(model.state_dict())
    logits, loss = loss_of(wide, tokens[0].long(), targets[0])
    loss.backward()
    out["logits"] = logits.float()
    out["loss"] = loss.detach().reshape(1)
    out.update({f"grad/{n}": p.grad.float() for n, p in wide.named_parameters()})
    wide.zero_grad()
    out["losses"] = torch.tensor(train(wide, tokens.long(), targets), dtype=torch.float64)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".golden")
    write(path, out, {"config": json.dumps(config), "optimizer": json.dumps(OPTIMIZER)})
    print("  loss", loss.item(), "after 20 steps", out["losses"][-1].item())


def main():
    torch.set_num_threads(1)
    gpt2 = dict(name="gpt", layers=2, width=32, heads=4, context=16, vocab=97, positions="learned",
                gelu="tanh", parallel_residual=False, tied_head=True, norm_eps=1e-5)
    make("gpt2", Gpt, gpt2, rows=3, length=13, seed=1)
    neox = dict(name="gpt", layers=2, width=32, heads=2, context=16, vocab=61, positions="rotary",
                rotary_fraction=0.25, rope_theta=10000.0, gelu="erf", parallel_residual=True,
                tied_head=False, norm_eps=1e-5)
    make("neox", Gpt, neox, rows=2, length=16, seed=2)
    llama = dict(name="llama", layers=2, width=32, heads=4, kv_heads=2, context=16, vocab=97, ffn=48,
                 rope_theta=10000.0, norm_eps=1e-5)
    make("llama", Llama, llama, rows=3, length=13, seed=3)


if __name__ == "__main__":
    main()
