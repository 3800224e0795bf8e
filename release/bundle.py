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


# How a template names the program of a function, and perhaps exceptions of other tools.
BUILT = re.compile(
    r"^    Metadata:\n      BuildMethod: .*\n      BuildProperties: \{Binary: (?P<program>[\w-]+)\}\n"
    r"(?P<others>(?:      .*\n)*)    Properties:\n",
    re.M,
)
# The setting's values, the default of a nested template, and the allowed values.
CHOICES = re.compile(r"^ +Architecture: \{.*\}|^ +AllowedValues: \[arm64, x86_64\]$", re.M)


def for_release(text, architecture, code_of):
    """Returns a template whose functions have their zips as code. `code_of` returns a zip's
    path."""

    def packed(function):
        metadata = f"    Metadata:\n{function['others']}" if function["others"] else ""
        return f"{metadata}    Properties:\n      CodeUri: {code_of(function['program'])}\n"

    def chosen(choice):
        return re.sub("arm64|x86_64", architecture, choice[0].replace("arm64, x86_64", architecture))

    text = re.sub(r"^    CodeUri: .*\n", "", text, flags=re.M)
    return CHOICES.sub(chosen, BUILT.sub(packed, text))


def templates():
    """Returns the paths of the root template and of its nested templates, relative to the root."""
    nested = sorted(path.relative_to(ROOT) for path in (ROOT / "templates").glob("*.yaml"))
    return [pathlib.Path("template.yaml"), *nested]


def bundle_name(version, architecture):
    return f"{pack.NAME}-{version}-{architecture}"


def bundle(version, architecture, out):
    files, taken = {}, set()
    for function in pack.FUNCTIONS:
        for ending, name_of in (("zip", pack.zip_name), ("cdx.json", sbom.sbom_name)):
            files[f"functions/{function}.{ending}"] = (out / name_of(version, function, architecture)).read_bytes()
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
        sys.exit(f"error: the templates have the functions {sorted(taken)}, but the zips are of {pack.FUNCTIONS}")
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
