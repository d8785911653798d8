-- The limits of cc, bcc and tags count what is left of a list: addresses that to, cc or bcc named
-- before are removed first, and blank texts, as in package draft. So six addresses of which two
-- are equal are five.
--
-- email_gateway_faults is changed by its text, so that whatever the migrations before have made
-- of it stays. A text that is not there is an error.

-- +goose Up

-- +goose StatementBegin
-- What an email says: without nulls, blank texts, and addresses that to, cc or bcc named
-- before, letter case aside. NOT IN is a hashed subplan, so the time grows with the length of
-- the lists and not with its square.
CREATE OR REPLACE FUNCTION email_gateway_present(email jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    name text;
    kept jsonb;
    seen text[];
BEGIN
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RETURN body;
    END IF;
    body := email_gateway_without_blank(body);
    FOREACH name IN ARRAY '{recipient,headers}'::text[] LOOP
        IF jsonb_typeof(body -> name) = 'object' THEN
            body := body || jsonb_build_object(name, email_gateway_without_blank(body -> name));
        END IF;
    END LOOP;
    FOREACH name IN ARRAY '{subject,html,text}'::text[] LOOP -- what was saved with a byte order mark begins with it
        IF jsonb_typeof(body -> name) = 'string' AND starts_with(body ->> name, chr(65279)) THEN
            body := body || jsonb_build_object(name, ltrim(body ->> name, chr(65279)));
        END IF;
    END LOOP;
    seen := ARRAY[coalesce(lower(body ->> 'to'), '')];
    FOREACH name IN ARRAY '{cc,bcc,tags}'::text[] LOOP
        CONTINUE WHEN jsonb_typeof(body -> name) IS DISTINCT FROM 'array';
        SELECT coalesce(jsonb_agg(e.value ORDER BY e.n), '[]') INTO kept
        FROM (SELECT l.value, l.n, lower(l.value #>> '{}') AS text, row_number() OVER (PARTITION BY lower(l.value #>> '{}') ORDER BY l.n) AS nth
              FROM jsonb_array_elements(body -> name) WITH ORDINALITY AS l (value, n)) e
        WHERE jsonb_typeof(e.value) <> 'string'
           OR NOT email_gateway_is_blank(e.text) AND (name = 'tags' OR e.nth = 1 AND e.text NOT IN (SELECT unnest(seen)));
        body := body || jsonb_build_object(name, kept);
        IF name <> 'tags' THEN
            seen := seen || ARRAY(SELECT coalesce(lower(e.value #>> '{}'), '') FROM jsonb_array_elements(kept) e); -- NOT IN a list with a NULL is never true
        END IF;
    END LOOP;
    RETURN body;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $do$
DECLARE
    definition text := pg_get_functiondef('email_gateway_faults(jsonb)'::regprocedure);
BEGIN
    IF strpos(definition, 'stands here twice, in different case') = 0 THEN
        RAISE EXCEPTION 'email_gateway_faults does not hold: stands here twice, in different case';
    END IF;
    EXECUTE replace(definition, 'stands here twice, in different case', 'is given twice, in different case');
END
$do$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION email_gateway_present(email jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    body jsonb := jsonb_strip_nulls(email);
    name text;
    kept jsonb;
    seen text[];
BEGIN
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RETURN body;
    END IF;
    body := email_gateway_without_blank(body);
    FOREACH name IN ARRAY '{recipient,headers}'::text[] LOOP
        IF jsonb_typeof(body -> name) = 'object' THEN
            body := body || jsonb_build_object(name, email_gateway_without_blank(body -> name));
        END IF;
    END LOOP;
    FOREACH name IN ARRAY '{subject,html,text}'::text[] LOOP -- what was saved with a byte order mark begins with it
        IF jsonb_typeof(body -> name) = 'string' AND starts_with(body ->> name, chr(65279)) THEN
            body := body || jsonb_build_object(name, ltrim(body ->> name, chr(65279)));
        END IF;
    END LOOP;
    seen := ARRAY[lower(body ->> 'to')];
    FOREACH name IN ARRAY '{cc,bcc,tags}'::text[] LOOP
        CONTINUE WHEN jsonb_typeof(body -> name) IS DISTINCT FROM 'array' OR jsonb_array_length(body -> name) > 5;
        SELECT coalesce(jsonb_agg(e.value ORDER BY e.n), '[]') INTO kept
        FROM (SELECT l.value, l.n, lower(l.value #>> '{}') AS text, row_number() OVER (PARTITION BY lower(l.value #>> '{}') ORDER BY l.n) AS nth
              FROM jsonb_array_elements(body -> name) WITH ORDINALITY AS l (value, n)) e
        WHERE jsonb_typeof(e.value) <> 'string'
           OR NOT email_gateway_is_blank(e.text) AND (name = 'tags' OR e.nth = 1 AND e.text <> ALL (seen) IS NOT FALSE);
        body := body || jsonb_build_object(name, kept);
        IF name <> 'tags' THEN
            seen := seen || ARRAY(SELECT lower(e.value #>> '{}') FROM jsonb_array_elements(kept) e);
        END IF;
    END LOOP;
    RETURN body;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $do$
DECLARE
    definition text := pg_get_functiondef('email_gateway_faults(jsonb)'::regprocedure);
BEGIN
    IF strpos(definition, 'is given twice, in different case') = 0 THEN
        RAISE EXCEPTION 'email_gateway_faults does not hold: is given twice, in different case';
    END IF;
    EXECUTE replace(definition, 'is given twice, in different case', 'stands here twice, in different case');
END
$do$;
-- +goose StatementEnd
