package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"plait.dev/plait/lab"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/image"
	"plait.dev/plait/lab/report"
	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/topo"
)

// runFlags are the flags of commands that run experiments.
type runFlags struct {
	load     experiment.Options
	jobs     int
	json     string
	resume   bool
	report   string
	captures string
	console  string
	group    string
	all      bool
}

func (f *runFlags) add(c *cobra.Command) {
	flags := c.Flags()
	c.PreRunE = func(*cobra.Command, []string) error {
		if flags.Changed("seeds") && f.load.Seeds == 0 { // which means as the file says, where nobody wrote it
			return errors.New("--seeds 0: must be from 1 to 10000")
		}
		return nil
	}
	flags.StringArrayVar(&f.load.Set, "set", nil, "replace a parameter (`key=value`, or key=v1,v2 for several cells) or any value of the file (links.a.rate_mbps=10)")
	flags.IntVar(&f.load.Seeds, "seeds", 0, "run every cell with `N` seeds (default: as the file says)")
	flags.StringVar(&f.load.Traces, "traces", "", "`directory` with recorded links in mahimahi format, for experiments that replay them")
	flags.IntVar(&f.jobs, "jobs", 0, "virtual machines at a time (default: one per core)")
	flags.StringVar(&f.json, "json", "", "write the result `file`; with several experiments a directory")
	flags.BoolVar(&f.resume, "resume", false, "do not run again what the result file of --json already has")
	flags.StringVar(&f.report, "report", "", "write an HTML report to this `file`")
	flags.StringVar(&f.captures, "captures", ".", "`directory` for packet captures (measure.pcap)")
	flags.StringVar(&f.console, "console", "", "write what the guests' kernels print to this `file`")
}

func newLabRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [NAME|FILE...]",
		Short: "Run experiments and evaluate their bounds",
		Long: "Run experiments, by name or from files, each cell in a virtual machine of its own, several at a time, and evaluate their bounds.\n\n" +
			"Exit status: 0 all bounds hold, 1 a bound does not hold, 2 bad input, 3 a precondition failed, 130 interrupted; what has finished is written.",
		Example: `  plait lab run tcp-single
  plait lab run tcp-single --set rate=5,50 --seeds 5 --json result.json
  plait lab run --group stock --report stock.html`,
		ValidArgsFunction: completeExperiment,
		RunE: func(c *cobra.Command, args []string) error {
			names, err := f.choose(args)
			if err != nil {
				return err
			}
			return f.run(c, names)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.group, "group", "", "run plait's own experiments of this `group`, or those of the given files that are in it")
	completeFlag(c, "group", groups)
	c.Flags().BoolVar(&f.all, "all", false, "run all of plait's own experiments")
	return c
}

// choose returns the experiments that are meant.
func (f *runFlags) choose(args []string) ([]string, error) {
	if f.group == "" && !f.all && len(args) == 0 {
		return nil, errors.New("run: no experiment given; name one, a file, --group or --all (see `plait lab list`)")
	}
	if f.group != "" && len(args) > 0 {
		return args, nil // loadAll takes those that are in it
	}
	names := slices.Clone(args)
	for _, e := range experiment.List() {
		if (f.all || e.Group == f.group) && !slices.Contains(args, e.Name) {
			names = append(names, e.Name)
		}
	}
	if f.group != "" && len(names) == 0 {
		return nil, f.noneInGroup()
	}
	return names, nil
}

func (f *runFlags) noneInGroup() error {
	return fmt.Errorf("run: no experiment is in group %q, of all or of those named; see `plait lab list`", f.group)
}

// loaded is an experiment and how it was named on the command line.
type loaded struct {
	*experiment.Experiment
	named string
}

// captures says that a cell of the experiment keeps packets.
func (e loaded) captures() bool {
	return slices.ContainsFunc(e.Cells(), func(c experiment.Cell) bool { return len(c.Spec.Measure.Pcap) > 0 })
}

// loadExperiment reads an experiment and sees that the network of each of its cells can be built: what only the topology
// finds would else be told by the guest, after the cells before have run.
func loadExperiment(name string, o experiment.Options) (*experiment.Experiment, error) {
	e, err := experiment.Load(name, o)
	if err != nil {
		return nil, err
	}
	for _, c := range e.Cells() {
		if c.Seed > 1 {
			continue // seeds share their network
		}
		if _, err := topo.New(c.Spec); err != nil {
			return nil, e.Problem(err)
		}
	}
	return e, nil
}

// noRecordings says what in the directory of recordings is none; empty if all are.
func noRecordings(e *experiment.Experiment, dir string) string {
	names := e.NoRecordings()
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("--traces %s: not replayed, as recordings are named *.up or *.down (or the same with .gz): %s", dir, strings.Join(names, ", "))
}

// loadAlone is loadExperiment for a command that needs one, and tells what in the directory of recordings is none.
func loadAlone(c *cobra.Command, name string, o experiment.Options) (*experiment.Experiment, error) {
	e, err := loadExperiment(name, o)
	if err != nil {
		return nil, err
	}
	if text := noRecordings(e, o.Traces); text != "" {
		fmt.Fprintln(c.ErrOrStderr(), text)
	}
	return e, nil
}

