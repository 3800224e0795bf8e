//! Key conditions of queries: their words, and empty key values, which DynamoDB refuses and the
//! database accepts.

use serde_json::Value;

use crate::response::Response;

/// The words of a key condition that are neither attributes nor values.
const NO_ATTRIBUTES: [&str; 6] = ["begins_with", "between", "and", "<", ">", "="];

/// The words of an expression. A comparison is a word of its own.
pub(crate) fn words(expression: &str) -> Vec<String> {
    let spaced = expression.replace(['(', ')', ','], " ");
    let spaced =
        ["<", ">", "="].iter().fold(spaced, |text, sign| text.replace(sign, &format!(" {sign} ")));
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The attribute that a word of an expression names, with or without a placeholder.
pub(crate) fn attribute<'a>(body: &'a Value, word: &'a str) -> &'a str {
    let names = body.get("ExpressionAttributeNames");
    names.and_then(|names| names.get(word)?.as_str()).unwrap_or(word)
}

/// Fails if a query compares a key with an empty value. A query is checked once it has succeeded,
/// so every other mistake is reported first.
pub(crate) fn check_values(body: &Value) -> Result<(), Response> {
    let Some((attribute, kind)) = empty_value(body) else { return Ok(()) };
    let message = format!(
        "One or more parameter values are not valid. The AttributeValue for a key attribute \
         cannot contain an empty {kind} value. Key: {attribute}"
    );
    Err(Response::error(400, "ValidationException", &message))
}

/// The key attribute that is compared with an empty value, and the type of the value.
fn empty_value(body: &Value) -> Option<(String, &'static str)> {
    let Some(expression) = body.get("KeyConditionExpression").and_then(Value::as_str) else {
        let conditions = body.get("KeyConditions")?.as_object()?;
        return conditions.iter().find_map(|(attribute, condition)| {
            let values = condition.get("AttributeValueList")?.as_array()?;
            Some((attribute.clone(), values.iter().find_map(empty)?))
        });
    };
    let values = body.get("ExpressionAttributeValues")?;
    let words = words(expression);
    let kind = |word: &String| values.get(word).and_then(empty);
    let (at, kind) = words.iter().enumerate().find_map(|(at, word)| Some((at, kind(word)?)))?;
    // The attribute is usually to the left of the value.
    let is_attribute = |word: &&String| {
        !word.starts_with(':') && !NO_ATTRIBUTES.iter().any(|no| word.eq_ignore_ascii_case(no))
    };
    let name = words[..at].iter().rev().chain(&words[at..]).find(is_attribute)?;
    Some((attribute(body, name).to_owned(), kind))
}

/// The type of an empty value.
fn empty(value: &Value) -> Option<&'static str> {
    let text = |kind: &str| value.get(kind).and_then(Value::as_str);
    let mut kinds = [("S", "string"), ("B", "binary")].into_iter();
    kinds.find_map(|(kind, name)| (text(kind) == Some("")).then_some(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::Engine;

    #[test]
    fn a_query_that_compares_a_key_with_an_empty_value_is_refused() {
        let engine = Engine::in_memory().expect("an engine");
        engine.create_table("items", "pk", Some("sk")).expect("created");
        let send = |body: Value| match engine.operate("Query", body) {
            Ok(_) => (200, String::new()),
            Err(refused) => (refused.status, String::from_utf8_lossy(&refused.body).into_owned()),
        };
        let query = |expression: &str, empty: &str| {
            let mut values = json!({":p": {"S": "k"}});
            for word in words(expression).iter().filter(|word| word.starts_with(':')) {
                values[word] = json!({"S": if word == empty { "" } else { "k" }});
            }
            let mut body = json!({"TableName": "items", "KeyConditionExpression": expression,
                "ExpressionAttributeValues": values});
            if expression.contains('#') {
                body["ExpressionAttributeNames"] = json!({"#s": "sk"});
            }
            send(body)
        };
        for (expression, empty, key) in [
            ("pk = :p AND begins_with(#s, :x)", ":x", "sk"),
            ("pk = :p AND #s BETWEEN :f AND :t", ":f", "sk"),
            ("(#s BETWEEN :f AND :t) AND (pk = :p)", ":f", "sk"),
            ("pk = :p AND sk>=:f", ":f", "sk"),
            (":f = sk AND :p = pk", ":f", "sk"),
            ("pk = :p", ":p", "pk"),
        ] {
            assert_eq!(query(expression, "none").0, 200, "{expression}");
            let (status, body) = query(expression, empty);
            let end = format!("cannot contain an empty string value. Key: {key}\"");
            let is_refused = body.contains("#ValidationException") && body.contains(&end);
            assert!(status == 400 && is_refused, "{expression}: {status} {body}");
        }
        let older = |prefix: &str| {
            let is = |operator: &str, value: &str| {
                let values = json!([{"S": value}]);
                json!({"ComparisonOperator": operator, "AttributeValueList": values})
            };
            let conditions = json!({"pk": is("EQ", "k"), "sk": is("BEGINS_WITH", prefix)});
            send(json!({"TableName": "items", "KeyConditions": conditions}))
        };
        assert_eq!((older("a").0, older("").0), (200, 400));
        // Another mistake is reported first.
        let (_, unknown) = query("pk = :p AND colour = :x", ":x");
        assert!(unknown.contains("missed key schema element"), "{unknown}");
    }
}
