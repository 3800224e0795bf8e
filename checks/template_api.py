"""The HTTP API: its routes, its credentials and its log."""

import json

import yaml
from template_claims import FUNCTION, Claims, alias, claim, told
from template_expected import ROUTES, SECURITY
from template_flat import ROOT, Deployment


class Api(Claims):
    @claim
    def the_description_has_the_same_routes(self):
        description = yaml.safe_load((ROOT / "functions/api/openapi.yaml").read_text(encoding="utf-8"))
        described = {
            f"{method.upper()} {path}"
            for path, operations in description["paths"].items()
            for method in operations
            if method in {"get", "put", "post", "delete", "patch", "head", "options"}
        }
        routes = set().union(*ROUTES.values())
        self.expect(
            described == routes,
            "openapi.yaml describes the routes that there are",
            f"openapi.yaml lacks {sorted(routes - described)}, and has besides {sorted(described - routes)}",
        )

    @claim
    def every_sample_event_is_of_a_route(self):
        for path in sorted((ROOT / "events").glob("*.json")):
            event = json.loads(path.read_text(encoding="utf-8"))
            context = event.get("requestContext", {}) if isinstance(event, dict) else {}
            if "http" not in context:
                continue
            route = f"{context['http']['method']} {context['http']['path']}"
            function = {"writer": "WriterFunction", "reader": "ReaderFunction"}.get(path.name.split("-")[0])
            self.expect(
                route in ROUTES.get(function, set())
                and event.get("version") == "2.0"
                and event.get("routeKey") == route,
                f"events/{path.name} is an event of {route}",
                f"events/{path.name}: {route} with routeKey {event.get('routeKey')} is no route of {function}",
            )

    @claim
    def every_operation_asks_for_the_chosen_credentials(self):
        routes = set().union(*ROUTES.values())
        for chosen, (values, security) in SECURITY.items():
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
            if schemes != {scheme for each in security or [] for scheme in each}:
                faults.append(f"it declares {sorted(schemes)}")
            self.expect(
                not faults,
                f"with ApiAuth {chosen}, all {len(operations)} operations ask for {security}",
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
            source = {"Fn::Sub": "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${Api}/*"}
            wanted = [(alias(name), source) for name, routes in ROUTES.items() if routes]
            self.expect(
                permitted == wanted,
                f"with {deployed}, the API may call {len(permitted)} functions",
                f"with {deployed}, the API may call {permitted}",
            )

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
                f"with {told(values)}, requests are {'' if wanted else 'not '}logged",
                f"with {told(values)}: {logged}",
            )
        rows = ({}, "info", "INFO"), ({"LogLevel": "error", "SystemLogLevel": "WARN"}, "error", "WARN")
        for values, level, system in rows:
            deployment = Deployment(self.templates, **values)
            for name, each in deployment.of_type(FUNCTION).items():
                # Lambda takes the lines of metrics for INFO. It must let all pass, or they are lost.
                found = (
                    self.variables_of(deployment, name)["RUST_LOG"],
                    each["LoggingConfig"]["SystemLogLevel"],
                    each["LoggingConfig"]["ApplicationLogLevel"],
                )
                self.expect(
                    found == (level, system, "TRACE"),
                    f"with {told(values)}, {name} logs from {level} on",
                    f"with {told(values)}, {name} logs {found}",
                )
