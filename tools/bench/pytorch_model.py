"""GPT-2 as a PyTorch user writes it, and one step of its training. For pytorch_train.py."""

import contextlib
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """A projection whose product may be computed in f32 though weights and activations are bf16."""

    def __init__(self, inputs, outputs, std, bias, f32_products):
        super().__init__(inputs, outputs, bias=bias)
        self.f32_products = f32_products
        nn.init.normal_(self.weight, std=std)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x):
        return linear(x, self.weight, self.bias, self.f32_products)


def linear(x, weight, bias, f32_products):
    if not f32_products:
        return F.linear(x, weight, bias)
    y = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    return y.to(x.dtype)


def layer_norm(s):
    layer = nn.LayerNorm(s.width, eps=s.norm_eps)
    if not s.bias:
        layer.register_parameter("bias", None)
    return layer


class Block(nn.Module):
    def __init__(self, s, variant, f32_products):
        super().__init__()
        self.heads, self.approximate = s.heads, "tanh" if s.gelu == "tanh" else "none"
        self.sdpa = variant["attention"] == "sdpa"

        def projection(inputs, outputs, std):
            return Linear(inputs, outputs, std, s.bias, f32_products)

        residual_std = s.init_std / math.sqrt(2 * s.layers)
        self.norm1, self.norm2 = layer_norm(s), layer_norm(s)
        self.qkv = projection(s.width, 3 * s.width, s.init_std)
        self.proj = projection(s.width, s.width, residual_std)
        self.up = projection(s.width, s.ffn, s.init_std)
        self.down = projection(s.ffn, s.width, residual_std)

    def attend(self, q, k, v):  # each (B, H, T, D)
        if self.sdpa:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        future = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v

    def forward(self, x):  # (B, T, C)
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class Gpt(nn.Module):
    def __init__(self, s, variant):
        super().__init__()
        self.f32_products = s.dtype == "bf16" and variant["bf16"] == "f32-products"
        self.chunked = variant["loss"] == "chunked"
        self.tokens = nn.Embedding(s.vocab, s.width)
        self.positions = nn.Embedding(s.context, s.width)
        self.blocks = nn.ModuleList(Block(s, variant, self.f32_products) for _ in range(s.layers))
        self.norm = layer_norm(s)
        self.head = self.tokens if s.tied_head else nn.Embedding(s.vocab, s.width)
        for table in (self.tokens, self.positions, self.head):
            nn.init.normal_(table.weight, std=s.init_std)

    def loss(self, x, targets):  # (B, T, C), (B * T)
        x, weight = self.norm(x).flatten(0, 1), self.head.weight
        if not self.chunked:
            return F.cross_entropy(linear(x, weight, None, self.f32_products).float(), targets)
        dtype = weight.dtype
        if torch.is_autocast_enabled("cpu"):  # does not reach into linear_cross_entropy
            dtype = torch.bfloat16
        elif self.f32_products:
            dtype = torch.float32
        options = nn.LinearCrossEntropyOptions()
        return F.linear_cross_entropy(x.to(dtype), weight.to(dtype), targets, options=options)

    def forward(self, tokens, targets):  # (B, T), (B * T)
        x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)


class Trainer:
    """A model, its optimizer and one step of training."""

    def __init__(self, s, variant):
        self.s = s
        self.autocast = s.dtype == "bf16" and variant["bf16"] == "autocast"
        model = Gpt(s, variant)
        self.master = []  # the f32 weights, where the model's are bf16
        if s.dtype == "bf16" and not self.autocast:
            self.master = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
            model.to(torch.bfloat16)
        self.weights = list(model.parameters())
        self.updated = self.master or self.weights
        groups = [
            {"params": [p for p in self.updated if p.dim() >= 2], "weight_decay": s.weight_decay},
            {"params": [p for p in self.updated if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=s.lr, betas=s.betas, eps=s.eps, **{variant["adamw"]: True}
        )
        if variant["graph"] == "blocks":
            for block in model.blocks:
                block.compile(dynamic=False)
            model.loss = torch.compile(model.loss, dynamic=False)
        self.model = torch.compile(model, dynamic=False) if variant["graph"] == "whole" else model

    def parameters(self):
        return sum(p.numel() for p in self.weights)

    def step(self, number, tokens, targets):
        """One update from tokens and targets (batch, T); the loss before it."""
        s, total = self.s, 0.0
        pieces = s.batch // s.micro_batch
        for x, y in zip(tokens.split(s.micro_batch), targets.split(s.micro_batch)):
            with self.precision():
                loss = self.model(x, y.flatten()) / pieces
            loss.backward()
            total += loss.item()
            self.collect()
        if s.grad_clip > 0:
            nn.utils.clip_grad_norm_(self.updated, s.grad_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = s.learning_rate(number)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for weight, master in zip(self.weights, self.master):
                weight.copy_(master)
        return total

    def precision(self):
        if self.autocast:
            return torch.autocast("cpu", torch.bfloat16)
        return contextlib.nullcontext()

    def collect(self):
        """Adds the gradients of bf16 weights to those of the master copy."""
        for weight, master in zip(self.weights, self.master):
            grad, weight.grad = weight.grad.float(), None
            master.grad = grad if master.grad is None else master.grad.add_(grad)


def bf16_to_f32_rate():
    """How fast a layer's three products are in bf16, in times of f32: far below 1 without kernels."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, w = torch.ones(256, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            _ = x @ w.T, x @ w, x.T @ x
            times.append(time.perf_counter() - begin)
        seconds[dtype] = min(times)
    return seconds[torch.float32] / seconds[torch.bfloat16]
