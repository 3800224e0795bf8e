"""Combines template.yaml and its nested templates for a combination of parameters and settings.

A `Deployment` has the resources of all templates whose condition holds. Parameters, settings and
values that one template passes to another are substituted. Values that only CloudFormation knows
remain: `{"Fn::GetAtt": ["MainTable", "Arn"]}`.
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
TEMPLATE = ROOT / "template.yaml"

FUNCTION = "AWS::Serverless::Function"
NESTED = "AWS::Serverless::Application"
NO_VALUE = {"Ref": "AWS::NoValue"}
# The values of resources' attributes on which conditions depend.
KNOWN_ATTRIBUTES = {("ExistingTables", "Passed"): "true"}
# The attribute that the custom resource Configuration computes from its property `LargestOf`.
LARGEST = {"Fn::GetAtt": ["Configuration", "Largest"]}


class CloudFormationLoader(yaml.SafeLoader):
    """Reads a short intrinsic (`!Ref x`) as its long form (`{"Ref": "x"}`)."""


def _intrinsic(loader, tag, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


CloudFormationLoader.add_multi_constructor("!", _intrinsic)
# A version must not become a date.
CloudFormationLoader.add_constructor(
    "tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node)
)


def load(path):
    return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=CloudFormationLoader)


def as_list(value):
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def references(value):
    """Returns the named parameters, resources and pseudo parameters."""
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        for name, member in value.items():
            if name == "Ref":
                yield member
            elif name == "Fn::GetAtt":
                yield member.split(".")[0] if isinstance(member, str) else member[0]
            elif name == "Fn::Sub":
                text, own = (member, {}) if isinstance(member, str) else member
                yield from (
                    found for found in re.findall(r"\$\{([A-Za-z0-9:]+)", text) if found not in own
                )
                yield from references(own)
            elif name == "DependsOn":
                yield from as_list(member)
            else:
                yield from references(member)


def conditions_of(value):
    """Returns the named conditions."""
    if isinstance(value, dict):
        if "Fn::If" in value:
            yield value["Fn::If"][0]
        if set(value) == {"Condition"} and isinstance(value["Condition"], str):
            yield value["Condition"]
        for member in value.values():
            yield from conditions_of(member)
    elif isinstance(value, list):
        for part in value:
            yield from conditions_of(part)


def conditions_behind(template, value):
    """Returns the conditions of a value, and transitively their conditions."""
    for condition in conditions_of(value):
        yield condition
        yield from conditions_behind(template, template["Conditions"][condition])


def largest_of(template):
    """Returns the numbers of which Configuration finds the largest."""
    return template["Resources"]["Configuration"]["Properties"]["LargestOf"]


class Templates:
    """The templates by the resource that nests them. The root's name is empty."""

    def __init__(self, path=TEMPLATE):
        self.root = load(path)
        self.locations = {
            name: path.parent / body["Properties"]["Location"]
            for name, body in self.root["Resources"].items()
            if body["Type"] == NESTED
        }
        self.nested = {name: load(location) for name, location in self.locations.items()}

    @property
    def parameters(self):
        return self.root["Parameters"]

    @property
    def settings(self):
        """Returns the value of each setting in each profile."""
        return self.root["Mappings"]["Settings"]

    @property
    def allowed(self):
        """Returns the parameter of settings.yaml for each setting, with its allowed values."""
        return {name: self.nested["CheckedSettings"]["Parameters"][name] for name in self.settings}


class Deployment:
    """The templates with evaluated conditions, for these values of parameters and settings, and the
    defaults of all others."""

    def __init__(self, templates, **values):
        self.templates = templates
        parameters = {name: str(body["Default"]) for name, body in templates.parameters.items()}
        parameters |= {name: str(value) for name, value in values.items() if name in parameters}
        self.profile = parameters["Profile"]
        settings = {name: str(row[self.profile]) for name, row in templates.settings.items()}
        unknown = values.keys() - parameters.keys() - settings.keys()
        if unknown:
            raise ValueError(f"neither parameters nor settings: {sorted(unknown)}")
        settings |= {name: str(value) for name, value in values.items() if name in settings}
        self.values = parameters | settings
        self._settings = settings
        self.root = _Stack(templates.root, parameters, self)
        self.nested = {}
        for name in templates.nested:
            self.stack(name)
        self.resources, self.where, self.doubled = {}, {}, []
        for name, stack in {"": self.root, **self.nested}.items():
            for resource, body in stack.resources().items():
                if body["Type"] == NESTED:
                    continue
                if resource in self.resources:
                    self.doubled.append(resource)
                self.resources[resource], self.where[resource] = body, name
        self.outputs = self.root.present(templates.root["Outputs"])

    def stack(self, name):
        if name not in self.nested:
            handed = self.root.decided(
                self.templates.root["Resources"][name]["Properties"]["Parameters"]
            )
            self.nested[name] = _Stack(self.templates.nested[name], handed, self)
        return self.nested[name]

    def setting(self, name):
        return self._settings[name]

    def of_type(self, kind):
        return {
            name: body["Properties"]
            for name, body in self.resources.items()
            if body["Type"] == kind
        }

    def refusals(self):
        """Returns the messages that reject the values, from the parameters' limits and the
        rules."""
        messages = list(self.root.refusals())
        for name in self.templates.nested:
            messages += self.stack(name).refusals()
        return messages


