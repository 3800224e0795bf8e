"""Checks the HTTP API: its routes, its credentials and its log."""

import json
import re

import yaml
from template_claims import FUNCTION, Claims, alias, claim, listed
from template_expected import ROUTES, SECURITY
from template_flat import ROOT, Deployment

# The default throttle quota of an account in the regions with the lowest one, such as Milan, for all
# of its APIs together. (API Gateway developer guide, "Amazon API Gateway quotas".)
LEAST_RATE_QUOTA = 2500
LEAST_BURST_QUOTA = 1250

# Headers that the description omits: the type of the body, and the credentials.
CREDENTIALS = {
    "authorization",
    "content-type",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
}


def headers_of(description):
    """Returns the names of the headers of requests, and of those of responses."""
    requests, responses = set(), set()

    def look(part):
        if isinstance(part, dict):
            if part.get("in") == "header" and "name" in part:
                requests.add(part["name"].lower())
            if isinstance(part.get("headers"), dict):
                responses.update(name.lower() for name in part["headers"])
        for each in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        ):
            look(each)

    look(description["paths"])
    look({name: part for name, part in description["components"].items() if name != "headers"})
    return requests, responses


# Texts that API Gateway does not document as escaped. Only the others are codes, names and numbers.
TEXT = 'a "word"'
TEXTS = {
    "context.authorizer.error": TEXT,
    "context.error.message": TEXT,
    "context.error.messageString": f'"{TEXT}"',
    "context.identity.userAgent": TEXT,
    "context.integration.error": TEXT,
    "context.integrationErrorMessage": TEXT,
    "context.path": TEXT,
}
API_ARN = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:"


