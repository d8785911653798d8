-- What operators change by hand is written down: who, what, when and why.

-- +goose Up

CREATE TABLE operator_audit (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT now(),
    operator      text NOT NULL CHECK (operator <> ''),     -- by their own word, or their login
    database_role text NOT NULL DEFAULT session_user::text, -- by the database's: nobody but the tables' owner can write another
    action        text NOT NULL CHECK (action ~ '^[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*$'), -- company.suspend
    company_id    uuid,                                     -- NULL = of none, or of all
    subject       text,                                     -- what was changed: an id or a domain, never a person's address
    details       jsonb NOT NULL DEFAULT '{}',
    reason        text                                      -- in their own words; NULL = none given
);
CREATE INDEX operator_audit_age ON operator_audit (at, id);

-- Rows are added and read. Who may delete deletes what is older than two years, and
-- nobody but the tables' owner changes one, whatever is granted by mistake.
ALTER TABLE operator_audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY operator_audit_read ON operator_audit FOR SELECT USING (true);
CREATE POLICY operator_audit_add ON operator_audit FOR INSERT WITH CHECK (true);
CREATE POLICY operator_audit_expire ON operator_audit FOR DELETE USING (at < now() - interval '2 years');

-- +goose Down

DROP TABLE operator_audit;
