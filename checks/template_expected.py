"""The expected variables, rights and refusals of the template, by deployment, for
template_contract.py."""

import re

from template_flat import ROOT

# The parameters that `sam deploy --guided` asks for.
MOST_PARAMETERS = 11
ALIAS = "live"
RETAINED = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
# The outputs of earlier templates, and those that a consumer of the stream and a caller of the
# functions need.
OUTPUTS = {
    "ApiUrl",
    "MainTableName",
    "MetadataTableName",
    "LostEventsQueueUrl",
    *(
        f"{function}{what}"
        for function in ("Writer", "Reader", "ShardScaler")
        for what in ("FunctionName", "FunctionArn", "AliasArn")
    ),
}
# Outputs if there is a stream, or a mail address.
OUTPUTS_BY = {
    "StreamArn": lambda values: values["StreamView"] != "none",
    "NotificationTopicArn": lambda values: values["NotificationEmail"] != "",
}

VARIABLES = {
    "TABLE_NAME",
    "METADATA_TABLE_NAME",
    "PARTITION_KEY_NAME",
    "SORT_KEY_NAME",
    "SORT_KEY_TYPE",
    "SHARD_PLACEMENT",
    "SHARD_SEPARATOR",
    "MAX_SHARDS",
    "COOLDOWN_SECONDS",
    "LEASE_MS",
    "WRITES",
    "REGISTER_KEYS",
    "SCALING",
    "READ_REPLICAS",
    "TTL_ATTRIBUTE",
    "LET_EXPIRE_SECONDS",
    "ADOPT_UNSHARDED",
    "ADOPT_SHARDS",
}
# Variables that the functions' log reads.
LOG_VARIABLES = {"RUST_LOG"}
# Variables that only the shard-scaler has.
SCALER_VARIABLES = {
    "MAX_EVENT_AGE_SECONDS",
    "MAX_READ_UNITS",
    "MAX_WRITE_UNITS",
    "MAX_WARM_READ_UNITS",
    "MAX_WARM_WRITE_UNITS",
    "SHRINK_AFTER_SECONDS",
    "SETTLE_AFTER_SECONDS",
    "DRAIN_SHARE_PERCENT",
    "DRY_RUN",
}

# Variables that only the writer has, if it wakes the shard-scaler.
WAKING_VARIABLES = {"SHARD_SCALER_FUNCTION"}

# Variables whose name differs from their setting's, and those that depend on several settings.
NAMED_OTHERWISE = {"TTL_ATTRIBUTE": "TimeToLiveAttribute", "RUST_LOG": "LogLevel"}
MADE_OF_SEVERAL = {
    "TABLE_NAME",
    "METADATA_TABLE_NAME",
    "READ_REPLICAS",
    "MAX_READ_UNITS",
    "MAX_WRITE_UNITS",
    "MAX_WARM_WRITE_UNITS",
    "SHARD_SCALER_FUNCTION",
}

# Files in which the functions read them: `read.set(…, "LEASE_MS", …)`.
CONFIGURATIONS = {
    ROOT / "shared/src/config.rs": VARIABLES,
    ROOT / "functions/shard-scaler/src/config.rs": SCALER_VARIABLES,
    ROOT / "functions/writer/src/shard_scaler.rs": WAKING_VARIABLES,
}
METADATA_ATTRIBUTES = ROOT / "shared/src/table/names.rs"
VARIABLE_READ = re.compile(r'\bread\s*\.\s*\w+\([^"]*"([A-Z][A-Z0-9_]*)"')

# A row of the table of routes that the functions use.
ROUTE = re.compile(r'\("([A-Z]+)", "(/[a-z/]+)", Function::(\w+), ')
ROUTES = {f"{name}Function": set() for name in ("Writer", "Reader", "ShardScaler")}
for method, path, name in ROUTE.findall((ROOT / "functions/api/src/route.rs").read_text()):
    ROUTES[f"{name}Function"].add(f"{method} {path}")
assert all(len(ROUTES[f"{name}Function"]) > 1 for name in ("Writer", "Reader")), ROUTES

