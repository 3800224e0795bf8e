"""Makes a bundle that `sam deploy` accepts without a build: the templates, the configuration and
the functions' zips for one architecture. The user needs the SAM CLI, and neither Rust nor zig.

Usage: bundle.py VERSION ARCHITECTURE OUT

OUT has the zips of the functions from pack.py, and their bills of materials from sbom.py. The
templates are those of the sources, with their comments and three changes: a function's code is its
zip, no function has a build method, and the setting Architecture is that of the bundle.
"""

import os
import pathlib
import re
import sys
import zipfile

import yaml

import pack
import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
BESIDE = ["samconfig.toml", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"]
BUILDS_FIRST = re.compile(r"sam build(?: --[a-z-]+ \S+)* && ")
README = """# Dynamic write sharding for DynamoDB {version}, for {architecture}

Deploy it with the [SAM CLI](https://docs.aws.amazon.com/serverless-application-model/) and
credentials of your account. No build is needed:

```console
$ sam deploy --guided
```

`functions/` has the three programs in the form that Lambda needs, each with its bill of materials
(CycloneDX). The file SHA256SUMS of the release has this bundle's checksum. `gh attestation verify
FILE --repo OWNER/REPOSITORY` shows the commit and the workflow that built it. docs/upgrading.md in
the repository describes how to get from one version to the next.
"""


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms as opaque values."""


Loader.add_multi_constructor("!", lambda loader, tag, node: {tag: node.value})


def entries(node):
    """Returns the keys of a mapping, each with its key node and value node."""
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def below(node, *path):
    for name in path:
        node = entries(node).get(name, (None, None))[1]
        if node is None:
            return None
    return node


class Edit:
    """Edits a text at given positions and keeps the rest unchanged."""

    def __init__(self, text):
        self.source, self.lines = text, text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.changes = []

    def write(self, node, new):
        """Replaces a value."""
        self.changes.append((node.start_mark.index, node.end_mark.index, new))

    def remove(self, key, value):
        """Removes a mapping's entry in block style: its lines, but no comment after it."""
        if "{" in self.lines[key.start_mark.line][: key.start_mark.column]:
            raise ValueError(f"line {key.start_mark.line + 1}: only an entry with lines of its own can be removed")
        last = value.end_mark.line
        # A block ends where the next token begins. Blank lines and comments before that token do
        # not belong to the block.
        if isinstance(value, yaml.CollectionNode) and not value.flow_style:
            last -= 1
            while last > key.start_mark.line and self.lines[last].strip()[:1] in ("", "#"):
                last -= 1
        self.changes.append((self.starts[key.start_mark.line], self.starts[last + 1], ""))

    def insert_after(self, key, line):
        at = self.starts[key.start_mark.line + 1]
        self.changes.append((at, at, line))

    def text(self):
        parts, done = [], 0
        for start, end, new in sorted(self.changes):
            parts += [self.source[done:start], new]
            done = end
        return "".join(parts) + self.source[done:]


def is_function(node):
    kind = below(node, "Type")
    return kind is not None and kind.value == "AWS::Serverless::Function"


def for_release(text, architecture, code_of):
    """Returns a template whose functions have their zips as code. `code_of` returns a zip's
    path."""
    root, edit = yaml.compose(text, Loader), Edit(text)
    defaults = entries(below(root, "Globals", "Function"))
    if "CodeUri" in defaults:
        edit.remove(*defaults["CodeUri"])
    # Architecture has a setting in each profile, allowed values, and a default in a nested
    # template.
    for _, column in entries(below(root, "Mappings", "Settings", "Architecture")).values():
        edit.write(column, f'"{architecture}"')
    parameter = entries(below(root, "Parameters", "Architecture"))
    for name, new in (("Default", architecture), ("AllowedValues", f"[{architecture}]")):
        if name in parameter:
            edit.write(parameter[name][1], new)
    for name, (_, resource) in entries(below(root, "Resources")).items():
        if not is_function(resource):
            continue
        metadata = entries(below(resource, "Metadata"))
        binary = below(resource, "Metadata", "BuildProperties", "Binary")
        if binary is None:
            sys.exit(f"error: the function {name} does not name its program (Metadata.BuildProperties.Binary)")
        if set(metadata) <= {"BuildMethod", "BuildProperties"}:
            edit.remove(*entries(resource)["Metadata"])
        else:
            for key in ("BuildMethod", "BuildProperties"):
                edit.remove(*metadata[key])
        properties, values = entries(resource)["Properties"]
        indent = values.value[0][0].start_mark.column
        edit.insert_after(properties, f"{' ' * indent}CodeUri: {code_of(binary.value)}\n")
    return edit.text()


def templates():
    """Returns the paths of the root template and of its nested templates, relative to the root."""
    nested = sorted(path.relative_to(ROOT) for path in (ROOT / "templates").glob("*.yaml"))
    return [pathlib.Path("template.yaml"), *nested]


def bundle_name(version, architecture):
    return f"{pack.NAME}-{version}-{architecture}"


def bundle(version, architecture, out):
    functions = {
        f"functions/{function}.zip": pack.zip_name(version, function, architecture) for function in pack.FUNCTIONS
    }
    functions |= {
        f"functions/{function}.cdx.json": sbom.sbom_name(version, function, architecture) for function in pack.FUNCTIONS
    }
    files = {name: (out / source).read_bytes() for name, source in functions.items()}
    taken = set()
    for template in templates():

        def code_of(binary, folder=template.parent):
            taken.add(binary)
            return pathlib.PurePosixPath(os.path.relpath(f"functions/{binary}.zip", folder))

        released = for_release((ROOT / template).read_text(encoding="utf-8"), architecture, code_of)
        yaml.load(released, Loader)
        if "BuildMethod" in released:
            sys.exit(f"error: {template} still has a build method")
        files[template.as_posix()] = released.encode()
    if taken != set(pack.FUNCTIONS):
        sys.exit(
            f"error: the templates have the functions {sorted(taken)}, but the zips are of {sorted(pack.FUNCTIONS)}"
        )
    for name in BESIDE:
        files[name] = BUILDS_FIRST.sub("", (ROOT / name).read_text(encoding="utf-8")).encode()
    files["README.md"] = README.format(version=version, architecture=architecture).encode()
    name = bundle_name(version, architecture)
    target = out / f"{name}.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(files):
            pack.add(archive, f"{name}/{path}", files[path])
    print(f"{target.name}: {len(files)} files, {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in pack.MACHINES:
        sys.exit(__doc__.strip())
    bundle(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]))
