-- An email needs html or text. One without html has '' in its column, which stays NOT NULL for
-- single emails. The worker makes a text part from html if there is none, unless auto_text is false.
--
-- Programs of the release before run beside this: what they accept has html, and auto_text's
-- default. Their workers fail an email without html with INVALID_TEMPLATE, so workers are updated
-- before the api.
--
-- Four functions are changed by their text, as in 00025.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use the tables for hours

ALTER TABLE email_outbox ADD COLUMN auto_text boolean NOT NULL DEFAULT true;
ALTER TABLE mailings ADD COLUMN auto_text boolean NOT NULL DEFAULT true;

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
    definition text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_misshapen(jsonb)', $$('text', 'string'),$$, $$('text', 'string'), ('autoText', 'boolean'),$$),
        ('email_gateway_faults(jsonb)', $$('html', email ->> 'html', true), ('text'$$, $$('html', email ->> 'html', false), ('text'$$),
        ('email_gateway_faults(jsonb)', E'    SELECT \'html\', \'SHOWS_NOTHING\',',
         E'    SELECT \'html\', \'REQUIRED\', \'is required unless text is given\' WHERE coalesce(email ->> \'html\', \'\') = \'\' AND coalesce(email ->> \'text\', \'\') = \'\'\n'
         || E'    UNION ALL\n    SELECT \'html\', \'SHOWS_NOTHING\','),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$octet_length(body ->> 'html') + $$, $$coalesce(octet_length(body ->> 'html'), 0) + $$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'sender, html, text_body, html_sha256,', 'sender, html, text_body, auto_text, html_sha256,'),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$body ->> 'html', nullif(body ->> 'text', ''),$$, $$coalesce(body ->> 'html', ''), nullif(body ->> 'text', ''), coalesce(body ->> 'autoText', 'true')::boolean,$$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$sha256(convert_to(body ->> 'html', 'UTF8'))$$, $$sha256(convert_to(coalesce(body ->> 'html', ''), 'UTF8'))$$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         '{from,html,text,priority,delivery}', '{from,html,text,autoText,priority,delivery}'),
        ('email_gateway_count_gone_emails()', $$-sum(octet_length(html) + $$, $$-sum(coalesce(octet_length(html), 0) + $$),
        ('email_gateway_count_gone_emails()', $$html <> ''$$, $$(html <> '' OR text_body <> '')$$)
    ) AS changes (routine, before, after) LOOP
        definition := pg_get_functiondef(c.routine::regprocedure);
        IF strpos(definition, c.before) = 0 THEN
            RAISE EXCEPTION '% does not hold: %', c.routine, c.before;
        END IF;
        EXECUTE replace(definition, c.before, c.after);
    END LOOP;
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $do$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('email_gateway_misshapen(jsonb)', $$('text', 'string'), ('autoText', 'boolean'),$$, $$('text', 'string'),$$),
        ('email_gateway_faults(jsonb)', $$('html', email ->> 'html', false), ('text'$$, $$('html', email ->> 'html', true), ('text'$$),
        ('email_gateway_faults(jsonb)',
         E'    SELECT \'html\', \'REQUIRED\', \'is required unless text is given\' WHERE coalesce(email ->> \'html\', \'\') = \'\' AND coalesce(email ->> \'text\', \'\') = \'\'\n'
         || E'    UNION ALL\n    SELECT \'html\', \'SHOWS_NOTHING\',', E'    SELECT \'html\', \'SHOWS_NOTHING\','),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$coalesce(octet_length(body ->> 'html'), 0) + $$, $$octet_length(body ->> 'html') + $$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'sender, html, text_body, auto_text, html_sha256,', 'sender, html, text_body, html_sha256,'),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$coalesce(body ->> 'html', ''), nullif(body ->> 'text', ''), coalesce(body ->> 'autoText', 'true')::boolean,$$, $$body ->> 'html', nullif(body ->> 'text', ''),$$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         $$sha256(convert_to(coalesce(body ->> 'html', ''), 'UTF8'))$$, $$sha256(convert_to(body ->> 'html', 'UTF8'))$$),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         '{from,html,text,autoText,priority,delivery}', '{from,html,text,priority,delivery}'),
        ('email_gateway_count_gone_emails()', $$-sum(coalesce(octet_length(html), 0) + $$, $$-sum(octet_length(html) + $$),
        ('email_gateway_count_gone_emails()', $$(html <> '' OR text_body <> '')$$, $$html <> ''$$)
    ) AS changes (routine, before, after) LOOP
        EXECUTE replace(pg_get_functiondef(c.routine::regprocedure), c.before, c.after);
    END LOOP;
END
$do$;
-- +goose StatementEnd
ALTER TABLE mailings DROP COLUMN auto_text;
ALTER TABLE email_outbox DROP COLUMN auto_text;