// loadAll reads all files before anything runs. Of a group, experiments that need recordings are left out if there are none.
func (f *runFlags) loadAll(names []string) ([]loaded, error) {
	doing, end := lab.Busy("reading")
	defer end()
	var all []loaded
	var leftOut []string
	var problems error
	for i, name := range names {
		doing(fmt.Sprintf("experiment %d of %d, %s", i+1, len(names), name))
		e, err := loadExperiment(name, f.load)
		if errors.Is(err, experiment.ErrNoTraces) && (f.all || f.group != "") {
			leftOut = append(leftOut, fmt.Sprintf("%s: left out: %v", name, err))
			continue
		}
		if errors.Is(err, experiment.ErrTraces) {
			return nil, err // for all of them
		}
		if err != nil && len(names) > 1 && strings.HasPrefix(err.Error(), "--set ") { // a mistake in a file names the file
			err = fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		if f.group != "" && e.Spec.Group != f.group {
			continue
		}
		for _, other := range all {
			if other.Spec.Name == e.Spec.Name {
				problems = errors.Join(problems, fmt.Errorf("run: %s and %s are both named %s: run them one by one", other.named, name, e.Spec.Name))
			}
		}
		all = append(all, loaded{e, name})
		if text := noRecordings(e, f.load.Traces); text != "" && !slices.Contains(leftOut, text) {
			leftOut = append(leftOut, text)
		}
	}
	end()
	for _, line := range leftOut {
		fmt.Fprintln(os.Stderr, line)
	}
	if problems == nil && len(all) == 0 && f.group != "" {
		problems = f.noneInGroup()
	}
	return all, problems
}

// outputs makes the directories of the files to be written and sees that they can be, before anything runs.
func (f *runFlags) outputs(experiments []loaded) error {
	several := len(experiments) > 1
	if f.resume && f.json == "" {
		return errors.New("run: --resume continues the result file of --json; give both")
	}
	if !several && isDirectory(f.json) {
		return fmt.Errorf("run: --json %s is a directory, and there is one experiment: give the file its result goes to", f.json)
	}
	if isDirectory(f.report) {
		return fmt.Errorf("run: --report %s is a directory: give the file the report goes to", f.report)
	}
	for flag, path := range map[string]string{"json": f.json, "report": f.report} {
		if isDirectory(path) {
			continue
		}
		if err := result.Replaceable(path); err != nil {
			return fmt.Errorf("run: --%s %w", flag, err)
		}
	}
	if err := f.distinct(experiments); err != nil {
		return err
	}
	var dirs []string
	if f.captures != "." || slices.ContainsFunc(experiments, loaded.captures) {
		dirs = append(dirs, f.captures)
	}
	if f.json != "" && several {
		dirs = append(dirs, f.json)
	}
	for _, file := range []string{f.json, f.report} {
		if file != "" {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("run: make a directory for results: %w", err)
		}
		probe, err := os.CreateTemp(dir, ".plait-*")
		if err != nil {
			return fmt.Errorf("run: results could not be written: %w", err)
		}
		if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
			return err
		}
	}
	return nil
}

// distinct sees that no two files to be written are one, nor one of them an experiment: what takes hours would be lost to what is written after it.
func (f *runFlags) distinct(experiments []loaded) error {
	var files [][2]string // flag and path
	for _, e := range experiments {
		if experiment.IsPath(e.named) {
			files = append(files, [2]string{"experiment", e.named})
		}
		if f.json != "" {
			files = append(files, [2]string{"--json", f.path(e.Spec.Name, len(experiments) > 1)})
		}
	}
	files = append(files, [2]string{"--report", f.report}, [2]string{"--console", f.console})
	for i, a := range files {
		for _, b := range files[:i] {
			if a[1] != "" && b[1] != "" && sameFile(a[1], b[1]) {
				return fmt.Errorf("run: %s %s and %s %s are one file, and what is written last would be all it has: give each a file of its own", b[0], b[1], a[0], a[1])
			}
		}
	}
	return nil
}

// sameFile says that two paths lead to one file, whether there is one or not.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	in := func(path string) string {
		dir, err := filepath.Abs(filepath.Dir(path))
		if real, wrong := filepath.EvalSymlinks(dir); err == nil && wrong == nil {
			dir = real
		}
		return filepath.Join(dir, filepath.Base(path))
	}
	return in(a) == in(b)
}

// isDirectory says that a path names a directory, whether there is one or not.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return strings.HasSuffix(path, "/") || err == nil && info.IsDir()
}

// prepare loads the experiments and finds what stands in the way of their results, before anything runs.
func (f *runFlags) prepare(names []string) ([]loaded, error) {
	experiments, err := f.loadAll(names)
	if err != nil {
		return nil, err
	}
	if err := f.outputs(experiments); err != nil {
		return nil, err
	}
	doing, end := lab.Busy("reading")
	defer end()
	for _, e := range experiments {
		doing("what earlier runs have of " + e.Spec.Name)
		if _, err := f.before(e, len(experiments) > 1); err != nil { // it is read again in time: results are large
			return nil, err
		}
	}
	return experiments, nil
}