ROLES = {
    "WriterFunction": "WriterRole",
    "ReaderFunction": "ReaderRole",
    "ShardScalerFunction": "ShardScalerRole",
}

LOG = {"its log": {"logs:CreateLogStream", "logs:PutLogEvents"}}
METADATA_CHANGES = {"dynamodb:GetItem", "dynamodb:UpdateItem"}
# Rights of each role, in every deployment.
RIGHTS = {
    "WriterRole": {
        "MainTable": {
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:BatchGetItem",
            "dynamodb:Query",
            "dynamodb:Scan",
        },
        "MetadataTable": METADATA_CHANGES | {"dynamodb:Scan"},
    }
    | LOG,
    "ReaderRole": {
        "MainTable": {"dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem"},
        "MetadataTable": {"dynamodb:GetItem"},
    }
    | LOG,
    "ShardScalerRole": {
        "MainTable": {
            "dynamodb:DescribeContributorInsights",
            "dynamodb:DescribeTable",
            "dynamodb:Query",
            "dynamodb:Scan",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:DeleteItem",
        },
        "the indexes of MainTable": {"dynamodb:DescribeContributorInsights"},
        "MetadataTable": METADATA_CHANGES | {"dynamodb:Scan"},
        "the rules of Contributor Insights": {"cloudwatch:GetInsightRuleReport"},
        "every metric": {"cloudwatch:GetMetricData"},
        "every alarm": {"cloudwatch:DescribeAlarms"},
        "alarm hot-partition": {"cloudwatch:SetAlarmState"},
        "alarm hot-reads": {"cloudwatch:SetAlarmState"},
        "alarm write-limit": {"cloudwatch:SetAlarmState"},
        "alarm read-limit": {"cloudwatch:SetAlarmState"},
        "LostEventsQueue": {"sqs:SendMessage"},
    }
    | LOG,
    "CustomResourceRole": {
        "MainTable": {"dynamodb:DescribeTable"},
        "MetadataTable": {"dynamodb:DescribeTable"},
    }
    | LOG,
    "ScheduleRole": {
        "the alias of ShardScalerFunction": {"lambda:InvokeFunction"},
        "LostEventsQueue": {"sqs:SendMessage"},
    },
}
# Further rights of a role: if the main table has read replicas,
REPLICA_RIGHTS = {
    "ReaderRole": {"the indexes of MainTable": {"dynamodb:Query"}},
    "ShardScalerRole": {"alarm hot-replica-*": {"cloudwatch:SetAlarmState"}},
}
# if the shard-scaler may raise its provisioned capacity,
CAPACITY_RIGHTS = {"ShardScalerRole": {"MainTable": {"dynamodb:UpdateTable"}}}
# if it may raise its warm throughput, and that of its indexes,
TABLE_AND_INDEXES = ("MainTable", "the indexes of MainTable")
WARM_RIGHTS = {"ShardScalerRole": dict.fromkeys(TABLE_AND_INDEXES, {"dynamodb:UpdateTable"})}
# if the writer wakes the shard-scaler for that at once,
WAKING_RIGHTS = {"WriterRole": {"the alias of ShardScalerFunction": {"lambda:InvokeFunction"}}}
# if a customer's key encrypts the tables,
KEY_RIGHTS = dict.fromkeys(ROLES.values(), {"the tables' key": {"kms:Decrypt"}})
# if the functions trace,
TRACE_RIGHTS = dict.fromkeys(
    ROLES.values(), {"every trace": {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}}
)
# if the stack created the table, which it protects,
TABLE_RIGHTS = {"CustomResourceRole": {"MainTable": {"dynamodb:UpdateTable"}}}
METADATA_TABLE_RIGHTS = {"CustomResourceRole": {"MetadataTable": {"dynamodb:UpdateTable"}}}
# if the deployment checks that the shard-scaler starts over existing tables,
START_RIGHTS = {
    "CustomResourceRole": {"ShardScalerFunction, any version": {"lambda:InvokeFunction"}}
}
# and if CodeDeploy moves the traffic.
CANARY_RIGHTS = {
    "DeploymentRole": {
        f"{function}, any version": {
            "lambda:GetAlias",
            "lambda:UpdateAlias",
            "lambda:GetProvisionedConcurrencyConfig",
        }
        for function in ROLES
    }
    | {"every alarm": {"cloudwatch:DescribeAlarms"}}
}
# The service that may assume a role. A service that acts for several customers needs a condition on
# the account.
TRUSTED = dict.fromkeys([*ROLES.values(), "CustomResourceRole"], "lambda.amazonaws.com") | {
    "ScheduleRole": "scheduler.amazonaws.com",
    "DeploymentRole": "codedeploy.amazonaws.com",
}
FOR_THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}