class Api(Claims):
    @property
    def description(self):
        return yaml.safe_load((ROOT / "functions/api/openapi.yaml").read_text(encoding="utf-8"))

    @claim
    def the_description_has_the_same_routes(self):
        described = {
            f"{method.upper()} {path}"
            for path, operations in self.description["paths"].items()
            for method in operations
            if method in {"get", "put", "post", "delete", "patch", "head", "options"}
        }
        routes = set().union(*ROUTES.values())
        self.expect(
            described == routes,
            "openapi.yaml describes the existing routes",
            f"openapi.yaml lacks {sorted(routes - described)}, and also has "
            f"{sorted(described - routes)}",
        )

    @claim
    def a_page_may_send_and_see_what_is_described(self):
        """A browser lets a page of another origin use only these methods and headers."""
        cors = self.of_type("AWS::Serverless::HttpApi")["Api"]["DefinitionBody"][
            "x-amazon-apigateway-cors"
        ]
        requests, responses = headers_of(self.description)
        wanted = {
            "allowMethods": {route.split()[0] for route in set().union(*ROUTES.values())},
            "allowHeaders": requests | CREDENTIALS,
            "exposeHeaders": responses,
        }
        for name, headers in wanted.items():
            self.expect(
                set(cors[name]) == headers and len(cors[name]) == len(headers),
                f"{name} of other origins are {', '.join(sorted(headers))}",
                f"{name} lacks {sorted(headers - set(cors[name]))}, and also has "
                f"{sorted(set(cors[name]) - headers)}",
            )

    @claim
    def every_sample_event_is_of_a_route(self):
        for path in sorted((ROOT / "events").glob("*.json")):
            event = json.loads(path.read_text(encoding="utf-8"))
            context = event.get("requestContext", {}) if isinstance(event, dict) else {}
            if "http" not in context:
                continue
            route = f"{context['http']['method']} {context['http']['path']}"
            function = {"writer": "WriterFunction", "reader": "ReaderFunction"}.get(
                path.name.split("-")[0]
            )
            self.expect(
                route in ROUTES.get(function, set())
                and event.get("version") == "2.0"
                and event.get("routeKey") == route,
                f"events/{path.name} is an event of {route}",
                f"events/{path.name}: {route} with routeKey {event.get('routeKey')} is no route "
                f"of {function}",
            )

    @claim
    def every_operation_asks_for_the_chosen_credentials(self):
        routes = set().union(*ROUTES.values())
        for chosen, (values, of_reads, of_writes) in SECURITY.items():
            deployment = Deployment(self.templates, **values)
            body = deployment.of_type("AWS::Serverless::HttpApi")["Api"]["DefinitionBody"]
            operations = {
                f"{method.upper()} {path}": operation
                for path, methods in body["paths"].items()
                for method, operation in methods.items()
            }
            faults = []
            if operations.keys() != routes:
                faults.append(f"its operations are {sorted(operations)}")
            for route, operation in operations.items():
                security = of_reads if route in ROUTES["ReaderFunction"] else of_writes
                if operation.get("security") != security:
                    faults.append(f"{route} asks for {operation.get('security')}")
                uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                if not any(
                    f"/functions/${{{name}.Alias}}/invocations" in uri
                    for name, served in ROUTES.items()
                    if route in served
                ):
                    faults.append(f"{route} goes to {uri}")
            schemes = set(body.get("components", {}).get("securitySchemes", {}))
            if schemes != {scheme for each in of_reads or [] for scheme in each}:
                faults.append(f"it declares {sorted(schemes)}")
            self.expect(
                not faults,
                f"with ApiAuth {chosen}, all {len(operations)} operations ask for {of_reads} or "
                f"{of_writes}",
                f"with ApiAuth {chosen}: {'; '.join(faults)}",
            )

    @claim
    def the_api_may_call_the_functions(self):
        for deployed, deployment in self.deployments.items():
            permitted = [
                (each["FunctionName"], each["SourceArn"])
                for each in deployment.of_type("AWS::Lambda::Permission").values()
                if each["Principal"] == "apigateway.amazonaws.com"
            ]
            source = {"Fn::Sub": f"{API_ARN}${{Api}}/*"}
            wanted = [(alias(name), source) for name, routes in ROUTES.items() if routes]
            self.expect(
                permitted == wanted,
                f"with {deployed}, the API may call {len(permitted)} functions",
                f"with {deployed}, the API may call {permitted}",
            )

    @claim
    def the_limits_of_each_profile_fit_the_quota_of_every_region(self):
        for profile in self.templates.parameters["Profile"]["AllowedValues"]:
            deployment = Deployment(self.templates, Profile=profile)
            api = deployment.of_type("AWS::Serverless::HttpApi")["Api"]
            limits = api["DefaultRouteSettings"]
            rate, burst = (
                int(limits[f"Throttling{kind}Limit"]) for kind in ("Rate", "Burst")
            )
            self.expect(
                rate <= LEAST_RATE_QUOTA and burst <= LEAST_BURST_QUOTA,
                f"with {profile}, each route takes {rate} requests a second and {burst} at once",
                f"with {profile}, {limits} exceed {LEAST_RATE_QUOTA} and {LEAST_BURST_QUOTA}",
            )
            # CloudFormation would pass its numbers as text.
            self.expect(
                "RouteSettings" not in api,
                f"with {profile}, all limits of the API are typed",
                f"with {profile}, the API has {api.get('RouteSettings')}",
            )

    def the_access_log_is_json_whatever_is_in_it(self):
        settings = Deployment(self.templates).of_type("AWS::Serverless::HttpApi")["Api"]["AccessLogSettings"]
        line = re.sub(r"\$(context[\w.]+)", lambda name: TEXTS.get(name[1], "-"), settings["Format"])
        try:
            found = len(json.loads(line))
        except ValueError:
            found = 0
        self.expect(found, f"the access log is JSON, with {found} fields", f"the access log is no JSON: {line}")

    @claim
    def requests_are_logged_on_request_only(self):
        for wanted, values in ((True, {}), (False, {"ApiAccessLogs": "false"})):
            deployment = Deployment(self.templates, **values)
            logged = (
                "AccessLogSettings" in deployment.of_type("AWS::Serverless::HttpApi")["Api"],
                "ApiLogGroup" in deployment.resources,
            )
            self.expect(
                logged == (wanted, wanted),
                f"with {listed(values)}, requests are {'' if wanted else 'not '}logged",
                f"with {listed(values)}: {logged}",
            )
        rows = (
            ({}, "info", "INFO"),
            ({"LogLevel": "error", "SystemLogLevel": "WARN"}, "error", "WARN"),
        )
        for values, level, system in rows:
            deployment = Deployment(self.templates, **values)
            for name, each in deployment.of_type(FUNCTION).items():
                # Lambda takes the lines of metrics for INFO. It must let all pass, or they are
                # lost.
                found = (
                    self.variables_of(deployment, name)["RUST_LOG"],
                    each["LoggingConfig"]["SystemLogLevel"],
                    each["LoggingConfig"]["ApplicationLogLevel"],
                )
                self.expect(
                    found == (level, system, "TRACE"),
                    f"with {listed(values)}, {name} logs from {level} on",
                    f"with {listed(values)}, {name} logs {found}",
                )
