//! Size limits of one invocation.

/// The size limit of an event and of a response. (AWS Lambda developer guide, "Lambda quotas".)
const LAMBDA_PAYLOAD_BYTES: usize = 6 * 1_024 * 1_024;
/// Reserved for everything except the body: headers (at most 10 KB), the request context, and the
/// claims of a token.
const RESERVED_BYTES: usize = 128 * 1_024;
/// The maximum size of a body, in bytes of its JSON string.
pub const MAX_PAYLOAD_BYTES: usize = LAMBDA_PAYLOAD_BYTES - RESERVED_BYTES;