# Files that define the names of the functions' own metrics.
NAMESPACE = (ROOT / "functions/api/src/telemetry.rs", re.compile(r'NAMESPACE: &str = "(\w+)"'))
METRIC_SOURCES = ("shared/src", "functions")
METRIC_WRITTEN = re.compile(r'\b(?:counter|gauge|histogram)!\(\s*(?:(?:\w+::)*(\w+)|"(\w+)")')
CONSTANT = re.compile(r'const ([A-Z_]+): &str =\s*"(\w+)"')

SAM_CONFIGURATION = ROOT / "samconfig.toml"

READ_REPLICA_COUNTS = ["0", "1", "2", "3"]

ALARM_PRINCIPAL = "lambda.alarms.cloudwatch.amazonaws.com"
ALARM_ARN = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:"
TABLE_ARN = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/"

# Contributor Insights creates these rules, so the template cannot refer to them. The permission
# serves no other purpose.
INSIGHT_ACTION = "cloudwatch:GetInsightRuleReport"
# These actions do not support resource-level permissions.
EVERYWHERE = {
    "cloudwatch:GetMetricData": "every metric",
    "cloudwatch:DescribeAlarms": "every alarm",
    "xray:PutTraceSegments": "every trace",
    "xray:PutTelemetryRecords": "every trace",
}
INSIGHT_RULES = (
    "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:"
    "insight-rule/DynamoDBContributorInsights"
)

KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/0b5d2f6e-0000-4000-8000-000000000000"

