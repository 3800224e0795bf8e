"""Checks the functions, their callers, and their updates."""

import re

from template_claims import Claims, claim, is_alias
from template_expected import (
    ALIAS,
    CONFIGURATIONS,
    DEPLOYMENTS,
    LOG_VARIABLES,
    MADE_OF_SEVERAL,
    NAMED_OTHERWISE,
    ROLES,
    ROUTES,
    SCALER_VARIABLES,
    VARIABLE_READ,
    VARIABLES,
    WAKING_RIGHTS,
    WAKING_VARIABLES,
)
from template_flat import FUNCTION, ROOT, conditions_behind, references


class Functions(Claims):
    @claim
    def the_functions_are_the_known_ones(self):
        self.expect(
            set(self.functions) == set(ROUTES),
            f"functions: {', '.join(self.functions)}",
            f"the functions should be {sorted(ROUTES)}, the template has {sorted(self.functions)}",
        )
        for deployed, deployment in self.deployments.items():
            found = {
                name: (each.get("Role"), each["LoggingConfig"]["LogFormat"])
                for name, each in deployment.of_type(FUNCTION).items()
            }
            wanted = {name: ({"Fn::GetAtt": [role, "Arn"]}, "JSON") for name, role in ROLES.items()}
            policies = [
                name
                for name, each in deployment.of_type(FUNCTION).items()
                if each.keys() & {"Policies", "Events", "FunctionUrlConfig"}
            ]
            self.expect(
                found == wanted and not policies,
                f"with {deployed}, each function has its role and writes JSON",
                f"with {deployed}, the functions have {found}; SAM adds rights to {policies}",
            )

    @claim
    def the_variables_are_those_that_the_code_reads(self):
        for path, variables in CONFIGURATIONS.items():
            source = path.relative_to(ROOT)
            read = set(VARIABLE_READ.findall(path.read_text(encoding="utf-8")))
            self.expect(
                read == variables,
                f"{source} reads the {len(read)} variables",
                f"{source} does not read {sorted(variables - read)} and reads the unknown "
                f"variables {sorted(read - variables)}",
            )

    @claim
    def every_function_has_every_variable(self):
        for name in self.functions:
            faults = {}
            for deployed, deployment in self.deployments.items():
                wanted = (
                    VARIABLES
                    | LOG_VARIABLES
                    | (SCALER_VARIABLES if name == "ShardScalerFunction" else set())
                )
                if name == "WriterFunction" and WAKING_RIGHTS in DEPLOYMENTS[deployed][1]:
                    wanted = wanted | WAKING_VARIABLES
                given = self.variables_of(deployment, name).keys()
                for variable in given ^ wanted:
                    fault = f"{'lacks' if variable in wanted else 'has the unknown'} {variable}"
                    faults.setdefault(fault, []).append(deployed)
            messages = [f"it {fault} (with {' or '.join(where)})" for fault, where in faults.items()]
            self.expect(
                not faults,
                f"{name} has its environment variables, and no others, in {len(self.deployments)} "
                "deployments",
                f"{name}: {'; '.join(sorted(messages))}",
            )

            wrong = {}
            for deployed, deployment in self.deployments.items():
                for variable, value in self.variables_of(deployment, name).items():
                    setting = NAMED_OTHERWISE.get(variable, variable.title().replace("_", ""))
                    if variable not in MADE_OF_SEVERAL and value != deployment.values[setting]:
                        wrong[variable] = f"{value} (with {deployed}), not {setting}"
            self.expect(
                not wrong,
                f"the variables of {name} are the settings of their names",
                f"{name}: {wrong}",
            )

    @claim
    def every_caller_calls_the_alias(self):
        """A caller of the function itself would run code that is not released yet."""
        for deployed, deployment in self.deployments.items():
            callers = {}
            for place, body in deployment.resources.items():
                if body["Type"] == "AWS::Lambda::Permission":
                    callers[place] = body["Properties"]["FunctionName"]
                elif body["Type"] == "AWS::Scheduler::Schedule":
                    callers[place] = body["Properties"]["Target"]["Arn"]
            if found := self.variables_of(deployment, "WriterFunction").get(
                "SHARD_SCALER_FUNCTION"
            ):
                callers["the writer"] = found
            wrong = {
                place: called
                for place, called in callers.items()
                if not any(is_alias(called, name) for name in self.functions)
            }
            aliases = {
                name: each.get("AutoPublishAlias")
                for name, each in deployment.of_type(FUNCTION).items()
            }
            self.expect(
                not wrong and set(aliases.values()) == {ALIAS},
                f"with {deployed}, {len(callers)} callers call an alias",
                f"with {deployed}, no alias is called by {wrong}; the aliases are {aliases}",
            )

    @claim
    def a_changed_value_is_a_new_version(self):
        """A version keeps its configuration for ever. SAM publishes a new one when text changes,
        but not when a value does."""
        template = self.templates.nested["Functions"]
        functions = [body for body in template["Resources"].values() if body["Type"] == FUNCTION]
        read = set(references([body["Properties"] for body in functions] + [template["Globals"]]))
        # Properties that are not part of a version.
        apart = {"CanaryDeployment", "ReserveShardScalerConcurrency"}
        needed = {name for name in template["Parameters"] if name in read} - apart
        deciding = [
            template["Conditions"][condition]
            for body in functions
            for condition in conditions_behind(template, body["Properties"].get("Environment", {}))
        ]
        needed |= {name for name in references(deciding) if name in template["Parameters"]}
        covered = set(references(template["Resources"]["Configuration"]["Properties"]["Of"]))
        hashed = {"Fn::GetAtt": ["Configuration", "Sha256"]}
        faults = [
            name
            for name, body in template["Resources"].items()
            if body["Type"] == FUNCTION
            and not (
                body["Properties"].get("VersionDescription") == hashed
                and "${Configuration.Sha256}" in str(body["Properties"]["Description"])
                and body["Properties"].get("AutoPublishAliasAllProperties") is True
            )
        ]
        shared = template["Globals"]["Function"]
        longest = max(
            len(re.sub(r"\$\{[^}]*\}", "0" * 64, body["Properties"]["Description"]["Fn::Sub"]))
            if isinstance(body["Properties"]["Description"], dict)
            else 0
            for body in functions
        )
        self.expect(
            needed <= covered
            and not faults
            and shared.get("VersionDeletionPolicy") == "Delete"
            and longest <= 256,
            f"a change of any of {len(covered)} values is a change of every version",
            f"a change of {sorted(needed - covered)} is none; {faults} do not name it; policy "
            f"{shared.get('VersionDeletionPolicy')}; {longest} characters",
        )

    @claim
    def a_canary_is_watched_by_its_own_alarm(self):
        for deployed, deployment in self.deployments.items():
            canary = deployment.values["CanaryDeployment"]
            alarms, faults = deployment.of_type("AWS::CloudWatch::Alarm"), []
            for name, each in deployment.of_type(FUNCTION).items():
                preference = each["DeploymentPreference"]
                wanted = f"{name.removesuffix('Function')}VersionErrorsAlarm"
                if preference != {
                    "Enabled": canary,
                    "Type": "Canary10Percent5Minutes",
                    "Role": {"Fn::GetAtt": ["DeploymentRole", "Arn"]},
                    "Alarms": [{"Ref": wanted}],
                }:
                    faults.append(f"{name} is deployed by {preference}")
                if (wanted in alarms) != (canary == "true"):
                    faults.append(f"{wanted} is {'there' if wanted in alarms else 'missing'}")
                if wanted in alarms:
                    version = f"${{{name}.Version.Version}}"
                    dimensions = {
                        each["Name"]: each["Value"] for each in alarms[wanted]["Dimensions"]
                    }
                    if dimensions != {
                        "FunctionName": {"Ref": name},
                        "Resource": {"Fn::Sub": f"${{{name}}}:{ALIAS}"},
                        "ExecutedVersion": {"Fn::GetAtt": [name, "Version.Version"]},
                    }:
                        faults.append(f"{wanted} watches {dimensions}")
                    # Otherwise an alarm of the old version would be in ALARM when its fix is
                    # deployed.
                    if version not in alarms[wanted]["AlarmName"]["Fn::Sub"]:
                        faults.append(f"{wanted} keeps its name")
                    if (alarms[wanted]["MetricName"], alarms[wanted]["Period"]) != ("Errors", 60):
                        faults.append(f"{wanted} is late, or of other things")
            self.expect(
                not faults and ("DeploymentRole" in deployment.resources) == (canary == "true"),
                f"with {deployed}, "
                + (
                    "new versions are tried first, and watched"
                    if canary == "true"
                    else "all traffic moves at once"
                ),
                f"with {deployed}: {'; '.join(faults)}",
            )
