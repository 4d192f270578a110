"""A report as one HTML file: no script from elsewhere, no font, no picture, no request."""

from __future__ import annotations

from html import escape
from importlib import resources
from itertools import groupby
from string import Template
from typing import Any

from eval.report.document import Block, Example, Figure, Report, Section, Table, Words
from eval.report.plots import Plot, svg
from eval.report.values import interval_text, written

__all__ = ["page"]


def page(report: Report) -> str:
    """Return the whole page. Raises `eval.report.errors.PlotsMissing`."""
    template = Template(resources.files("eval.report").joinpath("page.html").read_text("utf-8"))
    numbers = iter(range(10_000))
    body = "\n".join(_section(section, numbers) for section in report.sections)
    contents = "".join(f'<li><a href="#{escape(s.key)}">{escape(s.title)}</a></li>' for s in report.sections)
    return template.substitute(
        title=escape(report.title),
        subtitle=f"<p class=subtitle>{escape(report.subtitle)}</p>" if report.subtitle else "",
        made=escape(report.made.strftime("%Y-%m-%d %H:%M UTC")),
        command=f"<code>{escape(report.command)}</code>" if report.command else "",
        contents=contents if len(report.sections) > 1 else "",
        body=body,
    )


def _section(section: Section, numbers: Any) -> str:
    parts = [f'<section id="{escape(section.key)}"><h2>{escape(section.title)}</h2>']
    if section.intro:
        parts.append(f"<p>{escape(section.intro)}</p>")
    for kind, blocks in groupby(section.blocks, key=type):
        if kind is Figure:
            parts.append(f"<div class=figures>{''.join(_figure(b) for b in blocks if isinstance(b, Figure))}</div>")
        else:
            parts += [_block(block, numbers) for block in blocks]
    parts.append("</section>")
    return "\n".join(parts)


def _block(block: Block, numbers: Any) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Words):
        if not block.headline:
            return f"<p>{escape(block.text)}</p>"
        said = f"<strong>{escape(block.headline)}</strong><p>{escape(block.text)}</p>"
        return f'<div class="verdict {block.tone}">{said}</div>'
    if isinstance(block, Example):
        return _example(block)
    if isinstance(block, Figure):
        return _figure(block)
    return _plot(block, next(numbers))


def _figure(figure: Figure) -> str:
    told = []
    if figure.interval is not None:
        told.append(f"95 %: {interval_text(figure.interval, figure.unit)}")
    if figure.n is not None:
        told.append(f"n\u00a0=\u00a0{figure.n:,}")
    if figure.note:
        told.append(figure.note)
    small = f"<small>{escape(' · '.join(told))}</small>" if told else ""
    return (
        f"<div class=figure><span>{escape(figure.name)}</span>"
        f"<b>{escape(written(figure.value, figure.unit))}</b>{small}</div>"
    )


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope=col class="{"text" if c.text else "number"}">{escape(c.name)}</th>' for c in table.columns
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"text" if c.text else "number"}">{escape(written(v, c.unit))}</td>'
            for v, c in zip(row, table.columns, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    return (
        f"<div class=wide><table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _plot(plot: Plot, number: int) -> str:
    head, rows = plot.rows()
    cells = "".join(
        "<tr>" + "".join(f"<td class={_kind(cell)}>{escape(_cell(cell))}</td>" for cell in row) + "</tr>"
        for row in rows[:500]
    )
    titles = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    note = f"<p class=note>{escape(plot.note)}</p>" if plot.note else ""
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption><div class=wide>{svg(plot, number)}</div>{note}"
        f"<details><summary>The figures of this plot</summary><div class=wide><table><thead><tr>{titles}</tr></thead>"
        f"<tbody>{cells}</tbody></table></div></details></figure>"
    )


def _kind(cell: Any) -> str:
    return "text" if isinstance(cell, str) else "number"


def _cell(cell: Any) -> str:
    return cell if isinstance(cell, str) else f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"


def _example(example: Example) -> str:
    sides = "".join(f"<div><h4>{escape(name)}</h4><pre>{escape(text)}</pre></div>" for name, text in example.sides)
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in example.facts)
    return (
        f'<details class="example {example.tone}"><summary>{escape(example.title)}</summary>'
        f"<div class=sides>{sides}</div>{f'<ul>{facts}</ul>' if facts else ''}</details>"
    )
