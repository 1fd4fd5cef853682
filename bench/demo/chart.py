"""Draws one run as an SVG and as text: loss and step time over the steps, with the world's size and its changes.

Pure: takes rows, returns text. No third-party library.
"""

import html

WIDTH, HEIGHT, LEFT, RIGHT = 1000, 560, 70, 20
INK, GRID, LOSS, TIME, WORLD = "#222", "#ddd", "#1f6feb", "#d29922", "#8ddb8c"


def _ticks(low, high, count=5):
    step = (high - low) / count or 1.0
    return [low + i * step for i in range(count + 1)]


class _Panel:
    """One plot with its own vertical axis and the shared horizontal axis."""

    def __init__(self, top, height, x_range, y_range, label):
        self.top, self.height, self.label = top, height, label
        self.x0, self.x1 = x_range
        self.y0, self.y1 = y_range
        if self.y0 == self.y1:
            self.y1 = self.y0 + 1

    def x(self, value):
        span = max(self.x1 - self.x0, 1)
        return LEFT + (value - self.x0) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        share = (value - self.y0) / (self.y1 - self.y0)
        return self.top + self.height * (1 - min(max(share, 0), 1))

    def frame(self):
        out = []
        for t in _ticks(self.y0, self.y1):
            y = self.y(t)
            out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
            out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{t:.3g}</text>')
        middle = self.top + self.height / 2
        out.append(f'<text x="14" y="{middle:.1f}" transform="rotate(-90 14 {middle:.1f})" '
                   f'text-anchor="middle">{html.escape(self.label)}</text>')
        return out

    def line(self, points, colour):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def render(title, steps, changes):
    """steps: rows with step, loss, ms, slots (in order). changes: rows with step, name."""
    if not steps:
        return ""
    x_range = (steps[0]["step"], steps[-1]["step"])
    losses = [row["loss"] for row in steps]
    loss = _Panel(60, 220, x_range, (min(losses), max(losses)), "loss")
    # The first step includes start-up time, so the axis scales to the longest later step.
    longest = max(row["ms"] for row in steps[1:] or steps)
    time = _Panel(320, 180, x_range, (0, longest * 1.1), "step time, ms")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'font-family="sans-serif" font-size="11" fill="{INK}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">{html.escape(title)}</text>']
    out += loss.frame() + time.frame()
    for i, change in enumerate(changes):
        x = loss.x(change["step"])
        out.append(f'<line x1="{x:.1f}" y1="56" x2="{x:.1f}" y2="500" stroke="#cf222e" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{x + 3:.1f}" y="{52 - 12 * (i % 2):.1f}" fill="#cf222e">{html.escape(change["name"])}</text>')
    most = max(row["slots"] for row in steps)
    for before, after in zip(steps, steps[1:]):
        x0, x1 = loss.x(before["step"]), loss.x(after["step"])
        height = 30 * after["slots"] / most
        out.append(f'<rect x="{x0:.1f}" y="{540 - height:.1f}" width="{x1 - x0 + 0.3:.1f}" '
                   f'height="{height:.1f}" fill="{WORLD}"/>')
    out.append(f'<text x="{LEFT - 6}" y="530" text-anchor="end">members</text>')
    out.append(loss.line([(row["step"], row["loss"]) for row in steps], LOSS))
    out.append(time.line([(row["step"], row["ms"]) for row in steps], TIME))
    out.append(f'<text x="{LEFT}" y="554">step {x_range[0]}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="554" text-anchor="end">step {x_range[1]}</text></svg>')
    return "\n".join(out) + "\n"


BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.:-=+*#"


def _bars(values, low, high, marks):
    """One mark for each value; low is the lowest mark and high the highest."""
    span = (high - low) or 1.0
    return "".join(marks[min(int((v - low) / span * len(marks)), len(marks) - 1)] for v in values)


def text(steps, changes, width=100, marks=BLOCKS):
    """Yields lines for a terminal; arguments as render(). A column stands for one or more steps: its mean loss, its
    longest step, and the last digit of its last number of members. A caret is a column with a change."""
    if not steps:
        return
    count = min(width, len(steps))
    columns = [steps[len(steps) * i // count:len(steps) * (i + 1) // count] for i in range(count)]
    losses = [sum(row["loss"] for row in column) / len(column) for column in columns]
    times = [max(row["ms"] for row in column) for column in columns]
    # The first step includes start-up time.
    longest = max(row["ms"] for row in steps[1:] or steps)
    at = {change["step"] for change in changes}
    yield f"loss     {_bars(losses, min(losses), max(losses), marks)}  {losses[0]:.3f} to {losses[-1]:.3f}"
    yield f"ms/step  {_bars(times, 0.0, longest, marks)}  at most {longest:.0f} ms"
    yield "members  " + "".join(str(column[-1]["slots"])[-1] for column in columns)
    yield "changes  " + "".join("^" if at & {row["step"] for row in column} else " " for column in columns)
