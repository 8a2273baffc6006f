#!/usr/bin/env python3
"""Draw the loss curves of a run as SVG, with the standard library only.

Usage: tools/plot_loss.py RUN_DIR/metrics.jsonl OUT.svg [TITLE]
"""

import json
import math
import sys

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 48, 52
INK, FAINT, TRAIN, VAL = "#333333", "#dddddd", "#8fb3d9", "#c2410c"


def read_series(path):
    """Two lists of (step, loss): training and evaluation."""
    train, val = [], []
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            if row["kind"] == "train" and not row.get("skipped"):
                train.append((row["step"], row["loss"]))
            elif row["kind"] == "eval":
                val.append((row["step"], row["val_loss"]))
    return train, val


def ticks(low, high, count):
    """Round numbers from low to high, about `count` of them."""
    raw = (high - low) / count
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def draw(train, val, title):
    points = train + val
    x_max = max(x for x, _ in points)
    y_min = math.floor(10 * min(y for _, y in points)) / 10
    y_max = math.ceil(2 * max(y for _, y in points)) / 2

    def px(x):
        return LEFT + (WIDTH - LEFT - RIGHT) * x / x_max

    def py(y):
        return TOP + (HEIGHT - TOP - BOTTOM) * (y_max - y) / (y_max - y_min)

    def text(x, y, content, anchor="middle", color=INK, size=13):
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
            f'font-size="{size}">{content}</text>'
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 22, title, "start", INK, 15),
    ]
    for y in ticks(y_min, y_max, 6):
        out.append(f'<path d="M{LEFT} {py(y):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        out.append(text(LEFT - 8, py(y) + 4, f"{y:g}", "end"))
    for x in ticks(0, x_max, 6):
        out.append(text(px(x), HEIGHT - BOTTOM + 20, f"{x:g}"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "optimizer step"))
    out.append(text(LEFT, TOP - 8, "nats per token", "start", size=11))
    shown = [s for s in ((train, TRAIN, 1.2, "training"), (val, VAL, 2.2, "held-out text")) if s[0]]
    # Names stand at the curves' ends, the higher end's name above the other's.
    shown.sort(key=lambda s: s[0][-1][1], reverse=True)
    lowest = -math.inf
    for series, color, width, label in shown:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in series)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>')
        x, y = series[-1]
        lowest = max(py(y) + 4, lowest + 16)
        out.append(text(px(x) + 8, lowest, f"{label} {y:.3f}", "start", color))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main(argv):
    if len(argv) not in (3, 4):
        sys.exit(__doc__.strip())
    train, val = read_series(argv[1])
    if not train:
        sys.exit(f"{argv[1]}: no training lines")
    with open(argv[2], "w", encoding="utf-8") as f:
        f.write(draw(train, val, argv[3] if len(argv) == 4 else "Loss"))


if __name__ == "__main__":
    main(sys.argv)
