"""Checks that each role has exactly the rights that it needs."""

from template_claims import Claims, claim
from template_expected import (
    DEPLOYMENTS,
    FOR_THIS_ACCOUNT,
    METADATA_TABLE_RIGHTS,
    RIGHTS,
    START_RIGHTS,
    TABLE_RIGHTS,
    TRUSTED,
)
from template_flat import as_list


class Rights(Claims):
    @claim
    def every_statement_is_scoped(self):
        for role in self.of_type("AWS::IAM::Role"):
            for statement in self.statements_of(self.whole, role):
                self.check_statement(role, statement)
            properties = self.of_type("AWS::IAM::Role")[role]
            self.expect(
                "ManagedPolicyArns" not in properties,
                f"{role} has only explicit rights",
                f"{role} has rights that are not written out: {properties.get('ManagedPolicyArns')}",
            )
        for deployed, deployment in self.deployments.items():
            apart = {
                name: body["Properties"]["Roles"]
                for name, body in deployment.resources.items()
                if body["Type"].startswith("AWS::IAM::") and body["Type"] != "AWS::IAM::Role"
            }
            # The role is created before the function that the policy names.
            wanted = (
                {"ExistingTableCheckPolicy": [{"Ref": "CustomResourceRole"}]}
                if "ExistingTableCheck" in deployment.resources
                else {}
            )
            self.expect(
                apart == wanted,
                f"with {deployed}, {len(apart)} rights are apart from their role",
                f"with {deployed}, rights apart from roles: {apart}",
            )

    def check_statement(self, role, statement):
        title = f"{role}, statement {statement.get('Sid', '(without Sid)')}"
        actions = as_list(statement.get("Action"))
        faults = [f"it has {field}" for field in ("NotAction", "NotResource") if field in statement]
        faults += [f"the action {action} is a wildcard" for action in actions if "*" in action]
        if "Sid" not in statement or statement.get("Effect") != "Allow":
            faults.append("it has no name, or allows nothing")
        resources = as_list(statement.get("Resource"))
        if not actions or not resources:
            faults.append("it lacks an action or a resource")
        scopes = []
        for resource in resources:
            scope = self.scope_of(self.whole, role, resource, actions)
            scopes.append(scope)
            if scope is None:
                faults.append(
                    f"the resource {resource!r} is not one of the template's tables, functions, rules or alarms"
                )
        self.expect(
            not faults,
            f"{title}: {', '.join(actions)} on {', '.join(map(str, scopes))}",
            f"{title}: {'; '.join(faults)}",
        )

    @claim
    def every_role_has_just_its_rights(self):
        roles = {role for deployment in self.deployments.values() for role in deployment.of_type("AWS::IAM::Role")}
        for role in sorted(roles):
            faults = {}
            for deployed, deployment in self.deployments.items():
                wanted = {}
                for given in self.given_in(deployed):
                    for scope, actions in given.get(role, {}).items():
                        wanted.setdefault(scope, set()).update(actions)
                rights = self.rights_of(deployment, role) if role in deployment.resources else {}
                for scope in wanted.keys() | rights.keys():
                    needs, has = wanted.get(scope, set()), rights.get(scope, set())
                    for action in needs ^ has:
                        fault = f"{'lacks' if action in needs else 'does not need'} {action} on {scope}"
                        faults.setdefault(fault, []).append(deployed)
            messages = [f"it {fault} (with {' or '.join(where)})" for fault, where in faults.items()]
            self.expect(
                not faults,
                f"{role} has the rights that it needs, and no others, in {len(self.deployments)} deployments",
                f"{role}: {'; '.join(sorted(messages))}",
            )

    def given_in(self, deployed):
        values = self.deployments[deployed].values
        own = [] if values["ExistingTable"] else [TABLE_RIGHTS]
        own += [] if values["ExistingMetadataTable"] else [METADATA_TABLE_RIGHTS]
        started = [START_RIGHTS] if values["ExistingTable"] or values["ExistingMetadataTable"] else []
        return [RIGHTS, *DEPLOYMENTS[deployed][1], *own, *started]

    @claim
    def every_role_is_for_one_service(self):
        for role, properties in self.of_type("AWS::IAM::Role").items():
            [trust] = properties["AssumeRolePolicyDocument"]["Statement"]
            wanted = {"Effect": "Allow", "Principal": {"Service": TRUSTED.get(role)}, "Action": "sts:AssumeRole"}
            if TRUSTED.get(role) != "lambda.amazonaws.com":
                wanted |= {"Condition": FOR_THIS_ACCOUNT}
            self.expect(trust == wanted, f"{role} is for {TRUSTED.get(role)}", f"{role} is for {trust}, not {wanted}")