// run runs the experiments one after the other; their cells run in parallel. What has been measured is written whatever
// happens then. It ends with the first that nobody reads of.
func (f *runFlags) run(c *cobra.Command, names []string) error {
	ctx, out := c.Context(), c.OutOrStdout()
	outliveReaders()
	experiments, err := f.prepare(names)
	if err != nil {
		return err
	}
	l, err := lab.New(version, f.jobs)
	if err != nil {
		return err
	}
	if f.console != "" {
		file, err := os.Create(f.console)
		if err != nil {
			return err
		}
		defer file.Close()
		l.Console = file
	}
	var results []*result.File
	var problem error
	for i, e := range experiments {
		before, err := f.before(e, len(experiments) > 1)
		if err != nil {
			return err
		}
		save := func(r *result.File) error { return f.write(r, len(experiments) > 1) }
		r, err := l.Run(ctx, e.Experiment, lab.Options{Command: f.command(e), Part: part(i, len(experiments)), Captures: f.captures, Before: before, Save: save})
		if r != nil {
			results = append(results, r)
			err = f.keep(r, err, len(experiments) > 1) // before it is shown, which may be in vain, or take as long as who reads it
			problem = report.Summary(out, r, terminalWidth(), coloured(term.IsTerminal(int(os.Stdout.Fd()))))
		}
		if err != nil {
			problem = &exit{failure(err), err}
		}
		if problem != nil {
			break
		}
	}
	return f.conclude(out, results, problem)
}

// outliveReaders has writing to a pipe that nobody reads fail, and not end this process: tee ends on Ctrl-C, too, and before what has been measured is
// written. The signal is not ignored, for programs that are started would inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// part is which of several experiments the one with index i is, empty if it is the only one.
func part(i, all int) string {
	if all == 1 {
		return ""
	}
	return fmt.Sprintf("%d of %d", i+1, all)
}

// conclude writes the report and gives the exit status.
func (f *runFlags) conclude(out io.Writer, results []*result.File, problem error) error {
	if f.report != "" && len(results) > 0 {
		doing, end := lab.Busy("report")
		doing("drawing it")
		err := report.Write(f.report, results, report.Options{})
		end()
		if err != nil {
			err = errors.Join(problem, err)
			return &exit{failure(err), err}
		}
		fmt.Fprintln(out, "report:", f.report)
	}
	if problem != nil {
		return problem
	}
	status := lab.ExitOK
	for _, r := range results {
		status = max(status, lab.Status(r))
	}
	if status != lab.ExitOK {
		return &exit{status: status}
	}
	return nil
}

// failure is the exit status of a run that did not come to its end.
func failure(err error) int {
	var host *image.HostError
	var file *fs.PathError
	switch {
	case errors.Is(err, errInterrupted):
		return 130
	case errors.As(err, &host), errors.As(err, &file), errors.Is(err, lab.ErrConditions):
		return lab.ExitInput
	}
	return lab.ExitInvalid
}

// keep writes the result file of a run and gives what ended it, if anything did, with how to go on. One without a single cell does not replace what an earlier run has.
func (f *runFlags) keep(r *result.File, ended error, several bool) error {
	if ended != nil && len(r.Cells) == 0 {
		return ended
	}
	if err := f.write(r, several); err != nil || ended == nil || f.json == "" {
		return errors.Join(ended, err)
	}
	return fmt.Errorf("%w; the same command with --resume goes on from %s", ended, f.path(r.Experiment.Name, several))
}

// write writes the result file.
func (f *runFlags) write(r *result.File, several bool) error {
	if f.json == "" {
		return nil
	}
	return result.Write(f.path(r.Experiment.Name, several), r)
}

// path is where an experiment's result file is.
func (f *runFlags) path(name string, several bool) string {
	if several {
		return f.json + "/" + name + ".json"
	}
	return f.json
}

// before is the result file to be resumed, if there is one.
func (f *runFlags) before(e loaded, several bool) (*result.File, error) {
	if !f.resume {
		return nil, nil
	}
	r, err := result.Read(f.path(e.Spec.Name, several))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

// command is the command line that gives the same numbers again. What does not change them is left out, and of a file's path
// all but its name, which would be another on another machine.
func (f *runFlags) command(e loaded) string {
	words := []string{"plait lab run", filepath.Base(e.named)}
	for _, s := range f.load.Set {
		words = append(words, "--set '"+strings.ReplaceAll(s, "'", `'\''`)+"'")
	}
	if f.load.Seeds > 0 {
		words = append(words, fmt.Sprint("--seeds ", f.load.Seeds))
	}
	if f.load.Traces != "" {
		words = append(words, "--traces DIRECTORY")
	}
	return strings.Join(words, " ")
}

// coloured says whether to write colours, to a terminal or not: without NO_COLOR (https://no-color.org) only.
func coloured(terminal bool) bool {
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// terminalWidth is 100 where there is no terminal.
func terminalWidth() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		return w
	}
	return 100
}
