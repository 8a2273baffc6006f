"""What tools/bench/zeropp compares, and how it prints what it has found."""

import collections
import statistics

import zeropp_plot

# `title` is the table's name for it; `settings` change the configuration.
Variant = collections.namedtuple("Variant", "name title settings")
ALL = {"zero.preset": "zero++"}
SPEED = (
    Variant("zero3", "ZeRO-3", {}),
    Variant("qwz", "qwZ", {"zero.weights.wire": "int8"}),
    Variant("hpz", "hpZ", {"zero.replica": "node"}),
    Variant("qgz", "qgZ", {"zero.grads.wire_intra": "int8", "zero.grads.wire_inter": "int4"}),
    Variant("zero++", "ZeRO++", ALL),
)
LEARNING = (
    SPEED[0],
    Variant("qwz", "qwZ, INT8", SPEED[1].settings),
    Variant("zero++", "ZeRO++ (gradients INT8/INT4)", ALL),
    Variant("hadamard", "ZeRO++, INT8/INT4, Hadamard", {**ALL, "zero.grads.hadamard": "true"}),
    Variant("int4", "ZeRO++, INT4/INT4", {**ALL, "zero.grads.wire_intra": "int4"}),
)


# --- Speed -----------------------------------------------------------------------------


def median(runs, what):
    return statistics.median(r[what] for r in runs)


def ratio_of(runs, plain):
    """How much faster than ZeRO-3 in the same round."""
    return statistics.median(a["rate"] / b["rate"] for a, b in zip(runs, plain))


def waits_for_link(results, rate):
    """The part of ZeRO-3's step by which it is longer than at the fastest rate of the same round."""
    fastest = results[max(results)]["zero3"]
    return statistics.median(
        max(0, 1 - a["rate"] / b["rate"]) for a, b in zip(results[rate]["zero3"], fastest))


def mib(number):
    return f"{number / 2**20:.2f}"


def table_lines(head, right, rows):
    """A Markdown table; columns from number `right` on are numbers."""
    lines = ["| " + " | ".join(head) + " |",
             "|" + "".join("---|" if i < right else "---:|" for i in range(len(head)))]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def table(results, variants):
    """Markdown lines."""
    head = ["link", "", "tok/s", "x ZeRO-3", "waits", "MiB between nodes", "on the cards",
            "MiB inside", "loss"]
    rows = []
    for rate, by_name in results.items():
        for v in variants:
            runs = by_name[v.name]
            rates = [r["rate"] for r in runs]
            rows.append([
                zeropp_plot.rate_text(rate), v.title,
                f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
                f"{ratio_of(runs, by_name['zero3']):.2f}", f"{100 * median(runs, 'wait'):.0f} %",
                mib(median(runs, "inter")), mib(median(runs, "cards")), mib(median(runs, "intra")),
                f"{median(runs, 'loss'):.4f}"])
    return table_lines(head, 2, rows) + remarks(results, variants)


def remarks(results, variants):
    """What ZeRO++ saves, and what it is worth where links are slowest and fastest."""
    if "zero++" not in [v.name for v in variants]:
        return []
    slowest, fastest = min(results), max(results)
    plain, coded = (median(results[slowest][name], "inter") for name in ("zero3", "zero++"))
    lines = ["", f"ZeRO++ sends {plain / coded:.2f}x fewer bytes between nodes than ZeRO-3."]
    for rate in dict.fromkeys((slowest, fastest)):
        lines.append(
            f"At {zeropp_plot.rate_text(rate)}, where ZeRO-3 waits for the link "
            f"{100 * waits_for_link(results, rate):.0f} % of its step, ZeRO++ is "
            f"{ratio_of(results[rate]['zero++'], results[rate]['zero3']):.2f}x as fast.")
    return lines


def picture(results, variants, title):
    """The SVG's text."""
    ratios = {v.title: {rate: ratio_of(by_name[v.name], by_name["zero3"])
                        for rate, by_name in results.items()} for v in variants}
    waits = {rate: waits_for_link(results, rate) for rate in results}
    return zeropp_plot.draw(ratios, waits, title)


# --- Learning ---------------------------------------------------------------------------


def learning_table(results, variants):
    """Markdown lines."""
    plain = results["zero3"]["val_loss"]
    rows = []
    for v in variants:
        if v.name not in results:
            continue
        found = results[v.name]
        difference = "" if v.name == "zero3" else f"{100 * (found['val_loss'] / plain - 1):+.2f} %"
        rows.append([v.title, f"{found['val_loss']:.4f}", difference, f"{found['loss']:.4f}",
                     str(found["skipped"])])
    head = ["", "loss on held-out text", "to ZeRO-3", "last step's loss", "skipped steps"]
    return table_lines(head, 1, rows)
