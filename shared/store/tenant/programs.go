package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
)

// Program is a database role that may write a company's emails with the functions for programs
// that share the database. Roles that are members of it may do the same.
type Program struct {
	Role      string    `db:"role_name" json:"role"`
	CompanyID uuid.UUID `db:"company_id" json:"companyId"`
	Company   string    `db:"company" json:"company"`
	CreatedAt time.Time `db:"created_at" json:"createdAt"`
	// Exists: the role exists. A grant stays when its role is dropped.
	Exists bool `db:"role_exists" json:"roleExists"`
	// Granted: it may call the functions, being gateway_program or one of its members.
	Granted bool `db:"granted" json:"granted"`
	// Creates: it may create functions in the gateway's schema. The functions refuse such a role.
	Creates bool `db:"creates" json:"creates"`
	// CreatesSchemas: it may create schemas. A session without the settings of the gateway's programs prefers tables in a
	// schema with the name of its role.
	CreatesSchemas bool `db:"creates_schemas" json:"createsSchemas"`
}

// allowProgramSQL reads pg_roles and inserts at most one row.
const allowProgramSQL = `
INSERT INTO outbox_programs (role_name, company_id) SELECT rolname::text, $2::uuid FROM pg_roles WHERE rolname = $1 ON CONFLICT DO NOTHING`

// AllowProgram permits a database role to write the company's emails, from its next call on. Repeating
// the call changes nothing. It returns pg.ErrNotFound if there is no such role.
func (s *Store) AllowProgram(ctx context.Context, by audit.Operator, company uuid.UUID, role string) error {
	changed, err := audit.ApplyOne(ctx, s.db, by, audit.Change{Action: "program.allow", Company: company, Subject: role}, allowProgramSQL, pgtext.WithoutNUL(role), company)
	if err == nil && !changed {
		var all []Program
		if all, err = s.Programs(ctx, company, role); err == nil && len(all) == 0 {
			err = pg.ErrNotFound
		}
	}
	return pg.Wrap("allow program", err)
}

// revokeProgramSQL locks one row by primary key.
const revokeProgramSQL = `DELETE FROM outbox_programs WHERE role_name = $1 AND company_id = $2`

// RevokeProgram revokes the permission, from the role's next call on. Emails that the role has
// committed are sent. It returns pg.ErrNotFound if the role has no such grant.
func (s *Store) RevokeProgram(ctx context.Context, by audit.Operator, company uuid.UUID, role string) error {
	return pg.Wrap("revoke program", audit.MustChange(audit.ApplyOne(ctx, s.db, by, audit.Change{Action: "program.revoke", Company: company, Subject: role},
		revokeProgramSQL, pgtext.WithoutNUL(role), company)))
}

// listProgramsSQL reads the whole table, which has a row per program and company, and
// Postgres's own catalogs. It locks nothing.
const listProgramsSQL = `
SELECT p.role_name, p.company_id, c.name AS company, p.created_at, r.oid IS NOT NULL AS role_exists,
       EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'gateway_program' AND pg_has_role(r.oid, g.oid, 'USAGE')) AS granted,
       coalesce(NOT r.rolsuper AND has_schema_privilege(r.oid, 'public', 'CREATE'), false) AS creates,
       coalesce(NOT r.rolsuper AND has_database_privilege(r.oid, current_database(), 'CREATE'), false) AS creates_schemas
FROM outbox_programs p JOIN companies c ON c.id = p.company_id LEFT JOIN pg_roles r ON r.rolname = p.role_name
WHERE ($1::uuid IS NULL OR p.company_id = $1) AND ($2 = '' OR p.role_name = $2)
ORDER BY c.name, p.role_name`

// Programs lists the grants, ordered by company and role: of one company, or of all for uuid.Nil;
// of one role, or of all for "".
func (s *Store) Programs(ctx context.Context, company uuid.UUID, role string) ([]Program, error) {
	found := []Program{}
	if err := s.db.SelectContext(ctx, &found, listProgramsSQL, pg.OptionalUUID(company), pgtext.WithoutNUL(role)); err != nil {
		return nil, fmt.Errorf("list programs: %w", pg.Translate(err))
	}
	return found, nil
}

// programRolesSQL reads Postgres's own catalogs and locks nothing.
const programRolesSQL = `
SELECT m.rolname::text FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member JOIN pg_roles g ON g.oid = a.roleid
WHERE g.rolname = 'gateway_program' ORDER BY 1`

// ProgramRoles lists the database roles that are direct members of gateway_program.
func (s *Store) ProgramRoles(ctx context.Context) ([]string, error) {
	roles := []string{}
	if err := s.db.SelectContext(ctx, &roles, programRolesSQL); err != nil {
		return nil, fmt.Errorf("list roles of programs: %w", pg.Translate(err))
	}
	return roles, nil
}