# Deployments with a budget for warm writes and with writers that scale, as by default. Each has its
# further rights.
BUDGETED = {
    "no read replicas": ({"ReadReplicas": 0}, []),
    "1 read replica": ({"ReadReplicas": 1}, [REPLICA_RIGHTS]),
    "2 read replicas": ({"ReadReplicas": 2}, [REPLICA_RIGHTS]),
    "3 read replicas": ({"ReadReplicas": 3}, [REPLICA_RIGHTS]),
    "fixed capacity": ({"CapacityMode": "provisioned"}, []),
    "fewer shards again": (
        {
            "DrainSchedule": "rate(5 minutes)",
            "ShrinkAfterSeconds": "86400",
            "SettleAfterSeconds": "86400",
        },
        [],
    ),
    "appends only": ({"Writes": "appends"}, []),
    "values of its own": (
        {
            "PartitionKeyName": "day",
            "SortKeyName": "order",
            "SortKeyType": "N",
            "ShardPlacement": "modulo-md5",
            "ShardSeparator": "#",
            "MaxShards": 300,
            "CooldownSeconds": 3,
            "LeaseMs": 900,
            "RegisterKeys": "true",
            "LetExpireSeconds": 60,
            "AdoptShards": 7,
            "Scaling": "writer",
            "MaxEventAgeSeconds": 700,
            "DrainSchedule": "rate(7 minutes)",
            "ShrinkAfterSeconds": "800",
            "SettleAfterSeconds": "900",
            "DrainSharePercent": 40,
            "DryRun": "true",
            "LogLevel": "warn",
        },
        [],
    ),
    "rising write capacity": (
        {"CapacityMode": "provisioned", "MaxWriteUnits": 500},
        [CAPACITY_RIGHTS],
    ),
    "rising read capacity": (
        {"CapacityMode": "provisioned", "MaxReadUnits": 500},
        [CAPACITY_RIGHTS],
    ),
    "an on-demand maximum": ({"OnDemandMaxReadUnits": 500, "OnDemandMaxWriteUnits": 500}, []),
    "no on-demand maximum": ({"OnDemandMaxReadUnits": 0, "OnDemandMaxWriteUnits": 0}, []),
    "an existing table with a maximum": (
        {"ExistingTable": "orders", "MaxReadUnits": 500, "MaxWriteUnits": 500},
        [],
    ),
    "a peak in the profile development": (
        {"ExpectedPeakWriteUnits": 24000, "Profile": "development"},
        [],
    ),
    "a larger budget": ({"MaxWarmWriteUnits": 40000}, []),
    "a budget for reads, too": ({"MaxWarmReadUnits": 40000}, []),
    "an expected peak": ({"ExpectedPeakWriteUnits": 24000}, []),
    "an expected peak and no other budget": (
        {"ExpectedPeakWriteUnits": 24000, "MaxWarmWriteUnits": 0},
        [],
    ),
    "an expected peak of an existing table": (
        {"ExistingTable": "orders", "ExpectedPeakWriteUnits": 24000},
        [],
    ),
    "writers that scale": ({"Scaling": "writer"}, []),
    "a key of the account's": ({"EncryptionKey": "aws-managed"}, []),
    "a key of the customer's": ({"EncryptionKey": KEY_ARN}, [KEY_RIGHTS]),
    "traces": ({"XRayTracing": "Active"}, [TRACE_RIGHTS]),
    "canary deployments": ({"CanaryDeployment": "true"}, [CANARY_RIGHTS]),
    "few logs": ({"LogLevel": "error", "SystemLogLevel": "WARN", "ApiAccessLogs": "false"}, []),
    "no protection": ({"DeletionProtection": "false"}, []),
    "the profile production": ({"Profile": "production"}, [TRACE_RIGHTS, CANARY_RIGHTS]),
    "an existing table": ({"ExistingTable": "orders"}, []),
    "an existing metadata table": ({"ExistingMetadataTable": "orders-metadata"}, []),
    "both tables existing": (
        {"ExistingTable": "orders", "ExistingMetadataTable": "orders-metadata"},
        [],
    ),
    "both tables existing, in production": (
        {
            "ExistingTable": "orders",
            "ExistingMetadataTable": "orders-metadata",
            "Profile": "production",
            "ReadReplicas": 1,
        },
        [REPLICA_RIGHTS, TRACE_RIGHTS, CANARY_RIGHTS],
    ),
    "an existing table with everything": (
        {
            "ExistingTable": "orders",
            "ReadReplicas": 3,
            "EncryptionKey": KEY_ARN,
            "TimeToLiveAttribute": "expires",
            "MaxWriteUnits": 500,
            "MaxWarmWriteUnits": 40000,
        },
        [REPLICA_RIGHTS, KEY_RIGHTS],
    ),
    "an existing table of provisioned capacity": (
        {"ExistingTable": "orders", "CapacityMode": "provisioned"},
        [],
    ),
    "everything": (
        {
            "ReadReplicas": 3,
            "EncryptionKey": KEY_ARN,
            "PeakSchedule": "cron(45 17 ? * FRI *)",
            "PeakPartitionKey": "/a",
            "PeakWriteUnits": 20000,
            "DrainSchedule": "rate(5 minutes)",
            "ShrinkAfterSeconds": "86400",
            "NotificationEmail": "a@example.com",
            "NotificationTopicArn": "arn:aws:sns:us-east-1:123456789012:a",
            "StreamView": "KEYS_ONLY",
            "TimeToLiveAttribute": "expires",
            "CorsAllowOrigins": "https://example.com",
            "CanaryDeployment": "true",
            "XRayTracing": "Active",
            "ReserveShardScalerConcurrency": "true",
        },
        [REPLICA_RIGHTS, KEY_RIGHTS, TRACE_RIGHTS, CANARY_RIGHTS],
    ),
}
# All deployments with different rights.
DEPLOYMENTS = {
    name: (values, [*further, WARM_RIGHTS, WAKING_RIGHTS])
    for name, (values, further) in BUDGETED.items()
} | {
    "alarms that scale": ({"Scaling": "alarm"}, [WARM_RIGHTS]),
    "a budget for reads only": (
        {"MaxWarmWriteUnits": 0, "MaxWarmReadUnits": 40000},
        [WARM_RIGHTS],
    ),
    "no budget": ({"MaxWarmWriteUnits": 0}, []),
    "rising write capacity without a budget": (
        {"CapacityMode": "provisioned", "MaxWriteUnits": 500, "MaxWarmWriteUnits": 0},
        [CAPACITY_RIGHTS],
    ),
    "an existing table without a budget": (
        {"ExistingTable": "orders", "MaxWarmWriteUnits": 0},
        [],
    ),
    "the profile development": ({"Profile": "development"}, []),
}

