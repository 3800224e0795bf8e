//! Reads of a key whose items are in every state, beside those of a plain table.
