// Package intake has what several packages of the store need for recipient imports: rows of email_outbox whose target is
// recipients.upsert.
package intake

// PersonSQL is the recipient id of an import's outbox row o; NULL for a payload in an unknown form.
const PersonSQL = `CASE WHEN o.payload ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (o.payload ->> 'id')::uuid END`
