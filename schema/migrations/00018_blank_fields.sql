-- The functions for programs that share the database check by the rules of the api: a blank
-- text counts as left out ("   " as externalId made two people one), an address stands once
-- in to, cc and bcc, a header's name and value may have 996 characters together, and html
-- must show something.

-- +goose Up

-- +goose StatementBegin
-- A text that shows nothing: white space, zero-width characters, fillers. Package email
-- (shared/email/blank.go) holds the same list.
CREATE FUNCTION email_gateway_is_blank(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
    SELECT value !~ '[^\u0009-\u000d\u0020\u0085\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2069\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]'
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- An object without its members that are blank texts.
CREATE FUNCTION email_gateway_without_blank(object jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
    SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(object) e
    WHERE jsonb_typeof(e.value) <> 'string' OR NOT email_gateway_is_blank(e.value #>> '{}')
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What an email says: without nulls, blank texts, and addresses that to, cc or bcc named
-- before, letter case aside. A list that is too long is left to be refused.
CREATE FUNCTION email_gateway_present(email jsonb) RETURNS jsonb
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
-- Whether a reader of the body would see anything: an element that shows something by itself,
-- or a text outside of comments, tags, title and style. What is longer than 16 KiB is taken to
-- show something: the patterns take a time that grows with the square of the length. Package
-- htmlcheck looks at all of it.
CREATE FUNCTION email_gateway_shows(html text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    rest text;
    element text;
BEGIN
    IF length(html) > 16384 OR html ~* '<(img|image|svg|picture|video|audio|canvas|object|embed|iframe|hr|input|select|button|textarea|meter|progress|math|v:[a-z]+)[\s/>]'
       OR html ~* '<[a-z][^>]*\s(background\s*=|style\s*=[^>]*url\()' THEN
        RETURN true;
    END IF;
    rest := regexp_replace(html, '<!--.*?(-->|$)', '', 'g');
    FOREACH element IN ARRAY '{title,style,script,template}'::text[] LOOP
        rest := regexp_replace(rest, '<' || element || '[\s>].*?(</' || element || '\s*>|$)', '', 'gi');
    END LOOP;
    rest := regexp_replace(rest, '</?[a-z!][^>]*>', '', 'gi');
    rest := regexp_replace(rest,
        '&(nbsp|zwnj|zwj|shy|ensp|emsp|thinsp|lrm|rlm|#0*(9|10|13|32|160|173|820[0-7]|8288|12288|65279)|#x0*(9|a|d|20|a0|ad|200[0-9a-f]|2060|3000|feff))(;|\M)', '', 'gi');
    RETURN NOT email_gateway_is_blank(rest);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_is_blank(text), email_gateway_without_blank(jsonb), email_gateway_present(jsonb), email_gateway_shows(text) FROM PUBLIC;

-- +goose StatementBegin
-- The two functions that check are changed where they stand, so that whatever else another
-- migration has put into them stays.
DO $$
DECLARE
    change record;
    was text;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'body jsonb := jsonb_strip_nulls(email);', 'body jsonb := email_gateway_present(email);'),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'coalesce(request_id, ''tx-''', 'coalesce(nullif(btrim(request_id), ''''), ''tx-'''),
        ('email_gateway_faults(jsonb)',
         'must have a value of 1 to 900 printable ASCII characters', 'must have a value of 1 to 995 printable ASCII characters, with its name at most 996'),
        ('email_gateway_faults(jsonb)',
         'length(value) > 900 ', 'length(value) > 995 OR length(name) + length(value) > 996 '),
        ('email_gateway_faults(jsonb)',
         'SELECT ''delivery'', ''NOT_ALLOWED''',
         E'SELECT ''html'', ''SHOWS_NOTHING'', ''shows nothing: it needs a text, an image or the like'' WHERE NOT email_gateway_shows(email ->> ''html'')\n    UNION ALL\n'
         || E'    SELECT ''from'', ''TOO_LONG'', ''must have at most 992 characters'' WHERE length(email ->> ''from'') > 992\n    UNION ALL\n'
         || E'    SELECT ''delivery'', ''NOT_ALLOWED''')
    LOOP
        was := pg_get_functiondef(change.column1::regprocedure);
        IF strpos(was, change.column2) = 0 THEN
            RAISE EXCEPTION '% is not the function that this migration knows', change.column1;
        END IF;
        EXECUTE replace(was, change.column2, change.column3);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    change record;
BEGIN
    FOR change IN VALUES
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'body jsonb := email_gateway_present(email);', 'body jsonb := jsonb_strip_nulls(email);'),
        ('email_gateway_enqueue(uuid, text, text, text, jsonb, timestamptz, interval, text)',
         'coalesce(nullif(btrim(request_id), ''''), ''tx-''', 'coalesce(request_id, ''tx-'''),
        ('email_gateway_faults(jsonb)',
         'must have a value of 1 to 995 printable ASCII characters, with its name at most 996', 'must have a value of 1 to 900 printable ASCII characters'),
        ('email_gateway_faults(jsonb)',
         'length(value) > 995 OR length(name) + length(value) > 996 ', 'length(value) > 900 '),
        ('email_gateway_faults(jsonb)',
         E'SELECT ''html'', ''SHOWS_NOTHING'', ''shows nothing: it needs a text, an image or the like'' WHERE NOT email_gateway_shows(email ->> ''html'')\n    UNION ALL\n'
         || E'    SELECT ''from'', ''TOO_LONG'', ''must have at most 992 characters'' WHERE length(email ->> ''from'') > 992\n    UNION ALL\n    ', '')
    LOOP
        EXECUTE replace(pg_get_functiondef(change.column1::regprocedure), change.column2, change.column3);
    END LOOP;
END
$$;
-- +goose StatementEnd
DROP FUNCTION email_gateway_shows(text), email_gateway_present(jsonb), email_gateway_without_blank(jsonb), email_gateway_is_blank(text);