class _Stack:
    """One template, with the values of its parameters."""

    def __init__(self, template, parameters, deployment):
        self.template = template
        self.parameters = {
            name: body.get("Default") for name, body in template.get("Parameters", {}).items()
        } | parameters
        self.deployment = deployment
        self.conditions = template.get("Conditions", {})

    def resources(self):
        shared = self.template.get("Globals", {}).get("Function", {})
        bodies = self.template["Resources"]
        whole = {
            name: body | {"Properties": _merged(shared, body["Properties"])}
            if _is_function(body)
            else body
            for name, body in bodies.items()
        }
        return self.present(whole)

    def present(self, members):
        return {
            name: self.decided(body)
            for name, body in members.items()
            if "Condition" not in body or self.holds({"Condition": body["Condition"]})
        }

    def decided(self, value):
        if isinstance(value, list):
            return [part for part in map(self.decided, value) if part != NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(kind, operand)] = value.items()
            if kind == "Fn::If":
                condition, then, otherwise = operand
                return self.decided(then if self.holds({"Condition": condition}) else otherwise)
            if kind == "Ref" and operand in self.parameters:
                return self.parameters[operand]
            if kind == "Fn::FindInMap":
                _, name, column = map(self.decided, operand)
                assert operand[0] == "Settings" and column == self.deployment.profile, (
                    f"not the profile's own settings: {operand}"
                )
                return self.deployment.setting(name)
            if kind == "Fn::GetAtt":
                return self.attribute(*operand)
            if kind == "Fn::Sub":
                return self.substituted(operand)
            if kind == "Fn::Split" and isinstance(text := self.decided(operand[1]), str):
                return text.split(operand[0])
        members = {name: self.decided(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member != NO_VALUE}

    def attribute(self, resource, attribute):
        if resource in self.deployment.templates.nested and attribute.startswith("Outputs."):
            stack = self.deployment.stack(resource)
            output = stack.template["Outputs"][attribute.removeprefix("Outputs.")]
            assert "Condition" not in output or stack.holds({"Condition": output["Condition"]}), (
                f"{resource} has no {attribute}"
            )
            return stack.decided(output["Value"])
        value = {"Fn::GetAtt": [resource, attribute]}
        if value == LARGEST:
            return max(self.decided(largest_of(self.template)), key=int)
        return value

    def substituted(self, operand):
        text, own = (operand, {}) if isinstance(operand, str) else operand

        def put_in(match):
            name = match[1]
            value = self.decided(own[name]) if name in own else self.decided({"Ref": name})
            if isinstance(value, dict):
                [(kind, what)] = value.items()
                return {
                    "Ref": lambda: f"${{{what}}}",
                    "Fn::GetAtt": lambda: f"${{{'.'.join(what)}}}",
                    "Fn::Sub": lambda: what,
                }[kind]()
            return str(value)

        text = re.sub(r"\$\{([A-Za-z0-9:.]+)\}", put_in, text)
        return {"Fn::Sub": text} if "${" in text else text

    def holds(self, condition):
        [(kind, operands)] = condition.items()
        if kind == "Condition":
            return self.holds(self.conditions[operands])
        if kind == "Fn::Equals":
            one, other = map(self.known, operands)
            return one == other
        if kind == "Fn::Not":
            return not self.holds(operands[0])
        if kind == "Fn::Contains":
            values, value = operands
            return self.known(value) in map(self.known, values)
        return {"Fn::And": all, "Fn::Or": any}[kind](map(self.holds, operands))

    def known(self, operand):
        value = self.decided(operand)
        if isinstance(value, dict) and "Fn::GetAtt" in value:
            value = KNOWN_ATTRIBUTES[tuple(value["Fn::GetAtt"])]
        assert not isinstance(value, (dict, list)), f"a condition depends on {value}"
        return str(value)

    def refusals(self):
        for name, body in self.template.get("Parameters", {}).items():
            if fault := fault_of(body, self.parameters[name]):
                yield (
                    f"{name} is {self.parameters[name]!r}; it {body['ConstraintDescription']} "
                    f"({fault})"
                )
        for rule in self.template.get("Rules", {}).values():
            if "RuleCondition" not in rule or self.holds(rule["RuleCondition"]):
                yield from (
                    each["AssertDescription"]
                    for each in rule["Assertions"]
                    if not self.holds(each["Assert"])
                )


def fault_of(parameter, value):
    """Returns why CloudFormation rejects the value, or None if it accepts it."""
    if not isinstance(value, str):
        return None
    if "AllowedValues" in parameter and value not in map(str, parameter["AllowedValues"]):
        return "not among the allowed values"
    if "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
        return "another pattern"
    if parameter["Type"] == "Number":
        if not re.fullmatch(r"-?\d+(\.\d+)?", value):
            return "not a number"
        if (
            not float(parameter.get("MinValue", "-inf"))
            <= float(value)
            <= float(parameter.get("MaxValue", "inf"))
        ):
            return "beyond its limits"
    return None


def _is_function(body):
    return body["Type"] == FUNCTION


def _merged(shared, own):
    """Returns a function's properties, merged with SAM's Globals as SAM does it."""
    if isinstance(shared, dict) and isinstance(own, dict):
        return shared | {
            name: _merged(shared[name], member) if name in shared else member
            for name, member in own.items()
        }
    return own
