"""Checks what a deployer sees: few parameters, validated settings, readable files."""

import json
import re
import tomllib

from template_claims import FUNCTION, Claims, claim, listed
from template_expected import MOST_PARAMETERS, OUTPUTS, OUTPUTS_BY, SAM_CONFIGURATION
from template_flat import NESTED, TEMPLATE, Deployment, references


class Deployer(Claims):
    @claim
    def a_deployment_asks_for_few_parameters(self):
        parameters = self.templates.parameters
        lacking = [name for name, body in parameters.items() if "Default" not in body or not body.get("Description")]
        self.expect(
            len(parameters) <= MOST_PARAMETERS and not lacking,
            f"a deployment asks for {len(parameters)} parameters, each with a default",
            f"a deployment asks for {len(parameters)} parameters; without default or description are {lacking}",
        )
        parts = [part for row in self.templates.settings.values() for part in row]
        profiles = parameters["Profile"]["AllowedValues"]
        wrong = sorted(name for name, row in self.templates.settings.items() if list(row) != profiles)
        numbers = sorted(
            name
            for name, row in self.templates.settings.items()
            if any(not isinstance(value, str) for value in row.values())
        )
        self.expect(
            not wrong and not numbers,
            f"{len(self.templates.settings)} settings have {len(parts)} values, all text: one for each of {', '.join(profiles)}",
            f"not of the profiles {profiles}: {wrong}; no text: {numbers}",
        )

    @claim
    def every_setting_is_checked_and_every_parameter_is_used(self):
        settings, checked = self.templates.settings, self.templates.nested["CheckedSettings"]
        for name, body in self.templates.root["Resources"].items():
            if body["Type"] != NESTED:
                continue
            declared, handed = set(self.templates.nested[name]["Parameters"]), set(body["Properties"]["Parameters"])
            self.expect(
                declared == handed,
                f"{name} receives its {len(handed)} parameters",
                f"{name} lacks {sorted(declared - handed)} and does not know {sorted(handed - declared)}",
            )
            # Under the name of a setting, a template may receive only the setting, or a value that
            # a
        # condition of the root derives from it.
            for parameter in handed & settings.keys():
                value = body["Properties"]["Parameters"][parameter]
                own = {"Fn::FindInMap": ["Settings", parameter, {"Ref": "Profile"}]}
                decided = name != "CheckedSettings" and set(value) == {"Fn::If"}
                if value != own and not decided:
                    self.failures.append(f"{name} receives {value} as {parameter}")
        unchecked = sorted(
            name for name in settings if "ConstraintDescription" not in checked["Parameters"].get(name, {})
        )
        limited = [
            name
            for name, body in checked["Parameters"].items()
            if {"AllowedValues", "AllowedPattern", "MinValue"} & body.keys()
        ]
        self.expect(
            not unchecked and set(limited) == set(settings),
            f"all {len(limited)} settings have limits",
            f"without limits are {sorted(set(settings) - set(limited))}, without description of them {unchecked}",
        )
        used = {
            name: set(references(body)) for name, body in {"": self.templates.root, **self.templates.nested}.items()
        }
        # A parameter of settings.yaml without a rule exists for its limits.
        idle = {
            name: unused
            for name, template in {"": self.templates.root, **self.templates.nested}.items()
            if name != "CheckedSettings"
            and (
                unused := sorted(
                    parameter
                    for parameter in template["Parameters"]
                    if parameter not in used[name] | self.named_by_conditions(template)
                )
            )
        }
        self.expect(not idle, "no template has a parameter that it does not use", f"not used: {idle}")
        # ApiOpenToEveryone is only a confirmation.
        effective = {
            setting
            for name, body in self.templates.root["Resources"].items()
            if name != "CheckedSettings"
            for setting in self.settings_read(body)
        } | {*self.settings_read(self.templates.root["Conditions"]), "ApiOpenToEveryone"}
        self.expect(
            effective == set(settings),
            "every setting has an effect",
            f"without effect: {sorted(set(settings) - effective)}",
        )

    @staticmethod
    def named_by_conditions(template):
        return set(references(template.get("Conditions", {}))) | set(references(template.get("Rules", {})))

    def settings_read(self, value):
        if isinstance(value, list):
            for part in value:
                yield from self.settings_read(part)
        elif isinstance(value, dict):
            if "Fn::FindInMap" in value:
                yield value["Fn::FindInMap"][1]
            for member in value.values():
                yield from self.settings_read(member)

    @claim
    def every_file_can_be_read(self):
        lines = {
            path.name: len(path.read_text(encoding="utf-8").splitlines())
            for path in [TEMPLATE, *self.templates.locations.values()]
        }
        self.expect(
            max(lines.values()) <= 700,
            f"the longest of {len(lines)} files has {max(lines.values())} lines, all together {sum(lines.values())}",
            f"split the longest: {lines}",
        )

    @claim
    def every_reference_is_to_something_that_is_there(self):
        for deployed, deployment in self.deployments.items():
            known = {*deployment.resources, *self.templates.nested, *self.templates.parameters}
            lost = {}
            for place, body in (deployment.resources | deployment.outputs).items():
                if body.get("Type") == FUNCTION and body["Properties"]["DeploymentPreference"]["Enabled"] == "false":
                    # SAM omits it.
                    body = body | {
                        "Properties": {
                            name: value for name, value in body["Properties"].items() if name != "DeploymentPreference"
                        }
                    }
                for name in references(body):
                    if not name.startswith("AWS::") and name.split(".")[0] not in known:
                        lost.setdefault(name, []).append(place)
            self.expect(
                not lost and not deployment.doubled,
                f"with {deployed}, all references of {len(deployment.resources)} resources exist",
                f"with {deployed}: missing: {lost}; twice: {deployment.doubled}",
            )

    @claim
    def no_condition_is_decided_twice(self):
        """A condition has one owner. The other templates receive its results."""
        owners = {}
        for place, template in {"": self.templates.root, **self.templates.nested}.items():
            for name, condition in template.get("Conditions", {}).items():
                owners.setdefault(name, []).append(place)
                # A nested template sees the root's settings under their own names.
                text = re.sub(
                    r"\{\"Fn::FindInMap\": \[\"Settings\", (\"\w+\"), \{\"Ref\": \"Profile\"\}\]\}",
                    r'{"Ref": \1}',
                    json.dumps(condition),
                )
                owners.setdefault(text, []).append(place)
        twice = {what: places for what, places in owners.items() if len(places) > 1}
        self.expect(not twice, f"{len(owners) // 2} conditions have one owner each", f"decided twice: {twice}")

    @claim
    def every_profile_is_deployable(self):
        sam = tomllib.loads(SAM_CONFIGURATION.read_text(encoding="utf-8"))
        named = {name for name in sam if name not in ("version", "default")}
        profiles = self.templates.parameters["Profile"]["AllowedValues"]
        self.expect(
            named == {"development", "production"} < set(profiles),
            f"{SAM_CONFIGURATION.name} has the profiles {', '.join(sorted(named))}",
            f"{SAM_CONFIGURATION.name} should have the profiles development and production, it has {sorted(named)}",
        )
        for environment in ("default", *sorted(named)):
            options = sam[environment]["deploy"]["parameters"]
            values = dict(override.split("=", 1) for override in options.get("parameter_overrides", []))
            capabilities = set(options["capabilities"].split())
            # Nested templates with their own transform need the second capability.
            self.expect(
                capabilities == {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
                and values.get("Profile", "standard") == environment.replace("default", "standard"),
                f"sam deploy --config-env {environment} deploys the profile {values.get('Profile', 'standard')}",
                f"sam deploy --config-env {environment} deploys {values} with {sorted(capabilities)}",
            )
        rows = [{"Profile": profile} for profile in profiles]
        rows += [
            {"Profile": profile, "ExistingTable": "orders", "ExistingMetadataTable": "orders-metadata"}
            for profile in profiles
        ]
        for values in rows:
            faults = Deployment(self.templates, **values).refusals()
            self.expect(not faults, f"deployable: {listed(values)}", f"with {listed(values)}: {'; '.join(faults)}")

    @claim
    def the_outputs_are_the_known_ones(self):
        for deployed, deployment in self.deployments.items():
            wanted = OUTPUTS | {name for name, is_there in OUTPUTS_BY.items() if is_there(deployment.values)}
            self.expect(
                set(deployment.outputs) == wanted,
                f"with {deployed}, the stack has {len(wanted)} outputs",
                f"with {deployed}, the outputs are {sorted(deployment.outputs)}, not {sorted(wanted)}",
            )
