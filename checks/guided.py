"""Runs `sam deploy --guided`, and presses Enter at every question."""

import re
import shutil

from botocore.exceptions import ClientError
from emulated import ROOT, Stack
from expect import PATIENCE, run

# The stack name of samconfig.toml.
NAME = "dynamodb-write-sharding"
# More than there are questions.
MOST_QUESTIONS = 100


def project(folder, build):
    """Makes a folder with the content that a user has after `sam build`."""
    folder.mkdir()
    shutil.copytree(build, folder / ".aws-sam" / "build", symlinks=True)
    shutil.copy(ROOT / "samconfig.toml", folder)
    return folder


def check(report, world):
    folder = project(world.folder / "guided", world.template.parent)
    environment = world.account.environment() | {"TERM": "dumb", "COLUMNS": "200", "NO_COLOR": "1"}
    options = {"input": "\n" * MOST_QUESTIONS, "timeout": 4 * PATIENCE}
    done = run("sam", "deploy", "--guided", cwd=folder, env=environment, **options)
    asked = set(re.findall(r"Parameter (\w+) \[", done.stdout))
    report.equal("it asks for every parameter, and for no setting", asked, set(world.package.template["Parameters"]))
    stack = Stack(world.account, NAME)
    try:
        status = stack.describe()["StackStatus"]
    except ClientError as error:
        status = str(error)
    if report.equal("with Enter at every question", (done.returncode, status), (0, "CREATE_COMPLETE")):
        api = world.caller(stack)
        report.equal("a request succeeds", (api.put("guided", "a").status, api.get("guided", "a").status), (200, 200))
    else:
        report.note(done.stdout[-3_000:] + done.stderr[-3_000:])