OPEN = {"ApiAuth": "NONE", "ApiOpenToEveryone": "true"}
JWT = {"ApiAuth": "JWT", "ApiJwtIssuer": "https://example.com", "ApiJwtAudience": "one,two"}
SCOPES = {"ApiJwtReadScopes": "items/read,items/all", "ApiJwtWriteScopes": "items/all"}
# The credentials that the operations of the reader and of the writer need.
SECURITY = {
    "IAM": ({}, [{"AWS_IAM": []}], [{"AWS_IAM": []}]),
    "JWT": (JWT, [{"Jwt": []}], [{"Jwt": []}]),
    "JWT with scopes": (
        JWT | SCOPES,
        [{"Jwt": ["items/read", "items/all"]}],
        [{"Jwt": ["items/all"]}],
    ),
    "NONE, confirmed": (OPEN, None, None),
}
# The main table's properties, by its parameters. None if a property must be absent.
KMS = {"SSEEnabled": True, "SSEType": "KMS"}
TABLE_OPTIONS = [
    ({}, "BillingMode", "PAY_PER_REQUEST"),
    ({}, "ProvisionedThroughput", None),
    # The ceilings of what a table can cost.
    (
        {},
        "OnDemandThroughput",
        {"MaxReadRequestUnits": "20000", "MaxWriteRequestUnits": "20000"},
    ),
    (
        {"Profile": "production"},
        "OnDemandThroughput",
        {"MaxReadRequestUnits": "20000", "MaxWriteRequestUnits": "20000"},
    ),
    (
        {"Profile": "development"},
        "OnDemandThroughput",
        {"MaxReadRequestUnits": "12000", "MaxWriteRequestUnits": "4000"},
    ),
    ({"ExpectedPeakWriteUnits": 24000}, "OnDemandThroughput", {"MaxReadRequestUnits": "20000"}),
    ({}, "WarmThroughput", None),
    ({}, "TimeToLiveSpecification", None),
    ({}, "StreamSpecification", None),
    ({}, "SSESpecification", {"SSEEnabled": False}),
    # TableProtection sets it, as the last resource.
    ({}, "DeletionProtectionEnabled", None),
    ({}, "PointInTimeRecoverySpecification", {"PointInTimeRecoveryEnabled": "true"}),
    ({}, "ContributorInsightsSpecification", {"Enabled": True, "Mode": "THROTTLED_KEYS"}),
    ({"CapacityMode": "provisioned"}, "BillingMode", "PROVISIONED"),
    (
        {"CapacityMode": "provisioned", "ReadUnits": 7},
        "ProvisionedThroughput",
        {"ReadCapacityUnits": "7", "WriteCapacityUnits": "5"},
    ),
    ({"CapacityMode": "provisioned", "MaxReadUnits": 9}, "OnDemandThroughput", None),
    (
        {"OnDemandMaxReadUnits": 9, "OnDemandMaxWriteUnits": 0},
        "OnDemandThroughput",
        {"MaxReadRequestUnits": "9"},
    ),
    (
        {"OnDemandMaxReadUnits": 0, "OnDemandMaxWriteUnits": 9},
        "OnDemandThroughput",
        {"MaxWriteRequestUnits": "9"},
    ),
    ({"OnDemandMaxReadUnits": 0, "OnDemandMaxWriteUnits": 0}, "OnDemandThroughput", None),
    (
        {"WarmReadUnits": 13000, "WarmWriteUnits": 5000},
        "WarmThroughput",
        {"ReadUnitsPerSecond": "13000", "WriteUnitsPerSecond": "5000"},
    ),
    (
        {"ExpectedPeakWriteUnits": 24000},
        "WarmThroughput",
        {"ReadUnitsPerSecond": 12000, "WriteUnitsPerSecond": "24000"},
    ),
    (
        {"TimeToLiveAttribute": "expires"},
        "TimeToLiveSpecification",
        {"AttributeName": "expires", "Enabled": True},
    ),
    ({"StreamView": "KEYS_ONLY"}, "StreamSpecification", {"StreamViewType": "KEYS_ONLY"}),
    ({"EncryptionKey": "aws-managed"}, "SSESpecification", KMS),
    ({"EncryptionKey": KEY_ARN}, "SSESpecification", KMS | {"KMSMasterKeyId": KEY_ARN}),
]

