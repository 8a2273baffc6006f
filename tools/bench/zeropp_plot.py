"""Draws how much faster than ZeRO-3 each way of sending is, over the rate of the links, as SVG, with
the standard library only."""

import math

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 48, 76
INK, FAINT = "#333333", "#dddddd"
COLORS = ("#8a8a8a", "#2f6fb3", "#3f8f4f", "#b07d12", "#c2410c")
LABEL_HEIGHT = 16


def rate_text(bits):
    """800 Mbit/s, 2.5 Gbit/s."""
    value, unit = (bits / 1e9, "Gbit/s") if bits >= 1e9 else (bits / 1e6, "Mbit/s")
    return f"{value:.3g} {unit}"


def ratio_ticks(highest):
    """Round numbers from 0 to `highest` or just above."""
    step = 0.5 if highest <= 4 else 1
    return [k * step for k in range(math.ceil(highest / step) + 1)]


def spread(heights, least):
    """The heights in their order, moved down so that each is `least` below the one before."""
    placed = []
    for height in heights:
        placed.append(height if not placed else max(height, placed[-1] + least))
    return placed


def text(x, y, content, anchor="middle", color=INK, size=13):
    content = content.replace("&", "&amp;").replace("<", "&lt;")
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
            f'font-size="{size}">{content}</text>')


class Axes:
    """Where points lie: links get slower to the right, the higher the faster than ZeRO-3."""

    def __init__(self, rates, highest):
        self._fastest, self._slowest = math.log(max(rates)), math.log(min(rates))
        self.ticks = ratio_ticks(highest)

    def x(self, rate):
        inner = WIDTH - LEFT - RIGHT - 60
        share = self._fastest - math.log(rate)
        share = share / (self._fastest - self._slowest) if self._fastest > self._slowest else 0.5
        return LEFT + 30 + inner * share

    def y(self, ratio):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - ratio / self.ticks[-1])


def frame(axes, waits):
    """Grid, and under each rate how long ZeRO-3 waits for the link."""
    out = []
    for ratio in axes.ticks:
        out.append(f'<path d="M{LEFT} {axes.y(ratio):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        out.append(text(LEFT - 8, axes.y(ratio) + 4, f"{ratio:g}", "end"))
    for rate, wait in waits.items():
        x, bottom = axes.x(rate), HEIGHT - BOTTOM
        out.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{INK}"/>')
        out.append(text(x, bottom + 20, rate_text(rate)))
        out.append(text(x, bottom + 36, f"{100 * wait:.0f} %", size=11))
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(text(middle, HEIGHT - 16, "rate of each node's link; below it: the part of its step "
                    "that ZeRO-3 waits for it", size=12))
    out.append(text(LEFT, TOP - 8, "tokens per second, ZeRO-3 = 1", "start", size=11))
    return out


def draw(ratios, waits, title):
    """The picture.

    Args:
      ratios: for each name, a rate in bits per second and how much faster than ZeRO-3 that is.
      waits: for each rate the part of its step that ZeRO-3 waits for the link.
      title: above it.
    """
    axes = Axes(list(waits), max(max(points.values()) for points in ratios.values()))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 22, title, "start", INK, 15), *frame(axes, waits)]
    colors = dict(zip(ratios, COLORS))
    slowest = min(waits)
    for name, points in ratios.items():
        places = [(axes.x(rate), axes.y(points[rate])) for rate in sorted(points, reverse=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colors[name]}" '
                   'stroke-width="2"/>')
        out.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colors[name]}"/>'
                   for x, y in places)
    names = sorted(ratios, key=lambda name: -ratios[name][slowest])
    heights = spread([axes.y(ratios[name][slowest]) + 4 for name in names], LABEL_HEIGHT)
    for name, height in zip(names, heights):
        label = f"{name} {ratios[name][slowest]:.2f}"
        out.append(text(axes.x(slowest) + 10, height, label, "start", colors[name]))
    out.append("</svg>")
    return "\n".join(out) + "\n"
