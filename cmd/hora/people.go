package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
)

// group is a command that has nothing but commands below it.
func group(name, short string, below ...*cobra.Command) *cobra.Command {
	var has []string
	for _, b := range below {
		has = append(has, b.Name())
	}
	c := &cobra.Command{
		Use: name, Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("hora %s has no %q: it has %s and %s", name, args[0], strings.Join(has[:len(has)-1], ", "), has[len(has)-1])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(below...)
	return c
}

func (p *program) userCommand() *cobra.Command {
	return group("user", "say who may do what at a server", p.userAddCommand(), p.userListCommand(), p.userRemoveCommand())
}

// oneUser wants one name.
func oneUser(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("hora user %s takes a user's name: hora user list has them", what)}
		}
		return nil
	}
}

// where is a project, or all of them.
func where(project string, all bool, what string) (string, error) {
	switch {
	case all && project != "":
		return "", usageError{fmt.Errorf("%s was given --all and --project %s: leave one of them out", what, project)}
	case all:
		return "*", nil
	case project == "":
		return "", usageError{fmt.Errorf("%s was not told where: give --project P, or --all", what)}
	}
	return project, nil
}

func (p *program) userAddCommand() *cobra.Command {
	role, project, all := "member", "", false
	c := &cobra.Command{
		Use:   "add NAME --project P [--role viewer|member|admin]",
		Short: "give a user a role in a project, or in all of them",
		Long: "add gives a user a role; one who is not there yet is added. A viewer reads; a member submits, cancels and orders the project's\n" +
			"jobs; an administrator gives roles in it. Pools, quotas and the server itself are for administrators of all projects.\n\n" +
			"  hora user add ana --project vision\n" +
			"  hora user add ben --role admin --all\n" +
			"  hora token new --user ana            # what ana logs in with",
		Args: oneUser("add"),
		RunE: func(c *cobra.Command, args []string) error {
			if roles := []string{"viewer", "member", "admin"}; !slices.Contains(roles, role) {
				return usageError{fmt.Errorf("--role: %q is none of %s: give one of them", role, strings.Join(roles, ", "))}
			}
			in, err := where(project, all, "hora user add")
			if err != nil {
				return err
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			u, err := s.SetRole(c.Context(), args[0], in, role)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s is %s\n", event.Visible(u.Name), rolesText(u.Roles))
			return nil
		},
	}
	c.Flags().StringVar(&role, "role", role, "viewer, member or admin")
	c.Flags().StringVar(&project, "project", "", "in this project")
	c.Flags().BoolVar(&all, "all", false, "in all projects")
	return c
}

func rolesText(all []client.Role) string {
	var out []string
	for _, r := range all {
		in := "project " + event.Visible(r.Project)
		if r.Project == "*" {
			in = "all projects"
		}
		out = append(out, r.Role+" of "+in)
	}
	if len(out) == 0 {
		return "without a role"
	}
	return strings.Join(out, ", ")
}

func (p *program) userListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "list the users and their roles", Args: noArguments("user list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Users(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "USER\tSINCE\tROLES")
			for _, u := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\n", event.Visible(u.Name), u.Added.Local().Format(time.DateOnly), rolesText(u.Roles))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) userRemoveCommand() *cobra.Command {
	project, all := "", false
	c := &cobra.Command{
		Use:   "remove NAME [--project P | --all]",
		Short: "take a user's role away, or forget the user with all tokens",
		Args:  oneUser("remove"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			if project == "" && !all {
				if err := s.RemoveUser(c.Context(), args[0]); err != nil {
					return err
				}
				fmt.Fprintf(p.out, "%s is removed, with all roles and tokens\n", event.Visible(args[0]))
				return nil
			}
			in, err := where(project, all, "hora user remove")
			if err != nil {
				return err
			}
			u, err := s.SetRole(c.Context(), args[0], in, "")
			if err == nil {
				fmt.Fprintf(p.out, "%s is %s now\n", event.Visible(args[0]), rolesText(u.Roles))
			}
			return err
		},
	}
	c.Flags().StringVar(&project, "project", "", "only the role in this project")
	c.Flags().BoolVar(&all, "all", false, "only the role in all projects")
	return c
}

func (p *program) tokenCommand() *cobra.Command {
	return group("token", "make, list and revoke tokens for a server", p.tokenNewCommand(), p.tokenListCommand(), p.tokenRevokeCommand())
}

func (p *program) tokenNewCommand() *cobra.Command {
	n, expires := client.NewPass{}, ""
	c := &cobra.Command{
		Use:   "new",
		Short: "make a token; prints it, this once",
		Long: "new makes a token that may do what its user may, or less. Who has it logs in by hora login URL, or sets HORA_TOKEN.\n\n" +
			"  hora token new --user ana --expires 90d          for ana, by an administrator\n" +
			"  hora token new --role viewer --label dashboard   one of your own that only reads\n" +
			"  hora token new --job 17 --expires 1d             one that reads job 17 and adds files, numbers and tags to it",
		Args: noArguments("token new"),
		RunE: func(c *cobra.Command, _ []string) error {
			if expires != "" {
				seconds, err := daysOrTime(expires)
				if err != nil {
					return usageError{fmt.Errorf("--expires %q %w", expires, err)}
				}
				n.Seconds = float64(seconds)
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			t, err := s.NewPass(c.Context(), n)
			if err != nil {
				return err
			}
			fmt.Fprintln(p.out, t.Token)
			fmt.Fprintf(p.err, "hora: token %d of %s, which may do %s; it is shown this once\n", t.ID, whose(t.User), rightsText(&t))
			lacks := t.Made.Add(time.Duration(n.Seconds * float64(time.Second))).Sub(t.Expires)
			if !t.Expires.IsZero() && (n.Seconds == 0 || lacks > time.Minute) {
				fmt.Fprintln(p.err, "hora: it does not last as long as was asked: what you are logged in with ends then, and makes nothing that lasts longer")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&n.User, "user", "", "for this user (administrators); without it, for yourself")
	f.StringVar(&n.Role, "role", "", "no more than viewer, member or admin")
	f.StringVar(&n.Project, "project", "", "nothing but this project")
	f.Int64Var(&n.Job, "job", 0, "nothing but this job")
	f.StringVar(&n.Label, "label", "", "what it is for")
	f.StringVar(&expires, "expires", "", "how long it is valid, as 90d or 12h; for ever without it")
	return c
}

func whose(user string) string {
	if user == "" {
		return "the owner"
	}
	return event.Visible(user)
}

func rightsText(t *client.Pass) string {
	text := "all that the user may"
	switch {
	case t.Job != 0:
		text = fmt.Sprintf("nothing but read job %d, and add files and tags", t.Job)
	case t.Role != "" && t.Project != "":
		text = fmt.Sprintf("what %s may, in project %s alone", article(t.Role), event.Visible(t.Project))
	case t.Role != "":
		text = "what " + article(t.Role) + " may"
	case t.Project != "":
		text = fmt.Sprintf("what the user may, in project %s alone", event.Visible(t.Project))
	}
	if !t.Expires.IsZero() {
		text += ", until " + t.Expires.Local().Format(time.DateTime)
	}
	return text
}

// article has a role's name with its article.
func article(role string) string {
	if strings.HasPrefix(role, "a") {
		return "an " + role
	}
	return "a " + role
}

func (p *program) tokenListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "list tokens: yours, or everybody's for an administrator", Args: noArguments("token list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Passes(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "TOKEN\tUSER\tMADE\tLABEL\tMAY DO")
			for i := range all {
				t := &all[i]
				fmt.Fprintf(
					w, "%d\t%s\t%s\t%s\t%s\n", t.ID, whose(t.User), t.Made.Local().Format(time.DateOnly),
					event.Visible(t.Label), rightsText(t),
				)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "take a token back, and the sessions of browsers that it let in",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				if id, err := strconv.ParseInt(args[0], 10, 64); err == nil && id > 0 {
					return nil
				}
			}
			return usageError{errors.New("hora token revoke takes the number of a token: hora token list has them")}
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			id, _ := strconv.ParseInt(args[0], 10, 64)
			if err := s.RevokePass(c.Context(), id); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "token %d is taken back, with the sessions that it let in\n", id)
			return nil
		},
	}
}

func (p *program) whoamiCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "whoami", Short: "say whom a server takes you for, and what you may do there", Args: noArguments("whoami"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			m, err := s.Me(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(m)
			}
			text := rolesText(m.Roles)
			if m.Job != 0 {
				text = fmt.Sprintf("with a token for job %d alone", m.Job)
			}
			fmt.Fprintf(p.out, "%s at %s: %s\n", whose(m.User), s.URL, text)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) auditCommand() *cobra.Command {
	limit, since, verify, asJSON := 100, "", false, false
	c := &cobra.Command{
		Use:   "audit",
		Short: "show who did what at a server, or check that nobody has changed the records",
		Long: "audit lists who changed what, the newest last; what was refused is among it. Each record has a hash of the one before, so that\n" +
			"--verify finds one that was changed or removed, and prints the hash of the last: who notes it elsewhere finds even what was cut\n" +
			"off at the end.",
		Args: noArguments("audit"),
		RunE: func(c *cobra.Command, _ []string) error {
			var from time.Time
			if since != "" {
				seconds, err := daysOrTime(since)
				if err != nil {
					return usageError{fmt.Errorf("--since %q %w", since, err)}
				}
				from = time.Now().Add(-time.Duration(seconds) * time.Second)
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			if verify {
				is, err := s.CheckDeeds(c.Context())
				switch {
				case err != nil:
					return err
				case is.Broken != "":
					return fmt.Errorf("the records are not what they were: %s", is.Broken)
				}
				fmt.Fprintf(p.out, "%s, none changed; the last one's hash is %s\n", event.Counted(int(is.Records), "record"), is.Hash)
				return nil
			}
			var all []client.Deed
			for cursor := ""; len(all) < limit; {
				d, err := s.Deeds(c.Context(), cursor, min(limit-len(all), 1000))
				if err != nil {
					return err
				}
				for _, one := range d.Deeds {
					if one.At.Before(from) {
						d.Next = ""
						break
					}
					all = append(all, one)
				}
				if cursor = d.Next; cursor == "" {
					break
				}
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "RECORD\tWHEN\tWHO\tFROM\tWHAT\tOF\tANSWER\t")
			for i := len(all) - 1; i >= 0; i-- {
				d := &all[i]
				fmt.Fprintf(
					w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", d.ID, d.At.Local().Format(time.DateTime),
					event.Visible(d.Who), d.Address, event.Visible(d.What), event.Visible(d.Target), d.Status,
					event.Visible(d.Text),
				)
			}
			return w.Flush()
		},
	}
	f := c.Flags()
	f.IntVar(&limit, "limit", limit, "no more than so many records")
	f.StringVar(&since, "since", "", "only of this time, as 7d or 12h")
	f.BoolVar(&verify, "verify", false, "check the chain of hashes instead")
	f.BoolVar(&asJSON, "json", false, "as JSON, the newest first")
	return c
}
