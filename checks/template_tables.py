"""Checks the tables: their properties, their deletion, and existing tables."""

import re

from template_claims import FUNCTION, Claims, claim, listed
from template_expected import METADATA_ATTRIBUTES, READ_REPLICA_COUNTS, RETAINED, TABLE_OPTIONS
from template_flat import Deployment, as_list, conditions_of, references


class Tables(Claims):
    @claim
    def the_tables_outlive_the_stack_and_not_a_failed_deployment(self):
        for deployed, deployment in self.deployments.items():
            tables = {
                name: body
                for name, body in deployment.resources.items()
                if body["Type"] == "AWS::DynamoDB::Table"
            }
            wanted = [
                name
                for name, given in (
                    ("MainTable", "ExistingTable"),
                    ("MetadataTable", "ExistingMetadataTable"),
                )
                if not deployment.values[given]
            ]
            faults = [
                name
                for name, body in tables.items()
                if any(body.get(field) != value for field, value in RETAINED.items())
            ]
            # CloudFormation deletes a completely created nested stack as any other, and keeps its
            # tables.
            nested = [name for name in tables if deployment.where[name]]
            early = [
                name
                for name, body in tables.items()
                if as_list(body.get("DependsOn")) != ["CheckedSettings"]
            ]
            named = [name for name, body in tables.items() if "TableName" in body["Properties"]]
            self.expect(
                list(tables) == wanted and not faults and not nested and not early and not named,
                f"with {deployed}, {' and '.join(wanted) or 'no table'} stays when the stack "
                "goes, unless it has never been complete",
                f"with {deployed}, the tables are {list(tables)}; policies: {faults}, nested: "
                f"{nested}, unchecked: {early}, named: {named}",
            )
        others = {
            name
            for name, body in self.whole.resources.items()
            if body.get("DeletionPolicy", "Delete") != "Delete"
        } - {"MainTable", "MetadataTable"}
        self.expect(not others, "nothing else stays", f"{sorted(others)} stay, too")

    @claim
    def the_tables_are_protected_last(self):
        """A failed deployment could not remove a protected table."""
        for deployed, deployment in self.deployments.items():
            values = deployment.values
            wanted = [
                {"Ref": table}
                for table, given in (
                    ("MainTable", "ExistingTable"),
                    ("MetadataTable", "ExistingMetadataTable"),
                )
                if not values[given]
            ]
            found = deployment.of_type("Custom::DeletionProtection")
            if not wanted:
                self.expect(
                    not found,
                    f"with {deployed}, there is no table to protect",
                    f"with {deployed}: {found}",
                )
                continue
            protection = found["TableProtection"]
            after = set(as_list(deployment.resources["TableProtection"]["DependsOn"]))
            needed = {"TableProtection", *self.reached({"DependsOn": list(after)} | protection)}
            made = {*deployment.resources, *self.templates.nested}
            late = [
                name
                for name in self.templates.root["Resources"]
                if name in made and name not in needed
            ]
            self.expect(
                (protection["Tables"], protection["Protected"])
                == (wanted, values["DeletionProtection"])
                and not late,
                f"with {deployed}, {len(wanted)} tables are protected last: "
                f"{values['DeletionProtection']}",
                f"with {deployed}, {protection} comes before {late}",
            )

    def reached(self, body):
        """Returns all resources of the root that a resource waits for."""
        found, open_ends = set(), list(references(body))
        while open_ends:
            name = open_ends.pop()
            if name not in found and name in self.templates.root["Resources"]:
                found.add(name)
                open_ends += references(self.templates.root["Resources"][name])
                open_ends += [
                    part
                    for condition in conditions_of(self.templates.root["Resources"][name])
                    for part in references(self.templates.root["Conditions"][condition])
                ]
        return found | {
            name
            for name in ("MainTable", "MetadataTable")
            if name in self.templates.root["Resources"]
        }

    @claim
    def the_number_of_read_replicas_is_a_setting(self):
        allowed = self.templates.allowed["ReadReplicas"]["AllowedValues"]
        default = self.templates.settings["ReadReplicas"]
        self.expect(
            allowed == READ_REPLICA_COUNTS and set(default.values()) == {"0"},
            f"ReadReplicas is one of {allowed}, by default 0",
            f"ReadReplicas should be one of {READ_REPLICA_COUNTS}, by default 0; it is one of "
            f"{allowed}, by default {default}",
        )

    @claim
    def every_read_replica_is_a_copy_of_the_table(self):
        for count in map(int, READ_REPLICA_COUNTS):
            deployment = Deployment(
                self.templates, ReadReplicas=count, ExpectedPeakWriteUnits="24000"
            )
            table = deployment.of_type("AWS::DynamoDB::Table").get("MainTable", {})
            indexes = table.get("GlobalSecondaryIndexes", [])
            names = ",".join(index["IndexName"] for index in indexes)
            faults = [f"the table has the indexes {names!r}"] if len(indexes) != count else []
            if not count and "GlobalSecondaryIndexes" in table:
                faults.append("an empty list of indexes is refused; there should be none")
            for index in indexes:
                if (index["KeySchema"], index["Projection"]) != (
                    table["KeySchema"],
                    {"ProjectionType": "ALL"},
                ):
                    faults.append(f"{index['IndexName']} is not a copy of the table")
                if index.get("OnDemandThroughput") != table["OnDemandThroughput"]:
                    faults.append(f"the reads of {index['IndexName']} are not limited as the table's")
                if index.get("WarmThroughput") != table["WarmThroughput"]:
                    faults.append(f"{index['IndexName']} is not as warm as the table")
                if (
                    index.get("ContributorInsightsSpecification")
                    != table["ContributorInsightsSpecification"]
                ):
                    faults.append(
                        f"the throttled keys of {index['IndexName']} are not reported as the "
                        "table's are"
                    )
            for name in deployment.of_type(FUNCTION):
                found = self.variables_of(deployment, name)["READ_REPLICAS"]
                if found != names:
                    faults.append(f"READ_REPLICAS of {name} is {found!r}, not {names!r}")
            self.expect(
                not faults,
                f"with {count} read replicas, READ_REPLICAS is {names!r}",
                f"with {count} read replicas: {'; '.join(faults)}",
            )

    @claim
    def the_main_table_is_as_its_settings_say(self):
        for values, name, wanted in TABLE_OPTIONS:
            tables = Deployment(self.templates, **values).of_type("AWS::DynamoDB::Table")
            found = tables["MainTable"].get(name)
            self.expect(
                found == wanted,
                f"with {listed(values)}, {name} of the main table is {wanted}",
                f"with {listed(values)}, {name} of the main table is {found}, not {wanted}",
            )
            if (
                name == "SSESpecification"
                and tables["MetadataTable"][name] != tables["MainTable"][name]
            ):
                self.failures.append(
                    f"with {listed(values)}, the metadata table is encrypted otherwise"
                )

    @claim
    def an_existing_table_takes_the_place_of_an_own_one(self):
        for deployed, deployment in self.deployments.items():
            given = {
                "TABLE_NAME": ("MainTable", "ExistingTable"),
                "METADATA_TABLE_NAME": ("MetadataTable", "ExistingMetadataTable"),
            }
            outputs = {"TABLE_NAME": "MainTableName", "METADATA_TABLE_NAME": "MetadataTableName"}
            faults = []
            for variable, (table, parameter) in given.items():
                existing = deployment.values[parameter]
                wanted = existing or {"Ref": table}
                if existing:
                    members = deployment.resources | deployment.outputs
                    faults += [
                        f"{name} refers to {table}"
                        for name, body in members.items()
                        if table in references(body)
                    ]
                for name in deployment.of_type(FUNCTION):
                    if (found := self.variables_of(deployment, name)[variable]) != wanted:
                        faults.append(f"{variable} of {name} is {found}")
                if deployment.outputs[outputs[variable]]["Value"] != wanted:
                    faults.append(f"the output {outputs[variable]} is another table")
            if deployment.values["ExistingTable"]:
                faults += [
                    f"{name} is made"
                    for name, body in deployment.resources.items()
                    if body["Type"].startswith("AWS::ApplicationAutoScaling::")
                ]
            main = deployment.values["ExistingTable"] or {"Ref": "MainTable"}
            metadata = deployment.values["ExistingMetadataTable"] or {"Ref": "MetadataTable"}
            checked = [
                (name, dimension["Value"])
                for name, alarm in deployment.of_type("AWS::CloudWatch::Alarm").items()
                for dimension in alarm.get("Dimensions", [])
                if dimension["Name"] == "TableName"
            ]
            faults += [
                f"{name} watches {value}"
                for name, value in checked
                if value != (metadata if name.startswith("Metadata") else main)
            ]
            self.expect(
                not faults and checked,
                f"with {deployed}, functions, alarms and outputs have the same two tables",
                f"with {deployed}: {'; '.join(faults)}",
            )

    @claim
    def existing_tables_are_checked_by_the_deployment(self):
        for deployed, deployment in self.deployments.items():
            values = deployment.values
            keys = [
                f"HASH {values['PartitionKeyName']} S",
                f"RANGE {values['SortKeyName']} {values['SortKeyType']}",
            ]
            tables = (
                [{"Name": values["ExistingTable"], "Keys": keys}] if values["ExistingTable"] else []
            )
            tables += (
                [{"Name": values["ExistingMetadataTable"], "Keys": keys[:1]}]
                if values["ExistingMetadataTable"]
                else []
            )
            checked = [
                each["Tables"] for each in deployment.of_type("Custom::ExistingTables").values()
            ]
            started = list(deployment.of_type("Custom::Start").values())
            wanted = {
                "ServiceToken": {"Fn::GetAtt": ["CustomResourceFunction", "Arn"]},
                "ServiceTimeout": "150",
                "Function": {"Fn::GetAtt": ["ShardScalerFunction", "Arn"]},
                "Configuration": {"Fn::GetAtt": ["Configuration", "Sha256"]},
            }
            self.expect(
                (checked, started) == (([tables], [wanted]) if tables else ([], [])),
                f"with {deployed}, {len(tables)} tables are checked before the functions "
                "exist, and the shard-scaler starts over them",
                f"with {deployed}, {checked} are checked, not {tables}; started is {started}, "
                f"not {wanted}",
            )
        waits = [
            deployment.resources.get("ExistingTableCheck", {}).get("DependsOn")
            for deployment in self.deployments.values()
        ]
        self.expect(
            set(waits) == {None, "ExistingTableCheckPolicy"},
            "the first start over existing tables waits for the right to it",
            f"the first start over existing tables waits for {waits}",
        )
        functions = self.templates.root["Resources"]["Functions"]["Properties"]["Parameters"]
        self.expect(
            functions["TablesExisted"]
            == {"Fn::If": ["TablesExisted", {"Fn::GetAtt": ["ExistingTables", "Passed"]}, "false"]},
            "the functions wait for the check of existing tables",
            "the functions do not wait for the check of existing tables: "
            f"{functions['TablesExisted']}",
        )

    @claim
    def no_key_is_named_as_the_metadatas_attributes(self):
        code = METADATA_ATTRIBUTES.read_text(encoding="utf-8")
        declared = re.search(r"attribute_names! \{\n(.*?)\n\}", code, re.DOTALL)[1]
        wanted = set(re.findall(r'\w+ = "(\w+)";', declared))
        refused = [
            set(each["Assert"]["Fn::Not"][0]["Fn::Contains"][0])
            for each in self.templates.root["Rules"]["KeyNames"]["Assertions"]
            if "Fn::Contains" in str(each["Assert"])
        ]
        self.expect(
            refused == [wanted],
            f"PartitionKeyName may be none of the metadata's {len(wanted)} attributes",
            f"KeyNames refuses {refused}, the metadata has {sorted(wanted)}",
        )
