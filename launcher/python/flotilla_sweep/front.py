"""The front of a sweep as a picture: what each trial came to against what it took, in
steps and in time. Written by ourselves, as launcher/chart.cc is: no plotting library."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 920, 420
LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT, GAP = 80, 52, 350, 290, 110


def ticks(low, high, count=5):
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next(times for times in (1, 2, 5, 10) if times * step * count >= (high - low) * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value):
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):g}{name}"
    return f"{0 if abs(value) < 1e-12 else round(value, 12):g}"


def bounds(values):
    low, high = min(values), max(values)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1
    return low - room, high + room


def pareto(points, cost, maximize):
    """Those that no other beats at less cost, the cheapest first."""
    front, reached = [], None
    for point in sorted(points, key=lambda p: (p[cost], -p["score"] if maximize else p["score"], p["trial"])):
        if reached is None or (point["score"] > reached if maximize else point["score"] < reached):
            front.append(point)
            reached = point["score"]
    return front


def panel(points, metric, best, cost, label, left):
    x_low, x_high = bounds([p[cost] for p in points])
    x_low = max(0, x_low) if x_low < 0 <= min(p[cost] for p in points) else x_low
    y_low, y_high = bounds([p["score"] for p in points])

    def x(value):
        return left + (value - x_low) / (x_high - x_low) * PLOT_WIDTH

    def y(value):
        return TOP + PLOT_HEIGHT - (value - y_low) / (y_high - y_low) * PLOT_HEIGHT

    bottom = TOP + PLOT_HEIGHT
    svg = [f'<rect x="{left}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="none" stroke="#888"/>']
    for value in ticks(x_low, x_high):
        svg.append(f'<path d="M{x(value):.1f} {TOP}V{bottom}" stroke="#e4e4e4"/><text x="{x(value):.1f}" y="{bottom + 18}" text-anchor="middle">{tick_text(value)}</text>')
    for value in ticks(y_low, y_high):
        svg.append(f'<path d="M{left} {y(value):.1f}h{PLOT_WIDTH}" stroke="#e4e4e4"/><text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{tick_text(value)}</text>')
    svg.append(f'<text x="{left + PLOT_WIDTH / 2}" y="{bottom + 42}" text-anchor="middle">{label}</text>')
    front = pareto(points, cost, metric["goal"] == "MAXIMIZE")
    line = "".join(f"{'M' if i == 0 else 'H'}{x(p[cost]):.1f}{' ' if i == 0 else 'V'}{y(p['score']):.1f}" for i, p in enumerate(front))
    svg.append(f'<path class="front" d="{line}H{left + PLOT_WIDTH}" fill="none" stroke="#0072b2" stroke-width="2"/>')
    members = {p["trial"] for p in front}
    for p in points:
        colour = "#d55e00" if p["trial"] == best else "#0072b2" if p["trial"] in members else "#999"
        radius = 6 if p["trial"] == best else 4
        about = escape(f"trial {p['trial']}: {p['score']:g}, {p['steps']:,} steps, {p['seconds']:.1f} s: {p['label']}")
        svg.append(f'<circle cx="{x(p[cost]):.1f}" cy="{y(p["score"]):.1f}" r="{radius}" fill="{colour}"><title>{about}</title></circle>')
        if p["trial"] in members or p["trial"] == best:
            svg.append(f'<text x="{x(p[cost]) - 8:.1f}" y="{y(p["score"]) - 8:.1f}" text-anchor="end" fill="{colour}">{p["trial"]}</text>')
    return svg


def front_svg(points, metric, best, title):
    """`points`: trial, score, steps, seconds, label; one at least."""
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="#222">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="28" font-size="16">{escape(title)}</text>',
        f'<text x="18" y="{TOP + PLOT_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 18 {TOP + PLOT_HEIGHT / 2})">{escape(metric["name"])}</text>',
        *panel(points, metric, best, "steps", "environment steps", LEFT),
        *panel(points, metric, best, "seconds", "seconds", LEFT + PLOT_WIDTH + GAP),
        f'<text x="{LEFT}" y="{HEIGHT - 12}" fill="#666">line: what is reached for so much; orange: the best trial</text>',
        "</svg>\n",
    ]
    return "\n".join(svg)