# Values that the rules must refuse.
REFUSED = {
    "NONE without confirmation": {"ApiAuth": "NONE"},
    "open with IAM": {"ApiOpenToEveryone": "true"},
    "JWT without issuer": JWT | {"ApiJwtIssuer": ""},
    "JWT without audience": JWT | {"ApiJwtAudience": ""},
    "scopes without JWT": {"ApiJwtWriteScopes": "items/all"},
    "replicas of provisioned capacity": {"CapacityMode": "provisioned", "ReadReplicas": 1},
    "one warm throughput": {"WarmReadUnits": 20000},
    "a peak of provisioned capacity": {
        "ExpectedPeakWriteUnits": 24000,
        "CapacityMode": "provisioned",
    },
    "a peak beside a warm throughput": {
        "ExpectedPeakWriteUnits": 24000,
        "WarmReadUnits": 13000,
        "WarmWriteUnits": 5000,
    },
    "a peak below a new table's units": {"ExpectedPeakWriteUnits": 3999},
    "shrinking without a schedule": {"ShrinkAfterSeconds": "3600"},
    "settling without a schedule": {"SettleAfterSeconds": "3600"},
    "settling appends": {
        "SettleAfterSeconds": "3600",
        "DrainSchedule": "rate(5 minutes)",
        "Writes": "appends",
    },
    "settling what is placed at random": {
        "SettleAfterSeconds": "3600",
        "DrainSchedule": "rate(5 minutes)",
        "ShardPlacement": "random",
    },
    "adoption in two ways": {"AdoptUnsharded": "true", "AdoptShards": 4},
    "a schedule without a key": {"PeakSchedule": "rate(1 day)"},
    "a warm peak without a budget": {"PeakWriteUnits": 20000, "MaxWarmWriteUnits": 0},
    "equal key names": {"SortKeyName": "partition_key"},
    "a key of the metadata's name": {"PartitionKeyName": "generation"},
    "a key of the name of the metadata's last attribute": {"PartitionKeyName": "short_generation"},
    "rising reads of an existing table": {
        "ExistingTable": "orders",
        "CapacityMode": "provisioned",
        "MaxReadUnits": 500,
    },
    "rising writes of an existing table": {
        "ExistingTable": "orders",
        "CapacityMode": "provisioned",
        "MaxWriteUnits": 500,
    },
    "warmth of an existing table": {
        "ExistingTable": "orders",
        "WarmReadUnits": 13000,
        "WarmWriteUnits": 5000,
    },
    "a stream of an existing table": {"ExistingTable": "orders", "StreamView": "KEYS_ONLY"},
    "a key that expires": {"TimeToLiveAttribute": "sort_key"},
    "one table for both": {"ExistingTable": "orders", "ExistingMetadataTable": "orders"},
    "a table of no such name": {"ExistingTable": "no such name!"},
    "a setting beyond its limits": {"MaxShards": 1001},
    "a setting below its limits": {"LeaseMs": 99},
    "a setting that is no number": {"AlarmThreshold": "many"},
    "a setting that is none of the allowed": {"Scaling": "nobody"},
    "a setting of another pattern": {"PeakPartitionKey": 'a"b'},
}
