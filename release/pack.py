"""Makes the zip of each program, with one file: `bootstrap` for a function, as Lambda takes it, and
a file of its own name for a program for Linux. Equal programs give equal bytes.

Usage: pack.py VERSION ARCHITECTURE BINARIES OUT

BINARIES is a folder with PROGRAM/bootstrap for each program, as `release/build` writes it.
"""

import pathlib
import struct
import sys
import zipfile

NAME = "dynamodb-write-sharding"
FUNCTIONS = ["writer", "reader", "shard-scaler"]
FOR_LINUX = ["local", "adviser", "sharding-endpoint"]
PROGRAMS = FUNCTIONS + FOR_LINUX
# e_machine of the ELF header, by Lambda's name of the architecture.
MACHINES = {"arm64": 183, "x86_64": 62}
# The lowest time that a zip can hold. With the time of the build, each build would differ.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def add(archive, name, content, mode=0o644):
    entry = zipfile.ZipInfo(name, TIMESTAMP)
    entry.create_system = 3  # Unix, so the mode applies.
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content, compresslevel=9)


def machine_of(program):
    if program[:4] != b"\x7fELF" or len(program) < 20:
        return None
    return struct.unpack_from("<H", program, 18)[0]


def zip_name(version, program, architecture):
    return f"{NAME}-{version}-{program}-{architecture}.zip"


def name_in_zip(program):
    return program if program in FOR_LINUX else "bootstrap"


def pack(version, architecture, binaries, out):
    out.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        path = binaries / program / "bootstrap"
        content = path.read_bytes()
        if machine_of(content) != MACHINES[architecture]:
            sys.exit(f"error: {path} is not a program for {architecture}")
        target = out / zip_name(version, program, architecture)
        with zipfile.ZipFile(target, "w") as archive:
            add(archive, name_in_zip(program), content, 0o755)
        print(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[2] not in MACHINES:
        sys.exit(__doc__.strip())
    pack(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
