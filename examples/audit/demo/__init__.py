"""The demo: the audit as a job over several processes, one of which is killed half-way.

The modules: `stage` (the processes), `gateway` (what a client of HTTP does), `board` (what is known of the runs),
`strike` (the kill), `view` (the live tree), `evidence` (the log and the executions), `verdict` (figures and checks),
`outlet` (where the report goes), `summary` (the last words), `show` (all of it in order).
"""
