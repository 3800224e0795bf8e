"""Checks refused combinations, and limits."""

import json

from template_claims import FUNCTION, Claims, claim, listed
from template_expected import DEPLOYMENTS, REFUSED, ROUTES, SECURITY
from template_flat import ROOT, Deployment

PRICES = ROOT / "adviser/prices.json"
SECONDS_A_DAY = 86_400


class Limits(Claims):
    @claim
    def wrong_combinations_are_refused(self):
        for what, values in REFUSED.items():
            refusals = Deployment(self.templates, **values).refusals()
            self.expect(
                len(refusals) == 1,
                f"refused, {what}: {' '.join(refusals)}",
                f"{what} should be refused by one rule, and is by {refusals}",
            )
        for what, (values, *_) in (DEPLOYMENTS | SECURITY).items():
            refusals = Deployment(self.templates, **values).refusals()
            self.expect(not refusals, f"not refused: {what}", f"{what} is refused: {refusals}")

    @claim
    def the_scaler_raises_what_auto_scaling_may_raise(self):
        for deployed, deployment in self.deployments.items():
            targets = {
                target["ScalableDimension"].removeprefix("dynamodb:table:"): target["MaxCapacity"]
                for target in deployment.of_type("AWS::ApplicationAutoScaling::ScalableTarget").values()
            }
            variables = self.variables_of(deployment, "ShardScalerFunction")
            raised = {
                f"{kind}CapacityUnits": variables[f"MAX_{kind.upper()}_UNITS"]
                for kind in ("Read", "Write")
                if variables[f"MAX_{kind.upper()}_UNITS"] != "0"
            }
            policies = deployment.of_type("AWS::ApplicationAutoScaling::ScalingPolicy")
            self.expect(
                raised == targets and len(policies) == len(targets),
                f"with {deployed}, auto scaling and the shard-scaler raise {', '.join(sorted(targets)) or 'nothing'}",
                f"with {deployed}, auto scaling raises {targets} by {len(policies)} policies, the shard-scaler {raised}",
            )

    @claim
    def the_table_is_warmed_within_its_budget_only(self):
        """A raise is charged and cannot be undone, so the defaults are pinned."""
        for kind, standard in (("Read", "0"), ("Write", "20000")):
            name, variable = f"MaxWarm{kind}Units", f"MAX_WARM_{kind.upper()}_UNITS"
            wanted = {"development": "0", "standard": standard, "production": standard}
            defaults = self.templates.settings[name]
            found = self.budget({name: "40000"}, variable)
            self.expect(
                (defaults, found) == (wanted, "40000"),
                f"{variable} is {name}, by default {wanted}",
                f"{variable} is {found}, not {name}, whose defaults are {defaults}",
            )

    @claim
    def the_budget_allows_the_expected_peak(self):
        """As text, 8000 would be more than 20000."""
        for peak, setting, wanted in (
            ("24000", "20000", "24000"),
            ("8000", "20000", "20000"),
            ("8000", "0", "8000"),
            ("0", "0", "0"),
        ):
            values = {"ExpectedPeakWriteUnits": peak, "MaxWarmWriteUnits": setting}
            found = self.budget(values, "MAX_WARM_WRITE_UNITS")
            self.expect(
                found == wanted,
                f"with {listed(values)}, the budget is {wanted}",
                f"with {listed(values)}, the budget is {found}, not {wanted}",
            )

    def budget(self, values, variable):
        return self.variables_of(Deployment(self.templates, **values), "ShardScalerFunction")[variable]

    @claim
    def the_price_of_a_peak_is_that_of_the_adviser(self):
        [tier] = json.loads(PRICES.read_text(encoding="utf-8"))["dynamodb_warm_write_units"]["tiers"]
        wanted = f"about ${1000 * tier['usd']:.2f} per 1,000 units above 4,000 (${16_000 * tier['usd']:.0f} for 20,000)"
        found = self.templates.parameters["ExpectedPeakWriteUnits"]["Description"]
        self.expect(wanted in found, f"a peak costs {wanted}", f"{PRICES.name} says {wanted}, the template: {found}")

    @claim
    def the_documents_price_the_ceilings(self):
        """SECURITY.md and docs/costs.md say what a table can cost in a day."""
        prices = json.loads(PRICES.read_text(encoding="utf-8"))
        for profile in ("standard", "development"):
            for kind in ("write", "read"):
                units = int(self.templates.settings[f"OnDemandMax{kind.title()}Units"][profile])
                [tier] = prices[f"dynamodb_{kind}_request_units"]["tiers"]
                wanted = f"${units * SECONDS_A_DAY * tier['usd'] / 1e6:,.0f}"
                for document in ("SECURITY.md", "docs/costs.md"):
                    self.expect(
                        wanted in (ROOT / document).read_text(encoding="utf-8"),
                        f"{document}: in {profile}, {units} {kind} units a second cost {wanted} a day",
                        f"{document} does not say that {units} {kind} units a second cost {wanted} a day",
                    )

    @claim
    def concurrency_is_reserved_on_request_only(self):
        """A new account's quota rejects any reservation, and with it the deployment."""
        profiles = self.templates.parameters["Profile"]["AllowedValues"]
        rows = [({"Profile": profile}, None) for profile in profiles] + [({"ReserveShardScalerConcurrency": "true"}, 1)]
        for values, wanted in rows:
            functions = Deployment(self.templates, **values).of_type(FUNCTION)
            reserved = {name: each.get("ReservedConcurrentExecutions") for name, each in functions.items()}
            self.expect(
                reserved == dict.fromkeys(ROUTES) | {"ShardScalerFunction": wanted},
                f"with {listed(values)}, the shard-scaler reserves {wanted or 'no'} concurrent execution, the others none",
                f"with {listed(values)}, the functions reserve {reserved}",
            )

    @claim
    def lost_events_are_kept(self):
        for deployed, deployment in self.deployments.items():
            found = {name: each.get("EventInvokeConfig") for name, each in deployment.of_type(FUNCTION).items()}
            wanted = {
                "MaximumEventAgeInSeconds": deployment.values["MaxEventAgeSeconds"],
                "MaximumRetryAttempts": 2,
                "DestinationConfig": {
                    "OnFailure": {"Type": "SQS", "Destination": {"Fn::GetAtt": ["LostEventsQueue", "Arn"]}}
                },
            }
            self.expect(
                found == dict.fromkeys(ROUTES) | {"ShardScalerFunction": wanted},
                f"with {deployed}, events that the shard-scaler loses are kept",
                f"with {deployed}, the functions take events so: {found}",
            )
