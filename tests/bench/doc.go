// Package bench measures what hostler promises of its speed and its size. A
// figure is printed with its target and never fails: machines differ. Where
// something else does the same work, both are measured turn by turn in one
// run, and the figure is their ratio.
package bench
