"""The metrics that the functions write."""

import re

from template_expected import CONSTANT, METRIC_SOURCES, METRIC_WRITTEN
from template_flat import ROOT

PREFIX = "Sharding"


def metrics_written(sources=METRIC_SOURCES):
    """Returns the metrics that these sources write: `counter!(WRITES)` with the constant's text, or
    `counter!("ShardingWrites")`."""
    paths = (path for folder in sources for path in (ROOT / folder).rglob("*.rs"))
    codes = [path.read_text(encoding="utf-8").split("#[cfg(test)]")[0] for path in paths]
    everywhere = {name: text for code in codes for name, text in CONSTANT.findall(code)}
    # A constant of the same file has precedence, because other files may have one of the same name.
    return {
        text or (everywhere | dict(CONSTANT.findall(code)))[name]
        for code in codes
        for name, text in METRIC_WRITTEN.findall(code)
    }


def metrics_documented():
    """Returns the metrics that docs/operations.md describes, from the first cells of its table."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = text.split("\n## Metrics\n")[1].split("\n## ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    # "`Throttles`, by `Scope`": a label is no metric.
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell.split(", by ")[0])}
