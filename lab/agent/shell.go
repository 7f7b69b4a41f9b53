package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// console is the guest's serial line.
const console = "/dev/ttyS0"

// bashrc of the shell, and of those `at` opens in nodes.
const bashrc = `PS1='plait:\[\e[1m\]${NODE:-outside}\[\e[0m\]# '
at() {
	local NODE=$1
	export NODE
	shift
	ip netns exec "$NODE" "${@:-bash}"
}
`

// Shell is the terminal of the person who uses the topology.
type Shell struct {
	Rows    int    `json:"rows"`
	Columns int    `json:"columns"`
	Term    string `json:"term"`
}

// run gives the console to a person until the shell ends. The links have their parameters; nothing else happens by itself.
func (s *Shell) run(c *cell) error {
	if err := c.network.configure(c.spec, c.seed); err != nil {
		return err
	}
	tty, err := os.OpenFile(console, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open console: %w", err)
	}
	defer tty.Close()
	size := exec.Command("stty", "-F", console, "sane", "rows", fmt.Sprint(s.Rows), "columns", fmt.Sprint(s.Columns))
	if out, err := size.CombinedOutput(); err != nil {
		return fmt.Errorf("set up console: %w: %s", err, out)
	}
	if err := os.WriteFile("/root/.bashrc", []byte(bashrc), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(tty, "\r\nNodes: %s\r\n`at NODE` opens a shell in a node, `at NODE COMMAND` runs a command there; exit ends the machine.\r\n\r\n",
		strings.Join(c.network.topology.Nodes(), " "))
	bash := exec.Command("bash", "-i")
	bash.Dir, bash.Env = "/root", append(os.Environ(), "HOME=/root", "TERM="+s.Term)
	bash.Stdin, bash.Stdout, bash.Stderr = tty, tty, tty
	bash.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	_ = bash.Run() // its exit status is that of the person's last command
	return nil
}
