package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
)

func (p *program) secretCommand() *cobra.Command {
	return group("secret", "set and list the secrets that a project's jobs may ask for", p.secretSetCommand(), p.secretListCommand(), p.secretRemoveCommand())
}

func oneSecret(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("hora secret %s takes the name of a secret: hora secret list has them", what)}
		}
		return nil
	}
}

func (p *program) secretSetCommand() *cobra.Command {
	project, file := "default", ""
	c := &cobra.Command{
		Use:   "set NAME [--project P] [--file F]",
		Short: "set a secret from standard input or a file",
		Long: "set keeps a secret, encrypted, for jobs of a project that ask for it by hora submit --secret NAME. They find it as a file in the folder\n" +
			"that HORA_SECRETS names; what they write has *** in its place. A line's end at its end is not part of it.\n\n" +
			"  hora secret set HF_TOKEN <token.txt\n" +
			"  hora secret set deploy_key --project vision --file ~/.ssh/deploy",
		Args: oneSecret("set"),
		RunE: func(c *cobra.Command, args []string) error {
			in := p.in
			if file != "" {
				f, err := os.Open(file)
				if err != nil {
					return fmt.Errorf("--file: %w", err)
				}
				defer f.Close()
				in = f
			} else if terminalWidth(p.in) > 0 {
				fmt.Fprintln(p.err, "hora: type the secret, then Ctrl-D on a line of its own; hora secret set NAME <FILE shows it to nobody")
			}
			b, err := io.ReadAll(io.LimitReader(in, 1<<20))
			if err != nil {
				return err
			}
			text := strings.TrimSuffix(string(b), "\n")
			if strings.Contains(text, "\n") {
				text = string(b) // a key, whose last line has an end
			}
			if text == "" {
				return errors.New("the secret is empty: give it on standard input, or with --file")
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			is, err := s.SetSecret(c.Context(), project, args[0], []byte(text))
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "secret %s of project %s is set: hora submit --secret %s gives it to a job\n", event.Visible(is.Name), event.Visible(is.Project), event.Visible(is.Name))
			return nil
		},
	}
	c.Flags().StringVar(&project, "project", project, "whose jobs may ask for it")
	c.Flags().StringVar(&file, "file", "", "read it from this file")
	return c
}

func (p *program) secretListCommand() *cobra.Command {
	project, asJSON := "default", false
	c := &cobra.Command{
		Use: "list [--project P]", Short: "list a project's secrets by name", Args: noArguments("secret list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Secrets(c.Context(), project)
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SECRET\tSET\tBY")
			for _, x := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\n", event.Visible(x.Name), x.Set.Local().Format(time.DateTime), event.Visible(x.By))
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&project, "project", project, "whose")
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) secretRemoveCommand() *cobra.Command {
	project := "default"
	c := &cobra.Command{
		Use: "remove NAME [--project P]", Short: "forget a secret; jobs that run keep it", Args: oneSecret("remove"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			if err := s.RemoveSecret(c.Context(), project, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "secret %s of project %s is removed; jobs that run keep it\n", event.Visible(args[0]), event.Visible(project))
			return nil
		},
	}
	c.Flags().StringVar(&project, "project", project, "whose")
	return c
}
