"""Line charts as SVG, written by hand: a picture of a race needs no plotting library."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#999999",
)  # told apart by the colour-blind
DASHES = ("", "6 3", "2 3", "8 3 2 3")
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 46


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: bool = False  # whether the y axis counts powers of ten
    labels: Sequence[str] = ()  # of x = 0, 1, 2 …, where x is no number


def svg(charts: Sequence[Chart]) -> str:
    """The charts beside one another, and a legend of all lines below."""
    names = list(dict.fromkeys(line.name for chart in charts for line in chart.lines))
    height = HEIGHT + 22 * len(names) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(charts)}" height="{height}" '
        f'viewBox="0 0 {WIDTH * len(charts)} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH * len(charts)}" height="{height}" fill="white"/>',
    ]
    for i, chart in enumerate(charts):
        parts += [f'<g transform="translate({i * WIDTH} 0)">', *_chart(chart, names), "</g>"]
    for i, name in enumerate(names):
        y = HEIGHT + 14 + 22 * i
        parts += [
            f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + 30}" y2="{y}" {_stroke(i)}/>',
            _text(LEFT + 38, y + 4, name),
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(chart: Chart, names: list[str]) -> list[str]:
    points = [(x, _height(y, chart)) for line in chart.lines for x, y in line.points if _drawn(y, chart)]
    parts = [_text(LEFT, 20, chart.title, weight="bold")]
    if not points:
        return [*parts, _text(LEFT + 20, HEIGHT / 2, "nothing to draw")]
    x_low, x_high = _range([x for x, _ in points])
    y_low, y_high = _range([y for _, y in points])

    def across(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    for y in _ticks(y_low, y_high):
        parts.append(f'<line x1="{LEFT}" y1="{up(y):.1f}" x2="{WIDTH - RIGHT}" y2="{up(y):.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, up(y) + 4, _number(10**y if chart.log else y), anchor="end"))
    for x in range(len(chart.labels)) if chart.labels else _ticks(x_low, x_high):
        parts.append(
            _text(across(x), HEIGHT - BOTTOM + 16, chart.labels[int(x)] if chart.labels else _number(x), anchor="middle")
        )
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#444"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, chart.x, anchor="middle"))
    parts.append(
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(chart.y)}</text>'
    )
    for line in chart.lines:
        places = [(across(x), up(_height(y, chart))) for x, y in line.points if _drawn(y, chart)]
        number = names.index(line.name)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" {_stroke(number)}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{COLOURS[number % 8]}"/>' for x, y in places]
    return parts


def _height(y: float, chart: Chart) -> float:
    return math.log10(y) if chart.log else y


def _drawn(y: float, chart: Chart) -> bool:
    return math.isfinite(y) and (y > 0 or not chart.log)


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers within [low, high]."""
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(x: float) -> str:
    return f"{x:.0e}" if x and not 1e-3 <= abs(x) < 1e5 else f"{x:g}" if abs(x) < 1e3 else f"{x:,.0f}"


def _stroke(number: int) -> str:
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
