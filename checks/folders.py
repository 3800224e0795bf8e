"""Checks that the folders of shared/src import each other in one direction only."""
import re
import sys
from pathlib import Path

# A folder may import those before it.
ORDER = ["values", "protocol", "policy", "config", "table", "engine", "client"]

source = Path(__file__).parent.parent / "shared/src"
folders = sorted(path.name for path in source.iterdir() if path.is_dir())
if folders != sorted(ORDER):
    sys.exit(f"error: the folders of {source} are {folders}; ORDER has {sorted(ORDER)}")

wrong = []
imports = 0
for path in sorted(source.glob("*/**/*.rs")):
    own = path.relative_to(source).parts[0]
    code = re.sub(r"//.*", "", path.read_text()).partition("#[cfg(test)]\nmod tests {")[0]
    # Both `crate::table::Place` and `crate::{table::Place, config::Writes}`. The parts of a group
    # that is nested deeper belong to its own folder.
    paths = re.findall(r"\bcrate::(\w+)", code)
    for group in re.findall(r"\bcrate::\{(.*?)\};", code, re.DOTALL):
        while "{" in group:
            group = re.sub(r"\{[^{}]*\}", "", group)
        paths += re.findall(r"(?:^|,)\s*(\w+)", group)
    for folder in paths:
        if folder in ORDER and path.name != "tests.rs":
            imports += 1
            if ORDER.index(folder) > ORDER.index(own):
                wrong.append(f"{path.relative_to(source.parent.parent)} imports crate::{folder}")

print(f"{' <- '.join(ORDER)}: {imports} imports")
if wrong:
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit("error: a folder imports one that comes after it in checks/folders.py")
