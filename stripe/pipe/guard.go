package pipe

import (
	"os"
	"os/exec"
	"syscall"
)

// guard is a process whose group the command and its children are in: should this process be killed, for want of memory perhaps, it kills them. Until then it holds the
// command's input open, which would end otherwise, as if all of it had come.
type guard struct {
	cmd  *exec.Cmd
	tell *os.File // its end, which the kernel sees to, is that of this process
}

// keep waits for a line, by which the input may end, and for the end of lines.
const keep = `read -r line && exec 3>&- && read -r line; kill -s KILL 0`

// begin makes the guard of an input.
func begin(input *os.File) (*guard, error) {
	hear, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hear.Close()
	g := &guard{exec.Command("/bin/sh", "-c", keep), tell}
	g.cmd.Stdin, g.cmd.ExtraFiles, g.cmd.SysProcAttr = hear, []*os.File{input}, &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		tell.Close()
		return nil, err
	}
	return g, nil
}

func (g *guard) group() int { return g.cmd.Process.Pid }

// letEnd has it hold the input no longer.
func (g *guard) letEnd() { _, _ = g.tell.WriteString("\n") }

// end ends the guard alone: what the command has left in the background goes on.
func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.tell.Close()
}
