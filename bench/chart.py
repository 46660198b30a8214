#!/usr/bin/env python3
"""Draws the README's bar chart from a committed result.

    bench/chart.py            writes docs/lab/pictures/beside-other-engines.svg
    bench/chart.py --check    fails if that picture is not what the result gives

Each measurement has a scale of its own, from zero to its largest value. Python's standard library only.
"""

import json
import pathlib
import sys
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs/lab/results/beside-other-engines.json"
PICTURE = ROOT / "docs/lab/pictures/beside-other-engines.svg"

WIDTH, PANEL_GAP, LEFT, LABELS, VALUES = 760, 26, 16, 78, 70
BAR, STEP, HEAD = 15, 20, 30
COLOURS = {"Firn": "#1f5fa8"}
OTHER = "#a9b4c0"


def panel(measurement, top):
    """The lines of one measurement's bars, and where the next may begin."""
    values = measurement["values"]
    longest = max(values.values())
    space = WIDTH - 2 * LEFT - LABELS - VALUES
    lines = [
        f'<text x="{LEFT}" y="{top + 14}" class="head">{escape(measurement["name"])}'
        f'<tspan class="unit">  {escape(measurement["unit"])}</tspan></text>'
    ]
    y = top + HEAD - 6
    for engine, value in sorted(values.items(), key=lambda item: -item[1]):
        length = max(1, round(space * value / longest))
        middle = y + BAR - 3
        colour = COLOURS.get(engine, OTHER)
        lines += [
            f'<text x="{LEFT + LABELS - 8}" y="{middle}" text-anchor="end">{escape(engine)}</text>',
            f'<rect x="{LEFT + LABELS}" y="{y}" width="{length}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LEFT + LABELS + length + 6}" y="{middle}">{value:,}</text>',
        ]
        y += STEP
    return lines, y + PANEL_GAP - (STEP - BAR)


def draw(result):
    """The picture of a result."""
    lines, top = [], 12
    for measurement in result["measurements"]:
        more, top = panel(measurement, top)
        lines += more
    foot = top - 6
    lines.append(f'<text x="{LEFT}" y="{foot}" class="unit">{escape(result["machine"])}</text>')
    height = foot + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(result["title"])}">',
            "<style>text{font:12px sans-serif;fill:#222}.head{font-weight:bold}"
            ".unit{font-weight:normal;font-size:11px;fill:#666}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def main():
    picture = draw(json.loads(RESULT.read_text()))
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is not current: run bench/chart.py")


if __name__ == "__main__":
    main()
