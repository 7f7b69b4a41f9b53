package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plait.dev/plait/daemon"
)

func newEgressRender() *cobra.Command {
	c := &cobra.Command{
		Use:   "render",
		Short: "Write the configuration of border routers and route reflectors",
		Long: "Write the configuration of border routers and route reflectors, from the same file as the servers'. The section egress names them\n" +
			"(border_routers, announce, servers). Nothing is changed on any router.",
		Args: cobra.NoArgs, // an unknown command is an error, not a request for help
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		newRender("frr", "frr.conf", "Write what FRR is told", "Write what FRR (8.4 or newer) of each border router and reflector is told, to be loaded with vtysh -f."),
		newRender("kernel", "kernel.sh", "Write a script for what FRR leaves to the kernel's administrator",
			"Write a shell script for each border router, with what FRR leaves to the kernel's administrator: VRFs, routes between them, sysctls.\nkernel.sh up does it, kernel.sh down takes it back."))
	return c
}

// newRender is for one kind of file.
func newRender(use, file, short, long string) *cobra.Command {
	config := daemon.DefaultConfigPath
	var router, directory string
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			texts, err := rendered(config, file)
			if err != nil {
				return err
			}
			return writeRendered(c.OutOrStdout(), texts, file, router, directory)
		},
	}
	flags := c.Flags()
	flags.Var((*fileFlag)(&config), "config", "read this configuration `file`")
	flags.StringVar(&router, "router", "", "write that of the router with this `name` only")
	flags.StringVar(&directory, "directory", "", "write below this `directory`, as NAME/"+file+" (default: one router's to standard output)")
	return c
}

// text is a file for a router.
type text struct {
	router, content string
	mode            os.FileMode
}

// rendered makes the texts of one kind of file, for all routers that have it.
func rendered(config, file string) (texts []text, err error) {
	if _, err := os.Stat(config); err != nil { // plait up could go on with the defaults, which have no routers
		return nil, fmt.Errorf("read configuration: %w; name the file with --config", err)
	}
	c, err := daemon.ReadConfig(config)
	if err != nil {
		return nil, err
	}
	routers, err := c.Egress.Render()
	for _, r := range routers {
		one := text{r.Name, r.FRR, 0o644}
		if r.Secret {
			one.mode = 0o600
		}
		if file == "kernel.sh" {
			one.content, one.mode = r.Kernel, 0o755
		}
		if one.content != "" {
			texts = append(texts, one)
		}
	}
	return texts, err
}

func writeRendered(out io.Writer, texts []text, file, router, directory string) error {
	names := make([]string, len(texts))
	for i, t := range texts {
		names[i] = t.router
	}
	if router != "" {
		i := slices.Index(names, router)
		if i < 0 {
			return fmt.Errorf("--router %s: there is none with this name and a %s: expected %s", router, file, strings.Join(names, ", "))
		}
		texts = texts[i : i+1]
	}
	if directory == "" {
		if len(texts) != 1 {
			return fmt.Errorf("there are %d routers: give --directory, or --router with one of %s", len(texts), strings.Join(names, ", "))
		}
		_, err := io.WriteString(out, texts[0].content)
		return err
	}
	for _, t := range texts {
		path := filepath.Join(directory, t.router, file)
		if err := replaceFile(path, t.content, t.mode); err != nil {
			return &exit{1, fmt.Errorf("write %s: %w", path, err)}
		}
		fmt.Fprintln(out, path)
	}
	return nil
}

// replaceFile writes a file, or leaves the one that is there as it was.
func replaceFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
