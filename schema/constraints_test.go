package schema_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// row is a table's row: SQL expressions by column.
type row map[string]string

const (
	companyID = "'01990000-0000-7000-8000-000000000001'"
	hash      = `decode(repeat('0a', 32), 'hex')`
)

// legal returns a valid row of each table.
func legal() map[string]row {
	return map[string]row{
		"companies": {"id": "gen_random_uuid()", "name": "gen_random_uuid()::text", "default_from": "'a@acme.example'"},
		"api_keys": {
			"key_id": "gen_random_uuid()::text", "company_id": companyID, "name": "'billing'", "environment": "'live'",
			"secret_sha256": hash, "scopes": "'{emails:send}'",
		},
		"sender_domains": {"company_id": companyID, "domain": "gen_random_uuid()::text || '.example'"},
		"recipients":     {"id": "gen_random_uuid()", "company_id": companyID, "email": "'ana@example.com'"},
		"dispatch_lanes": {"company_id": companyID, "queue": "'email:send'", "mailing_id": "gen_random_uuid()"},
		"email_outbox": {
			"id": "gen_random_uuid()", "company_id": companyID, "lane_id": "1", "request_id": "'req-1'", "payload": "'{}'", "sender": "'a@acme.example'",
			"html": "'<p>'", "html_sha256": hash, "checker_version": "1", "expires_at": "now()",
		},
		"email_logs": {
			"outbox_id": "gen_random_uuid()", "company_id": companyID, "recipient": "'ana@example.com'", "subject": "'s'", "status": "'PENDING'",
			"attempts": "0", "request_id": "'req-1'", "expires_at": "now()", "created_at": "now()", "event_seq": "1", "last_event": "'RECEIVED'",
		},
		"email_events": {"email_log_id": "gen_random_uuid()", "seq": "1", "previous": "NULL", "type": "'RECEIVED'", "created_at": "now()"},
		"idempotency_keys": {
			"company_id": companyID, "route": "'POST /v1/email/send'", "key": "gen_random_uuid()::text", "body_sha256": hash, "status": "202",
			"answer": "''", "outbox_id": "gen_random_uuid()", "expires_at": "now()",
		},
		"dead_letters": {"id": "gen_random_uuid()", "target": "'email:send'", "reason": "'SES_REJECTED'", "payload": "'{}'"},
		"dead_letter_replays": {
			"id": "gen_random_uuid()", "action": "'retry'", "filter": "'{}'", "requested_by": "'api:key'", "rate": "100", "matched": "0",
		},
		"provider_gate":  {"state": "'open'"},
		"operator_audit": {"operator": "'ana'", "action": "'company.suspend'"},
		"process_status": {"service": "'worker'", "instance": "gen_random_uuid()::text", "started_at": "now()", "details": "'{}'"},
		"mailings": {
			"id": "gen_random_uuid()", "company_id": companyID, "request_id": "'req-1'", "filename": "gen_random_uuid()::text", "storage_url": "'file:///a'",
			"file_sha256": hash, "request_sha256": hash, "answer": "''", "subject": "'s'", "html": "'<p>'", "html_sha256": hash, "checker_version": "1",
			"fields": "'{}'", "sender": "'a@acme.example'", "status": "'SENDING'", "total_lines": "3", "accepted": "1", "invalid": "1", "duplicates": "1",
		},
		"mailing_entries": {
			"id": "gen_random_uuid()", "mailing_id": companyID, "line_no": "2", "email": "gen_random_uuid()::text || '@example.com'", "token": "'t'",
		},
		"mailing_rejects": {"mailing_id": "gen_random_uuid()", "line_no": "2", "code": "'DUPLICATE'"},
		"ses_events":      {"sns_message_id": "gen_random_uuid()::text", "kind": "'Delivery'"},
		"outbox_aggregates": {
			"company_id": companyID, "aggregate_type": "'interview'", "aggregate_id": "gen_random_uuid()::text", "event_type": "'REMINDER_24H'",
			"outbox_id": "gen_random_uuid()",
		},
		"person_erasures": {"id": "gen_random_uuid()", "company_id": companyID, "person": "'{}'"},
		"erased_tasks":    {"outbox_id": "gen_random_uuid()", "erasure_id": "gen_random_uuid()", "company_id": companyID, "final": "true"},
		"outbox_programs": {"role_name": "gen_random_uuid()::text", "company_id": companyID},
		"templates":       {"company_id": companyID, "name": "'t' || replace(gen_random_uuid()::text, '-', '')", "locale": "''", "latest": "1"},
		"template_versions": {
			"company_id": companyID, "name": "'known'", "locale": "''", "version": "(random() * 1e9)::integer", "subject": "'s'", "html": "'<p>'",
			"text_body": "''", "variables": "'[]'", "sha256": hash, "created_by": "'key:k'",
		},
		"stored_files": {
			"id": "gen_random_uuid()", "company_id": companyID, "sha256": "decode(md5(random()::text) || md5(random()::text), 'hex')", "size": "1", "bytes": "100",
			"media_type": "'text/plain'",
		},
		"attachments": {
			"owner_id": "gen_random_uuid()", "position": "0", "company_id": companyID, "file_id": companyID, "filename": "'a.pdf'",
			"content_type": "'application/pdf'", "disposition": "'attachment'",
		},
		"template_events":   {"company_id": companyID, "name": "'known'", "locale": "''", "action": "'CREATED'", "actor": "'key:k'"},
		"template_totals":   {"company_id": companyID, "versions": "0", "bytes": "0"},
		"suppressions":      {"company_id": companyID, "address": "gen_random_uuid()::text || '@example.com'", "reason": "'MANUAL'"},
		"company_retention": {"company_id": companyID, "files_days": "7"},
		"company_quotas":    {"company_id": companyID},
		"quota_defaults":    {"singleton": "true"},
		"event_feed":        {"company_id": companyID, "email_ids": "ARRAY[gen_random_uuid()]", "first_seqs": "'{1}'", "last_seqs": "'{3}'"},
		"event_positions":   {"singleton": "true"},
		"owner_locks":       {"name": "'settling'", "slot": "0"},
		"retention_walks":   {"kind": "'outbox'", "company_id": "gen_random_uuid()"},
		"webhook_endpoints": {"id": "gen_random_uuid()", "company_id": companyID, "slot": "1", "url": "'https://hooks.acme.example'", "secret_enc": "'x'", "feed_position": "0"},
		"webhook_deliveries": {
			"id": "gen_random_uuid()", "endpoint_id": companyID, "company_id": companyID, "event_id": "gen_random_uuid()::text", "type": "'email.sent'",
			"position": "1", "status": "'WAITING'",
		},
		"company_events":           {"id": "gen_random_uuid()", "company_id": companyID, "type": "'MAILINGS_PAUSED'"},
		"reputation_defaults":      {"rule": "'bounces_1h'", "warn_ppm": "1", "pause_ppm": "2", "min_sent": "3", "min_events": "4"},
		"company_reputation_rules": {"company_id": companyID, "rule": "'bounces_1h'", "warn_ppm": "1", "pause_ppm": "2", "min_sent": "3", "min_events": "4"},
		"reputation_guard":         {"singleton": "true"},
		"installation":             {"singleton": "true"},
		"company_reputation":       {"company_id": companyID},
		"reputation_sends":         {"company_id": companyID, "minute": "now()", "sent": "1"},
		"reputation_feedback":      {"outbox_id": "gen_random_uuid()", "kind": "'bounce'", "company_id": companyID, "sent_at": "now()"},

		"webhook_replays":   {"id": "gen_random_uuid()", "endpoint_id": companyID, "company_id": companyID},
		"recipient_intakes": {"recipient_id": "gen_random_uuid()", "outbox_id": "gen_random_uuid()", "company_id": companyID, "email": "'ana@example.com'"},
	}
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	processing := row{"status": "'PROCESSING'", "lease_until": "now()", "claim_token": "gen_random_uuid()"}
	with := func(base, change row) row {
		merged := maps.Clone(base)
		maps.Copy(merged, change)
		return merged
	}
	tests := []struct {
		table  string
		change row
		want   string // the violated constraint, or the missing column; "" = accepted
	}{
		{"companies", nil, ""},
		{"companies", row{"name": "''"}, "companies_name_check"},
		{"companies", row{"name": "'Acme'"}, "companies_name_key"},
		{"companies", row{"default_from": "''"}, "companies_default_from_check"},

		{"api_keys", nil, ""},
		{"api_keys", row{"rate_per_second": "0"}, ""},
		{"api_keys", row{"environment": "'Live'"}, "api_keys_environment_check"},
		{"api_keys", row{"environment": "'a_b'"}, "api_keys_environment_check"}, // it would break the key's syntax
		{"api_keys", row{"secret_sha256": "'secret'"}, "api_keys_secret_sha256_check"},
		{"api_keys", row{"scopes": "'{}'"}, "api_keys_scopes_check"},
		{"api_keys", row{"rate_per_second": "-1"}, "api_keys_rate_per_second_check"},
		{"api_keys", row{"burst": "-1"}, "api_keys_burst_check"},
		{"api_keys", row{"company_id": "gen_random_uuid()"}, "api_keys_company_id_fkey"},

		{"sender_domains", nil, ""},
		{"sender_domains", row{"domain": "'Acme.example'"}, "sender_domains_domain_check"},
		{"sender_domains", row{"company_id": "gen_random_uuid()"}, "sender_domains_company_id_fkey"},

		{"recipients", nil, ""},
		{"recipients", row{"cpf_cnpj_hash": "repeat('0a', 32)"}, ""},
		{"recipients", row{"cpf_cnpj_hash": "'52998224725'"}, "recipients_cpf_cnpj_hash_check"}, // a number in clear text

		{"templates", nil, ""},
		{"templates", row{"name": "'Invoice'"}, "templates_name_check"},
		{"templates", row{"locale": "repeat('a', 17)"}, "templates_locale_check"},
		{"templates", row{"latest": "0"}, "templates_latest_check"},
		{"templates", row{"company_id": "gen_random_uuid()"}, "templates_company_id_fkey"},
		{"template_versions", nil, ""},
		{"template_versions", row{"name": "'unknown'"}, "template_versions_company_id_name_locale_fkey"},
		{"template_versions", row{"sha256": "'x'"}, "template_versions_sha256_check"},
		{"template_events", nil, ""},
		{"template_events", row{"action": "'SENT'"}, "template_events_action_check"},
		{"template_events", row{"company_id": "gen_random_uuid()"}, "template_events_company_id_fkey"},
		{"template_totals", row{"company_id": "gen_random_uuid()"}, "template_totals_company_id_fkey"},

		{"stored_files", nil, ""},
		{"stored_files", row{"company_id": "gen_random_uuid()"}, "stored_files_company_id_fkey"},
		{"stored_files", row{"sha256": "'x'"}, "stored_files_sha256_check"},
		{"stored_files", row{"size": "0"}, "stored_files_size_check"},
		{"stored_files", row{"bytes": "0"}, "stored_files_check"},
		{"stored_files", row{"sha256": hash}, "stored_files_company_id_sha256_key"},
		{"attachments", nil, ""},
		{"attachments", row{"position": "10"}, "attachments_position_check"},
		{"attachments", row{"file_id": "gen_random_uuid()"}, "attachments_company_id_file_id_fkey"},
		{"attachments", row{"filename": "''"}, "attachments_filename_check"},
		{"attachments", row{"filename": "repeat('a', 256)"}, "attachments_filename_check"},
		{"attachments", row{"content_type": "''"}, "attachments_content_type_check"},
		{"attachments", row{"content_id": "''"}, "attachments_content_id_check"},
		{"attachments", row{"content_id": "repeat('a', 79)"}, "attachments_content_id_check"},
		{"attachments", row{"disposition": "'INLINE'"}, "attachments_disposition_check"},

		{"dispatch_lanes", nil, ""},
		{"dispatch_lanes", row{"held_at": "now()"}, "dispatch_lanes_held_has_reason"},
		{"dispatch_lanes", row{"held_at": "now()", "held_reason": "'complaints'"}, ""},
		{"dispatch_lanes", row{"queue": "'email:send:urgent'"}, "dispatch_lanes_queue_check"},
		{"dispatch_lanes", row{"mailing_id": "NULL"}, "dispatch_lanes_company_id_queue_mailing_id_key"}, // one without a mailing exists

		{"email_outbox", nil, ""},
		{"email_outbox", row{"status": "'RECEIVED'"}, "email_outbox_status"}, // an event, never a status
		{"email_outbox", row{"status": "'pending'"}, "email_outbox_status"},
		{"email_outbox", row{"status": "'PUBLISHED'", "processed_at": "now()"}, "email_outbox_status"},
		{"email_outbox", row{"target": "'sms:send'"}, "email_outbox_status"},
		{"email_outbox", row{"target": "'mailing.process'", "sender": "NULL", "html": "NULL", "html_sha256": "NULL", "checker_version": "NULL"}, ""},
		{"email_outbox", row{"target": "'mailing.process'", "status": "'PUBLISHED'", "processed_at": "now()"}, ""},
		{"email_outbox", row{"target": "'recipients.upsert'", "status": "'FAILED'", "processed_at": "now()"}, ""},
		{"email_outbox", row{"target": "'mailing.process'", "status": "'SENT'", "processed_at": "now()"}, "email_outbox_status"},
		{"email_outbox", row{"target": "'recipients.upsert'", "status": "'ENQUEUED'"}, "email_outbox_status"},

		{"email_outbox", row{"status": "'SENT'", "processed_at": "now()"}, ""},
		{"email_outbox", row{"status": "'SENT'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'FAILED'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'EXPIRED'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'CANCELLED'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'SUPPRESSED'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"target": "'mailing.process'", "status": "'PUBLISHED'"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'PENDING'", "processed_at": "now()"}, "email_outbox_final_has_time"},
		{"email_outbox", row{"status": "'OUTCOME_UNKNOWN'", "processed_at": "now()"}, "email_outbox_final_has_time"},

		{"email_outbox", row{"status": "'SENT'", "processed_at": "now()", "html": "''", "body_erased_at": "now()"}, ""},
		{"email_outbox", row{"body_erased_at": "now()"}, "email_outbox_erased_is_final"}, // it would be sent without a body

		{"email_outbox", processing, ""},
		{"email_outbox", row{"status": "'PROCESSING'"}, "email_outbox_processing_has_lease"},
		{"email_outbox", with(processing, row{"lease_until": "NULL"}), "email_outbox_processing_has_lease"},
		{"email_outbox", with(processing, row{"claim_token": "NULL"}), "email_outbox_processing_has_lease"},
		{"email_outbox", row{"status": "'ENQUEUED'", "lease_until": "now()"}, "email_outbox_processing_has_lease"},
		{"email_outbox", row{"status": "'SENT'", "processed_at": "now()", "claim_token": "gen_random_uuid()"}, ""}, // kept for late responses

		{"email_outbox", row{"lane_id": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"target": "'mailing.process'", "lane_id": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"html": "NULL", "payload": `'{"htmlRef": "mailing:1"}'`}, ""},
		{"email_outbox", row{"html": "NULL", "payload": `'{"htmlRef": "1"}'`}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"sender": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"html": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"html_sha256": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"checker_version": "NULL"}, "email_outbox_email_is_complete"},
		{"email_outbox", row{"expires_at": "NULL"}, "expires_at"},

		{"email_outbox", row{"attempts": "2", "throttles": "2"}, ""},
		{"email_outbox", row{"attempts": "1", "throttles": "2"}, "email_outbox_counters"},
		{"email_outbox", row{"attempts": "-1"}, "email_outbox_counters"},
		{"email_outbox", row{"throttles": "-1"}, "email_outbox_counters"},
		{"email_outbox", row{"priority": "0"}, "email_outbox_priority_check"},
		{"email_outbox", row{"priority": "11"}, "email_outbox_priority_check"},
		{"email_outbox", row{"delivery": "'exactly_once'"}, "email_outbox_delivery_check"},
		{"email_outbox", row{"aggregate_type": "'interview'", "aggregate_id": "'42'", "event_type": "'REMINDER_24H'"}, ""},
		{"email_outbox", row{"aggregate_type": "'interview'", "aggregate_id": "'42'"}, "email_outbox_aggregate_is_whole"},

		{"outbox_aggregates", nil, ""},
		{"outbox_aggregates", row{"aggregate_id": "'42'"}, ""},
		{"outbox_aggregates", row{"aggregate_id": "'42'"}, "outbox_aggregates_pkey"}, // one email per event type
		{"outbox_aggregates", row{"aggregate_id": "'42'", "turn": "2"}, ""},
		{"outbox_aggregates", row{"turn": "0"}, "outbox_aggregates_turn_check"},
		{"outbox_aggregates", row{"aggregate_type": "''"}, "outbox_aggregates_type"},
		{"outbox_aggregates", row{"aggregate_type": "repeat('a', 65)"}, "outbox_aggregates_type"},
		{"outbox_aggregates", row{"aggregate_id": "'..'"}, "outbox_aggregates_id"}, // a client would treat it as a relative path
		{"outbox_aggregates", row{"aggregate_id": "'a/b'"}, "outbox_aggregates_id"},
		{"outbox_aggregates", row{"aggregate_id": "'ana@example.com'"}, "outbox_aggregates_id"},
		{"outbox_aggregates", row{"aggregate_id": "repeat('a', 200)"}, ""},
		{"outbox_aggregates", row{"aggregate_id": "repeat('a', 201)"}, "outbox_aggregates_id"},
		{"outbox_aggregates", row{"event_type": "E'X\n'"}, "outbox_aggregates_event"},

		{"person_erasures", nil, ""},
		{"person_erasures", row{"company_id": "gen_random_uuid()"}, "person_erasures_company_id_fkey"},
		{"erased_tasks", row{"done_at": "now()", "found": "true"}, ""},
		{"erased_tasks", row{"found": "true"}, "erased_tasks_found_is_done"},
		{"outbox_programs", nil, ""},
		{"outbox_programs", row{"role_name": "''"}, "outbox_programs_role_name_check"},
		{"outbox_programs", row{"company_id": "gen_random_uuid()"}, "outbox_programs_company_id_fkey"},

		{"email_logs", nil, ""},
		{"email_logs", row{"status": "'PUBLISHED'"}, "email_logs_status_check"},
		{"email_logs", row{"status": "'SENT_ATTEMPT'"}, "email_logs_status_check"},
		{"email_logs", row{"status": "'SENT'"}, "email_logs_sent_has_time"},
		{"email_logs", row{"status": "'SENT'", "sent_at": "now()"}, ""},
		{"email_logs", row{"status": "'FAILED'"}, "email_logs_failed_has_time"},
		{"email_logs", row{"event_seq": "0", "last_event": "NULL"}, ""},
		{"email_logs", row{"last_event": "NULL"}, "email_logs_last_event"},
		{"email_logs", row{"event_seq": "0"}, "email_logs_last_event"},
		{"email_logs", row{"delivery_problem": "'bounced'", "delivery_problem_at": "now()", "delivery_problem_reason": "'Permanent'", "delivered_at": "now()"}, ""},
		{"email_logs", row{"delivery_problem": "'delivered'", "delivery_problem_at": "now()"}, "email_logs_delivery_problem"},
		{"email_logs", row{"delivery_problem": "'bounced'"}, "email_logs_delivery_problem"},
		{"email_logs", row{"delivery_problem_reason": "'Permanent'"}, "email_logs_delivery_problem"},
		{"email_logs", row{"status": "'FAILED'", "failed_at": "now()"}, ""},

		{"email_events", nil, ""},
		{"email_events", row{"previous": "'RECEIVED'", "type": "'VALIDATED'", "seq": "0"}, "email_events_seq_check"},
		{"email_events", row{"seq": "2"}, "email_events_first"},
		{"email_events", row{"previous": "'RECEIVED'", "type": "'VALIDATED'"}, "email_events_first"},
		{"email_events", row{"previous": "'RECEIVED'", "type": "'VALIDATED'", "seq": "2"}, ""},
		{"email_events", row{"previous": "'RECEIVED'", "type": "'SENT'", "seq": "2"}, "email_events_path"},
		{"email_events", row{"type": "'VALIDATED'"}, "email_events_path"},
		{"email_events", row{"type": "'SENT'"}, ""},
		{"email_events", row{"type": "'PENDING'"}, "email_events_path"},
		{"email_events", row{"previous": "'SENT'", "type": "'SENT'", "seq": "9"}, "email_events_path"},
		{"email_events", row{"previous": "'DELIVERED'", "type": "'BOUNCED'", "seq": "9"}, ""},
		{"email_events", row{"previous": "'DELIVERED'", "type": "'SENT'", "seq": "9"}, "email_events_path"},

		{"ses_events", nil, ""},
		{"ses_events", row{"sns_message_id": "''"}, "ses_events_sns_message_id_check"},
		{"ses_events", row{"kind": "''"}, "ses_events_kind_check"},

		{"idempotency_keys", nil, ""},
		{"idempotency_keys", row{"key": "''"}, "idempotency_keys_key_check"},
		{"idempotency_keys", row{"key": "repeat('k', 255)"}, ""},
		{"idempotency_keys", row{"key": "repeat('k', 256)"}, "idempotency_keys_key_check"},
		{"idempotency_keys", row{"body_sha256": "'body'"}, "idempotency_keys_body_sha256_check"},

		{"dead_letters", nil, ""},
		{"dead_letters", row{"reason": "NULL"}, "reason"},
		{"dead_letters", row{"resolution": "'discarded'", "resolved_at": "now()"}, ""},
		{"dead_letters", row{"resolution": "'discarded'"}, "dead_letters_resolution"},
		{"dead_letters", row{"resolution": "'forgotten'", "resolved_at": "now()"}, "dead_letters_resolution"},
		{"dead_letters", row{"resolved_at": "now()"}, ""}, // by a program of the previous release

		{"dead_letter_replays", nil, ""},
		{"dead_letter_replays", row{"action": "'delete'"}, "dead_letter_replays_action_check"},
		{"dead_letter_replays", row{"most": "0"}, "dead_letter_replays_most_check"},
		{"dead_letter_replays", row{"rate": "0"}, "dead_letter_replays_rate_check"},
		{"dead_letter_replays", row{"rate": "1001"}, "dead_letter_replays_rate_check"},
		{"dead_letter_replays", row{"status": "'FAILED'"}, "dead_letter_replays_status_check"},
		{"dead_letter_replays", row{"status": "'COMPLETED'"}, "dead_letter_replays_finished_has_time"},
		{"dead_letter_replays", row{"status": "'COMPLETED'", "finished_at": "now()"}, ""},

		{"mailings", nil, ""},
		{"mailings", row{"filename": "''"}, "mailings_filename_check"},
		{"mailings", row{"filename": "repeat('f', 256)"}, "mailings_filename_check"},
		{"mailings", row{"filename": "'once.csv'"}, ""},
		{"mailings", row{"filename": "'once.csv'"}, "mailings_filename"},
		{"mailings", row{"filename": "'once.csv'", "dry_run": "true"}, ""},
		{"mailings", row{"filename": "'once.csv'", "status": "'FAILED'"}, ""},
		{"mailings", row{"filename": "'once.csv'", "status": "'CANCELLED'"}, ""},
		{"mailings", row{"file_sha256": "'file'"}, "mailings_file_sha256_check"},
		{"mailings", row{"request_sha256": "'request'"}, "mailings_request_sha256_check"},
		{"mailings", row{"delivery": "'exactly_once'"}, "mailings_delivery_check"},
		{"mailings", row{"status": "'SENT'"}, "mailings_status_check"},
		{"mailings", row{"settling": "'pause'"}, "mailings_settling_check"},
		{"mailings", row{"total_lines": "4"}, "mailings_lines_add_up"},
		{"mailings", row{"status": "'COMPLETED'"}, "mailings_complete_when_all_ended"},
		{"mailings", row{"status": "'COMPLETED'", "dry_run": "true"}, ""},
		{"mailings", row{"status": "'COMPLETED'", "sent": "1"}, ""},
		{"mailings", row{"status": "'COMPLETED'", "unknown": "1"}, ""},

		{"mailing_entries", nil, ""},
		{"mailing_entries", row{"email": "'Ana@example.com'"}, ""},
		{"mailing_entries", row{"email": "'ana@EXAMPLE.com'"}, "mailing_entries_address"},
		{"mailing_entries", row{"line_no": "0"}, "mailing_entries_line_no_check"},
		{"mailing_entries", row{"email": "repeat('e', 256)"}, "mailing_entries_email_check"},
		{"mailing_entries", row{"status": "'ENQUEUED'"}, "mailing_entries_status_check"},
		{"mailing_entries", row{"status": "'INVALID'", "invalid_reason": "'mx'"}, ""},
		{"mailing_entries", row{"status": "'INVALID'"}, "mailing_entries_invalid_has_reason"},
		{"mailing_entries", row{"invalid_reason": "'mx'"}, "mailing_entries_invalid_has_reason"},
		{"mailing_entries", row{"status": "'INVALID'", "invalid_reason": "'ugly'"}, "mailing_entries_invalid_reason_check"},
		{"mailing_entries", row{"cpf_cnpj_hash": "'52998224725'"}, "mailing_entries_cpf_cnpj_hash_check"},

		{"mailing_rejects", nil, ""},
		{"mailing_rejects", row{"line_no": "0"}, "mailing_rejects_line_no_check"},

		{"suppressions", nil, ""},
		{"suppressions", row{"address": "'Ana@example.com'"}, "suppressions_address_check"},
		{"suppressions", row{"address": "''"}, "suppressions_address_check"},
		{"suppressions", row{"reason": "'SPAM'"}, "suppressions_reason_check"},
		{"suppressions", row{"company_id": "gen_random_uuid()"}, "suppressions_company_id_fkey"},

		{"recipient_intakes", nil, ""},

		{"webhook_endpoints", nil, ""},
		{"webhook_endpoints", row{"slot": "0"}, "webhook_endpoints_slot_check"},
		{"webhook_endpoints", row{"slot": "21"}, "webhook_endpoints_slot_check"},
		{"webhook_endpoints", nil, "webhook_endpoints_slot"},
		{"webhook_endpoints", row{"slot": "2", "company_id": "gen_random_uuid()"}, "webhook_endpoints_company_id_fkey"},
		{"webhook_endpoints", row{"slot": "2", "url": "''"}, "webhook_endpoints_url_check"},
		{"webhook_endpoints", row{"slot": "2", "status": "'PAUSED'"}, "webhook_endpoints_status_check"},
		{"webhook_endpoints", row{"slot": "2", "status": "'DISABLED'", "disabled_reason": "'TIRED'", "disabled_at": "now()"}, "webhook_endpoints_disabled_reason_check"},
		{"webhook_endpoints", row{"slot": "2", "status": "'DISABLED'"}, "webhook_endpoints_disabled"},
		{"webhook_endpoints", row{"slot": "2", "old_secret_enc": "'x'"}, "webhook_endpoints_old_secret"},
		{"webhook_endpoints", row{"slot": "2", "lease_token": "gen_random_uuid()"}, "webhook_endpoints_lease"},
		{"webhook_endpoints", row{"slot": "2", "failures": "1"}, "webhook_endpoints_failing"},
		{"webhook_endpoints", row{"id": companyID, "slot": "2", "failures": "1", "failing_since": "now()"}, ""},
		{"webhook_deliveries", nil, ""},
		{"webhook_deliveries", row{"endpoint_id": "gen_random_uuid()"}, "webhook_deliveries_endpoint_id_fkey"},
		{"webhook_deliveries", row{"event_id": "''"}, "webhook_deliveries_event_id_check"},
		{"webhook_deliveries", row{"status": "'SENT'"}, "webhook_deliveries_status_check"},
		{"webhook_deliveries", row{"status": "'RETRYING'"}, "webhook_deliveries_due"},
		{"webhook_deliveries", row{"next_at": "now()"}, "webhook_deliveries_due"},
		{"webhook_replays", nil, ""},
		{"webhook_replays", row{"status": "'PAUSED'"}, "webhook_replays_status_check"},
		{"webhook_replays", row{"since": "now()"}, "webhook_replays_range"},
		{"webhook_replays", row{"finished_at": "now()"}, "webhook_replays_finished"},

		{"company_quotas", row{"scheduled_emails": "-1"}, "company_quotas_scheduled_emails_check"},
		{"company_quotas", row{"emails_per_day": "-1"}, "company_quotas_emails_per_day_check"},
		{"company_quotas", row{"stored_body_bytes": "-1"}, "company_quotas_stored_body_bytes_check"},
		{"company_quotas", row{"recipients": "-1"}, "company_quotas_recipients_check"},
		{"company_quotas", row{"suppressions": "-1"}, "company_quotas_suppressions_check"},
		{"company_quotas", row{"stored_file_bytes": "-1"}, "company_quotas_stored_file_bytes_check"},
		{"company_quotas", row{"running_mailings": "-1"}, "company_quotas_running_mailings_check"},
		{"company_quotas", row{"mailing_rows_per_day": "-1"}, "company_quotas_mailing_rows_per_day_check"},
		{"quota_defaults", row{"scheduled_emails": "-1"}, "quota_defaults_scheduled_emails_check"},
		{"quota_defaults", row{"emails_per_day": "-1"}, "quota_defaults_emails_per_day_check"},
		{"quota_defaults", row{"stored_body_bytes": "-1"}, "quota_defaults_stored_body_bytes_check"},
		{"quota_defaults", row{"recipients": "-1"}, "quota_defaults_recipients_check"},
		{"quota_defaults", row{"suppressions": "-1"}, "quota_defaults_suppressions_check"},
		{"quota_defaults", row{"stored_file_bytes": "-1"}, "quota_defaults_stored_file_bytes_check"},
		{"quota_defaults", row{"running_mailings": "-1"}, "quota_defaults_running_mailings_check"},
		{"quota_defaults", row{"mailing_rows_per_day": "-1"}, "quota_defaults_mailing_rows_per_day_check"},
		{"quota_defaults", row{"singleton": "false"}, "quota_defaults_singleton_check"},
		{"quota_defaults", nil, "quota_defaults_pkey"},
		{"company_quotas", row{"company_id": "gen_random_uuid()"}, "company_quotas_company_id_fkey"},
		{"company_quotas", row{"recipients": "0"}, ""},
		{"company_retention", row{"bodies_days": "0"}, "company_retention_bodies_days_check"},
		{"company_retention", row{"files_days": "3651"}, "company_retention_files_days_check"},
		{"company_retention", row{"logs_days": "-1"}, "company_retention_logs_days_check"},
		{"company_retention", row{"hashes_days": "0"}, "company_retention_hashes_days_check"},
		{"company_retention", row{"hashes_days": "3651"}, "company_retention_hashes_days_check"},
		{"company_retention", row{"company_id": "gen_random_uuid()"}, "company_retention_company_id_fkey"},
		{"company_retention", row{"hashes_days": "3650"}, ""},

		{"owner_locks", row{"name": "'mailings'"}, "owner_locks_name_check"},
		{"owner_locks", row{"slot": "256"}, "owner_locks_slot_check"},
		{"retention_walks", nil, ""},
		{"retention_walks", row{"kind": "'aggregates'"}, ""},
		{"retention_walks", row{"kind": "'entryValues'"}, ""},
		{"retention_walks", row{"kind": "'entryHashes'"}, ""},
		{"retention_walks", row{"kind": "'outboxHashes'"}, ""},
		{"retention_walks", row{"kind": "'recipientHashes'"}, ""},
		{"retention_walks", row{"kind": "'recipients'"}, "retention_walks_kind_check"},

		// The single row exists from the beginning.
		{"provider_gate", nil, "provider_gate_pkey"},
		{"provider_gate", row{"id": "2"}, "provider_gate_id_check"},
		{"provider_gate", row{"state": "'ajar'"}, "provider_gate_state_check"},
		{"provider_gate", row{"state": "'shut'"}, "provider_gate_shut_has_reason"},
		{"provider_gate", row{"reason": "'SES_TIMEOUT'"}, "provider_gate_shut_has_reason"},
		{"provider_gate", row{"held_at": "now()"}, "provider_gate_held_has_reason"},
		{"provider_gate", row{"held_reason": "'drill'"}, "provider_gate_held_has_reason"},
		{"provider_gate", row{"state": "'shut'", "reason": "'SES_TIMEOUT'", "held_at": "now()", "held_reason": "'drill'"}, "provider_gate_pkey"},

		{"operator_audit", nil, ""},
		{"operator_audit", row{"operator": "''"}, "operator_audit_operator_check"},
		{"operator_audit", row{"action": "'suspend'"}, "operator_audit_action_check"},
		{"operator_audit", row{"action": "'Company.suspend'"}, "operator_audit_action_check"},

		{"event_feed", nil, ""},
		{"event_feed", row{"position": "1"}, ""},
		{"event_feed", row{"position": "1"}, "event_feed_position"},
		{"event_feed", row{"position": "0"}, "event_feed_position_check"},
		{"event_feed", row{"last_seqs": "'{3,4}'"}, "event_feed_arrays"},
		{"event_feed", row{"email_ids": "'{}'", "first_seqs": "'{}'", "last_seqs": "'{}'"}, "event_feed_arrays"},
		{"company_events", nil, ""},
		{"company_events", row{"type": "'SENT'"}, "company_events_type_check"},
		{"company_events", row{"company_id": "gen_random_uuid()"}, "company_events_company_id_fkey"},
		{"reputation_defaults", nil, "reputation_defaults_pkey"}, // the migration has inserted all rules
		{"reputation_defaults", row{"rule": "'opens_1h'"}, "reputation_defaults_rule_check"},
		{"reputation_defaults", row{"warn_ppm": "0"}, "reputation_defaults_warn_ppm_check"},
		{"reputation_defaults", row{"warn_ppm": "3"}, "reputation_defaults_check"},
		{"reputation_defaults", row{"pause_ppm": "1000001"}, "reputation_defaults_check"},
		{"reputation_defaults", row{"min_sent": "0"}, "reputation_defaults_min_sent_check"},
		{"reputation_defaults", row{"min_events": "0"}, "reputation_defaults_min_events_check"},
		{"company_reputation_rules", nil, ""},
		{"company_reputation_rules", nil, "company_reputation_rules_pkey"},
		{"company_reputation_rules", row{"company_id": "gen_random_uuid()"}, "company_reputation_rules_company_id_fkey"},
		{"company_reputation_rules", row{"rule": "'opens_1h'"}, "company_reputation_rules_rule_check"},
		{"company_reputation_rules", row{"warn_ppm": "0"}, "company_reputation_rules_warn_ppm_check"},
		{"company_reputation_rules", row{"pause_ppm": "0"}, "company_reputation_rules_check"},
		{"company_reputation_rules", row{"min_sent": "0"}, "company_reputation_rules_min_sent_check"},
		{"company_reputation_rules", row{"min_events": "0"}, "company_reputation_rules_min_events_check"},
		{"installation", nil, "installation_pkey"}, // the migration has inserted the only row
		{"installation", row{"singleton": "false"}, "installation_singleton_check"},
		{"reputation_guard", nil, "reputation_guard_pkey"}, // the migration has inserted the only row
		{"reputation_guard", row{"singleton": "false"}, "reputation_guard_singleton_check"},
		{"company_reputation", nil, ""},
		{"company_reputation", nil, "company_reputation_pkey"},
		{"company_reputation", row{"company_id": "gen_random_uuid()"}, "company_reputation_company_id_fkey"},
		{"reputation_sends", nil, ""},
		{"reputation_feedback", nil, ""},
		{"reputation_feedback", row{"kind": "'delivery'"}, "reputation_feedback_kind_check"},
		{"event_positions", nil, "event_positions_pkey"}, // the migration has inserted the only row
		{"event_positions", row{"singleton": "false"}, "event_positions_singleton_check"},
		{"event_positions", row{"deleted": "-1"}, "event_positions_check"},
		{"event_positions", row{"deleted": "1"}, "event_positions_check"},

		{"process_status", nil, ""},
		{"process_status", row{"service": "'api'"}, "process_status_service_check"},
	}

	db := migratedDatabase(t)
	for _, base := range []string{
		"INSERT INTO companies (id, name, default_from) VALUES (" + companyID + ", 'Acme', 'a@acme.example')",
		"INSERT INTO dispatch_lanes (company_id, queue) VALUES (" + companyID + ", 'email:send')",
		"INSERT INTO templates (company_id, name, locale, latest) VALUES (" + companyID + ", 'known', '', 1)",
		"INSERT INTO stored_files (id, company_id, sha256, size, bytes, media_type) VALUES (" + companyID + ", " + companyID + ", " + hash + ", 1, 100, 'text/plain')",
	} {
		if _, err := db.ExecContext(t.Context(), base); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range tests {
		err := insert(t, db, tt.table, with(legal()[tt.table], tt.change))
		if got := refusedBy(t, err); got != tt.want {
			t.Errorf("%s %v: refused by %q, want %q", tt.table, tt.change, got, tt.want)
		}
	}

	// Every CHECK constraint refuses one of these rows.
	seen := map[string]bool{}
	for _, tt := range tests {
		seen[tt.want] = true
	}
	for _, name := range query(t, db, `SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype = 'c'`) {
		if !seen[name] {
			t.Errorf("no row above is refused by %s", name)
		}
	}
}

func insert(t *testing.T, db *sql.DB, table string, r row) error {
	t.Helper()
	columns := slices.Sorted(maps.Keys(r))
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = r[c]
	}
	_, err := db.ExecContext(t.Context(),
		fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(columns, ", "), strings.Join(values, ", ")))
	return err
}
