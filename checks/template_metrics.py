"""The metrics that the functions write."""

from template_expected import CONSTANT, METRIC_SOURCES, METRIC_WRITTEN
from template_flat import ROOT


def metrics_written():
    """Returns the metrics that the functions write: `counter!(WRITES)` with the constant's text, or
    `counter!("Writes")`."""
    paths = (path for folder in METRIC_SOURCES for path in (ROOT / folder).rglob("*.rs"))
    codes = [path.read_text(encoding="utf-8").split("#[cfg(test)]")[0] for path in paths]
    everywhere = {name: text for code in codes for name, text in CONSTANT.findall(code)}
    # A constant of the same file has precedence, because other files may have one of the same name.
    return {
        text or (everywhere | dict(CONSTANT.findall(code)))[name]
        for code in codes
        for name, text in METRIC_WRITTEN.findall(code)
    }
