package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plait.dev/plait/lab"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/image"
)

func newLabShell() *cobra.Command {
	var o experiment.Options
	c := &cobra.Command{
		Use:   "shell NAME|FILE",
		Short: "Open a shell inside an experiment's running topology, in real time",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completeExperiment,
		RunE: func(c *cobra.Command, args []string) error {
			e, err := loadAlone(c, args[0], o)
			if err != nil {
				return err
			}
			l, err := lab.New(version, 1)
			if err != nil {
				return err
			}
			cell := e.Cells()[0]
			if err := l.Shell(c.Context(), &cell); err != nil {
				return &exit{failure(err), err}
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&o.Set, "set", nil, "replace a parameter or value (`key=value`); the first cell is the one that runs")
	c.Flags().StringVar(&o.Traces, "traces", "", "`directory` with recorded links")
	return c
}

func newLabImage() *cobra.Command {
	var kernel, export, imported string
	c := &cobra.Command{
		Use:   "image",
		Short: "Make the guest image anew, with the newest packages of Debian, or carry it to another machine",
		Args:  cobra.NoArgs,
		Example: `  plait lab image --export plait-image.tar.gz
  plait lab image --import plait-image.tar.gz`,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains(image.Kernels(), kernel) {
				return fmt.Errorf("make image: kernel %q is not one of %s", kernel, strings.Join(image.Kernels(), ", "))
			}
			l, err := lab.New(version, 1)
			if err != nil {
				return err
			}
			var img image.Image
			switch {
			case export != "":
				img, err = l.ExportImage(c.Context(), kernel, export)
			case imported != "":
				img, err = l.ImportImage(c.Context(), imported)
			default:
				img, err = l.Image(c.Context(), kernel)
			}
			if err != nil {
				return &exit{failure(err), err}
			}
			fmt.Fprintf(c.OutOrStdout(), "kernel %s\nroot   %s\nsha256 %s\n", img.Kernel, img.Root, img.Digest)
			return nil
		},
	}
	c.Flags().StringVar(&kernel, "kernel", image.DefaultKernel, "kernel generation: 6.1 (Debian 12), 6.12 (Debian 13) or 7.2 (Debian 13 backports)")
	completeFlag(c, "kernel", image.Kernels)
	c.Flags().StringVar(&export, "export", "", "write the image to this `file`, from which --import makes the same on another machine; nothing is made anew")
	c.Flags().StringVar(&imported, "import", "", "take the image from this `file`, written by --export of the same version of plait")
	exclusive(c, "export", "import")
	exclusive(c, "kernel", "import")
	return c
}
